"""What makes a plan legal beyond the types of its fields, all in one place. Standard library only.

Each rule returns None, or the place inside its argument and the problem in words. The model checks itself
with them when it is made, and reading adds the file and the place to what they say.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from topotune.plan.algorithms import ALGORITHMS_OF, check_params
from topotune.plan.nccl import NCCL, nccl_collective_problem

if TYPE_CHECKING:
    from topotune.plan.model import Evidence, Group, GroupShape, HardFingerprint, Plan, Row

MAX_GROUPS: Final = 64
MAX_ROWS: Final = 1024
MAX_RANKS: Final = 2**20

Problem = tuple[str, str] | None


class BrokenRule(ValueError):
    """A plan, or a part of one, that breaks a rule.

    Args:
        place: inside the part (``[3].min_bytes``), or "".
        problem: in words, with the values.
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(f"{place}: {problem}" if place else problem)
        self.place = place
        self.problem = problem


def refuse(problem: Problem) -> None:
    """Raise what a rule found.

    Raises:
        BrokenRule: unless the rule found nothing.
    """
    if problem:
        raise BrokenRule(*problem)


def evidence_problem(evidence: "Evidence") -> Problem:
    """Intervals must not run backwards."""
    for name in ("ratio_ci", "backward_ratio_ci"):
        interval = getattr(evidence, name)
        if interval is not None and interval[0] > interval[1]:
            return name, f"runs from {interval[0]:g} down to {interval[1]:g}"
    return None


def row_problem(row: "Row") -> Problem:
    """A row must hold a size, and say why where it has no bound."""
    if row.max_bytes is not None and row.max_bytes <= row.min_bytes:
        return "max_bytes", f"is {row.max_bytes}, not above min_bytes = {row.min_bytes}"
    if (row.percent_of_optimum is None or row.bottleneck is None) == (row.no_bound_reason is None):
        state = (
            "null, though there is no bound"
            if row.no_bound_reason is None
            else "given, though there is a bound"
        )
        return "no_bound_reason", f"is {state}: it says why percent_of_optimum or bottleneck is null"
    return None


def table_problem(rows: Sequence["Row"], collective: str, num_ranks: int) -> Problem:
    """Rows must cover every size from 0 to unbounded once, with algorithms that run on this many ranks."""
    if not rows:
        return "", "has no rows; a table that was not tuned is left out"
    if len(rows) > MAX_ROWS:
        return "", f"has {len(rows)} rows, more than {MAX_ROWS}"
    if rows[0].min_bytes != 0:
        return "[0].min_bytes", f"is {rows[0].min_bytes}; the first row must start at 0"
    for index, row in enumerate(rows):
        if index:
            before = rows[index - 1].max_bytes
            if before is None or before != row.min_bytes:
                fault = "overlap" if before is None or before > row.min_bytes else "leave a gap"
                ends = "is unbounded (null)" if before is None else f"ends at {before}"
                return (
                    f"[{index}].min_bytes",
                    f"is {row.min_bytes}, but row {index - 1} {ends}: rows {index - 1} and {index} {fault}",
                )
        known = ALGORITHMS_OF[collective]
        if row.algorithm not in known:
            return (
                f"[{index}].algorithm",
                f"{row.algorithm!r} is no known algorithm for {collective}: {', '.join(known)}",
            )
        problem = check_params(row.algorithm, row.params, num_ranks, collective=collective)
        if problem is None and row.algorithm == NCCL:
            problem = nccl_collective_problem(collective, row.params["algo"])
        if problem:
            return f"[{index}].params", problem
    if rows[-1].max_bytes is not None:
        return (
            f"[{len(rows) - 1}].max_bytes",
            f"is {rows[-1].max_bytes}; the last row must be unbounded (null)",
        )
    return None


def shape_problem(shape: "GroupShape") -> Problem:
    """A shape's counts must agree."""
    if shape.ranks_per_node and shape.num_nodes * shape.ranks_per_node != shape.num_ranks:
        return (
            "num_ranks",
            f"is {shape.num_ranks}, but there are {shape.num_nodes} nodes of {shape.ranks_per_node} ranks",
        )
    if shape.num_nodes > shape.num_ranks:
        return "num_nodes", f"is {shape.num_nodes}, more than num_ranks = {shape.num_ranks}"
    return None


def group_problem(group: "Group") -> Problem:
    """Every table of a group must be legal on its number of ranks."""
    for collective in ALGORITHMS_OF:
        rows = getattr(group, collective)
        if rows is not None:
            problem = table_problem(rows, collective, group.shape.num_ranks)
            if problem:
                return f"{collective}{problem[0]}", problem[1]
    return None


def hard_fingerprint_problem(hard: "HardFingerprint") -> Problem:
    """Ranks per node must add up to the world size."""
    if sum(hard.ranks_per_node) != hard.world_size:
        return (
            "ranks_per_node",
            f"adds up to {sum(hard.ranks_per_node)}, not to world_size = {hard.world_size}",
        )
    return None


def plan_problem(plan: "Plan") -> Problem:
    """The first group must be the world, shapes must be unique, ``rank_order`` must be a permutation."""
    if not plan.groups:
        return "groups", "is empty; the first is the world group"
    world_size = plan.fingerprint.hard.world_size
    world = plan.groups[0].shape
    if world.num_ranks != world_size:
        return (
            "groups[0].shape.num_ranks",
            f"is {world.num_ranks}, not the world size {world_size}; the first group is the world group",
        )
    if world.stride != 1:
        return "groups[0].shape.stride", f"is {world.stride}; the first group is the world, whose stride is 1"
    first_with_shape: dict[GroupShape, int] = {}
    for index, group in enumerate(plan.groups):
        first = first_with_shape.setdefault(group.shape, index)
        if first != index:
            return f"groups[{index}].shape", f"is the same as that of groups[{first}]"
        if group.shape.num_ranks > world_size:
            return (
                f"groups[{index}].shape.num_ranks",
                f"is {group.shape.num_ranks}, more than the world size {world_size}",
            )
    problem = _nccl_problem(plan)
    if problem:
        return problem
    if plan.rank_order is not None and sorted(plan.rank_order) != list(range(world_size)):
        return "rank_order", f"does not hold each rank from 0 to {world_size - 1} once"
    return None


def _nccl_problem(plan: "Plan") -> Problem:
    """Rows of NCCL's own algorithms must stand in plans for NCCL: no other backend has them."""
    backend = plan.fingerprint.hard.backend
    if backend == NCCL:
        return None
    for index, group in enumerate(plan.groups):
        for collective in ALGORITHMS_OF:
            for number, row in enumerate(getattr(group, collective) or ()):
                if row.algorithm == NCCL:
                    place = f"groups[{index}].{collective}[{number}].algorithm"
                    return place, f"is {NCCL!r}, NCCL's own, but the plan's backend is {backend!r}"
    return None
