"""Capacity graphs and hypothesis strategies for tests of the routed simulation."""

import numpy as np
from hypothesis import strategies as st

from topotune.bounds import CapacityGraph


def graph_of(links, compute, **facts):
    """Links ``(a, b, bytes/s)``, both ways."""
    capacities = {}
    for a, b, rate in links:
        for arc in ((a, b), (b, a)):
            capacities[arc] = capacities.get(arc, 0) + rate
    return CapacityGraph(capacities=capacities, compute=tuple(compute), **facts)


def star(rates):
    return graph_of(
        [(f"h{i}", "switch", rate) for i, rate in enumerate(rates)], [f"h{i}" for i in range(len(rates))]
    )


def boxes(num_boxes, gpus, gpu_rate, nic_rate, rails=1):
    """GPUs on a switch each box, one adapter a GPU, ``rails`` fabric switches."""
    links, compute = [], []
    for box in range(num_boxes):
        for gpu in range(gpus):
            name = f"b{box}g{gpu}"
            compute.append(name)
            links.append((name, f"b{box}s", gpu_rate))
            links.append((name, f"b{box}n{gpu}", nic_rate))
            links.append((f"b{box}n{gpu}", f"rail{gpu % rails}", nic_rate))
    return graph_of(links, compute)


@st.composite
def connected_graphs(draw):
    """2 to 7 ranks, some on one vertex, on a random tree with some links more; rates of few values, so that
    ways tie."""
    num_ranks = draw(st.integers(2, 7))
    num_switches = draw(st.integers(0, 4))
    names = [f"v{i}" for i in range(num_ranks + num_switches)]
    rate = st.sampled_from([1000, 2000, 5000, 12345])
    links = [(names[i], names[draw(st.integers(0, i - 1))], draw(rate)) for i in range(1, len(names))]
    for _ in range(draw(st.integers(0, 5))):
        a, b = draw(st.integers(0, len(names) - 1)), draw(st.integers(0, len(names) - 1))
        if a != b:
            links.append((names[a], names[b], draw(rate)))
    compute = draw(st.permutations(names))[:num_ranks]
    if draw(st.booleans()):
        compute[-1] = compute[0]
    return graph_of(links, compute)


def renamed(graph, seed):
    """The same graph under other names, links in another order."""
    rng = np.random.default_rng(seed)
    vertices = list(graph.vertices)
    name = dict(zip(vertices, [f"w{i}" for i in rng.permutation(len(vertices))], strict=True))
    arcs = [((name[a], name[b]), capacity) for (a, b), capacity in graph.capacities.items()]
    rng.shuffle(arcs)
    return CapacityGraph(capacities=dict(arcs), compute=tuple(name[vertex] for vertex in graph.compute))
