"""Which pairs of ranks talk at the same time: rounds of disjoint pairs, and waves that share no node."""

from collections.abc import Sequence

Pair = tuple[int, int]


def rounds(num_ranks: int) -> list[list[Pair]]:
    """Every pair of ranks exactly once, in as few rounds of disjoint pairs as there can be.

    The circle method: rank 0 stands still, the others move one seat a round, seat i meets seat n-1-i. An
    odd number of ranks plays with an empty seat: whoever meets it idles. O(n^2).

    Args:
        num_ranks: n >= 1.

    Returns:
        n-1 rounds for even n, n for odd n > 1, none for 1; each pair as (lower rank, higher rank).

    Source: Kirkman's 1-factorisation of the complete graph; SuperBench pairs its nodes the same way.
    """
    return [round_of(num_ranks, number) for number in range(num_rounds_of(num_ranks))]


def num_rounds_of(num_ranks: int) -> int:
    """How many rounds the circle method has: n-1 for even n, n for odd n > 1, none for 1."""
    return num_ranks - 1 + num_ranks % 2 if num_ranks > 1 else 0


def round_of(num_ranks: int, number: int) -> list[Pair]:
    """One of the rounds of ``rounds``, by itself. O(n log n).

    Args:
        num_ranks: n >= 2.
        number: of the round, from 0.
    """
    seats = num_ranks + num_ranks % 2
    moved = number % (seats - 1)
    moving = list(range(1, seats))
    circle = [0, *moving[len(moving) - moved :], *moving[: len(moving) - moved]]
    pairs = [(circle[i], circle[seats - 1 - i]) for i in range(seats // 2)]
    return sorted((min(p), max(p)) for p in pairs if max(p) < num_ranks)


def members_of_nodes(node_of_rank: Sequence[int]) -> list[list[int]]:
    """The ranks of each node, ascending."""
    members: list[list[int]] = [[] for _ in range(max(node_of_rank) + 1)]
    for rank, node in enumerate(node_of_rank):
        members[node].append(rank)
    return members


def waves(rounds_of_pairs: Sequence[Sequence[Pair]], node_of_rank: Sequence[int]) -> list[list[Pair]]:
    """The same pairs, regrouped so that no two pairs of a wave touch the same node.

    Disjoint ranks still share the memory and the network link of their node; a wave has each node in one
    pair only, so that what is timed is a link on an otherwise idle node. Pairs of a round that collide go,
    in order, to the first wave of that round with room.

    Returns:
        waves in the order of the rounds; with one rank on each node they are the rounds.
    """
    all_waves: list[list[Pair]] = []
    for pairs in rounds_of_pairs:
        of_round: list[tuple[list[Pair], set[int]]] = []
        for pair in pairs:
            nodes = {node_of_rank[pair[0]], node_of_rank[pair[1]]}
            for members, busy in of_round:
                if not busy & nodes:
                    members.append(pair)
                    busy |= nodes
                    break
            else:
                of_round.append(([pair], nodes))
        all_waves.extend(members for members, _ in of_round)
    return all_waves
