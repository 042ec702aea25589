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
    if num_ranks < 2:
        return []
    seats = num_ranks + num_ranks % 2
    moving = list(range(1, seats))
    all_rounds: list[list[Pair]] = []
    for _ in range(seats - 1):
        circle = [0, *moving]
        pairs = [(circle[i], circle[seats - 1 - i]) for i in range(seats // 2)]
        all_rounds.append(sorted((min(p), max(p)) for p in pairs if max(p) < num_ranks))
        moving = moving[-1:] + moving[:-1]
    return all_rounds


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
