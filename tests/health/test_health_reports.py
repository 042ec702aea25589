"""Fifteen kinds of public reports of what went wrong: for each, the finding that would have said so before.

Each is a folder of small files as the tools of that report would have printed them, or a host's tree.
"""

from dataclasses import replace

import pytest
from hosts import Host, Nvml
from probe.sysfs_trees import HGX_GPUS, Capture

from topotune.health import examine
from topotune.health.checked import check_measured, check_topology
from topotune.links.foreign import read_measurement
from topotune.probe import probe
from topotune.probe.host_names import HOST_NAME_ADDRESSES, NAMES_ON_LOOPBACK, NAMES_UNRESOLVED
from topotune.topology.formats import read_files
from topotune.topology.gather import gather_topologies

LEGEND = "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"


def xml(*cpus):
    return '<system version="1">\n' + "".join(cpus) + "</system>\n"


def cpu(numa, *below, host=None):
    hash_ = "" if host is None else f' host_hash="{host}"'
    return f'<cpu{hash_} numaid="{numa}" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">' + (
        "".join(below) + "</cpu>\n"
    )


def xml_gpu(address, dev, *links):
    slot = 'vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16"'
    gpu = f'<gpu dev="{dev}" sm="90" rank="{dev}" gdr="1">{"".join(links)}</gpu>'
    return f'<pci busid="{address}" class="0x030200" {slot}>{gpu}</pci>\n'


def xml_nvlink(target, count, tclass="0x068000"):
    return f'<nvlink target="{target}" count="{count}" tclass="{tclass}"/>'


def nvlinks(model, *gpus):
    """``nvidia-smi nvlink -s``: of each GPU its links, ``+`` and ``-`` for those that are up and down."""
    lines = []
    for index, links in enumerate(gpus):
        lines.append(f"GPU {index}: {model} (UUID: GPU-00000000-0000-0000-0000-00000000000{index})")
        lines += [
            f"\t Link {number}: {'25.781 GB/s' if link == '+' else '<inactive>'}"
            for number, link in enumerate(links)
        ]
        if not links:
            lines.append("\t NVML: Unable to retrieve NVLink information as all links are inActive")
    return "\n".join(lines)


def ibstat(*ports):
    return "".join(
        f"CA '{name}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: {state}\n"
        f"\t\tPhysical state: {'LinkUp' if state == 'Active' else 'Polling'}\n\t\tRate: {rate}\n"
        f"\t\tBase lid: 1\n\t\tPort GUID: 0x{number:016x}\n\t\tLink layer: {layer}\n"
        for number, (name, state, rate, layer) in enumerate(ports)
    )


SMI_Q = """==============NVSMI LOG==============

Attached GPUs                             : 2
GPU 00000000:01:00.0
    Product Name                          : NVIDIA GeForce RTX 4090
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : {generation}
            Link Width
                Max                       : 16x
                Current                   : {width}x
    Performance State                     : P0
GPU 00000000:41:00.0
    Product Name                          : NVIDIA GeForce RTX 4090
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 4
            Link Width
                Max                       : 16x
                Current                   : 16x
    Performance State                     : P0
"""
LSPCI = """00:01.0 PCI bridge: Intel Corporation Device 352a (prog-if 00 [Normal decode])
\tBus: primary=00, secondary=01, subordinate=01, sec-latency=0
\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 16GT/s, Width x16
\tCapabilities: [148 v1] Access Control Services
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-

01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 16GT/s, Width x16

00:03.0 PCI bridge: Intel Corporation Device 352b (prog-if 00 [Normal decode])
\tBus: primary=00, secondary=02, subordinate=02, sec-latency=0
\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-

02:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM L1
\t\tLnkSta:\tSpeed 16GT/s, Width x16
"""
FOUR_TWO_PORTS = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tmlx5_1\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tNV4\tNV4\tNV4\tSYS\tSYS\t0-15\t0\n"
    "GPU1\tNV4\t X \tNV4\tNV4\tPIX\tSYS\t16-31\t1\n"
    "GPU2\tNV4\tNV4\t X \tNV4\tSYS\tPIX\t32-47\t2\n"
    "GPU3\tNV4\tNV4\tNV4\t X \tSYS\tSYS\t48-63\t3\n"
    "mlx5_0\tSYS\tPIX\tSYS\tSYS\t X \tSYS\n"
    "mlx5_1\tSYS\tSYS\tPIX\tSYS\tSYS\t X \n" + LEGEND
)
RACK = xml(
    *(
        cpu(
            node,
            *(
                xml_gpu(f"000{node}:0{gpu}:00.0", 2 * node + gpu, *links)
                for gpu, links in enumerate(
                    [[xml_nvlink("fffffff:ffff:ff", 18)], [] if node else [xml_nvlink("fffffff:ffff:ff", 18)]]
                )
            ),
        )
        for node in range(2)
    )
)
ODD_LINK = xml(
    cpu(
        0,
        *(
            xml_gpu(
                f"0000:1{gpu}:00.0",
                gpu,
                *([xml_nvlink(f"0000:0{n}:00.0", 3) for n in range(6)] if gpu else []),
            ).replace("></gpu>", ">" + xml_nvlink("-1", 1, "0x030200") + "</gpu>")
            for gpu in range(4)
        ),
    )
)
MIG = (
    "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-00000000-0000-0000-0000-000000000000)\n"
    "  MIG 3g.20gb     Device  0: (UUID: MIG-00000000-0000-0000-0000-000000000001)\n"
    "  MIG 3g.20gb     Device  1: (UUID: MIG-00000000-0000-0000-0000-000000000002)\n"
)

CAPTURES = {
    "3. GPUs without a local adapter": (
        {"topo.txt": FOUR_TWO_PORTS},
        "nic-not-local",
        ("GPU 0", "GPU 3"),
    ),
    "4. ACS in the way of peers": ({"lspci.txt": LSPCI}, "acs-redirects", ("2 ", "bridges")),
    "5a. two of six NVLinks inactive": (
        {"nvlink.txt": nvlinks("Tesla V100-SXM2-32GB", "++++++", "+++-+-")},
        "nvlink-down",
        ("GPU 1", "4 of 6"),
    ),
    "5b. one GPU with a single odd NVLink": ({"topo.xml": ODD_LINK}, "nvlink-unequal", ("GPU 0",)),
    "7. a GPU without its record among 18 links each": ({"rack.xml": RACK}, "nvlink-missing", ("GPU 3",)),
    "10a. a slow RoCE port beside InfiniBand": (
        {
            "ibstat.txt": ibstat(
                ("mlx5_0", "Active", 25, "Ethernet"),
                ("mlx5_2", "Active", 200, "InfiniBand"),
                ("mlx5_3", "Active", 200, "InfiniBand"),
            )
        },
        "mixed-rdma-ports",
        ("NCCL_IB_HCA==mlx5_2,mlx5_3",),
    ),
    "10b. a node without InfiniBand": (
        {
            "a=a.txt": ibstat(("mlx5_0", "Active", 200, "InfiniBand")),
            "b=b.txt": ibstat(("mlx5_0", "Active", 200, "InfiniBand")),
            "c=c.txt": ibstat(("mlx5_0", "Active", 200, "Ethernet")),
        },
        "unequal-nodes",
        ("c Ethernet", "2 of 3 nodes: InfiniBand"),
    ),
    "11. slices of one GPU": ({"list.txt": MIG}, "mig-on", ("slice",)),
    "13a. a riser at 2.5 GT/s": ({"q.txt": SMI_Q.format(generation=1, width=16)}, "pcie-speed", ("GPU 0",)),
    "13b. a slot with four lanes": (
        {"q.txt": SMI_Q.format(generation=4, width=4)},
        "pcie-width",
        ("x4", "x16"),
    ),
}


def said(finding):
    return f"{finding.where}: {finding.evidence}; {finding.advice}"


def files_of(folder, contents):
    names = []
    for name, content in contents.items():
        node, _, file = name.rpartition("=")
        (folder / file).write_text(content)
        names.append(f"{node}={folder / file}" if node else str(folder / file))
    return names


@pytest.mark.parametrize("report", CAPTURES)
def test_what_a_report_is_of_is_found_in_its_captures(tmp_path, report):
    contents, code, words = CAPTURES[report]
    check = check_topology(read_files(files_of(tmp_path, contents)))
    texts = [said(finding) for finding in check.findings if finding.code == code]
    assert texts, [finding.code for finding in check.findings]
    assert any(all(word in text for word in words) for text in texts), texts


@pytest.mark.parametrize(
    ("model", "gpus"),
    [
        ("NVIDIA RTX A6000", ["++++", "++++", ""]),
        ("NVIDIA L4", ["", ""]),
        ("NVIDIA H100 NVL", ["+" * 12 + "-" * 6] * 2),
        ("NVIDIA A100-PCIE-40GB", ["-" * 12]),
    ],
    ids=["a card without a bridge", "cards without any", "12 of 18 bridged", "a lone card"],
)
def test_6_cards_without_bridges_raise_no_alarm(tmp_path, model, gpus):
    check = check_topology(read_files(files_of(tmp_path, {"nvlink.txt": nvlinks(model, *gpus)})))
    assert [finding.code for finding in check.findings if finding.severity != "info"] == []


def hidden_tree(folder):
    capture = Capture(folder / "root")
    capture.host(cpus=4, hypervisor=True)
    for slot in range(2):
        capture.pci(f"pci000{slot + 1}:00/000{slot + 1}:00:00.0", kind="gpu", numa=-1)
    capture.rdma("mlx5_0", capture.pci("pci0101:00/0101:00:00.0", kind="ib", numa=-1))
    return probe(capture.root)


def wrong_topo_file(folder):
    host = Host(folder)
    host.file("etc/nccl.conf", "NCCL_TOPO_FILE=/etc/topo.xml")
    host.file("etc/topo.xml", xml(cpu(0, xml_gpu("0000:99:00.0", 0))))
    return host.topology()


def one_gpu_of_eight(folder):
    host = Host(folder)
    host.file(".dockerenv", "")
    return probe(host.capture.root, nvml=Nvml(HGX_GPUS[:1]))


def container_bridge(folder):
    host = Host(folder)
    for slot, name in ((2, "eno1"), (3, "eno2")):
        device = host.capture.pci(f"pci0000:c0/0000:c0:0{slot}.0", kind="nic", numa=1, device="0x1533")
        host.capture.interface(name, device, speed=25_000, index=40 + slot)
    host.capture.interface("docker0", None, speed=None, index=50, **{"bridge/bridge_id": "8000.0242"})
    host.routes(("eno1", "0000000A", "0000FFFF", 1), ("docker0", "000011AC", "0000FFFF", 1))
    return host.topology()


def own_name_at_home(folder):
    host = Host(folder)
    host.file("etc/hosts", "127.0.0.1 localhost\n127.0.1.1 hgx-01.example.org HGX-01 # by the installer\n")
    return host.topology()


def with_facts(topology, **facts):
    return replace(topology, source=replace(topology.source, facts={**topology.source.facts, **facts}))


def own_name_nowhere(folder):
    return with_facts(Host(folder).topology(), **{HOST_NAME_ADDRESSES: "none"})


def names_of_others(folder):
    told = {NAMES_UNRESOLVED: "hgx-03", NAMES_ON_LOOPBACK: "hgx-02"}
    return with_facts(Host(folder).topology(), **told)


def numa_unknown(folder):
    capture = Capture(folder / "root")
    capture.host(cpus=4, sockets=2)
    capture.numa("0-1", "2-3")
    capture.pci("pci0000:17/0000:17:00.0", kind="gpu", numa=-1)
    return probe(capture.root)


@pytest.mark.parametrize(
    ("machine", "code", "words"),
    [
        pytest.param(
            hidden_tree, "hidden-pci-tree", "NCCL_TOPO_FILE", id="1. a virtual machine's hidden tree"
        ),
        pytest.param(
            wrong_topo_file,
            "topo-file-differs",
            "no GPU is at 0000:99:00.0",
            id="2. a file of another machine",
        ),
        pytest.param(one_gpu_of_eight, "container-hides-gpus", "1 of 8 GPUs", id="8. a container"),
        pytest.param(container_bridge, "virtual-interface", "NCCL_SOCKET_IFNAME=eno1", id="9. docker0"),
        pytest.param(own_name_at_home, "host-name-loopback", "resolves to 127.0.1.1", id="12a. 127.0.1.1"),
        pytest.param(own_name_nowhere, "host-name-unresolved", "no address", id="12b. no address"),
        pytest.param(
            names_of_others,
            "peer-names-unresolved",
            "to its own loopback: hgx-02; to no address: hgx-03",
            id="12c. names of others",
        ),
        pytest.param(numa_unknown, "numa-unknown", "not node 0, but not known", id="14. numa_node -1"),
    ],
)
def test_what_a_report_is_of_is_found_on_its_host(tmp_path, machine, code, words):
    texts = [said(finding) for finding in examine(machine(tmp_path)).findings if finding.code == code]
    assert any(words in text for text in texts), texts


def test_15_two_nodes_are_no_measure_of_more(tmp_path):
    size, time_us = 2**30, 4_600.0
    rate = size / time_us / 1e3
    ranks = "".join(
        f"#  Rank {rank:2d} Group  0 Pid  1 on  n{rank // 8} device  {rank % 8} [0x{rank:02x}] NVIDIA H100\n"
        for rank in range(16)
    )
    row = f"  {time_us:.1f}  {rate:.2f}  {rate * 1.875:.2f}  0"
    (tmp_path / "run.txt").write_text(
        f"# Collective test starting: all_reduce_perf\n{ranks}"
        "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
        f"  {size}  {size // 4}  float  sum  -1{row}{row}\n# Out of bounds values : 0 OK\n"
    )
    check = check_measured(read_measurement([str(tmp_path / "run.txt")]), None)
    (finding,) = [finding for finding in check.findings if finding.code == "two-nodes"]
    assert "do not extrapolate to more nodes" in finding.advice


def test_12_a_name_that_leads_home_is_graver_where_others_are_there(tmp_path):
    topology = own_name_at_home(tmp_path)
    assert {each.severity for each in examine(topology).findings if each.code == "host-name-loopback"} == {
        "info"
    }
    pair = gather_topologies([topology, topology])
    assert {each.severity for each in examine(pair).findings if each.code == "host-name-loopback"} == {
        "warning"
    }
