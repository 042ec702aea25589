"""Whole machines, captured: what a probe finds on them."""

from collections import Counter
from itertools import pairwise

import pytest
from sysfs_trees import HGX_GPUS, HGX_NVLINKS, Capture, RecordedNvml, hgx, small

from topotune.probe import probe
from topotune.topology import Link, PcieLink, summary, topology_from_document, topology_to_document


def kinds(topology):
    return Counter(vertex.kind for vertex in topology.vertices)


def vertex(topology, vertex_id):
    return next(each for each in topology.vertices if each.id == vertex_id)


def link(topology, src, dst):
    return next((each for each in topology.links if (each.src, each.dst) == (src, dst)), None)


def path_counts(rows):
    return Counter(row["path"] for row in rows)


def test_an_hgx_without_its_driver_shows_its_pci_tree(tmp_path):
    topology = probe(hgx(tmp_path / "root").root)
    assert kinds(topology) == {
        "numa": 2, "cpu": 2, "pcie-root": 5, "pcie-switch": 5, "gpu": 8, "nvswitch": 6, "nic": 8,
    }  # fmt: skip
    found = summary(topology)
    assert (found["num_nodes"], found["num_gpus"], found["num_nics"], found["num_numa"]) == (1, 8, 8, 2)
    assert path_counts(found["gpu_pairs"]) == {"PIX": 4, "NODE": 8, "SYS": 16}
    assert path_counts(found["gpu_nic_paths"]) == {"PIX": 16, "NODE": 16, "SYS": 32}
    assert topology.warnings == ()
    assert topology.source.kind == "captured tree"
    assert topology.source.created is None


def test_an_hgx_with_its_driver_is_joined_by_nvlink(tmp_path):
    nvml = RecordedNvml(HGX_GPUS, links=HGX_NVLINKS)
    topology = probe(hgx(tmp_path / "root").root, nvml=nvml)
    assert path_counts(summary(topology)["gpu_pairs"]) == {"NV12": 28}
    gpu = vertex(topology, "hgx-01/gpu/0")
    assert (gpu.index, gpu.model, gpu.pci_address, gpu.numa) == (0, "NVIDIA A100-SXM4-80GB", HGX_GPUS[0], 0)
    assert (gpu.uuid, gpu.memory_bytes) == ("GPU-00000000", 80 * 2**30)
    ends = ("hgx-01/gpu/0", "hgx-01/nvswitch/0000:c1:03.0")
    for src, dst in (ends, ends[::-1]):
        assert link(topology, src, dst) == Link(
            src=src,
            dst=dst,
            kind="nvlink",
            lanes=2,
            bandwidth_bytes_per_s=50e9,
            origin="observed",
            attributes={"nvidia.nvlink_version": "4"},
        )
    assert topology.source.facts["nvidia_driver"] == "570.86.15"
    assert topology.warnings == ()
    assert nvml.open == 0


def test_the_links_of_a_gpu_lead_to_its_cpu(tmp_path):
    topology = probe(hgx(tmp_path / "root").root)
    way = [
        "hgx-01/gpu/0",
        "hgx-01/pcie-switch/0000:11:00.0",
        "hgx-01/pcie-root/pci0000:10",
        "hgx-01/numa/0",
        "hgx-01/cpu/0",
    ]
    for src, dst in pairwise(way):
        assert link(topology, src, dst) is not None, (src, dst)
        assert link(topology, dst, src) is not None, (dst, src)
    first = link(topology, way[0], way[1])
    assert first.lanes == 16
    assert first.bandwidth_bytes_per_s == pytest.approx(16e9 * 16 * 128 / 130 / 8)
    assert link(topology, "hgx-01/numa/0", "hgx-01/numa/1").distance == 21


def test_an_rdma_port_and_its_interface_are_one_adapter(tmp_path):
    topology = probe(hgx(tmp_path / "root").root)
    nic = vertex(topology, "hgx-01/nic/ib3")
    assert (nic.name, nic.rdma_device, nic.link_layer, nic.state) == ("ib3", "mlx5_3", "InfiniBand", "ACTIVE")
    assert (nic.speed, nic.model, nic.numa, nic.index) == (400e9, "MT4129", 0, 1)


@pytest.mark.parametrize(
    ("ways", "word"),
    [
        (("pci0000:10/0000:10:01.0/0000:11:00.0", "pci0000:10/0000:10:02.0/0000:12:00.0"), "PHB"),
        (
            (
                "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0",
                "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:14:00.0",
            ),
            "PIX",
        ),
        (
            (
                "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0/0000:14:00.0/0000:15:00.0",
                "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0",
            ),
            "PXB",
        ),
        (
            (
                "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:13:00.0",
                "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0",
            ),
            "PXB",
        ),
        (("pci0000:10/0000:10:01.0/0000:11:00.0", "pci0000:10/0000:10:01.0/0000:11:00.1"), "PIX"),
        (("pci0000:10/0000:10:01.0/0000:11:00.0", "pci0000:20/0000:20:01.0/0000:21:00.0"), "NODE"),
        (("pci0000:10/0000:10:01.0", "pci0000:10/0000:10:02.0"), "PHB"),
    ],
    ids=[
        "two root ports",
        "one switch",
        "switches below a switch",
        "one below the other",
        "functions of one card",
        "two roots",
        "on the root",
    ],
)
def test_where_devices_sit_gives_the_word_for_their_way(tmp_path, ways, word):
    capture = Capture(tmp_path / "root")
    capture.host()
    capture.numa("0-3")
    for way in ways:
        parts = way.split("/")
        for end in range(2, len(parts)):
            if not (capture.root / "sys/devices" / "/".join(parts[:end]) / "class").exists():
                capture.pci("/".join(parts[:end]), kind="bridge")
        capture.pci(way, kind="gpu")
    assert [pair["path"] for pair in summary(probe(capture.root))["gpu_pairs"]] == [word]


def test_the_functions_of_one_card_share_one_link(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host()
    capture.numa("0-3")
    capture.pci("pci0000:10/0000:10:01.0", kind="bridge")
    for function in range(2):
        folder = capture.pci(f"pci0000:10/0000:10:01.0/0000:11:00.{function}", kind="nic")
        capture.interface(f"ens1f{function}", folder)
    topology = probe(capture.root)
    switch = "box/pcie-switch/0000:10:01.0"
    up = [
        each
        for each in topology.links
        if each.dst == "box/pcie-root/pci0000:10" and each.src.startswith("box/pcie")
    ]
    assert [(each.src, each.lanes) for each in up] == [(switch, 16)]
    assert {each.src for each in topology.links if each.dst == switch and each.kind == "pcie"} == {
        "box/nic/ens1f0", "box/nic/ens1f1", "box/pcie-root/pci0000:10",
    }  # fmt: skip


def test_a_vm_with_numa_node_minus_one_is_not_put_on_node_0(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host(cpus=4, sockets=2, hypervisor=True)
    capture.numa("0-1", "2-3")
    capture.files(
        "sys/devices/virtual/dmi/id", sys_vendor="QEMU", product_name="Standard PC (Q35 + ICH9, 2009)"
    )
    capture.link("sys/class/dmi/id", "sys/devices/virtual/dmi/id")
    for slot in (5, 6):
        capture.pci(f"pci0000:00/0000:00:0{slot}.0", kind="gpu", numa=-1, speed="Unknown", width=0)
    folder = capture.pci("pci0000:00/0000:00:03.0", kind="nic", numa=-1, vendor="0x1af4", device="0x1041",
                         speed=None, width=None, max_speed=None, max_width=None)  # fmt: skip
    capture.interface("eth0", f"{folder}/virtio1", speed=-1)
    topology = probe(capture.root)
    assert vertex(topology, "box/gpu/0").numa is None
    assert link(topology, "box/pcie-root/pci0000:00", "box/numa/0") is None
    assert vertex(topology, "box/nic/eth0").pci_address == "0000:00:03.0"
    assert [pair["path"] for pair in summary(topology)["gpu_pairs"]] == ["PHB"]
    assert topology.warnings == (
        "network speed not known: eth0",
        "NUMA node not known (numa_node is -1 or absent): 0000:00:05.0, 0000:00:06.0, eth0",
    )
    facts = topology.source.facts
    assert (facts["virtual_machine"], facts["hypervisor"], facts["dmi_vendor"]) == (True, "kvm", "QEMU")


def test_with_one_numa_node_an_unplaced_host_bridge_can_only_be_on_it(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host()
    capture.numa("0-3")
    capture.pci("pci0000:00/0000:00:05.0", kind="gpu", numa=-1)
    topology = probe(capture.root)
    assert link(topology, "box/pcie-root/pci0000:00", "box/numa/0").origin == "inferred"
    assert vertex(topology, "box/pcie-root/pci0000:00").numa is None


def test_numa_comes_from_the_driver_where_the_firmware_does_not_say(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host(cpus=4, sockets=2)
    capture.numa("0-1", "2-3")
    capture.pci("pci0000:00/0000:00:05.0", kind="gpu", numa=-1)
    topology = probe(capture.root, nvml=RecordedNvml(["0000:00:05.0"], affinity=0b10))
    assert vertex(topology, "box/gpu/0").numa == 1


def test_gpus_below_a_hidden_pci_tree_hang_on_their_numa_nodes(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host()
    capture.numa("0-3")
    topology = probe(capture.root, nvml=RecordedNvml(["0000:05:00.0", "0000:06:00.0"], affinity=1))
    assert link(topology, "box/gpu/1", "box/numa/0").bandwidth_bytes_per_s == pytest.approx(31.5e9, rel=0.01)
    assert [pair["path"] for pair in summary(topology)["gpu_pairs"]] == ["PHB"]
    assert "no PCI bus is shown here: GPUs and adapters are not placed" in topology.warnings
    assert "place in the PCI tree not known: 0000:05:00.0, 0000:06:00.0" in topology.warnings


def test_a_bus_without_its_list_is_walked(tmp_path):
    capture = small(tmp_path / "root")
    whole = probe(capture.root)
    for entry in (capture.root / "sys/bus/pci/devices").iterdir():
        entry.unlink()
    assert probe(capture.root).vertices == whole.vertices


def test_a_tree_copied_without_links_still_shows_its_devices(tmp_path):
    root = tmp_path / "root"
    capture = Capture(root)
    capture.host()
    capture.numa("0-3")
    capture.files("sys/bus/pci/devices/0000:17:00.0", **{"class": "0x030200"}, vendor="0x10de", numa_node=0)
    capture.files("sys/class/net/eth0", speed=25_000, operstate="up")
    capture.files("sys/class/net/eth0/device", uevent="DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:18:00.0")
    capture.files("sys/class/net/docker0", speed=10_000, operstate="up")
    topology = probe(root)
    assert vertex(topology, "box/nic/eth0").pci_address == "0000:18:00.0"
    assert link(topology, "box/gpu/0", "box/numa/0") is not None
    assert topology.source.facts["virtual_interfaces"] == "docker0 (bridge)"
    assert "place in the PCI tree not known: 0000:17:00.0, eth0" in topology.warnings


def test_a_container_without_sysfs_still_has_a_cpu(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.file("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 7763\n\nprocessor\t: 1\n")
    capture.file("run/.containerenv", "")
    topology = probe(capture.root)
    assert [(each.id, each.model, each.cpus) for each in topology.vertices] == [
        ("localhost/cpu/0", "AMD EPYC 7763", "0-1")
    ]
    assert topology.source.facts["container"] == "podman"
    assert topology.warnings == (
        "no PCI bus is shown here: GPUs and adapters are not placed",
        "no network interfaces are shown here",
        "no NUMA nodes are shown here",
        "CPU sockets are not known: all CPUs stand as one",
        "memory is not known: no MemTotal in /proc/meminfo",
    )


def test_a_container_reaches_the_outside_by_its_veth(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host()
    capture.interface("lo", None, speed=None, index=1, type=772)
    capture.interface("eth0", None, speed=10_000, index=2, peer=7)
    topology = probe(capture.root)
    nic = vertex(topology, "box/nic/eth0")
    assert (nic.model, nic.speed, nic.state, nic.pci_address) == ("veth", None, "up", None)


def test_on_a_host_with_cards_software_interfaces_are_no_adapters(tmp_path):
    capture = small(tmp_path / "root")
    capture.interface("docker0", None, index=3, **{"bridge/bridge_id": "8000"})
    capture.interface("veth12ab", None, index=4, peer=5)
    capture.interface("bond0", None, index=6, **{"bonding/mode": "802.3ad 4"})
    topology = probe(capture.root)
    assert [each.name for each in topology.vertices if each.kind == "nic"] == ["eth0"]
    assert topology.source.facts["virtual_interfaces"] == (
        "bond0 (bond), docker0 (bridge), lo (loopback), veth12ab (veth)"
    )


def test_a_gpu_at_rest_keeps_the_bandwidth_that_both_ends_can_do(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host()
    capture.numa("0-3")
    capture.pci("pci0000:10/0000:10:01.0", kind="bridge", speed="2.5 GT/s PCIe", max_speed="16.0 GT/s PCIe")
    capture.pci(
        "pci0000:10/0000:10:01.0/0000:11:00.0", kind="gpu", speed="2.5 GT/s PCIe", max_speed="32.0 GT/s PCIe"
    )
    topology = probe(capture.root)
    assert vertex(topology, "box/gpu/0").pcie == PcieLink(
        speed_gt_per_s=2.5, width=16, max_speed_gt_per_s=16.0, max_width=16
    )
    up = link(topology, "box/gpu/0", "box/pcie-root/pci0000:10")
    assert (up.bandwidth_bytes_per_s, up.origin) == (pytest.approx(31.5e9, rel=0.01), "spec")


def test_gpus_that_the_driver_does_not_list_are_left_out(tmp_path):
    topology = probe(hgx(tmp_path / "root").root, nvml=RecordedNvml(HGX_GPUS[:2]))
    assert kinds(topology)["gpu"] == 2
    assert topology.warnings == (
        "left out, NVIDIA GPUs on the PCI bus that NVML does not list: "
        "0000:33:00.0, 0000:34:00.0, 0000:53:00.0 and 3 more",
    )


def test_amd_gpus_are_found_beside_an_nvidia_driver(tmp_path):
    capture = small(tmp_path / "root")
    folder = capture.pci("pci0000:00/0000:00:03.0", kind="amd", device="0x74a1")
    capture.file(f"{folder}/mem_info_vram_total", str(192 * 2**30))
    topology = probe(capture.root, nvml=RecordedNvml(["0000:01:00.0"]))
    amd = vertex(topology, "box/gpu/1")
    assert (amd.model, amd.memory_bytes, amd.index) == ("1002:74a1", 192 * 2**30, None)


def test_the_kernel_module_names_a_gpu_where_nvml_cannot(tmp_path):
    gpu = vertex(probe(small(tmp_path / "root").root), "box/gpu/0")
    assert (gpu.model, gpu.uuid) == ("NVIDIA A100-SXM4-80GB", "GPU-8f3a1c2d-0000-1111-2222-333344445555")


def test_straight_nvlinks_join_gpus_and_those_that_are_down_are_told(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host()
    capture.numa("0-3")
    addresses = ["0000:05:00.0", "0000:06:00.0"]
    for number, address in enumerate(addresses):
        capture.pci(f"pci0000:00/0000:00:0{number + 1}.0", kind="bridge")
        capture.pci(f"pci0000:00/0000:00:0{number + 1}.0/{address}", kind="gpu")
    links = {(gpu, number): addresses[1 - gpu] for gpu in range(2) for number in range(6)}
    down = frozenset({(0, 3), (1, 3), (0, 5), (1, 5)})
    nvml = RecordedNvml(addresses, links=links, down=down, speed_mb_per_s=0, version=2)
    topology = probe(capture.root, nvml=nvml)
    joined = link(topology, "box/gpu/0", "box/gpu/1")
    assert (joined.lanes, joined.bandwidth_bytes_per_s, joined.origin) == (4, 100e9, "spec")
    assert topology.source.facts["inactive_nvlinks"] == "GPU 0: 3 5; GPU 1: 3 5"
    assert [pair["path"] for pair in summary(topology)["gpu_pairs"]] == ["NV4"]


def test_gpus_that_disagree_on_their_nvlinks_are_told(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host()
    addresses = ["0000:05:00.0", "0000:06:00.0"]
    links = {(0, 0): addresses[1], (0, 1): addresses[1], (1, 0): addresses[0]}
    topology = probe(capture.root, nvml=RecordedNvml(addresses, links=links))
    assert (
        "NVLinks of two GPUs do not agree: box/gpu/0 has 2 to box/gpu/1, which has 1 back"
        in topology.warnings
    )


@pytest.mark.parametrize("version", [5, 7], ids=["3.1", "5.0"])
def test_a_link_has_the_rate_of_its_gpus_model_whatever_version_the_driver_says(tmp_path, version):
    nvml = RecordedNvml(HGX_GPUS, links=HGX_NVLINKS)  # A100: 25 GB/s a link
    nvml.version, nvml.speed_mb_per_s = version, 0
    topology = probe(hgx(tmp_path / "root").root, nvml=nvml)
    rates = {link.bandwidth_bytes_per_s / link.lanes for link in topology.links if link.kind == "nvlink"}
    assert rates == {25e9}


def test_nvswitches_that_the_machine_hides_still_join_its_gpus(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host()
    addresses = ["0000:05:00.0", "0000:06:00.0"]
    links = {(gpu, number): "ffff:ff:00.0" for gpu in range(2) for number in range(18)}
    topology = probe(capture.root, nvml=RecordedNvml(addresses, links=links))
    assert [each.id for each in topology.vertices if each.kind == "nvswitch"] == ["box/nvswitch/unseen"]
    assert [pair["path"] for pair in summary(topology)["gpu_pairs"]] == ["NV18"]


@pytest.mark.parametrize(
    "broken",
    [
        frozenset({"nvmlDeviceGetFieldValues", "nvmlDeviceGetNvLinkVersion"}),
        frozenset(
            {"nvmlDeviceGetPciInfo", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetName", "nvmlDeviceGetUUID"}
        ),
        frozenset({"nvmlDeviceGetNvLinkState"}),
        frozenset({"nvmlDeviceGetCount"}),
        frozenset({"nvmlDeviceGetHandleByIndex"}),
    ],
    ids=lambda names: "+".join(sorted(names)),
)
def test_a_driver_too_old_for_a_question_leaves_a_gap(tmp_path, broken):
    topology = probe(
        hgx(tmp_path / "root").root, nvml=RecordedNvml(HGX_GPUS, links=HGX_NVLINKS, broken=broken)
    )
    assert topology_from_document(topology_to_document(topology), "again") == topology


def test_a_driver_that_does_not_start_leaves_the_gpus_of_the_bus(tmp_path):
    topology = probe(
        hgx(tmp_path / "root").root, nvml=RecordedNvml([], init_error="Driver/library version mismatch")
    )
    assert kinds(topology)["gpu"] == 8
    assert topology.source.facts["nvml"] == "Driver/library version mismatch"


def test_several_ports_of_one_function_go_by_their_number(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host()
    capture.numa("0-3")
    folder = capture.pci("pci0000:10/0000:11:00.0", kind="ib")
    capture.rdma("mlx4_0", folder, ports=2, rate="40 Gb/sec (4X QDR)")
    capture.interface("ib0", folder, speed=None)
    capture.interface("ib1", folder, speed=None, index=3)
    capture.file(f"{folder}/net/ib1/dev_port", "1")
    found = [each for each in probe(capture.root).vertices if each.kind == "nic"]
    assert [(each.name, each.rdma_device, each.index, each.speed) for each in found] == [
        ("ib0", "mlx4_0", 1, 40e9),
        ("ib1", "mlx4_0", 2, 40e9),
    ]


def test_an_efa_has_no_interface_and_no_link_layer(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host()
    capture.numa("0-3")
    folder = capture.pci("pci0000:10/0000:10:1c.0", kind="nic", vendor="0x1d0f", device="0xefa1")
    capture.rdma("rdmap16s28", folder, link_layer="Unspecified", rate="100 Gb/sec (4X EDR)")
    topology = probe(capture.root)
    efa = next(each for each in topology.vertices if each.kind == "nic")
    assert (efa.id, efa.name, efa.link_layer, efa.speed) == (
        "box/nic/rdma:rdmap16s28", "rdmap16s28", None, 100e9,
    )  # fmt: skip
    assert topology.warnings == ("no network interfaces are shown here",)


def test_memory_nodes_have_no_cpus_and_empty_nodes_are_left_out(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host()
    capture.numa("0-3", "", "")
    capture.file("sys/devices/system/node/node2/meminfo", "Node 2 MemTotal:       0 kB")
    found = [each for each in probe(capture.root).vertices if each.kind == "numa"]
    assert [(each.index, each.cpus, each.memory_bytes) for each in found] == [
        (0, "0-3", 8 * 2**30),
        (1, "", 8 * 2**30),
    ]


def test_numa_switched_off_leaves_both_sockets_on_one_node(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host(cpus=4, sockets=2)
    capture.numa("0-3")
    topology = probe(capture.root)
    assert {each.dst for each in topology.links if each.src == "box/numa/0"} == {"box/cpu/0", "box/cpu/1"}
