"""NCCL's cost model against figures worked out by hand, and against what is known of its choices."""

from dataclasses import replace

import pytest

from topotune.errors import UsageError
from topotune.simulate.nccl import NcclMachine, machine_of, picks
from topotune.topology.catalog import load_profile
from topotune.topology.model import Source, Topology
from topotune.topology.profile_topology import machine_network

KIB, MIB, GIB = 2**10, 2**20, 2**30
A100_BOX = NcclMachine(
    compute_capability=80,
    num_nodes=1,
    ranks_per_node=8,
    link="nvlink",
    num_channels=12,
    inside_gb_per_s=20.0,
    between_gb_per_s=0.0,
)


def hoppers(num_nodes: int, busbw: float = 370.0, capability: int = 90) -> NcclMachine:
    """Nodes of eight on a network that carries as much as their NVLinks; no NVLS."""
    return NcclMachine(
        compute_capability=capability,
        num_nodes=num_nodes,
        ranks_per_node=8,
        link="nvlink",
        num_channels=16,
        inside_gb_per_s=busbw / 16,
        between_gb_per_s=busbw / 16,
    )


def price(machine, algorithm, protocol, message_bytes):
    (found,) = [
        pick.time_s
        for pick in picks(machine, message_bytes)
        if (pick.algorithm, pick.protocol) == (algorithm, protocol)
    ]
    return found


def test_a_ring_costs_its_hops_and_its_share_of_the_channels():
    # 8.4 µs, 14 hops of 3.4 µs; 240 GB/s of bus bandwidth are 240 · 8 / 14 of algorithm bandwidth
    expected_us = 8.4 + 14 * 3.4 + GIB / (1000 * 240 * 8 / 14)
    assert price(A100_BOX, "ring", "simple", GIB) == pytest.approx(expected_us * 1e-6)


def test_ll_is_capped_by_the_generation_of_the_gpu():
    # half of 240 is more than the 87.7 GB/s of Ampere
    expected_us = 6.6 + 14 * 0.6 + MIB / (1000 * 87.7 * 8 / 14)
    assert price(A100_BOX, "ring", "ll", MIB) == pytest.approx(expected_us * 1e-6)


def test_a_tree_is_corrected_by_size_and_climbs_between_nodes():
    machine = hoppers(4)
    # from three nodes on a channel carries 36 at most; 92 % of 23.125 is less; 1 MiB is corrected by 0.5
    algbw = 370 * 0.92 * 0.5 * 0.5
    expected_us = 8.4 + 2 * (7 * 4.0 + 2 * 14.0) + MIB / (1000 * algbw)
    assert price(machine, "tree", "simple", MIB) == pytest.approx(expected_us * 1e-6)


def test_a_ring_over_several_nodes_pays_more_latency_once_its_chunks_are_long():
    machine = hoppers(2)
    hops_us = 8.4 + (30 - 2) * 3.4 + 2 * 14.0
    least = 64 * 16 * 16
    of_bytes_us = least / (1000 * 370 * 16 / 30)
    assert price(machine, "ring", "simple", least) == pytest.approx((1.4 * hops_us + of_bytes_us) * 1e-6)
    assert price(machine, "ring", "simple", least - 1) == pytest.approx(
        (hops_us + of_bytes_us) * 1e-6, rel=1e-4
    )


@pytest.mark.parametrize(
    ("machine", "near"),
    [
        (hoppers(2), 24 * MIB),
        (hoppers(4), 64 * MIB),
        (hoppers(16), 3 * GIB),
        (hoppers(64), 16 * GIB),
        (hoppers(4, 80.0, 80), 16 * MIB),
        (hoppers(16, 80.0, 80), 96 * MIB),
    ],
)
def test_rings_take_over_from_trees_where_others_found_them_to(machine, near):
    def algorithm(message_bytes):
        return picks(machine, message_bytes)[0].algorithm

    assert algorithm(near // 4) == "tree"
    assert algorithm(near * 8) == "ring"


def test_nvls_is_for_large_messages_of_boxes_with_enough_hoppers():
    box = machine_of(machine_network(load_profile("dgx-h100"), 1))
    assert box.has_nvls
    assert picks(box, MIB)[0].algorithm == "ring"
    assert picks(box, 64 * MIB)[0].algorithm == "nvls"
    few = replace(box, ranks_per_node=4)
    assert {pick.algorithm for pick in picks(few, 64 * MIB)} == {"ring", "tree"}
    assert {pick.algorithm for pick in picks(replace(box, num_nodes=4, between_gb_per_s=12.0), MIB)} == {
        "ring",
        "tree",
        "nvls_tree",
    }


def test_ll128_needs_nvlinks():
    of_pci = replace(A100_BOX, link="pci")
    assert "ll128" not in {pick.protocol for pick in picks(of_pci, MIB)}


@pytest.mark.parametrize(
    ("name", "nodes", "busbw"),
    [
        ("dgx-a100", 1, 240.0),  # twelve links of 20
        ("dgx-a100", 2, 192.0),  # eight adapters of 24
        ("aws-p4d.24xlarge", 2, 48.0),  # four of 12
        ("dgx-1v", 1, 120.0),
        ("azure-nd40rs_v2", 2, 12.0),
    ],
)
def test_a_machine_has_the_bandwidth_that_nccl_counts(name, nodes, busbw):
    machine = machine_of(machine_network(load_profile(name), nodes))
    each = machine.inside_gb_per_s if nodes == 1 else machine.between_gb_per_s
    assert machine.num_channels * each == pytest.approx(busbw)
    assert machine.num_ranks == 8 * nodes


@pytest.mark.parametrize(
    ("name", "cpu"),
    [
        ("dgx-a100", "amd"),
        ("azure-nd96asr_v4", "amd"),
        ("aws-p5.48xlarge", "amd"),
        ("oci-bm.gpu4.8", "amd"),
        ("aws-p4d.24xlarge", "intel"),
        ("dgx-h100", "intel"),
    ],
)
def test_known_machines_have_the_processors_that_their_profiles_name(name, cpu):
    assert machine_of(machine_network(load_profile(name), 2)).cpu == cpu


def test_several_nodes_are_priced_by_their_processors():
    amd = machine_of(machine_network(load_profile("dgx-a100"), 2))
    intel = replace(amd, cpu="intel")
    # LL of all channels: 22.5 GB/s, not 39; the 28 hops inside a node wait for posting, twice as long
    latency_us = 6.6 + 28 * 2.0 + 2 * 2.7
    assert price(amd, "ring", "ll", MIB) == pytest.approx((latency_us + MIB / (22.5e3 * 16 / 30)) * 1e-6)
    assert price(intel, "ring", "ll", MIB) < price(amd, "ring", "ll", MIB)


def test_what_nccl_does_not_run_on_has_no_model():
    with pytest.raises(UsageError, match="needs the model of the GPUs"):
        machine_of(Topology(vertices=(), links=(), source=Source(kind="x")))
    with pytest.raises(UsageError, match="is no GPU that NCCL"):
        machine_of(machine_network(load_profile("mi300x-8gpu"), 1))
    with pytest.raises(UsageError, match="NVLinks between nodes"):
        machine_of(machine_network(load_profile("gb200-nvl72"), None))
