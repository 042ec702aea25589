"""What of a plan's tables reaches programs whose algorithms are their own, and what is lost, in sentences."""

from dataclasses import dataclass

from topotune.plan import Plan, Row
from topotune.plan.algorithms import DEFAULT
from topotune.plan.nccl import NCCL


@dataclass(frozen=True, kw_only=True, slots=True)
class TwoLevel:
    """Reduce-scatter within each node, allreduce between nodes, all-gather within, all of them NCCL's.

    Attributes:
        min_bytes: from this size on, without an end, the plan has it.
        ranks_per_node: on every node.
    """

    min_bytes: int
    ranks_per_node: int


def two_level(plan: Plan) -> TwoLevel | None:
    """Where the world's large messages run on two levels, node by node; None where they do not.

    Only NCCL's own collectives count: what the plan measured on other libraries says nothing about them.
    """
    hard = plan.fingerprint.hard
    rows = plan.groups[0].allreduce
    if hard.backend != "nccl" or plan.rank_order is not None or rows is None:
        return None
    num_ranks = hard.ranks_per_node[0]
    if num_ranks == 1 or len(hard.ranks_per_node) == 1 or set(hard.ranks_per_node) != {num_ranks}:
        return None
    nodes = [list(range(first, first + num_ranks)) for first in range(0, hard.world_size, num_ranks)]
    min_bytes = None
    for row in reversed(rows):
        if not _is_by_node(row, nodes):
            break
        min_bytes = row.min_bytes
    return None if min_bytes is None else TwoLevel(min_bytes=min_bytes, ranks_per_node=num_ranks)


def _is_by_node(row: Row, nodes: list[list[int]]) -> bool:
    if row.algorithm != "native_hierarchical":
        return False
    return [sorted(group) for group in row.params["groups"]] == nodes


def departs(plan: Plan) -> bool:
    """Whether any row of any table names something else than the default."""
    return any(row.algorithm != DEFAULT for row in _rows(plan))


def lost_tables(plan: Plan, program: str, *, but: str | None = None) -> tuple[str, ...]:
    """Sentences on the tables and the order of ranks, which only topotune's own backend and hook run.

    Args:
        plan: the plan.
        program: that cannot take them.
        but: an algorithm that it can.
    """
    named = [row.algorithm for row in _rows(plan) if row.algorithm not in (DEFAULT, NCCL, but)]
    lost = []
    if named:
        rows = "1 row" if len(named) == 1 else f"{len(named)} rows"
        lost.append(
            f"{rows} of the plan's tables ({', '.join(sorted(set(named)))}) cannot be said to {program}: "
            "topotune's backend or DDP hook runs them"
        )
    if plan.rank_order is not None:
        lost.append(f"the plan's order of ranks cannot be said to {program}: topotune's backend keeps it")
    return tuple(lost)


def _rows(plan: Plan) -> list[Row]:
    return [
        row
        for group in plan.groups
        for table in (group.allreduce, group.reduce_scatter, group.allgather)
        for row in table or ()
    ]
