"""The process groups of a job, as people write them: a device mesh, or ranks.

``dp=4,tp=2`` are the dimensions of a mesh, the last of them over neighbouring ranks, as ``init_device_mesh``
numbers them. ``0-3;4-7`` or ``0,2;1,3`` are the ranks of groups that exchange at the same time; a ``/``
parts one such set of groups from the next: ``0-3;4-7/0,4;1,5;2,6;3,7``.
"""

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from topotune.errors import UsageError

MAX_DIMENSIONS: Final = 8
_MAX_RANKS: Final = 2**20
_DIMENSION: Final = re.compile(r"([A-Za-z_]\w{0,63})=(\d{1,7})")
_RANKS: Final = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")
_HINT: Final = "write a device mesh (--groups dp=4,tp=2) or ranks (--groups '0-3;4-7')"


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSet:
    """Groups of one size that exchange at the same time; together they hold every rank once.

    Attributes:
        name: in words: the dimension's, or its first group's ranks.
        groups: ranks of each, ascending, as torch numbers the ranks of a group.
    """

    name: str
    groups: tuple[tuple[int, ...], ...]

    def group_of(self, rank: int) -> tuple[int, ...]:
        """The group that a rank is in."""
        return next(group for group in self.groups if rank in group)


def check_syntax(text: str) -> None:
    """Refuse what says no groups on any number of ranks.

    Raises:
        UsageError: it is neither a mesh nor ranks.
    """
    if "=" in text:
        _dimensions(text)
    else:
        for part in text.split("/"):
            _ranks(part)


def read_groups(text: str, num_ranks: int) -> tuple[GroupSet, ...]:
    """The groups that a text says, on so many ranks; groups of a single rank are left out.

    Raises:
        UsageError: it is neither a mesh nor ranks, or not of these ranks.
    """
    if "=" in text:
        return _of_mesh(_dimensions(text), num_ranks, text)
    return tuple(one for part in text.split("/") for one in _of_ranks(_ranks(part), num_ranks, part))


def _dimensions(text: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    parts = text.split(",")
    for part in parts:
        match = _DIMENSION.fullmatch(part.strip())
        if match is None or int(match[2]) < 1 or match[1] in sizes:
            raise UsageError(f"--groups {text!r:.100}: {part.strip()!r:.60} is no new dimension", hint=_HINT)
        sizes[match[1]] = int(match[2])
    if len(parts) > MAX_DIMENSIONS:
        raise UsageError(f"--groups has {len(parts)} dimensions, more than {MAX_DIMENSIONS}", hint=_HINT)
    return sizes


def _of_mesh(sizes: dict[str, int], num_ranks: int, text: str) -> tuple[GroupSet, ...]:
    product = math.prod(sizes.values())
    if product != num_ranks:
        raise UsageError(
            f"--groups {text}: a mesh of {product} ranks, but there are {num_ranks}",
            hint="the sizes of all dimensions multiply to the number of ranks",
        )
    mesh = np.arange(num_ranks).reshape(list(sizes.values()))
    found = []
    for axis, (name, size) in enumerate(sizes.items()):
        if size > 1:
            rows = np.moveaxis(mesh, axis, -1).reshape(-1, size)
            found.append(GroupSet(name=name, groups=tuple(map(tuple, rows.tolist()))))
    return tuple(found)


def _ranks(text: str) -> list[list[int]]:
    groups = []
    for part in text.split(";"):
        ranks: list[int] = []
        for item in part.split(","):
            match = _RANKS.fullmatch(item.strip())
            first, last = (0, -1) if match is None else (int(match[1]), int(match[2] or match[1]))
            if last < first or last >= _MAX_RANKS:
                raise UsageError(
                    f"--groups: {item.strip()!r:.60} is no rank and no range of ranks", hint=_HINT
                )
            ranks.extend(range(first, last + 1))
        groups.append(ranks)
    return groups


def _of_ranks(groups: list[list[int]], num_ranks: int, text: str) -> tuple[GroupSet, ...]:
    named = [rank for group in groups for rank in group]
    if sorted(named) != list(range(num_ranks)):
        twice = sorted(rank for rank, count in Counter(named).items() if count > 1)[:1]
        missing = sorted(set(range(num_ranks)) - set(named))[:1]
        unknown = sorted(rank for rank in set(named) if rank >= num_ranks)[:1]
        what = (
            f"there is no rank {unknown[0]} among {num_ranks}"
            if unknown
            else f"rank {twice[0]} stands there twice"
            if twice
            else f"rank {missing[0]} is in no group"
        )
        raise UsageError(
            f"--groups {text!r:.100}: {what}",
            hint="groups that exchange at the same time hold every rank once",
        )
    sizes = sorted({len(group) for group in groups})
    if len(sizes) > 1:
        raise UsageError(
            f"--groups {text!r:.100}: groups of {sizes[0]} and of {sizes[-1]} ranks do not exchange alike",
            hint="write groups of one size; part sets of groups by /",
        )
    if sizes == [1]:
        return ()
    shown = ", ".join(map(str, groups[0][:4])) + (", …" if len(groups[0]) > 4 else "")
    return (GroupSet(name=f"ranks {shown}", groups=tuple(tuple(sorted(group)) for group in groups)),)
