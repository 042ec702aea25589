"""A plan's rows in the words of a program that has allreduce algorithms of its own (MPI libraries, UCC).

Theory of operation. Such a program lets one of its own algorithms be named for each range of sizes. What the
plan measured is topotune's code; the program's algorithm of the same name is other code on other transports.
So a row is passed on only where the program has the same algorithm, everything else stays the program's own
decision, and every export of an algorithm says once that it must be measured there.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from topotune.plan import Group, Plan, Row
from topotune.plan.algorithms import DEFAULT

OWN_DECISION: Final = (DEFAULT, "native_allreduce")
"""What already says that the program decides by itself."""

_MOST_RANGES_SHOWN: Final = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What a program does from one size to another.

    Attributes:
        min_bytes: the smallest message.
        max_bytes: the first size beyond; None is unbounded.
        word: the program's word for the algorithm; None leaves it to the program.
    """

    min_bytes: int
    max_bytes: int | None
    word: str | None


Counterpart = Callable[[Row], str | None]
"""A row's algorithm in the program's words, or None where it has none such."""


def choices_of(rows: Sequence[Row] | None, counterpart: Counterpart) -> tuple[Choice, ...]:
    """A table in the program's words, from 0 to unbounded; neighbours that say the same are one."""
    choices: list[Choice] = []
    for row in rows or (Row(min_bytes=0, max_bytes=None, algorithm=DEFAULT),):
        word = None if row.algorithm in OWN_DECISION else counterpart(row)
        first = row.min_bytes
        if choices and choices[-1].word == word:
            first = choices.pop().min_bytes
        choices.append(Choice(min_bytes=first, max_bytes=row.max_bytes, word=word))
    return tuple(choices)


def lost_rows(group: Group, counterpart: Counterpart, program: str, *, of: str = "") -> tuple[str, ...]:
    """Sentences on what of a group's allreduce table the program cannot be told, with the sizes.

    Args:
        group: with the table.
        counterpart: as for `choices_of`.
        program: its name.
        of: which group that is, where it is not the world (``2 ranks on 1 node``).
    """
    without: dict[str, list[Row]] = {}
    unsaid: dict[str, list[Row]] = {}
    for row in group.allreduce or ():
        if row.algorithm in OWN_DECISION:
            continue
        if counterpart(row) is None:
            without.setdefault(row.algorithm, []).append(row)
        elif set(row.params) - {"groups"}:
            names = " and ".join(sorted(set(row.params) - {"groups"}))
            unsaid.setdefault(f"{names} of {row.algorithm}", []).append(row)
    named = f" ({of})" if of else ""
    lost = [
        f"{program} has nothing like {algorithm}: its own decision stays for {_sizes(rows)}{named}"
        for algorithm, rows in without.items()
    ]
    lost += [f"{program} takes no {what}: lost for {_sizes(rows)}{named}" for what, rows in unsaid.items()]
    return tuple(lost)


def evidence_warning(plan: Plan, program: str, choices: Iterable[Choice]) -> tuple[str, ...]:
    """That what was measured was not the program's own code; or that nothing is changed there."""
    if any(choice.word is not None for choice in choices):
        return (
            f"the plan was measured on {plan.fingerprint.hard.collective_library}: that is no evidence about "
            f"the algorithms of {program}; compare them on the cluster before the job relies on them",
        )
    return (f"no row names an algorithm that {program} has: the export leaves every size to {program}",)


def lost_beside_rows(plan: Plan, program: str, *, of_other_groups: bool = True) -> tuple[str, ...]:
    """Sentences on what stands beside the world's allreduce table and has no place in the export.

    Args:
        plan: with the tables.
        program: its name.
        of_other_groups: whether the tables of other groups than the world are lost, too.
    """
    lost = []
    others = [group for group in plan.groups[1:] if any(map(_departs, group.allreduce or ()))]
    if of_other_groups and others:
        shapes = ", ".join(shape_in_words(group) for group in others[:_MOST_RANGES_SHOWN])
        lost.append(f"only the world's table is exported to {program}; left out: {shapes}")
    if plan.rank_order is not None:
        lost.append(f"the plan's order of ranks is not exported to {program}: give it to the launcher")
    return tuple(lost)


def span(min_bytes: int, max_bytes: int | None) -> str:
    """A half-open range as people check it: both ends are sizes inside it."""
    if max_bytes is None:
        return f"{min_bytes} B and more"
    return f"{min_bytes} to {max_bytes - 1} B"


def shape_in_words(group: Group) -> str:
    """``8 ranks on 2 nodes``."""
    ranks = "1 rank" if group.shape.num_ranks == 1 else f"{group.shape.num_ranks} ranks"
    nodes = "1 node" if group.shape.num_nodes == 1 else f"{group.shape.num_nodes} nodes"
    return f"{ranks} on {nodes}"


def _departs(row: Row) -> bool:
    return row.algorithm not in OWN_DECISION


def _sizes(rows: Sequence[Row]) -> str:
    shown = ", ".join(span(row.min_bytes, row.max_bytes) for row in rows[:_MOST_RANGES_SHOWN])
    return f"{shown}, … ({len(rows)} ranges)" if len(rows) > _MOST_RANGES_SHOWN else shown
