"""The sets of ranks that a link model's limits stand around: nodes, racks, halves of the cluster."""

from collections.abc import Iterable
from typing import NamedTuple

from topotune.links.model import LinkModel, PairsAcross, SharedCapacity

Members = frozenset[int]


class Limits(NamedTuple):
    """Limits on all that leaves a set of ranks, and on all that enters it; the tightest of each."""

    sending: dict[Members, SharedCapacity]
    receiving: dict[Members, SharedCapacity]


def limits_by_set(model: LinkModel) -> Limits:
    """The limits of a model that all traffic out of (or into) some set of ranks must pass.

    Limits of any other shape are left out. What leaves a set enters the rest: the set is the smaller of the
    two, and each of them where they are alike. Time O(ranks) a limit that is given as `PairsAcross`, O(pairs)
    for others.
    """
    found = Limits({}, {})
    for limit in model.shared:
        if not limit.is_limit:
            continue
        sides = _sides(limit, model.num_ranks)
        for members, table in zip(sides, found, strict=True):
            known = table.get(members) if members is not None else None
            if members is not None and (
                known is None or limit.capacity_bytes_per_s < known.capacity_bytes_per_s
            ):
                table[members] = limit
    return found


def laminar(sets: Iterable[Members]) -> list[Members]:
    """Sets of which any two are nested or disjoint; smaller ones are preferred, then those of lower ranks.

    Ascending by size. Time O(n log n) in the sizes of all sets together.
    """
    taken: list[Members] = []
    largest_around: dict[int, Members] = {}
    for candidate in sorted(sets, key=lambda members: (len(members), sorted(members))):
        # All that was taken is no larger: it must lie inside, and it does if its largest sets do.
        inside = {id(one): one for rank in candidate if (one := largest_around.get(rank)) is not None}
        if all(one <= candidate for one in inside.values()):
            taken.append(candidate)
            largest_around.update(dict.fromkeys(candidate, candidate))
    return taken


def _sides(limit: SharedCapacity, num_ranks: int) -> tuple[Members | None, Members | None]:
    """The sets that the limit's pairs all leave, and all enter; None for what is no set of its own."""
    pairs = limit.pairs
    if isinstance(pairs, PairsAcross):
        members, num_others = pairs.members, num_ranks - len(pairs.members)
        if 0 < len(members) < num_others:
            return (members, None) if pairs.leaving else (None, members)
        others = frozenset(range(num_ranks)) - members
        sources, sinks = (members, others) if pairs.leaving else (others, members)
        is_cut = bool(members and others)
    else:
        sources, sinks = frozenset(a for a, _ in pairs), frozenset(b for _, b in pairs)
        is_cut = len(pairs) == len(sources) * len(sinks) and len(sources | sinks) == num_ranks
        is_cut = is_cut and bool(pairs) and not sources & sinks
    return (
        sources if is_cut and len(sources) <= len(sinks) else None,
        sinks if is_cut and len(sinks) <= len(sources) else None,
    )
