"""Known machines on fat trees and rails: as many ranks as anyone has, and no time below the bound."""

import pytest

from topotune.bounds import graph_from_topology
from topotune.bounds.bound import graph_allreduce_bound
from topotune.errors import UsageError
from topotune.simulate.machine_fabric import machine_fabric
from topotune.simulate.patterns import patterns
from topotune.simulate.routed import predict_steps
from topotune.simulate.routed_survey import farthest_s
from topotune.topology.catalog import load_profile
from topotune.topology.profile_topology import machine_network

H100 = load_profile("dgx-h100")
SIZES = [2**20, 2**30, 2**34]


@pytest.mark.parametrize(
    ("num_nodes", "text"),
    [(4, "the links of each GPU, 500 GB/s"), (8, "the 8 adapters of each node, 400 GB/s together")],
)
def test_a_full_fabric_has_the_bound_of_one_switch(num_nodes, text):
    _, bound = machine_fabric(H100, num_nodes)
    searched = graph_allreduce_bound(graph_from_topology(machine_network(H100, num_nodes)))
    assert bound.s_per_byte == pytest.approx(searched.s_per_byte)
    assert bound.text == text


@pytest.mark.parametrize("rails", [False, True])
@pytest.mark.parametrize("oversubscription", [1.0, 4.0, 100.0])
def test_no_time_is_below_the_bound(rails, oversubscription):
    network, bound = machine_fabric(H100, 64, oversubscription=oversubscription, rails=rails)
    for name, steps in patterns(8).items():
        times_s = predict_steps(steps(network.num_ranks), network, SIZES)
        for size, time_s in zip(SIZES, times_s, strict=True):
            assert time_s >= bound.time_s(size) + farthest_s(network), name


def test_uplinks_that_carry_little_are_the_bottleneck():
    _, bound = machine_fabric(H100, 64, oversubscription=100.0)
    assert bound.text == "the uplink of each leaf, 128 GB/s"
    assert bound.s_per_byte == pytest.approx(2 * (1 / 2) / 128e9)


def test_65536_ranks_are_timed():
    network, bound = machine_fabric(H100, 8192, oversubscription=2.0, rails=True)
    assert network.num_ranks == 65536
    (time_s,) = predict_steps(dict(patterns(8))["halving_doubling"](65536), network, [2**30])
    assert bound.time_s(2**30) < time_s < 10 * bound.time_s(2**30)


@pytest.mark.parametrize(
    ("name", "nodes", "said"),
    [
        ("aws-p4d.24xlarge", 8, "8 GPUs, 4 adapters"),
        ("dgx-1v", 8, "NVSwitches join all GPUs"),
        ("gb200-nvl72", 4, "NVSwitches join all GPUs"),
        ("dgx-h100", 1, "of 2 to 16384 such nodes"),
        ("dgx-h100", 16385, "of 2 to 16384 such nodes"),
        ("dgx-h100", 33, "do not fill leaves of 32"),
    ],
)
def test_other_machines_and_counts_are_refused(name, nodes, said):
    with pytest.raises(UsageError, match=said):
        machine_fabric(load_profile(name), nodes)
