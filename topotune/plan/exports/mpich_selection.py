"""MPICH's selection files: nested JSON objects whose keys are tests, tried in their order.

Theory of operation. MPICH takes such a file instead of its own for all collectives: one that lacks a
collective aborts MPI_Init (seen with 5.0.2). So the plan's part is put into MPICH's own tree, which the user
gives: ``generic.json`` of its sources, or its library, which carries that text. In it only allreduce of
communicators of the plan's size changes; everything else, also what the plan leaves to MPICH, is MPICH's own
subtree.

Sizes are read as 32-bit numbers, and the last test of a level is always ``=any``. ``comm_size<N`` of some
versions means ``<=``: only ``<=`` is written.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from topotune.documents import Value, parse_json
from topotune.errors import InputFileError, UsageError
from topotune.plan.exports.counterparts import Choice
from topotune.plan.exports.target import BaseFile, ExportOptions
from topotune.plan.exports.versions import Versions

PROGRAM: Final = "MPICH"
VERSIONS: Final = Versions(program=PROGRAM, oldest=(4, 0), newest=(5, 0))
LAST_BYTES: Final = 2**31 - 1
"""The largest size that a test can name."""

_ALLREDUCE: Final = "collective=allreduce"
_INTRA: Final = "comm_type=intra"
_MAX_EMBEDDED: Final = 2**20
_MAX_KEYS: Final = 4096
_MAX_KEY: Final = 200


@dataclass(frozen=True, slots=True)
class Tree:
    """Tests with what follows where they hold, in their order; empty below the name of an algorithm."""

    branches: tuple[tuple[str, "Tree"], ...] = ()

    def below(self, key: str) -> "Tree | None":
        """What follows a test; None where it does not stand here."""
        return next((tree for name, tree in self.branches if name == key), None)

    def put(self, key: str, tree: "Tree") -> "Tree":
        """The same tests with another tree below one of them."""
        return Tree(tuple((name, tree if name == key else old) for name, old in self.branches))

    def names(self, kind: str) -> bool:
        """Whether any key, at any depth, names something of a kind (``algorithm``, ``composition``)."""
        return any(key.startswith(f"{kind}=") or tree.names(kind) for key, tree in self.branches)


def named(kind: str, name: str) -> Tree:
    """The leaf that names an algorithm or composition."""
    return Tree(((f"{kind}={name}", Tree()),))


def base_tree(options: ExportOptions, kind: str, target: str) -> Tree:
    """MPICH's own tree out of the file that the user gave.

    Args:
        options: with the file.
        kind: what the tree's leaves must name: ``algorithm`` or ``composition``.
        target: names the export in errors.

    Raises:
        UsageError: no file was given.
        InputFileError: the file holds no such tree.
    """
    if options.base is None:
        raise UsageError(
            f"--to {target}: MPICH takes a file for all collectives or none; the plan goes into MPICH's own",
            hint="--base FILE: MPICH's libmpi.so, or a selection file from its sources",
        )
    for tree in _trees(options.base):
        allreduce = tree.below(_ALLREDUCE)
        if allreduce is not None and allreduce.below(_INTRA) is not None and _fits(allreduce, kind):
            return tree
    raise InputFileError(
        options.base.source,
        f"holds no selection of MPICH's with {_ALLREDUCE}, {_INTRA} and {kind}s",
        hint="MPICH's libmpi.so (not one of another MPI), or its sources' generic.json",
    )


def _fits(allreduce: Tree, kind: str) -> bool:
    # Shared memory has a tree of its own, with algorithms of another device (MPIDI_POSIX_…).
    return allreduce.names(kind) and "MPIDI_POSIX" not in json.dumps(to_json(allreduce))


def _trees(base: BaseFile) -> list[Tree]:
    if base.data.lstrip().startswith(b"{"):
        return [read_tree(base.data.decode("utf-8", "replace"), base.source)]
    trees = []
    key = f'"{_ALLREDUCE}"'.encode()
    at = base.data.find(key)
    while at >= 0:
        start = base.data.rfind(b"\0", max(0, at - _MAX_EMBEDDED), at) + 1
        end = base.data.find(b"\0", at, at + _MAX_EMBEDDED)
        text = base.data[start:end] if end >= 0 else b""
        if text.startswith(b"{"):
            trees.append(read_tree(text.decode("utf-8", "replace"), base.source))
        at = base.data.find(key, max(at + 1, end))
    return trees


def with_choices(
    base: Tree, num_ranks: int, choices: Sequence[Choice], leaf: Callable[[str, Tree], Tree]
) -> Tree:
    """MPICH's tree with the plan's choices for communicators of one size.

    Args:
        base: MPICH's own.
        num_ranks: the size.
        choices: from 0 to unbounded.
        leaf: a choice's word and MPICH's own subtree (for calls that the word is not for) → the leaf.
    """
    allreduce = base.below(_ALLREDUCE)
    own = allreduce.below(_INTRA) if allreduce else None
    assert allreduce is not None
    assert own is not None
    if all(choice.word is None for choice in choices):
        return base
    by_size: list[tuple[str, Tree]] = []
    for choice in choices:
        reached = choice.max_bytes is None or choice.max_bytes - 1 > LAST_BYTES
        test = "avg_msg_size=any" if reached else f"avg_msg_size<={choice.max_bytes - 1}"  # type: ignore[operator]
        by_size.append((test, own if choice.word is None else leaf(choice.word, own)))
        if reached:
            break
    by_ranks = [(f"comm_size<={num_ranks}", Tree(tuple(by_size))), ("comm_size=any", own)]
    if num_ranks > 1:
        by_ranks.insert(0, (f"comm_size<={num_ranks - 1}", own))
    return base.put(_ALLREDUCE, allreduce.put(_INTRA, Tree(tuple(by_ranks))))


def beyond_warning(choices: Sequence[Choice]) -> tuple[str, ...]:
    """That choices from 2 GiB on cannot be said."""
    if len({choice.word for choice in choices if (choice.max_bytes or LAST_BYTES + 2) > LAST_BYTES + 1}) < 2:
        return ()
    return (
        f"MPICH cannot tell sizes above {LAST_BYTES} B apart: the choice at that size holds for all beyond",
    )


def to_json(tree: Tree) -> dict[str, Any]:
    """As JSON objects, in the same order."""
    return {key: to_json(below) for key, below in tree.branches}


def write_tree(tree: Tree) -> str:
    """The file's text."""
    return json.dumps(to_json(tree), indent=1) + "\n"


def read_tree(text: str, source: str) -> Tree:
    """The tree of a file's text.

    Raises:
        InputFileError: no JSON, or not objects of objects.
    """
    return _read(parse_json(text.encode(), source))


def _read(value: Value) -> Tree:
    branches = []
    for key, below in value.mapping(_MAX_KEYS).items():
        if not 0 < len(key) <= _MAX_KEY:
            value.fail(f"has a key of {len(key)} characters, not 1 to {_MAX_KEY}")
        branches.append((key, _read(below)))
    return Tree(tuple(branches))
