"""Rows of a plan whose shares of the message follow the links of the hosts that it was made on. Pure.

A `forest` may have some nodes add up more of the message than others, and so may a `parameter_server`. That
is right where their links are unlike, and on other hosts no longer: such rows go when hosts differ.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from topotune.plan.model import Plan, Row

_UNEQUAL: Final = 1.25
"""From here on one node's part is unequal, over the mean, or the mean over it: less comes from rounding, and
from rates that differ by what measuring them does."""


def without_unequal_shares(plan: Plan) -> tuple[Plan, int]:
    """The plan with ``default`` in place of such rows; and how many they were."""
    count = 0
    groups = []
    for group in plan.groups:
        rows = group.allreduce
        if rows is not None:
            # Params name positions, and those of a node stand together.
            size = group.shape.ranks_per_node or 1
            node_of_rank = [rank // size for rank in range(group.shape.num_ranks)]
            bound = [has_unequal_shares(row.algorithm, row.params, node_of_rank) for row in rows]
            count += sum(bound)
            rows = tuple(
                _default(row) if is_bound else row for row, is_bound in zip(rows, bound, strict=True)
            )
        groups.append(replace(group, allreduce=rows))
    return (replace(plan, groups=tuple(groups)) if count else plan), count


def _default(row: Row) -> Row:
    return Row(min_bytes=row.min_bytes, max_bytes=row.max_bytes, algorithm="default")


def has_unequal_shares(algorithm: str, params: Mapping[str, Any], node_of_rank: Sequence[int]) -> bool:
    """Whether some node adds up more of the message for each of its ranks than others do.

    Servers that a plan names without shares are no such case: they serve alike, on whichever links.

    Args:
        algorithm: of a plan's row.
        params: of it, valid.
        node_of_rank: of each position.
    """
    share = Counter[int]()
    if algorithm == "forest":
        for weight, parents in zip(params["weights"], params["down"], strict=True):
            share[node_of_rank[parents.index(-1)]] += weight
    elif algorithm == "parameter_server" and "shares" in params:
        servers = params.get("servers", range(len(node_of_rank)))
        for rank, weight in zip(servers, params["shares"], strict=True):
            share[node_of_rank[rank]] += weight
    else:
        return False
    mean = share.total() / len(node_of_rank)
    of_node = [share[node] / num_ranks for node, num_ranks in Counter(node_of_rank).items()]
    return max(of_node) > _UNEQUAL * mean or min(of_node) * _UNEQUAL < mean
