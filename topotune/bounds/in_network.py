"""The optimum of allreduce where some switches add and copy by themselves (NVLink SHARP, InfiniBand's). Pure.

Theory. A host then sends each byte once and receives each sum once, where it would do so almost twice:
among k hosts on one such switch the message takes M / B instead of 2(k-1)/k M / B. In general a cut must
still let the message through once in each direction, and parts of the network that meet at a switch which
does not add move as much as before. What is left is the linear programme of `cut_planes`, in which switches
that add may be roots, and need not hand on what they take in.

Source: the linear programme's own relaxation; Graham et al., "Scalable hierarchical aggregation protocol
(SHArP)", COM-HPC 2016, for what such switches do.
"""

from collections.abc import Set

from topotune.bounds.bound import (
    TIE,
    Bound,
    NoBound,
    arcs_in_words,
    crossing_in_words,
    is_open,
    parts_around,
    smaller_side,
    star_center,
    together,
)
from topotune.bounds.cut import tightest_split
from topotune.bounds.cut_planes import allreduce_by_cuts
from topotune.bounds.graph import CapacityGraph
from topotune.bounds.symmetry import likeness
from topotune.topology.gpu_generations import NVLS_CAPABILITY, compute_capability
from topotune.topology.model import Topology
from topotune.units import format_bit_rate


def reducing_switches(topology: Topology) -> frozenset[str]:
    """The NVSwitches of a topology that can add: those of GPUs from Hopper on."""
    able = {
        vertex.id
        for vertex in topology.vertices
        if vertex.kind == "gpu" and (compute_capability(vertex.model or "") or 0) >= NVLS_CAPABILITY
    }
    nvswitches = {vertex.id for vertex in topology.vertices if vertex.kind == "nvswitch"}
    return frozenset(link.dst for link in topology.links if link.src in able and link.dst in nvswitches)


def in_network_bound(graph: CapacityGraph, reducing: Set[str]) -> Bound | NoBound:
    """The bound of allreduce where these switches add and copy.

    Args:
        graph: what the network carries.
        reducing: some of its switches; others forward alone.

    Raises:
        ValueError: some ranks cannot reach others.
    """
    if len(graph.hosts) == 1:
        return NoBound(reason="all ranks sit on one vertex, where no link bounds them")
    capacity, side = tightest_split(graph)
    if capacity == 0:
        raise ValueError("the ranks cannot all reach each other")
    if is_open(graph, [arc for arc in graph.capacities if arc[0] in side and arc[1] not in side]):
        return NoBound(reason="no links with a known limit separate the ranks")
    center = star_center(graph)
    if center is not None and center in reducing:
        arc = min(graph.capacities, key=lambda arc: (graph.capacities[arc], arc))
        least = graph.capacities[arc]
        slowest = [arc for arc in graph.capacities if graph.capacities[arc] == least]
        alike = len(slowest) == len(graph.capacities)
        each = f"link of each of the {len(graph.hosts)} {graph.host_word}, {format_bit_rate(least)}"
        return Bound(
            s_per_byte=1.0 / least,
            text=each if alike else arcs_in_words(graph, [arc]),
            cut=() if alike else tuple({*arc} - {center}),
            exact=True,
        )
    facts = [
        Bound(s_per_byte=1.0 / capacity, text=crossing_in_words(graph, side), cut=smaller_side(graph, side))
    ]
    like = likeness(graph, reducing)
    for switch in like.unlike(set(graph.vertices) - graph.hosts - reducing):
        facts += together(graph, parts_around(graph, switch, reducing))
    best = max(facts, key=lambda fact: fact.s_per_byte)
    found = allreduce_by_cuts(graph, like, adding=reducing, split_bytes_per_s=capacity)
    if found is None:
        return best
    s_per_byte = 1.0 / found.algbw_bytes_per_s
    if s_per_byte <= best.s_per_byte * (1 + TIE):
        return best
    return Bound(s_per_byte=s_per_byte, text="several links together, no single cut", cut=())
