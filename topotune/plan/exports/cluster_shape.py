"""How many nodes and ranks a launcher must start for a plan to fit."""

from topotune.errors import UsageError
from topotune.plan import Plan


def ranks_per_node(plan: Plan) -> int | None:
    """The same number on all nodes, or None."""
    counts = set(plan.fingerprint.hard.ranks_per_node)
    return counts.pop() if len(counts) == 1 else None


def equal_ranks_per_node(plan: Plan, program: str) -> int:
    """The same number on all nodes.

    Raises:
        UsageError: they differ, and this program starts as many on each.
    """
    count = ranks_per_node(plan)
    if count is None:
        counts = plan.fingerprint.hard.ranks_per_node
        shown = ", ".join(map(str, counts[:8])) + (", …" if len(counts) > 8 else "")
        raise UsageError(
            f"{program} starts as many ranks on every node, and the plan is for {shown}",
            hint="tune with as many ranks on each node: other numbers do not fit the plan",
        )
    return count
