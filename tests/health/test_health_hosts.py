"""A host that is looked at below a root folder: sound, and with one thing wrong at a time."""

import pytest
from hosts import Host, acs, by_code, grave
from probe.sysfs_trees import HGX_GPUS


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_a_sound_host_gives_nothing(host):
    assert host.findings() == ()


def idle_gpus(host):
    for index in range(8):
        host.file(f"{host.gpu(index)}/current_link_speed", "2.5 GT/s PCIe")


def test_gen_1_of_a_gpu_at_rest_is_power_saving(host):
    idle_gpus(host)
    assert host.findings() == ()


def narrow_gpu(host):
    host.file(f"{host.gpu(2)}/current_link_width", "8")


def narrow_and_slow_gpu(host):
    narrow_gpu(host)
    host.file(f"{host.gpu(2)}/current_link_speed", "2.5 GT/s PCIe")


def slow_gpu_at_work(host):
    idle_gpus(host)
    host.states = {5: 0}


def slow_gpu_above_rest(host):
    host.nvml_options["broken"] = frozenset({"nvmlDeviceGetPerformanceState"})
    host.file(f"{host.gpu(1)}/current_link_speed", "8.0 GT/s PCIe")


def slow_nic(host):
    host.file(f"{host.nic(3)}/current_link_speed", "8.0 GT/s PCIe")


def nvlinks_down(host):
    host.nvml_options["down"] = frozenset({(3, 3), (3, 5)})


def mig(host):
    host.mig = frozenset({0, 1})


def port_down(host):
    host.port(4, state="1: DOWN", rate="40 Gb/sec (4X QDR)")


def port_slow(host):
    host.port(6, rate="200 Gb/sec (2X NDR)")


def port_ethernet(host):
    for number in (0, 1):  # both that are behind the first GPUs' switch
        host.port(number, link_layer="Ethernet")


def no_verbs(host):
    for number in range(8):
        (host.capture.root / f"dev/infiniband/uverbs{number}").unlink()


def low_memlock(host):
    host.limits("65536")


def no_peermem(host):
    (host.capture.root / "sys/module/nvidia_peermem/refcnt").unlink()
    (host.capture.root / "sys/module/nvidia_peermem").rmdir()
    host.file("sys/module/nvidia/refcnt", "8")


def acs_on(host):
    host.file(f"{host.device('0000:11:00.0')}/config", acs(0b0001101))


def iommu_on(host):
    host.file("sys/kernel/iommu_groups/7/type", "DMA-FQ")
    host.capture.link(f"{host.gpu(0)}/iommu_group", "sys/kernel/iommu_groups/7")


def bound_away(host):
    host.status(cpus="0-3", capabilities=0)


def docker_shm(host):
    host.mounts("shm /dev/shm tmpfs rw,nosuid,nodev,noexec,relatime,size=65536k 0 0")


def nic_gone(host):
    for name in ("infiniband/mlx5_4", "net/ib4"):
        (host.capture.root / "sys/class" / name).unlink()
    for name in ("infiniband/mlx5_5", "net/ib5"):
        (host.capture.root / "sys/class" / name).unlink()
    for number in (4, 5):
        address = host.nic(number).rpartition("/")[2]
        (host.capture.root / "sys/bus/pci/devices" / address).unlink()


DEFECTS = [
    (narrow_gpu, "pcie-width", "warning", "GPU 2 (0000:33:00.0)", "x8 where both ends can do x16"),
    (narrow_and_slow_gpu, "pcie-width", "warning", "GPU 2 (0000:33:00.0)", "and 2.5 GT/s of 16"),
    (slow_gpu_at_work, "pcie-speed", "warning", "GPU 5", "2.5 GT/s where both ends can do 16 GT/s, in"),
    (slow_gpu_above_rest, "pcie-speed", "warning", "GPU 1", "8 GT/s where both ends can do 16 GT/s"),
    (slow_nic, "pcie-speed", "warning", "mlx5_3 of node hgx-01", "8 GT/s where both ends can do 16 GT/s"),
    (nvlinks_down, "nvlink-down", "error", "GPU 3", "10 of 12 NVLinks are active (down: 3, 5)"),
    (mig, "mig-on", "warning", "GPU 0 (0000:13:00.0), GPU 1 (0000:14:00.0)", "slices have neither"),
    (port_down, "port-down", "error", "mlx5_4", "InfiniBand port is DOWN, while 7 of 8 ports are up"),
    (port_slow, "port-slow", "warning", "mlx5_6", "200 Gbit/s where 7 of 8 ports of its kind"),
    (no_verbs, "rdma-unusable", "error", "mlx5_0, mlx5_1", "8 RDMA ports, and there is no /dev/infiniband"),
    (low_memlock, "memlock-limit", "error", "node hgx-01", "may lock 64 KiB of memory"),
    (no_peermem, "gpudirect-missing", "warning", "node hgx-01", "driver's modules are the closed ones"),
    (acs_on, "acs-redirects", "warning", "node hgx-01", "1 of 1 PCI bridges with ACS redirect"),
    (iommu_on, "iommu-translates", "warning", "GPU 0", "the IOMMU translates"),
    (bound_away, "cpu-affinity", "warning", "GPU 4", "may run on CPUs 0-3, and GPU 4"),
    (docker_shm, "shm-small", "warning", "node hgx-01", "/dev/shm has 64 MiB"),
    (nic_gone, "nic-not-local", "warning", "GPU 4 (0000:53:00.0), GPU 5", "by NODE, while 6"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("breaks", "code", "severity", "where", "evidence"), DEFECTS, ids=[row[0].__name__ for row in DEFECTS]
)
def test_a_defect_is_named_with_its_place_and_both_values(host, breaks, code, severity, where, evidence):
    breaks(host)
    findings = host.findings()
    assert grave(findings) == {code}
    finding = by_code(findings, code)
    assert finding.severity == severity
    assert where in finding.where
    assert evidence in finding.evidence
    assert finding.advice
    assert (finding.cost_percent is None) == ("cost not known: " in finding.evidence)


def test_shared_memory_of_some_size_is_told_and_no_more(host):
    host.mounts("shm /dev/shm tmpfs rw,size=524288k 0 0")
    finding = by_code(host.findings(), "shm-small")
    assert (finding.severity, finding.evidence) == ("info", "/dev/shm has 512 MiB: enough for few ranks")
    host.mounts("shm /dev/shm tmpfs rw,size=1048576k 0 0")
    assert "shm-small" not in {each.code for each in host.findings()}


def test_the_gravest_findings_come_first(host):
    for breaks in (mig, low_memlock):
        breaks(host)
    host.mounts("shm /dev/shm tmpfs rw,size=524288k 0 0")
    severities = [each.severity for each in host.findings()]
    assert severities == sorted(severities, key=("error", "warning", "info").index)
    assert set(severities) == {"error", "warning", "info"}


def test_ports_in_ethernet_mode_are_a_fault_where_they_stand_for_infiniband(host):
    port_ethernet(host)
    findings = [finding for finding in host.findings() if finding.code == "port-ethernet-mode"]
    assert [(finding.severity, finding.where) for finding in findings] == [
        ("warning", "mlx5_0 of node hgx-01"),
        ("warning", "mlx5_1 of node hgx-01"),
    ]
    assert "6 of its model (MT4129) are InfiniBand; it is the only one near GPU 0" in findings[0].evidence


def test_one_port_in_ethernet_mode_beside_another_near_the_same_gpus_may_be_meant(host):
    host.port(7, link_layer="Ethernet", rate="100 Gb/sec (4X EDR)")
    assert by_code(host.findings(), "port-ethernet-mode").severity == "info"


def test_a_disabled_port_is_told_and_no_fault(host):
    host.port(4, state="1: DOWN")
    topology = host.topology()
    from dataclasses import replace

    from topotune.health import examine

    disabled = tuple(
        replace(vertex, attributes={"ib.physical_state": "Disabled"}) if vertex.state == "DOWN" else vertex
        for vertex in topology.vertices
    )
    finding = by_code(examine(replace(topology, vertices=disabled)).findings, "port-down")
    assert (finding.severity, finding.cost_percent) == ("info", None)
    assert "somebody disabled it" in finding.evidence


def test_a_slow_port_costs_what_the_bound_loses(host):
    port_slow(host)
    # Two ports share a switch whose way up carries 252 Gbit/s, but the GPUs below it feed them straight; each
    # GPU's link carries 252, and there is one for each port, whose own link carries as much.
    link = 16 * 16 * 128 / 130
    lost = 1 - (7 * link + 200) / (8 * link)
    assert by_code(host.findings(), "port-slow").cost_percent == pytest.approx(100 * lost, abs=0.01)


def test_rdma_that_falls_back_to_ethernet_costs_the_ratio_of_the_rates(host):
    no_verbs(host)
    device = host.capture.pci("pci0000:c0/0000:c0:02.0", kind="nic", numa=1, device="0x1533")
    host.capture.interface("eno1", device, speed=100_000, index=40)
    finding = by_code(host.findings(), "rdma-unusable")
    assert finding.evidence.endswith("NCCL falls back to sockets, at 100 Gbit/s of 3200 Gbit/s")
    assert finding.cost_percent == pytest.approx(100 * (1 - 100 / 3200))


def test_a_process_that_may_lock_all_memory_needs_no_limit(host):
    low_memlock(host)
    host.status(cpus="0-7", capabilities=1 << 14)
    assert host.findings() == ()


def test_dma_buf_stands_in_for_peermem(host):
    no_peermem(host)
    host.kernel_module(open_module=True)
    assert host.findings() == ()


def test_an_open_module_on_an_old_kernel_has_no_dma_buf(host):
    no_peermem(host)
    host.kernel_module(open_module=True)
    host.file("proc/sys/kernel/osrelease", "5.4.0-150-generic")
    assert "kernel 5.4.0-150-generic is older" in by_code(host.findings(), "gpudirect-missing").evidence


@pytest.mark.parametrize("control", [0b0000000, 0b1010001], ids=["off", "source validation alone"])
def test_acs_that_redirects_nothing_is_no_fault(host, control):
    host.file(f"{host.device('0000:11:00.0')}/config", acs(control))
    assert host.findings() == ()


def test_an_iommu_that_passes_through_is_no_fault(host):
    iommu_on(host)
    host.file("sys/kernel/iommu_groups/7/type", "identity")
    assert host.findings() == ()


def test_a_virtual_machine_without_switches_is_told_which_file_would_help(tmp_path):
    from probe.sysfs_trees import Capture

    from topotune.health import examine
    from topotune.probe import probe

    capture = Capture(tmp_path / "root")
    capture.host(cpus=4, hypervisor=True)
    capture.file("sys/class/dmi/id/sys_vendor", "Microsoft Corporation")
    capture.file("sys/class/dmi/id/product_name", "Virtual Machine")
    for slot in range(2):
        capture.pci(f"pci000{slot + 1}:00/000{slot + 1}:00:00.0", kind="gpu", numa=-1)
    nic = capture.pci("pci0101:00/0101:00:00.0", kind="ib", numa=-1)
    capture.rdma("mlx5_0", nic)
    finding = by_code(examine(probe(capture.root)).findings, "hidden-pci-tree")
    assert finding.severity == "warning"
    assert "no PCI Express switch is shown" in finding.evidence
    assert "NCCL_TOPO_FILE=/opt/microsoft/" in finding.advice
    capture.file("etc/nccl.conf", "NCCL_TOPO_FILE=/opt/microsoft/ndv5-topo.xml")
    assert "hidden-pci-tree" not in {f.code for f in examine(probe(capture.root)).findings}


def topo_file(host, **changes):
    """NCCL is given what it would find by itself, but for what is changed in the text."""
    from topotune.topology.formats import export_topology

    text = export_topology(host.topology(), "nccl-topo-xml").text
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new, 1)
    host.file("etc/nccl.conf", "NCCL_TOPO_FILE=/etc/topo.xml")
    host.file("etc/topo.xml", text)


def test_a_topology_file_of_this_machine_is_no_fault(host):
    topo_file(host)
    assert host.findings() == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"address": (HGX_GPUS[0], "0000:1f:00.0")}, "no GPU is at 0000:1f:00.0, where it names one"),
        ({"name": ('"mlx5_3"', '"mlx5_33"')}, "no network adapter is called 'mlx5_33'"),
        ({"speed": ('speed="400000"', 'speed="100000"')}, "has 400 Gbit/s, the file says 100"),
        ({"form": ("<system", "<sistem")}, "NCCL cannot use it: "),
    ],
)
def test_a_topology_file_of_another_machine_is_found(host, changes, said):
    topo_file(host, **changes)
    finding = by_code(host.findings(), "topo-file-differs")
    assert finding.severity == "warning"
    assert said in finding.evidence
    assert finding.evidence.startswith("NCCL_TOPO_FILE is /etc/topo.xml: ")


def test_a_topology_file_that_is_not_there_is_found(host):
    host.file("etc/nccl.conf", "NCCL_TOPO_FILE=/etc/topo.xml")
    assert "it is not there" in by_code(host.findings(), "topo-file-differs").evidence


def test_minus_1_as_numa_node_is_not_known_and_not_node_0(host):
    for index in (0, 1):
        host.file(f"{host.gpu(index)}/numa_node", "-1")
    topology = host.topology()
    from dataclasses import replace

    from topotune.health import examine

    loose = replace(
        topology,
        links=tuple(
            link for link in topology.links if "gpu/0" not in link.src + link.dst or link.kind != "pcie"
        ),
    )
    finding = by_code(examine(loose).findings, "numa-unknown")
    assert (finding.severity, finding.where) == ("info", "GPU 0 (0000:13:00.0) of node hgx-01")
    assert "not node 0, but not known" in finding.evidence


def test_a_container_with_one_of_eight_gpus_says_so(host):
    host.file(".dockerenv", "")
    host.nvml_options["links"] = {}
    topology_of_one = Host.topology

    def one(self):
        from hosts import Nvml

        from topotune.probe import probe

        return probe(self.capture.root, nvml=Nvml(HGX_GPUS[:1]))

    try:
        Host.topology = one
        finding = by_code(host.findings(), "container-hides-gpus")
    finally:
        Host.topology = topology_of_one
    assert finding.severity == "warning"
    assert "1 of 8 GPUs of the PCI bus can be used here: what is found describes this docker container" in (
        finding.evidence
    )


def with_ethernet(host, fast_network=("fast0", "0000000A", "0000FFFF", 1)):
    """A 1 GbE card and a 100 GbE card; the default route leaves by the slow one."""
    for number in range(8):  # no RDMA: all goes by sockets
        (host.capture.root / f"sys/class/infiniband/mlx5_{number}").unlink()
        host.file(f"{host.nic(number)}/net/ib{number}/operstate", "down")
    for slot, name, speed in ((2, "eno1", 1_000), (3, "fast0", 100_000)):
        device = host.capture.pci(f"pci0000:c0/0000:c0:0{slot}.0", kind="nic", numa=1, device="0x1533")
        host.capture.interface(name, device, speed=speed, index=40 + slot)
    rows = [("eno1", "0000A8C0", "0000FFFF", 1)]
    if fast_network:
        rows.append(fast_network)
    host.routes(*rows, ("eno1", "00000000", "00000000", 3))


def test_a_slow_default_route_beside_a_fast_network_costs_the_ratio_of_the_rates(host):
    with_ethernet(host)
    finding = by_code(host.findings(), "slow-interface")
    assert (finding.severity, finding.where) == ("warning", "eno1 of node hgx-01")
    assert "at 1 Gbit/s where fast0 has 100 Gbit/s" in finding.evidence
    assert finding.cost_percent == pytest.approx(99.0)
    assert "NCCL_SOCKET_IFNAME=fast0" in finding.advice


def test_a_fast_interface_with_ipv6_alone_is_passed_by(host):
    with_ethernet(host, fast_network=None)
    host.file(
        "proc/net/if_inet6",
        "fe80000000000000020c29fffe000001 2b 40 20 80    fast0\n"
        "fd000000000000000000000000000002 2b 40 00 80    fast0",
    )
    finding = by_code(host.findings(), "interface-ipv6-only")
    assert (finding.severity, finding.where) == ("warning", "fast0 of node hgx-01")
    assert finding.cost_percent == pytest.approx(99.0)


def test_two_interfaces_in_one_network_are_named_with_it(host):
    with_ethernet(host, fast_network=("fast0", "0000A8C0", "0000FFFF", 1))
    finding = by_code(host.findings(), "same-subnet")
    assert finding.where == "eno1, fast0 of node hgx-01"
    assert "eno1, fast0 are all in 192.168.0.0/16" in finding.evidence


def test_a_bridge_of_containers_is_told_with_the_interface_to_use(host):
    host.capture.interface("docker0", None, speed=None, index=50, **{"bridge/bridge_id": "8000.0242"})
    with_ethernet(host)
    host.routes(
        ("fast0", "0000000A", "0000FFFF", 1),
        ("docker0", "000011AC", "0000FFFF", 1),
        ("fast0", "00000000", "00000000", 3),
    )
    finding = by_code(host.findings(), "virtual-interface")
    assert finding.severity == "info"
    assert finding.evidence.startswith("docker0 172.17.0.0/16: ")
    assert "NCCL_SOCKET_IFNAME=fast0" in finding.advice
