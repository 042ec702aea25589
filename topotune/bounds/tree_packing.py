"""Packing spanning trees into a graph without switches, as many out of each host as are wanted.

Theory of operation. A batch is some trees alike so far: root, vertices R reached, how many. An arc out of R
joins as many of them as leaves room for all others: the minimum cut between its ends, in the graph where
each other unfinished batch must still get out of its R, less what those need. Where that is fewer than the
batch, the batch splits. Of arcs that may join, those from vertices close to the root are tried first: trees
stay low.

Source: Bérczi and Frank, "Packing arborescences", 2009; Zhao et al., "ForestColl", arXiv 2402.06787, section
5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topotune.bounds.maxflow import Arc, max_flow


@dataclass(kw_only=True)
class Batch:
    """Trees alike so far. ``reached`` goes by ``depth``: the root first."""

    root: int
    multiplicity: int
    parents: list[int]
    depth: list[int]
    reached: list[int]

    def copy(self, multiplicity: int) -> "Batch":
        """So many more that have grown alike."""
        return Batch(
            root=self.root,
            multiplicity=multiplicity,
            parents=list(self.parents),
            depth=list(self.depth),
            reached=list(self.reached),
        )


def pack(capacities: Mapping[Arc, int], wanted: Sequence[int]) -> list[Batch]:
    """Spanning trees out of each host within the capacities, which are known to carry them."""
    room, num_hosts = dict(capacities), len(wanted)
    waiting = [
        Batch(
            root=host,
            multiplicity=trees,
            parents=[-1] * num_hosts,
            depth=[0] * num_hosts,
            reached=[host],
        )
        for host, trees in enumerate(wanted)
        if trees > 0
    ]
    while True:
        batch = min(
            waiting, key=lambda batch: len(batch.reached)
        )  # together, so that none is left with detours
        if len(batch.reached) == num_hosts:
            return waiting
        tail, head, amount = _next_arc(batch, waiting, room, num_hosts)
        if amount < batch.multiplicity:
            waiting.append(batch.copy(batch.multiplicity - amount))
            batch.multiplicity = amount
        batch.parents[head] = tail
        batch.reached.append(head)
        batch.depth[head] = batch.depth[tail] + 1
        batch.reached.sort(key=batch.depth.__getitem__)
        room[tail, head] -= amount
        if room[tail, head] == 0:
            del room[tail, head]


def _next_arc(
    batch: Batch, waiting: Sequence[Batch], room: Mapping[Arc, int], num_hosts: int
) -> tuple[int, int, int]:
    """An arc that may join a batch, and how many of its trees."""
    inside = set(batch.reached)
    others = [other for other in waiting if other is not batch and len(other.reached) < num_hosts]
    heads: dict[int, list[int]] = {}
    for tail, head in room:
        heads.setdefault(tail, []).append(head)
    best: tuple[int, int, int] | None = None
    for tail in batch.reached:
        for head in sorted(
            (head for head in heads.get(tail, ()) if head not in inside),
            key=lambda head: (-room[tail, head], head),
        ):
            amount = min(batch.multiplicity, room[tail, head])
            if best is not None and amount <= best[2]:
                continue
            amount = min(amount, _slack(tail, head, others, room, num_hosts, amount))
            if amount == batch.multiplicity:
                return tail, head, amount
            if amount > (0 if best is None else best[2]):
                best = tail, head, amount
    assert best is not None, "capacities that carry all trees always leave an arc"
    return best


def _slack(
    tail: int, head: int, others: Sequence[Batch], room: Mapping[Arc, int], num_hosts: int, most: int
) -> int:
    """How many units of an arc the trees of the other batches can do without."""
    needed = sum(other.multiplicity for other in others)
    without_limit = needed + most
    arcs = {arc: min(amount, without_limit) for arc, amount in room.items()}
    for index, other in enumerate(others):
        gate = num_hosts + index
        arcs[tail, gate] = other.multiplicity
        for vertex in other.reached:
            arcs[gate, vertex] = without_limit
    return max_flow(num_hosts + len(others), arcs, tail, head) - needed
