"""The provable optimum of collectives on a network, and the bottleneck that sets it. Pure, no torch."""

from topotune.bounds.allreduce_forest import AllreduceForest, allreduce_forest, forest_params
from topotune.bounds.bound import Bound, NoBound, allreduce_bound, graph_allreduce_bound
from topotune.bounds.concurrent import concurrent_bound
from topotune.bounds.cut import CutBound, allgather_bound, reduce_scatter_bound, tightest_split
from topotune.bounds.forest import Forest, Tree, spanning_forest
from topotune.bounds.graph import (
    CapacityGraph,
    graph_from_links,
    graph_from_topology,
    with_equal_ways,
)
from topotune.bounds.lp import AllreduceOptimum, allreduce_lp
from topotune.bounds.optimum import Optima, Optimum, optima, optima_to_document
from topotune.bounds.ring import ring_algbw_bytes_per_s
from topotune.bounds.star import StarBound, star_bound

__all__ = [
    "AllreduceForest",
    "AllreduceOptimum",
    "Bound",
    "CapacityGraph",
    "CutBound",
    "Forest",
    "NoBound",
    "Optima",
    "Optimum",
    "StarBound",
    "Tree",
    "allgather_bound",
    "allreduce_bound",
    "allreduce_forest",
    "allreduce_lp",
    "concurrent_bound",
    "forest_params",
    "graph_allreduce_bound",
    "graph_from_links",
    "graph_from_topology",
    "optima",
    "optima_to_document",
    "reduce_scatter_bound",
    "ring_algbw_bytes_per_s",
    "spanning_forest",
    "star_bound",
    "tightest_split",
    "with_equal_ways",
]
