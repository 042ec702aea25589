"""Rules that the tables of a run must keep among each other: what breaks one is an error, or a free gain.

Theory of operation. A collective may always be put together from others, so that none takes longer than what
it can be made of:

- **Parts.** An allreduce is a reduce-scatter and then an all-gather, in the same groups.
- **Stages.** Where groups and others across them form a grid of the ranks, an allreduce of all is a
  reduce-scatter inside the groups, an allreduce across them of what each rank then has, and an all-gather
  inside: no hierarchy takes longer than its stages.
- **Supersets.** Where each of several groups lies within a larger one, a collective of the larger ones serves
  all groups inside it at once, in a message that has room for all of them, each rank's parts beside the
  zeros, or nothing, of the others. Their members alone could not call it: a group of which one rank is
  elsewhere says nothing of this. The room is what makes the rule hold: k groups of a size inside a larger one
  need a message k times as large there. So does one group of a k-th of the ranks for the other two
  collectives, whose messages are the parts of all ranks together.

Groups of a set are timed all at the same time, as they would run in each of these; so a set's time is that of
its slowest group, and the sum of stages is no less than what they take one after the other in each. Each rule
holds for the library's collectives among each other, and for what the plan runs. Tables are timed one after
the other, minutes apart, which is one more reason for what breaks a rule.

A composed time promises a gain; what it really takes shows when a candidate of that form is timed. These
stand among the candidates of every search: `native_reduce_scatter_allgather` and `native_hierarchical` of the
library's own, and each algorithm that makes the parts as an allreduce.

Source: as of `topotune.tune.consistency`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product

from topotune.plan.model import Collective
from topotune.tune.consistency import LIBRARY, PLAN, Broken, Timed, Times, exceeds, in_sequence
from topotune.tune.mesh import GroupSet
from topotune.units import format_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedTable:
    """What was timed of a table.

    Attributes:
        timed: of `LIBRARY` and `PLAN`, fresh samples where there are some; empty where nothing was.
    """

    collective: Collective
    group_set: GroupSet
    timed: Times


TablesOfSets = Mapping[tuple[Collective, GroupSet], Mapping[int, Timed]]
"""By collective and groups, each size that was timed, of one arm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Claim:
    """That one time is no longer than another."""

    what: str
    one: Timed
    promised: Timed
    made_of: str

    @property
    def line(self) -> str:
        return f"{self.what} takes {self.one.in_words}, and {self.made_of}"


def violations_across(tables: Sequence[TimedTable]) -> list[str]:
    """What breaks a rule between tables, one line each.

    Args:
        tables: of one run, the world's allreduce among them.
    """
    of_plan = _of_arm(tables, PLAN)
    rules: tuple[tuple[Callable[[TablesOfSets], Iterator[_Claim]], str, str], ...] = (
        (
            _parts,
            "an allreduce is slower than reduce-scatter and all-gather",
            "by native_reduce_scatter_allgather, or by what makes the parts in the plan",
        ),
        (
            _stages,
            "an allreduce is slower than its stages inside groups and across them",
            "by native_hierarchical, or by what makes the stages in the plan",
        ),
        (
            _supersets,
            "groups are slower than the larger ones that they lie in",
            "in one call of the larger ones",
        ),
    )
    found: list[str] = []
    for claims, what, how in rules:
        broken = Broken()
        lines: set[str] = set()
        now_s = {(claim.what, claim.one.message_bytes): claim.one.median_s for claim in claims(of_plan)}
        for arm in (LIBRARY, PLAN):
            for claim in claims(_of_arm(tables, arm)):
                # Where the plan has the default all over, both say the same.
                if not exceeds(claim.one, claim.promised) or claim.line in lines:
                    continue
                lines.add(claim.line)
                least_s = min(
                    claim.one.median_s,
                    now_s.get((claim.what, claim.one.message_bytes), claim.one.median_s),
                )
                broken.add(f"{arm}: {claim.line}", now_s=least_s, promised_s=claim.promised.median_s)
        found += broken.in_words(what, how)
    return found


def _of_arm(tables: Sequence[TimedTable], arm: str) -> TablesOfSets:
    return {(one.collective, one.group_set): one.timed[arm] for one in tables if arm in one.timed}


def _sets(timed: TablesOfSets) -> list[GroupSet]:
    return list(dict.fromkeys(group_set for _, group_set in timed))


def _parts(timed: TablesOfSets) -> Iterator[_Claim]:
    """The parts' messages have as many whole parts as fit: fewer elements less than there are ranks."""
    for one in _sets(timed):
        whole = timed.get(("allreduce", one), {})
        scatter, gather = timed.get(("reduce_scatter", one), {}), timed.get(("allgather", one), {})
        for size in sorted(whole.keys() & scatter.keys() & gather.keys()):
            yield _Claim(
                what=f"allreduce, {one.name},",
                one=whole[size],
                promised=in_sequence((scatter[size], gather[size])),
                made_of=f"its parts {_times(scatter[size], gather[size])}",
            )


def _stages(timed: TablesOfSets) -> Iterator[_Claim]:
    sets = _sets(timed)
    for whole, (inside, across) in product(sets, permutations(sets, 2)):
        if not _is_grid(whole, inside, across):
            continue
        scatter, gather = timed.get(("reduce_scatter", inside), {}), timed.get(("allgather", inside), {})
        own = timed.get(("allreduce", whole), {})
        for size in sorted(own.keys() & scatter.keys() & gather.keys()):
            middle = _serving(timed.get(("allreduce", across), {}), -(-size // len(inside.groups[0])))
            if middle is not None:
                stages = (scatter[size], middle, gather[size])
                yield _Claim(
                    what=f"allreduce, {whole.name},",
                    one=own[size],
                    promised=in_sequence(stages),
                    made_of=f"inside {inside.name}, across {across.name} and inside again {_times(*stages)}",
                )


def _supersets(timed: TablesOfSets) -> Iterator[_Claim]:
    for small, large in permutations(_sets(timed), 2):
        if not _lie_within(small, large):
            continue
        room = len(large.groups[0]) // len(small.groups[0])
        for collective in dict.fromkeys(name for name, one in timed if one == small):
            larger = timed.get((collective, large), {})
            for size, own in sorted(timed[collective, small].items()):
                serving = _serving(larger, room * size)
                if serving is not None:
                    calls = "" if serving.num_calls == 1 else f" in {serving.num_calls} calls"
                    yield _Claim(
                        what=f"{collective}, {small.name},",
                        one=own,
                        promised=serving,
                        made_of=f"{large.name}, with room for all of them, {serving.in_words}{calls}",
                    )


def _serving(timed: Mapping[int, Timed], message_bytes: int) -> Timed | None:
    """Timed calls that carry so many bytes: of the smallest size that does, or several of the largest."""
    if not timed:
        return None
    size = min((one for one in timed if one >= message_bytes), default=max(timed))
    return timed[size].times(-(-message_bytes // size))


def _lie_within(small: GroupSet, large: GroupSet) -> bool:
    """Whether each group lies wholly in one of the larger ones."""
    if len(small.groups[0]) >= len(large.groups[0]):
        return False
    home = {rank: index for index, group in enumerate(large.groups) for rank in group}
    return all(len({home[rank] for rank in group}) == 1 for group in small.groups)


def _is_grid(whole: GroupSet, inside: GroupSet, across: GroupSet) -> bool:
    """Whether the ranks of each group of the first are a grid of groups of the other two."""
    if len(inside.groups[0]) * len(across.groups[0]) != len(whole.groups[0]):
        return False
    if not (_lie_within(inside, whole) and _lie_within(across, whole)):
        return False
    row = {rank: index for index, group in enumerate(inside.groups) for rank in group}
    return all(len({row[rank] for rank in group}) == len(group) for group in across.groups)


def _times(*parts: Timed) -> str:
    return " + ".join(format_seconds(one.median_s) for one in parts)
