"""Topologies as tools describe them: what is wrong with each is named, and what is sound is left alone."""

from dataclasses import replace

import pytest
from hosts import by_code, grave

from topotune.health import examine
from topotune.topology import Link, NvlinkPort, Pair, PcieLink, Source, Topology, Vertex
from topotune.topology.formats import read_files

LEGEND = "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"


def topology(*vertices, links=(), pairs=(), ranks=(), **facts):
    return Topology(
        vertices=tuple(vertices),
        links=tuple(links),
        pairs=tuple(pairs),
        ranks=tuple(ranks),
        source=Source(kind="test", facts=facts),
    )


def gpu(index, node="a", **more):
    return Vertex(id=f"{node}/gpu/{index}", kind="gpu", node=node, index=index, **more)


def nic(name, node="a", **more):
    more = {"state": "ACTIVE", "link_layer": "InfiniBand", "speed": 400e9, "model": "MT4129"} | more
    return Vertex(id=f"{node}/nic/{name}", kind="nic", node=node, name=name, **more)


def both(a, b, kind="nvlink", **more):
    return Link(src=a, dst=b, kind=kind, **more), Link(src=b, dst=a, kind=kind, **more)


def switched(counts, model=None):
    """GPUs with so many NVLinks each to one NVSwitch."""
    vertices = [gpu(index, model=model) for index in range(len(counts))]
    links = []
    for index, count in enumerate(counts):
        if count:
            links += both(f"a/gpu/{index}", "a/sw", lanes=count, bandwidth_bytes_per_s=25e9 * count)
    return topology(*vertices, Vertex(id="a/sw", kind="nvswitch", node="a"), links=links)


def matrix(tmp_path, rows, *, nics=()):
    """``nvidia-smi topo -m`` of GPUs, and adapters, by the upper triangle's words."""
    names = [f"GPU{index}" for index in range(len(rows) - len(nics))] + list(nics)
    lines = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity"]
    lines += [f"{name}\t" + "\t".join(row.split()) + "\t\t" for name, row in zip(names, rows, strict=True)]
    file = tmp_path / "topo.txt"
    file.write_text("\n".join(lines) + LEGEND)
    return read_files([str(file)])


def codes(topology, **options):
    return grave(examine(topology, **options).findings)


# -- NVLink


def ports(active, down=()):
    return tuple(NvlinkPort(link=link, active=link not in down) for link in range(active + len(down)))


@pytest.mark.parametrize(
    ("model", "listed", "down", "expected"),
    [
        ("Tesla V100-SXM2-32GB", 4, (3, 5), "4 of 6 NVLinks are active (down: 3, 5)"),
        ("NVIDIA A100-SXM4-80GB", 11, (0,), "11 of 12 NVLinks are active (down: 0)"),
        ("NVIDIA H100 80GB HBM3", 17, (2,), "17 of 18 NVLinks are active (down: 2)"),
    ],
)
def test_a_module_with_links_down_is_held_against_its_product(model, listed, down, expected):
    one = topology(gpu(3, model=model, nvlink_ports=ports(listed, down)))
    finding = by_code(examine(one).findings, "nvlink-down")
    assert finding.severity == "error"
    assert finding.evidence.startswith(expected)


@pytest.mark.parametrize(
    ("model", "nvlink_ports"),
    [
        ("NVIDIA RTX A6000", ports(0, (0, 1, 2, 3))),
        ("NVIDIA H100 NVL", ports(12, (12, 13, 14, 15, 16, 17))),
        ("NVIDIA A100 80GB PCIe", ()),
        ("NVIDIA H100 PCIe", ports(0, (0, 1))),
        ("Tesla V100-SXM2-16GB", ()),
    ],
    ids=["no bridge", "12 of 18 by design", "none listed", "all inactive", "one module of a board"],
)
def test_a_card_without_a_bridge_is_no_fault(model, nvlink_ports):
    assert examine(topology(gpu(0, model=model, nvlink_ports=nvlink_ports))).findings == ()


def test_part_of_a_board_has_fewer_links_on_each_gpu_and_is_no_fault():
    lent = topology(*(gpu(i, model="Tesla V100-SXM2-16GB", nvlink_ports=ports(4, (4, 5))) for i in range(4)))
    assert codes(lent) == set()


def test_a_card_beside_a_bridged_pair_is_no_fault():
    pair = both("a/gpu/0", "a/gpu/1", lanes=4)
    assert examine(topology(gpu(0), gpu(1), gpu(2), links=pair)).findings == ()


def test_a_gpu_without_nvlinks_among_switched_ones_is_named_with_its_cost():
    finding = by_code(examine(switched([18, 18, 0, 18])).findings, "nvlink-missing")
    assert (finding.severity, finding.where) == ("error", "GPU 2 of node a")
    assert finding.evidence.startswith("0 NVLinks where 3 of 4 GPUs of its kind have 18")


def test_a_gpu_with_half_its_links_costs_half():
    finding = by_code(examine(switched([12, 12, 6, 12, 12, 12, 12, 12])).findings, "nvlink-unequal")
    assert finding.where == "GPU 2 of node a"
    # its own links carry the whole message once; without the fault all eight do 14/8 of it together
    assert finding.cost_percent == pytest.approx(100 * (1 - (14 / 8 / 300) / (2 / 300)), abs=0.1)


def test_one_odd_link_is_told_apart_from_a_mesh():
    mesh = [link for a in range(8) for b in range(a) for link in both(f"a/gpu/{a}", f"a/gpu/{b}", lanes=1)]
    sound = topology(*(gpu(index) for index in range(8)), links=mesh)
    assert examine(sound).findings == ()
    broken = replace(
        sound, links=tuple(link for link in mesh if {link.src, link.dst} != {"a/gpu/1", "a/gpu/5"})
    )
    assert [finding.where for finding in examine(broken).findings] == ["GPU 1 of node a", "GPU 5 of node a"]
    assert codes(broken) == {"nvlink-unequal"}


def test_three_gpus_of_a_mesh_differ_by_nature():
    links = (*both("a/gpu/0", "a/gpu/1", lanes=2), *both("a/gpu/0", "a/gpu/2", lanes=1),
             *both("a/gpu/1", "a/gpu/2", lanes=1))  # fmt: skip
    assert examine(topology(gpu(0), gpu(1), gpu(2), links=links)).findings == ()


# -- PCI Express


def test_a_narrow_link_of_an_unknown_function_is_a_fault_and_its_rate_alone_is_none():
    narrow = PcieLink(speed_gt_per_s=2.5, width=8, max_speed_gt_per_s=16.0, max_width=16)
    wide = replace(narrow, width=16)
    vertices = [
        Vertex(id=f"pci {i}", kind="pci-device", node="a", pcie=link) for i, link in enumerate((narrow, wide))
    ]
    (finding,) = examine(topology(*vertices)).findings
    assert (finding.code, finding.severity) == ("pcie-width", "warning")
    assert "x8 where both ends can do x16, and 2.5 GT/s of 16" in finding.evidence


@pytest.mark.parametrize(
    ("odd", "codes_found"),
    [
        (PcieLink(speed_gt_per_s=16.0, width=4), {"pcie-width"}),
        (PcieLink(speed_gt_per_s=8.0, width=16), {"pcie-speed"}),
        (PcieLink(), set()),
    ],
    ids=["x4", "gen 3", "not known"],
)
def test_where_ends_do_not_say_gpus_are_held_against_their_like(odd, codes_found):
    links = [PcieLink(speed_gt_per_s=16.0, width=16)] * 7 + [odd]
    assert codes(topology(*(gpu(i, pcie=link) for i, link in enumerate(links)))) == codes_found


def test_a_gpu_behind_the_chipset_costs_what_its_way_lacks():
    vertices = [
        gpu(0), gpu(1), Vertex(id="a/numa/0", kind="numa", node="a", index=0),
        Vertex(id="a/pcie-switch/c", kind="pcie-switch", node="a"),
    ]  # fmt: skip
    links = (
        *both("a/gpu/0", "a/numa/0", "pcie", lanes=16, bandwidth_bytes_per_s=24e9),
        *both("a/pcie-switch/c", "a/numa/0", "pcie", lanes=4, bandwidth_bytes_per_s=6e9),
        *both("a/gpu/1", "a/pcie-switch/c", "pcie", lanes=16, bandwidth_bytes_per_s=24e9),
    )
    (finding,) = examine(topology(*vertices, links=links)).findings
    assert (finding.code, finding.severity, finding.where) == ("narrow-way", "warning", "GPU 1 of node a")
    assert "carries 6 GB/s at a/pcie-switch/c, and 24 GB/s from the best placed GPU" in finding.evidence
    assert finding.cost_percent == pytest.approx(75.0)


# -- GPUs among themselves


@pytest.mark.parametrize(
    ("status", "words"), [("CNS", "chipset not supported"), ("GNS", "GPU not supported")]
)
def test_peer_access_that_the_driver_refuses_is_told_with_its_reason(status, words):
    pair = Pair(a="a/gpu/0", b="a/gpu/1", path="PHB", p2p={"read": status, "write": status})
    finding = by_code(examine(topology(gpu(0), gpu(1), pairs=[pair])).findings, "p2p-disabled")
    assert (finding.severity, finding.where) == ("warning", "GPU 0 and GPU 1 of node a")
    assert f"says {status} ({words}) of 1 pair" in finding.evidence


def test_a_refusal_of_amd_s_driver_names_amd_s_tool():
    pair = Pair(a="a/gpu/0", b="a/gpu/1", p2p={"any": "NS"})
    read = replace(topology(gpu(0), gpu(1), pairs=[pair]), source=Source(kind="import: amd-smi-topology"))
    assert by_code(examine(read).findings, "p2p-disabled").evidence.startswith("amd-smi topology says NS")


def test_peer_access_that_is_there_is_no_fault():
    pair = Pair(a="a/gpu/0", b="a/gpu/1", path="PHB", p2p={"read": "OK", "nvlink": "NS"})
    assert examine(topology(gpu(0), gpu(1), pairs=[pair])).findings == ()


def test_slices_and_mixed_models_are_told():
    found = examine(
        topology(gpu(0, model="A100", mig=True, mig_instances=("3g.40gb",)), gpu(1, model="H100", mig=False))
    ).findings
    assert "MIG is on (3g.40gb)" in by_code(found, "mig-on").evidence
    assert by_code(found, "mixed-gpu-models").evidence.startswith("1 × A100, 1 × H100: ")


def two_sockets():
    pairs = [
        Pair(a=f"a/gpu/{a}", b=f"a/gpu/{b}", path="NODE" if a // 2 == b // 2 else "SYS")
        for a in range(4)
        for b in range(a + 1, 4)
    ]
    return topology(*(gpu(index) for index in range(4)), pairs=pairs)


@pytest.mark.parametrize(
    ("ranks", "code", "advice"),
    [
        ((0, 2), "gpus-across-sockets", "CUDA_VISIBLE_DEVICES=0,1"),
        ((0, 1), None, None),
        ((0, 1, 2, 3), None, None),
        ((0, 2, 1, 3), "gpu-order-crosses-sockets", "CUDA_VISIBLE_DEVICES=0,1,2,3"),
        ((), None, None),
    ],
)
def test_ranks_across_sockets_are_told_where_nearer_gpus_exist(ranks, code, advice):
    placed = replace(two_sockets(), ranks=tuple(f"a/gpu/{index}" for index in ranks))
    found = examine(placed).findings
    assert [finding.code for finding in found] == ([] if code is None else [code])
    if code:
        assert found[0].advice == advice


# -- adapters


def test_gpus_without_a_local_adapter_are_named(tmp_path):
    rows = [
        "X NV4 NV4 NV4 SYS SYS", "NV4 X NV4 NV4 PIX SYS", "NV4 NV4 X NV4 SYS PIX", "NV4 NV4 NV4 X SYS SYS",
        "SYS PIX SYS SYS X SYS", "SYS SYS PIX SYS SYS X",
    ]  # fmt: skip
    finding = by_code(examine(matrix(tmp_path, rows, nics=("mlx5_0", "mlx5_1"))).findings, "nic-not-local")
    assert (finding.severity, finding.where) == ("warning", "GPU 0, GPU 3 of node node0")
    assert "mlx5_0, mlx5_1 by SYS, while GPU 1, GPU 2 have one nearer" in finding.evidence


def test_the_only_adapter_is_near_to_some_gpus_alone(tmp_path):
    rows = ["X SYS NODE", "SYS X SYS", "NODE SYS X"]
    assert (
        by_code(examine(matrix(tmp_path, rows, nics=("mlx5_0",))).findings, "nic-not-local").severity
        == "info"
    )


def test_an_adapter_on_the_socket_of_no_gpu_is_misplaced(tmp_path):
    rows = ["X PIX SYS", "PIX X SYS", "SYS SYS X"]
    finding = by_code(examine(matrix(tmp_path, rows, nics=("mlx5_0",))).findings, "nic-not-local")
    assert finding.severity == "warning"
    assert "no adapter is on the socket of any GPU" in finding.evidence


def test_a_slow_roce_port_beside_infiniband_is_told_with_the_adapters_to_name():
    slow = nic("mlx5_0", link_layer="Ethernet", speed=25e9, model="MT4117")
    finding = by_code(examine(topology(slow, nic("mlx5_2", speed=200e9))).findings, "mixed-rdma-ports")
    assert finding.severity == "info"
    assert finding.advice == "NCCL_IB_HCA==mlx5_2"


def test_one_of_two_ports_of_a_card_without_a_cable_is_no_fault():
    first = nic("rocep1s0f0", state="Down", link_layer=None, speed=None)
    assert codes(topology(first, nic("rocep1s0f1", link_layer=None))) == set()


def test_nccl_that_saw_no_gpudirect_is_told():
    found = examine(topology(gpu(0, attributes={"nccl.gpu.gdr": "0"}), nic("mlx5_0"))).findings
    assert by_code(found, "gpudirect-missing").severity == "info"


# -- nodes


def cluster(*port_counts, **last):
    nodes = []
    for number, count in enumerate(port_counts):
        name = f"n{number}"
        nodes.append(gpu(0, name, model="H100"))
        nodes += [
            nic(f"mlx5_{port}", name, **(last if number == len(port_counts) - 1 else {}))
            for port in range(count)
        ]
    return topology(*nodes)


def test_equal_nodes_give_nothing():
    assert examine(cluster(8, 8, 8)).findings == ()


def test_a_node_with_fewer_ports_costs_what_the_bound_loses():
    found = [finding for finding in examine(cluster(8, 8, 8, 4)).findings if finding.code == "unequal-nodes"]
    assert all(finding.where == "node n3" for finding in found)
    rate = next(finding for finding in found if finding.cost_percent is not None)
    assert "1600 Gbit/s together where 3 of 4 nodes have 3200 Gbit/s" in rate.evidence
    # the slow node's link must carry a whole message; all links together 6 of them over 3.5 nodes' worth
    assert rate.cost_percent == pytest.approx(100 * (1 - (6 / 4) / 2), abs=0.1)


def test_a_node_in_ethernet_mode_is_told_from_the_others():
    found = examine(cluster(8, 8, 8, link_layer="Ethernet")).findings
    assert "link layers of RDMA ports: n2 Ethernet; 2 of 3 nodes: InfiniBand" in " ".join(
        f.evidence for f in found
    )
    assert grave(found) == {"unequal-nodes"}


def test_hosts_of_a_fabric_that_no_job_runs_on_may_be_unlike():
    hosts = [nic("mlx5_0", f"n{number}") for number in range(3)] + [nic("mlx5_0", "io", speed=100e9)]
    assert codes(topology(*hosts, Vertex(id="s", kind="switch"))) == set()
    assert codes(topology(*hosts)) == {"unequal-nodes"}


def test_versions_that_differ_are_told_and_cost_nothing_known():
    topologies = cluster(1, 1, 1)
    facts = {"kernel of n0, n1": "6.8.0", "kernel of n2": "5.15.0", "nvidia_driver": "570"}
    (finding,) = examine(replace(topologies, source=Source(kind="test", facts=facts))).findings
    assert (finding.code, finding.severity, finding.where) == ("nodes-differ", "info", "node n2")
    assert finding.evidence == "kernel: n2 5.15.0; 2 of 3: 6.8.0"


def test_what_nodes_share_is_told_once_with_their_names():
    nodes = [gpu(0, f"n{number}", mig=True) for number in range(12)]
    (finding,) = examine(topology(*nodes)).findings
    assert finding.where == "GPU 0 of nodes n0, n1, n2, n3, n4, n5, n6, n7 and 4 more"


def test_ranks_bound_away_from_their_gpus_are_named():
    numa = [
        Vertex(id=f"a/numa/{i}", kind="numa", node="a", index=i, cpus=f"{8 * i}-{8 * i + 7}")
        for i in range(2)
    ]
    machine = topology(
        *numa, gpu(0, numa=0), gpu(1, numa=1), ranks=("a/gpu/0", "a/gpu/1"), usable_cpus="0-7", num_cpus=16
    )
    found = examine(machine, rank_cpus=("0-7", "8-15")).findings
    assert grave(found) == set()
    finding = by_code(examine(machine, rank_cpus=("0-7", "0-3")).findings, "cpu-affinity")
    assert finding.where == "GPU 1 of node a"
    assert finding.evidence.startswith(
        "rank 1 may run on CPUs 0-3, and GPU 1 is near CPUs 8-15 (NUMA node 1)"
    )


# -- what the processors and the process are


@pytest.mark.parametrize(("usable", "expected"), [("0", {"few-cpus"}), ("0-1", set()), ("0-7", set())])
def test_a_process_with_fewer_cpus_than_its_gpus_have_ranks_is_told_so(usable, expected):
    found = examine(topology(gpu(0), gpu(1), usable_cpus=usable, num_cpus=8)).findings
    assert {finding.code for finding in found} & {"few-cpus"} == expected


@pytest.mark.parametrize(
    ("sockets", "numa", "expected"), [(2, 1, {"numa-off"}), (2, 2, set()), (1, 1, set())]
)
def test_several_sockets_in_one_numa_node_are_told(sockets, numa, expected):
    nodes = [Vertex(id=f"a/numa/{index}", kind="numa", node="a", index=index) for index in range(numa)]
    found = examine(topology(gpu(0), gpu(1), *nodes, num_sockets=sockets)).findings
    assert {finding.code for finding in found} & {"numa-off"} == expected
