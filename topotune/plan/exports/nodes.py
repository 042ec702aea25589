"""Plans' hierarchies against programs that know one hierarchy alone: the nodes."""

from typing import Final

from topotune.plan import Plan, Row
from topotune.plan.grouping import nested

HIERARCHICAL: Final = ("hierarchical", "native_hierarchical", "shm_hierarchical")


def groups_are_nodes(plan: Plan, row: Row) -> bool:
    """Whether a hierarchical row's innermost groups can be the nodes: as many, of the same sizes."""
    sizes = sorted(len(group) for outer in nested(row.params["groups"]) for group in outer)
    return sizes == sorted(plan.fingerprint.hard.ranks_per_node)
