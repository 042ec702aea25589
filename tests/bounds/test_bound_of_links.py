import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from link_models import links_of

from topotune.bounds import (
    Bound,
    NoBound,
    allreduce_bound,
    graph_allreduce_bound,
    graph_from_links,
    graph_from_topology,
)
from topotune.links import LinkModel, SharedCapacity
from topotune.topology.model import Link, Source, Topology, Vertex

MIB8 = 8 * 2**20


def limit(name, rate, sources, sinks, *, is_limit=True):
    pairs = frozenset(itertools.product(sources, sinks))
    return SharedCapacity(name=name, capacity_bytes_per_s=rate, pairs=pairs, is_limit=is_limit)


def cluster(node_bits_per_s, ranks_per_node, *, racks=None, uplink_bits_per_s=0.0, order=None):
    """A lab cluster at line rate: a limit each way for each node, and for each rack of nodes."""
    num_ranks = len(node_bits_per_s) * ranks_per_node
    place = order or list(range(num_ranks))
    node_of_rank = [0] * num_ranks
    for position, rank in enumerate(place):
        node_of_rank[rank] = position // ranks_per_node
    members = [[r for r in range(num_ranks) if node_of_rank[r] == n] for n in range(len(node_bits_per_s))]
    sets = [(f"link of node {'abcdefgh'[n]}", bits / 8, members[n]) for n, bits in enumerate(node_bits_per_s)]
    for number, nodes in enumerate(racks or ()):
        sets.append(
            (f"uplink of rack r{number + 1}", uplink_bits_per_s / 8, [r for n in nodes for r in members[n]])
        )
    shared = []
    for name, rate, inside in sets:
        outside = [rank for rank in range(num_ranks) if rank not in inside]
        shared.append(limit(f"{name}, sending", rate, inside, outside))
        shared.append(limit(f"{name}, receiving", rate, outside, inside))
    return links_of(node_of_rank, shared)


@pytest.mark.parametrize(
    ("model", "milliseconds", "text", "cut"),
    [
        pytest.param(
            cluster([200e6] * 2, 4),
            336,
            "link of each of the 2 nodes, 200 Mbit/s",
            ("ranks 0-3", "ranks 4-7"),
            id="2x4",
        ),
        pytest.param(
            cluster([200e6] * 4, 2),
            503,
            "link of each of the 4 nodes, 200 Mbit/s",
            ("ranks 0-1", "ranks 2-3", "ranks 4-5", "ranks 6-7"),
            id="4x2",
        ),
        pytest.param(
            cluster([200e6] * 4, 2, order=[0, 4, 1, 5, 2, 6, 3, 7]),
            503,
            "link of each of the 4 nodes, 200 Mbit/s",
            ("ranks 0,4", "ranks 1,5", "ranks 2,6", "ranks 3,7"),
            id="4x2-scattered",
        ),
        pytest.param(
            cluster([200e6, 200e6, 50e6, 200e6], 2),
            1342,
            "link of node c, 50 Mbit/s",
            ("ranks 4-5",),
            id="4x2-degraded",
        ),
        pytest.param(
            cluster([200e6] * 4, 2, racks=[(0, 1), (2, 3)], uplink_bits_per_s=100e6),
            671,
            "uplink of rack r1, 100 Mbit/s",
            None,
            id="racks-2x2x2",
        ),
        pytest.param(
            cluster([200e6] * 8, 1),
            587,
            "link of each of the 8 nodes, 200 Mbit/s",
            tuple(f"rank {rank}" for rank in range(8)),
            id="8x1",
        ),
    ],
)
def test_bounds_of_the_lab_clusters(model, milliseconds, text, cut):
    bound = allreduce_bound(model)
    assert isinstance(bound, Bound)
    assert round(bound.time_s(MIB8) * 1e3) == milliseconds
    assert bound.percent_of_optimum(MIB8, 2 * bound.time_s(MIB8)) == pytest.approx(50)
    if cut is not None:
        assert (bound.text, bound.cut) == (text, cut)
    else:
        assert "uplink of rack r" in bound.text
        assert "100 Mbit/s" in bound.text
        assert {"ranks 0-3", "ranks 4-7"} & set(bound.cut)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (cluster([1e9], 4), "all ranks share one machine's memory, where no link bounds them"),
        (cluster([1e9], 1), "a single rank exchanges nothing"),
    ],
)
def test_one_machine_has_no_bound_and_says_why(model, reason):
    assert allreduce_bound(model) == NoBound(reason=reason)


def test_capacities_that_are_no_limits_bound_nothing():
    model = cluster([1e9, 1e9], 2)
    soft = tuple(
        SharedCapacity(name=s.name, capacity_bytes_per_s=s.capacity_bytes_per_s, pairs=s.pairs)
        for s in model.shared
    )
    assert graph_from_links(with_shared(model, soft)) is None
    assert allreduce_bound(with_shared(model, soft)) == NoBound(
        reason="no limit of the links between the nodes is known"
    )


def with_shared(model, shared):
    return LinkModel(
        num_ranks=model.num_ranks,
        classes=model.classes,
        pair_class=model.pair_class,
        class_names=model.class_names,
        node_of_rank=model.node_of_rank,
        shared=shared,
    )


def test_a_node_without_a_known_limit_only_loosens_the_bound():
    model = cluster([200e6] * 4, 2)
    known = tuple(shared for shared in model.shared if "node a" not in shared.name)
    bound = allreduce_bound(with_shared(model, known))
    assert bound.time_s(MIB8) == pytest.approx(MIB8 / 25e6)  # one node's whole message, both ways
    assert bound.text == "link of node b, 200 Mbit/s"


def test_nodes_stand_round_one_fabric():
    graph = graph_from_links(cluster([200e6] * 4, 2))
    assert graph.vertices == ("fabric", "ranks 0-1", "ranks 2-3", "ranks 4-5", "ranks 6-7")
    assert graph.compute == tuple(f"ranks {2 * node}-{2 * node + 1}" for node in range(4) for _ in range(2))
    assert set(graph.capacities.values()) == {25_000_000}


def test_one_unlimited_direction_is_no_limit():
    model = cluster([200e6] * 3, 1)
    sending = tuple(shared for shared in model.shared if "sending" in shared.name)
    bound = allreduce_bound(with_shared(model, sending))
    assert bound.time_s(MIB8) == pytest.approx(4 / 3 * MIB8 / 25e6)
    assert bound.text == "link of each of the 3 nodes, 200 Mbit/s"


@given(st.integers(2, 16), st.integers(1, 4), st.floats(1e6, 1e11))
@settings(deadline=None, max_examples=50)
def test_bound_is_not_above_the_ring_nor_the_two_level_time(num_nodes, ranks_per_node, bits_per_s):
    bound = allreduce_bound(
        cluster([bits_per_s] * num_nodes if num_nodes <= 8 else [bits_per_s] * 8, ranks_per_node)
    )
    nodes = min(num_nodes, 8)
    n, rate = nodes * ranks_per_node, bits_per_s / 8
    assert bound.time_s(MIB8) <= 2 * (n - 1) / n * MIB8 / rate * (1 + 1e-5)
    assert bound.time_s(MIB8) == pytest.approx(2 * (nodes - 1) / nodes * MIB8 / rate, rel=1e-5)


@given(
    st.lists(st.integers(10, 500), min_size=2, max_size=5),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=30)
def test_relabelling_ranks_changes_no_time(megabits, ranks_per_node, rng):
    rates = [rate * 1e6 for rate in megabits]
    order = list(range(len(rates) * ranks_per_node))
    rng.shuffle(order)
    plain = allreduce_bound(cluster(rates, ranks_per_node))
    shuffled = allreduce_bound(cluster(rates, ranks_per_node, order=order))
    assert shuffled.s_per_byte == pytest.approx(plain.s_per_byte, rel=1e-9)


def test_limits_that_cross_each_other_are_left_out():
    model = cluster([200e6] * 4, 1)
    crossing = limit("odd, sending", 1.0, [0, 1], [2, 3])
    also = limit("odder, sending", 1.0, [1, 2], [0, 3])
    bound = allreduce_bound(with_shared(model, (crossing, also)))
    assert bound.s_per_byte == pytest.approx(1.0)  # one of them holds; both together fit no tree


def chain(*bandwidths):
    """GPUs in a row, joined by links of these bandwidths (None: unknown)."""
    ids = [f"g{i}" for i in range(len(bandwidths) + 1)]
    links = [
        Link(src=a, dst=b, kind="nvlink", bandwidth_bytes_per_s=bandwidth)
        for (x, y), bandwidth in zip(itertools.pairwise(ids), bandwidths, strict=True)
        for a, b in ((x, y), (y, x))
    ]
    vertices = tuple(Vertex(id=name, kind="gpu") for name in ids)
    return Topology(vertices=vertices, links=tuple(links), source=Source(kind="test"))


def test_topology_is_bounded_by_its_narrowest_link():
    bound = graph_allreduce_bound(graph_from_topology(chain(50e9, 25e9)))
    assert bound.time_s(25e9) == pytest.approx(1.0)
    assert bound.text == "nvlink link of g1 to g2, 200 Gbit/s"
    assert bound.cut == ("g2",)


def test_links_of_unknown_bandwidth_do_not_bound():
    graph = graph_from_topology(chain(None, 25e9))
    assert graph.compute == ("g0", "g0", "g2")
    assert graph_allreduce_bound(graph).time_s(25e9) == pytest.approx(1.0)
    assert isinstance(graph_allreduce_bound(graph_from_topology(chain(None, None))), NoBound)


def test_shuffled_topology_has_the_same_bound():
    topology = chain(50e9, 25e9, 75e9)
    links = list(topology.links)
    random.Random(0).shuffle(links)
    shuffled = Topology(vertices=topology.vertices[::-1], links=tuple(links), source=topology.source)
    assert graph_allreduce_bound(graph_from_topology(shuffled)) == graph_allreduce_bound(
        graph_from_topology(topology)
    )


def test_links_of_a_graph_are_in_the_same_order_in_every_run():
    """Forests follow it; the order of a set of names would be another one in each process."""
    graph = graph_from_topology(chain(*[50e9] * 20))
    assert list(graph.capacities) == sorted(graph.capacities)
