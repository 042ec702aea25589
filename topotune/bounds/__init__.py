"""The provable optimum of collectives on a network, and the bottleneck that sets it. Pure, no torch."""

from topotune.bounds.bound import Bound, NoBound, allreduce_bound, graph_allreduce_bound
from topotune.bounds.cut import CutBound, allgather_bound, reduce_scatter_bound, tightest_split
from topotune.bounds.graph import CapacityGraph, graph_from_links, graph_from_topology
from topotune.bounds.lp import AllreduceOptimum, allreduce_lp
from topotune.bounds.optimum import Optima, Optimum, optima, optima_to_document
from topotune.bounds.ring import ring_algbw_bytes_per_s
from topotune.bounds.star import StarBound, star_bound

__all__ = [
    "AllreduceOptimum",
    "Bound",
    "CapacityGraph",
    "CutBound",
    "NoBound",
    "Optima",
    "Optimum",
    "StarBound",
    "allgather_bound",
    "allreduce_bound",
    "allreduce_lp",
    "graph_allreduce_bound",
    "graph_from_links",
    "graph_from_topology",
    "optima",
    "optima_to_document",
    "reduce_scatter_bound",
    "ring_algbw_bytes_per_s",
    "star_bound",
    "tightest_split",
]
