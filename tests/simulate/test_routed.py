"""The routed simulation against closed forms, and rules that hold on every network with affine links."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_graphs import boxes, connected_graphs, graph_of, renamed, star

from topotune.bounds import Bound, graph_allreduce_bound, graph_from_topology
from topotune.errors import UsageError
from topotune.schedule.catalog import build
from topotune.schedule.model import REDUCE, Schedule
from topotune.schedule.verify import verify
from topotune.simulate.contenders import contenders
from topotune.simulate.network import network_of_graph, network_of_topology
from topotune.simulate.rails import ring_per_rail
from topotune.simulate.routed import predict_routed
from topotune.simulate.routed_survey import curves, farthest_s
from topotune.topology.model import Link, Source, Topology, Vertex

ALPHA_S, RATE, GAMMA = 5e-6, 1_000_000_000, 1 / 4e9
SIZES = (0, 1, 1000, 2**20, 2**26)


def on_star(n, **settings_):
    return network_of_graph(star([RATE] * n), latency_s=ALPHA_S / 2, **settings_)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 8])
def test_a_ring_on_one_switch_takes_its_textbook_time(n):
    network = on_star(n, reduce_s_per_byte=GAMMA, call_overhead_s=1e-4)
    sizes = np.array(SIZES)
    textbook = 1e-4 + 2 * (n - 1) * (ALPHA_S + sizes / n / RATE) + (n - 1) * GAMMA * sizes / n
    assert predict_routed(build("ring", {}, n), network, SIZES) == pytest.approx(textbook, rel=1e-12)


def test_pieces_hide_what_is_combined_behind_the_next_transfer():
    network = on_star(4, reduce_s_per_byte=GAMMA)
    whole, cut = (
        predict_routed(build("ring", {"pieces": pieces}, 4), network, [2**26])[0] for pieces in (1, 2)
    )
    wire = 2 * 3 / 4 * 2**26 / RATE
    assert whole == pytest.approx(wire + 3 / 4 * GAMMA * 2**26, rel=1e-3)
    assert cut == pytest.approx(wire, rel=1e-3)


@pytest.mark.parametrize("n", [4, 8, 16])
def test_halving_doubling_takes_its_textbook_time(n):
    sizes = np.array(SIZES)
    textbook = 2 * math.log2(n) * ALPHA_S + 2 * (n - 1) / n * sizes / RATE
    found = predict_routed(build("halving_doubling", {}, n), on_star(n), SIZES)
    assert found == pytest.approx(textbook, rel=1e-12)


def test_recursive_doubling_crosses_a_shared_uplink_with_all_ranks_at_once():
    links = [(f"h{i}", f"rack{i // 2}", RATE) for i in range(4)]
    links += [(f"rack{i}", "spine", RATE) for i in range(2)]
    network = network_of_graph(graph_of(links, [f"h{i}" for i in range(4)]))
    found = predict_routed(build("recursive_doubling", {}, 4), network, [RATE])
    assert found == pytest.approx([1 + 2])


def test_rings_of_all_rails_fill_all_adapters():
    graph = boxes(4, 4, 100 * RATE, RATE, rails=4)
    network = network_of_graph(graph)
    nodes = [list(range(4 * box, 4 * box + 4)) for box in range(4)]
    schedule = ring_per_rail(nodes)
    assert not verify(schedule)
    assert predict_routed(schedule, network, [RATE]) == pytest.approx([2 * 15 / 16 / 4])
    one_switch = network_of_graph(boxes(4, 4, 100 * RATE, RATE))
    assert predict_routed(build("ring", {}, 16), one_switch, [RATE]) == pytest.approx([2 * 15 / 16])


@pytest.mark.parametrize("num_nodes", [1, 2, 3])
def test_rings_of_rails_are_an_allreduce_on_any_number_of_nodes(num_nodes):
    assert not verify(ring_per_rail([[3 * node + i for i in range(3)] for node in range(num_nodes)]))


def test_nodes_of_different_sizes_have_no_rails():
    with pytest.raises(UsageError, match="nodes of 1 and 2 ranks"):
        ring_per_rail([[0, 1], [2]])


def test_a_schedule_for_other_ranks_is_refused():
    with pytest.raises(UsageError, match="for 4 ranks, the network has 3"):
        predict_routed(build("ring", {}, 4), on_star(3), [1])


def test_a_schedule_without_transfers_takes_a_call():
    network = network_of_graph(graph_of([("a", "b", 1)], ["a"]), call_overhead_s=3.0)
    assert predict_routed(build("ring", {}, 1), network, [8, 9]).tolist() == [3.0, 3.0]


ALGORITHMS = [
    ("ring", {}),
    ("ring", {"channels": 2, "pieces": 2}),
    ("double_binary_tree", {"pieces": 3}),
    ("recursive_doubling", {}),
    ("halving_doubling", {}),
    ("swing", {}),
    ("bine", {}),
    ("parameter_server", {}),
]
cases = st.tuples(
    connected_graphs(),
    st.sampled_from(ALGORITHMS),
    st.sampled_from([0.0, 1e-3]),
    st.sampled_from([0.0, 1e-5]),
)


def simulated(case, schedule=None, sizes=(0, 1, 100, 200, 10_000, 20_000)):
    graph, (algorithm, params), latency_s, reduce_s_per_byte = case
    network = network_of_graph(
        graph, latency_s=latency_s, call_overhead_s=0.25, reduce_s_per_byte=reduce_s_per_byte
    )
    schedule = schedule or build(algorithm, params, len(graph.compute))
    return predict_routed(schedule, network, sizes), network


@settings(max_examples=60, deadline=None)
@given(cases)
def test_time_grows_with_size_and_twice_the_bytes_take_at_most_twice_the_time(case):
    times, _ = simulated(case)
    assert (np.diff(times) >= 0).all()
    assert times[3] <= 2 * times[2] * (1 + 1e-12)
    assert times[5] <= 2 * times[4] * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(cases)
def test_no_time_is_below_the_optimum(case):
    times, network = simulated(case, sizes=(10_000,))
    bound = graph_allreduce_bound(case[0])
    if isinstance(bound, Bound):
        assert times[0] >= (0.25 + bound.time_s(10_000)) * (1 - 1e-6)
    assert times[0] >= (0.25 + farthest_s(network)) * (1 - 1e-12)


def parts_of(schedule: Schedule, step: int) -> tuple[Schedule, Schedule]:
    """What comes before a step, and the rest."""
    columns = ("step", "channel", "src", "dst", "chunk", "op")
    return tuple(
        replace(schedule, **{name: getattr(schedule, name)[mine] for name in columns})
        for mine in (schedule.step < step, schedule.step >= step)
    )


@settings(max_examples=60, deadline=None)
@given(cases)
def test_an_allreduce_takes_no_longer_than_a_reduce_scatter_and_an_allgather(case):
    graph, *_ = case
    schedule = build("ring", {}, len(graph.compute))
    scatter, gather = parts_of(schedule, len(graph.compute) - 1)
    assert (scatter.op == REDUCE).all()
    assert not (gather.op == REDUCE).any()
    whole, *both = (simulated(case, part)[0] for part in (schedule, scatter, gather))
    assert (whole <= sum(both) * (1 + 1e-12)).all()


@settings(max_examples=40, deadline=None)
@given(cases, st.integers(0, 2**31))
def test_other_names_and_numbers_change_nothing(case, seed):
    graph, algorithm, *costs = case
    num_ranks = len(graph.compute)
    times, _ = simulated(case)
    again, _ = simulated((renamed(graph, seed), algorithm, *costs))
    assert again == pytest.approx(times, rel=1e-9)
    # Rank r becomes rank order[r], in the network and in the schedule alike.
    order = np.random.default_rng(seed).permutation(num_ranks)
    compute = [""] * num_ranks
    for rank, vertex in enumerate(graph.compute):
        compute[order[rank]] = vertex
    schedule = build(*algorithm, num_ranks)
    moved = replace(
        schedule,
        src=order[schedule.src].astype(np.int32),
        dst=order[schedule.dst].astype(np.int32),
    )
    again, _ = simulated((replace(graph, compute=tuple(compute)), algorithm, *costs), moved)
    assert again == pytest.approx(times, rel=1e-9)


@pytest.mark.parametrize(
    ("inside", "outside"),
    [((None, None), (1e9, 1e9)), ((2e9, 2e9), (1e9, 5e8)), ((None, None), (5e8, 1e9))],
    ids=["rates inside that nobody knows", "less comes back than goes out", "both"],
)
def test_a_topology_of_any_rates_has_a_forest(inside, outside):
    vertices, links = [Vertex(id="switch", kind="switch")], []
    for node in ("n0", "n1", "n2"):
        gpu, nic = f"{node}/gpu0", f"{node}/nic0"
        vertices += [Vertex(id=gpu, kind="gpu", node=node), Vertex(id=nic, kind="nic", node=node)]
        for a, b, kind, rates in ((gpu, nic, "pcie", inside), (nic, "switch", "ethernet", outside)):
            ways = ((a, b), (b, a))
            links += [
                Link(src=src, dst=dst, kind=kind, bandwidth_bytes_per_s=rate)
                for (src, dst), rate in zip(ways, rates, strict=True)
            ]
    topology = Topology(source=Source(kind="import"), vertices=tuple(vertices), links=tuple(links))
    network, graph = network_of_topology(topology), graph_from_topology(topology)
    found = curves(network, list(contenders(network, graph, "forest")), [2**26])
    bound = graph_allreduce_bound(graph)
    assert all(one.time_s[0] >= bound.time_s(2**26) for one in found)
