"""Real captures, where a folder of them lies beside the checkout: every fact that their index states.

``TOPOTUNE_CAPTURES`` names the folder; without it, ``shared/captures`` beside the repository.
"""

import os
import re
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest
from capture_index import counted, half, part, read_index
from reading_facts import facts_of, nic_label

from topotune.topology import Topology
from topotune.topology.formats import export_topology, read_files
from topotune.topology.formats.ib_fabric import IDLE_PORTS, SHARP
from topotune.topology.formats.nccl_attributes import attributes_to_write
from topotune.topology.formats.rdma_ports import RATE_LEFT_OUT

FOLDER = Path(os.environ.get("TOPOTUNE_CAPTURES") or Path(__file__).parents[3] / "shared" / "captures")
INDEX = read_index(FOLDER / "INDEX.md") if (FOLDER / "INDEX.md").is_file() else {}


def captures(folder: str, marked: str) -> list[str]:
    return [file for file, facts in INDEX.items() if file.startswith(f"{folder}/") and marked in facts]


def needs(files: list[str]) -> pytest.MarkDecorator:
    """Each file a case; one case that is skipped where there are none."""
    skip = pytest.mark.skip(reason=f"no captures in {FOLDER}")
    return pytest.mark.parametrize("file", files or [pytest.param("none", marks=skip)])


@needs(captures("nvidia-smi-topo", "header:"))
def test_matrix_of_nvidia_smi(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    found = facts_of(topology)
    header = re.search(r"header: (\d+) GPUs \+ (\d+) NIC columns", stated)
    assert header is not None
    assert (found["num_gpus"], found["num_nics"]) == (int(header[1]), int(header[2]))
    assert found["gpu_pairs"] == half(counted(part(stated, "GPU-GPU cells (ordered pairs)") or ""))
    gpu_nic = counted(part(stated, "GPU-NIC cells") or "")
    assert found["gpu_nic_paths"] == {"SYS" if word == "SOC" else word: n for word, n in gpu_nic.items()}
    tails: Counter[str] = Counter()
    for number, text in re.findall(
        r"(\d+)x ([^;]*?)(?=, \d+x |$)", part(stated, "tails after the matrix:") or ""
    ):
        tails[" / ".join(word for word in text.split(" / ") if word != "N/A")] += int(number)
    assert Counter(found["affinity"]) == tails
    check_adapters(stated, topology, found)


def check_adapters(stated: str, topology: Topology, found: dict) -> None:
    legend = part(stated, "NIC legend") or ""
    names = dict(re.findall(r"(NIC\d+)=(\w+)", legend))
    if ".." in legend:
        last = max(int(name[3:]) for name in names)
        names = {f"NIC{number}": f"mlx5_{number}" for number in range(last + 1)}
    by_gpu = re.findall(r"(GPU\d+):([\w+.]+)\((\w+)\)", part(stated, "nearest NIC per GPU:") or "")
    expected = [
        " ".join([word, *(names.get(label, label) for label in labels.split("+"))])
        for _, labels, word in by_gpu
    ]
    labels = {nic_label(vertex) for vertex in topology.vertices if vertex.kind == "nic"}
    assert set(names.values()) <= labels
    if expected:
        assert found["nearest"] == expected


def test_cells_of_mp_are_no_proof_that_nvlink_is_missing():
    files = [file for file in INDEX if "-mp-" in file]
    if not files:
        pytest.skip(f"no captures in {FOLDER}")
    for file in files:
        topology = read_files([str(FOLDER / file)])
        assert all(pair.nvlinks is None for pair in topology.pairs)
        assert any("NVLink is not shown" in warning for warning in topology.warnings)


@needs(captures("nvidia-smi-topo", "links listed"))
def test_links_of_nvidia_smi(file):
    stated = INDEX[file]
    found = facts_of(read_files([str(FOLDER / file)]))
    expected: Counter[tuple[str, str]] = Counter()
    for number, model, listed, rest in re.findall(
        r'(\d+) GPU\(s\) "([^"]+)": (\d+) links listed, (\d+ active[^;]*)', stated
    ):
        active = re.match(
            r"(\d+) active(?: \(\d+x ([\d.]+) GB/s\))?(?:, inactive link numbers ([\d,]+))?", rest
        )
        assert active is not None
        down = f", down {active[3]}" if active[3] else ""
        expected[model, f"{active[1]} of {listed} at {active[2] or '-'}{down}"] += int(number)
    models = Counter({model: number for (model, _), number in expected.items()})
    assert Counter(found["ports"]) == Counter(
        {text: sum(n for (_, other), n in expected.items() if other == text) for _, text in expected}
    )
    assert set(found["models"]) == set(models)
    assert found["num_gpus"] == sum(expected.values()) == int(stated.split(" ")[0])


@needs(captures("nvidia-smi-topo", "status cells"))
def test_p2p_of_nvidia_smi(file):
    found = facts_of(read_files([str(FOLDER / file)]))
    assert found["num_gpus"] == int(INDEX[file].split(" ")[0])
    statuses = half(counted(part(INDEX[file], "status cells") or ""))
    assert {text.split(" ")[1]: number for text, number in found["p2p"].items()} == statuses


@needs(captures("nvidia-smi-topo", "link type cells"))
def test_showtopo_of_rocm_smi(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    found = facts_of(topology)
    assert found["num_gpus"] == int(stated.split(" ")[0])
    assert found["gpu_pairs"] == half(counted(part(stated, "link type cells") or ""))
    assert found["gpu_numa"] == [int(n) for n in (part(stated, "numa node per GPU") or "").split(",")]
    assert found["affinity"] == (part(stated, "numa affinity") or "").split(",")
    weights = Counter(link.attributes["rocm-smi.weight"] for link in topology.links if link.kind == "nvlink")
    assert dict(weights) == counted(part(stated, "weight values") or "")


@needs(captures("nvidia-smi-topo", "Attached GPUs"))
def test_query_of_nvidia_smi(file):
    stated = INDEX[file]
    found = facts_of(read_files([str(FOLDER / file)]))
    speeds = {"1": 2.5, "2": 5.0, "3": 8.0, "4": 16.0, "5": 32.0}
    assert found["facts"]["nvidia_driver"] == part(stated, "driver")
    gpus = re.search(r"(\d+)x ([^:;]+): gen current (\d) max (\d).*?width current (\d+)x max (\d+)x", stated)
    assert gpus is not None
    assert found["models"] == {gpus[2]: int(gpus[1])}
    figures = [speeds[gpus[3]], int(gpus[5]), speeds[gpus[4]], int(gpus[6])]
    assert found["gpu_pcie"] == [figures] * int(gpus[1])
    buses = [text.strip() for text in (part(stated, "bus ids") or "").split(",")]
    assert found["gpu_addresses"] == [f"0000{text.lower()[8:]}" for text in buses]
    assert set(found["mig"]) == {None}
    assert found["gpu_index"] == list(range(int(gpus[1])))


@needs(captures("nccl-xml", "system version"))
def test_topology_xml_of_nccl(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    found = facts_of(topology)
    gpus = [vertex for vertex in topology.vertices if vertex.kind == "gpu"]
    nics = [vertex for vertex in topology.vertices if "nccl.net.name" in vertex.attributes]
    version = re.search(r'version="(\d)"', stated)
    assert version is not None
    assert found["facts"] == {"nccl_xml_version": version[1]}
    assert found["numa"] == [int(n) for n in (part(stated, "numaid") or "").split(",")]
    assert found["classes"] == counted(part(stated, "`<pci>`:") or "")
    elements = {name: int(n) for n, name in re.findall(r"(\d+) `<(gpu|nic|net|nvlink|xgmi)>`", stated)}
    numbered = [gpu for gpu in gpus if "nccl.gpu.dev" in gpu.attributes]
    assert (len(numbered), len(nics)) == (elements["gpu"], elements["net"])
    assert len({nic.pci_address or nic.id for nic in nics}) == elements["nic"]
    for attribute in ("sm", "gdr"):
        expected = counted(part(stated, "sm/gcn" if attribute == "sm" else "gdr") or "")
        assert dict(Counter(gpu.attributes[f"nccl.gpu.{attribute}"] for gpu in numbered)) == expected
    speeds = Counter(attributes_to_write("net", nic)["speed"] for nic in nics)
    assert dict(speeds) == counted(part(stated, "net speed (Mbit/s)") or "")
    names = part(stated, "net names") or ""
    stated_names = re.split(r", | \.\. ", names) if names else []
    assert set(stated_names) <= {nic.name for nic in nics}
    assert " .. " in names or len(stated_names) == len(nics)
    pairs = (
        [tuple(each) for each in found["nvlinks"]] if elements.get("nvlink") or elements.get("xgmi") else []
    )
    assert sum(number for number, _ in pairs) == elements.get("nvlink", elements.get("xgmi", 0))
    assert {f"({a},{b})": n for (a, b), n in Counter(pairs).items()} == {
        f"({a},{b})": int(n) for n, a, b in re.findall(r"(\d+)x \((\d+),(\d+)\)", stated)
    }
    widths = Counter(
        f'"{each.get("link_speed", "-")}" x{each.get("link_width", "-")}'
        for each in (attributes_to_write("pci", gpu) for gpu in gpus)
    )
    assert gpus == [] or dict(widths) == counted(part(stated, "GPU link") or "")
    assert found["depth"] == int(part(stated, "deepest `<pci>` nesting") or -1)
    check_round_trip(FOLDER / file, topology)


def check_round_trip(file: Path, topology: Topology) -> None:
    """What is written says all that was read, element for element, attribute for attribute."""
    text = file.read_text()
    written = export_topology(topology, "nccl-xml")
    assert plain(ET.fromstring(written.text)) == plain(ET.fromstring(text[text.index("<system") :]))


def plain(element: ET.Element) -> tuple:
    return element.tag, dict(element.attrib), [plain(child) for child in element]


@needs(captures("nccl-xml", "maxBw"))
def test_graph_print_of_nccl(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    kinds = Counter(vertex.kind for vertex in topology.vertices)
    figures = re.search(
        r"maxBw ([\d.]+), totalBw ([\d.]+) GB/s; (\d+) CPUs, (\d+) GPUs \(([^)]*)\), (\d+) NETs", stated
    )
    assert figures is not None
    assert topology.source.facts == {
        "nccl_max_bw_bytes_per_s": float(figures[1]) * 1e9,
        "nccl_total_bw_bytes_per_s": float(figures[2]) * 1e9,
    }
    assert (kinds["numa"], kinds["gpu"]) == (int(figures[3]), int(figures[4]))
    ports = [vertex for vertex in topology.vertices if "nccl.net.dev" in vertex.attributes]
    assert len(ports) == int(figures[6])
    net = re.search(r"NETs \(([^)]*) GB/s\)", stated)
    rates = Counter(f"{(port.speed or 0) / 8e9:.1f}" for port in ports)
    assert net is not None
    assert dict(rates) == counted(net[1])
    switches = re.search(r"(\d+) PCI switches \(bandwidths ([^)]*)\)", stated)
    assert switches is not None
    assert kinds["pcie-switch"] == int(switches[1])
    above = Counter(
        f"{(link.bandwidth_bytes_per_s or 0) / 1e9:.1f}"
        for link in topology.links
        if link.kind == "pcie" and is_upward(topology, link.src, link.dst)
    )
    assert dict(above) == counted(switches[2])


def is_upward(topology: Topology, src: str, dst: str) -> bool:
    """From a switch to what was named before it: the link above it."""
    order = [vertex.id for vertex in topology.vertices]
    kinds = {vertex.id: vertex.kind for vertex in topology.vertices}
    return kinds[src] == "pcie-switch" and order.index(dst) < order.index(src)


# -- ports of hosts


@needs(captures("infiniband", " CAs (mlx5"))
def test_ports_of_ibstat(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    ports = [vertex for vertex in topology.vertices if vertex.kind == "nic"]
    assert len(ports) == int(stated.split(" ")[0])
    assert {ports[0].name, ports[-1].name} == set(re.search(r"CAs \((\S+) .. (\S+)\)", stated).groups())
    found = Counter(
        f"{(port.state or '').title()}/{port.attributes['ib.physical_state']} "
        f"rate {port.attributes.get(RATE_LEFT_OUT) or f'{(port.speed or 0) / 1e9:g}'} {port.link_layer}"
        for port in ports
    )
    assert dict(found) == counted(";".join(stated.split(";")[1:2]))
    inactive = re.findall(r"(\w+)\((\w+)/(\w+), rate (\d+), (\w+)\)", part(stated, "not active:") or "")
    assert [
        (port.name, (port.state or "").title(), port.attributes["ib.physical_state"],
         port.attributes[RATE_LEFT_OUT], port.link_layer)
        for port in ports if port.state != "ACTIVE"
    ] == inactive  # fmt: skip
    assert all(port.speed is None for port in ports if port.state != "ACTIVE")


@needs(captures("infiniband", "phys 9x"))
def test_ports_of_ibstatus(file):
    stated = INDEX[file]
    ports = [each for each in read_files([str(FOLDER / file)]).vertices if each.kind == "nic"]
    assert len(ports) == int(stated.split(" ")[0])
    assert {ports[0].name, ports[-1].name} == set(re.search(r"ports \((\S+) .. (\S+)\)", stated).groups())
    states = Counter(port.state for port in ports)
    assert {f"4: {state}": number for state, number in states.items()} == counted(part(stated, "state") or "")
    physical = Counter(f"5: {port.attributes['ib.physical_state']}" for port in ports)
    assert dict(physical) == counted(part(stated, "phys") or "")
    rates = Counter(port.attributes.get(RATE_LEFT_OUT) or f"{(port.speed or 0) / 1e9:g}" for port in ports)
    expected = counted(part(stated, "rate") or "")
    assert {rate.split(" ")[0]: number for rate, number in expected.items()} == rates
    assert Counter(port.link_layer for port in ports) == counted(part(stated, "link layer") or "")
    assert all(port.speed is None for port in ports if port.link_layer == "Ethernet")


@needs(captures("infiniband", "active_mtu"))
def test_ports_of_ibv_devinfo(file):
    stated = INDEX[file]
    ports = [each for each in read_files([str(FOLDER / file)]).vertices if each.kind == "nic"]
    names = re.search(r"(\d+) devices \(([^)]*)\)", stated)
    assert names is not None
    assert (str(len(ports)), ", ".join(str(port.name) for port in ports)) == names.groups()
    for what, found in (
        ("state", [f"PORT_{port.state}" for port in ports]),
        ("link layer", [port.link_layer for port in ports]),
        ("active_mtu", [port.attributes["ib.active_mtu"] for port in ports]),
    ):
        assert Counter(found) == counted(part(stated, what) or "")


@needs(captures("infiniband", "netdevs"))
def test_interfaces_of_ibdev2netdev(file):
    stated = INDEX[file]
    ports = [each for each in read_files([str(FOLDER / file)]).vertices if each.kind == "nic"]
    assert len(ports) == int(stated.split(" ")[0])
    assert Counter(port.attributes["netdev.state"] for port in ports) == counted(stated.split(";")[1])
    assert ", ".join(f"{port.rdma_device}={port.name}" for port in ports) == part(stated, "netdevs")


@needs(captures("infiniband", "attributes of"))
def test_ports_of_a_flattened_sysfs(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    ports = [each for each in topology.vertices if each.kind == "nic"]
    attributes, devices = map(int, re.match(r"(\d+) attributes of (\d+) devices", stated).groups())
    assert (topology.source.facts["sysfs_attributes"], len(ports)) == (attributes, devices)
    states = re.search(r"state (\d+)x 4: (\w+)", stated)
    assert Counter(port.state for port in ports) == {states[2]: int(states[1])}
    rates = Counter(f"{(port.speed or 0) / 1e9:g} Gb/sec" for port in ports)
    expected = {rate.split(" (")[0]: n for rate, n in counted(part(stated, "; rate") or "").items()}
    assert dict(rates) == expected
    assert Counter(port.link_layer for port in ports) == counted(part(stated, "link layer") or "")
    assert topology.warnings == ()


# -- hwloc


@needs(captures("hwloc", "root `<topology"))
def test_machine_of_hwloc(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    found = facts_of(topology)
    facts = topology.source.facts
    kinds = Counter(vertex.kind for vertex in topology.vertices)
    version = re.search(r'<topology version="([^"]+)">', stated)
    assert version is not None
    assert facts["hwloc_xml_version"] == version[1]
    objects = {
        name: int(n)
        for n, name in re.findall(r"(\d+) (Package|NUMANode|Core|PU|Bridge|PCIDev|OSDev)\b", stated)
    }
    assert (kinds["cpu"], kinds["numa"]) == (objects["Package"], objects["NUMANode"])
    assert (facts["num_cores"], facts["num_cpus"]) == (objects["Core"], objects["PU"])
    for name, fact in (
        ("Bridge", "hwloc_bridges"), ("PCIDev", "hwloc_pci_devices"), ("OSDev", "hwloc_os_devices"),
    ):  # fmt: skip
        assert facts.get(fact, 0) == objects.get(name, 0)
    devices = part(stated, "PCI devices:") or ""
    nvidia, amd, mellanox = (
        int(re.search(rf"(\d+) {what}", devices)[1])
        for what in ("NVIDIA GPUs", "AMD GPUs", "Mellanox functions")
    )
    gpus = [vertex for vertex in topology.vertices if vertex.kind == "gpu"]
    off_bus = sum("not on PCI Express" in warning for warning in topology.warnings)
    assert len(gpus) + off_bus == nvidia + amd
    speeds = Counter(gpu.attributes["hwloc.pci_link_speed"] for gpu in gpus)
    expected = counted(part(stated, "GPU pci_link_speed (GB/s)") or "")
    assert dict(speeds) == {speed: n for speed, n in expected.items() if float(speed) > 0.25}
    operating = counted(part(stated, "OS devices") or "")
    rdma = {v.rdma_device for v in topology.vertices if v.rdma_device}
    assert len(rdma) == operating.get("mlxN_N", 0) + operating.get("rdmapNsN", 0)
    assert (
        len({v.pci_address for v in topology.vertices if (v.rdma_device or "").startswith("mlx")}) == mellanox
    )
    numbered = operating.get("nvmlN", 0) + operating.get("rsmiN", 0)
    assert sorted(gpu.index for gpu in gpus if gpu.index is not None) == list(range(numbered))
    nodes = re.search(r"NUMALatency (\d+) objs", stated)
    assert sum(found["distances"].values()) == (int(nodes[1]) * (int(nodes[1]) - 1) if nodes else 0)
    links = [link for link in topology.links if link.kind == "nvlink"]
    assert bool(links) == ("NVLinkBandwidth" in stated.split("**Note")[0])
    assert ("XGMI" in found["gpu_pairs"]) == ("XGMIHops" in stated)


def test_figures_of_the_notes_on_hwloc_files():
    if "hwloc/dgx2-16v100-12nvswitch.xml" not in INDEX:
        pytest.skip(f"no captures in {FOLDER}")
    dgx2 = read_files([str(FOLDER / "hwloc" / "dgx2-16v100-12nvswitch.xml")])
    assert Counter(vertex.kind for vertex in dgx2.vertices)["nvswitch"] == 12
    rates = Counter(link.bandwidth_bytes_per_s for link in dgx2.links if link.kind == "nvlink")
    assert rates == {25e9: 192}
    minsky = read_files([str(FOLDER / "hwloc" / "power8-minsky-4p100-nvlink.xml")])
    kinds = {vertex.id: vertex.kind for vertex in minsky.vertices}
    ends = Counter(
        frozenset((kinds[link.src], kinds[link.dst])) for link in minsky.links if link.kind == "nvlink"
    )
    assert ends == {frozenset(("gpu",)): 4, frozenset(("gpu", "cpu")): 8}
    assert {link.bandwidth_bytes_per_s for link in minsky.links if link.kind == "nvlink"} == {40e9}
    assert facts_of(read_files([str(FOLDER / "hwloc" / "lassen-ac922-4v100.xml")]))["numa"] == [0, 8]
    spark = read_files([str(FOLDER / "hwloc" / "dgx-spark-gb10.xml")])
    assert any("no proof that there are none" in warning for warning in spark.warnings)


# -- fabrics, as schedulers see them


def split(pattern: str, text: str) -> tuple[str, ...]:
    found = re.search(pattern, text)
    assert found is not None, pattern
    return found.groups()


@needs(captures("slurm", " switches: "))
def test_tree_of_slurm(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    found = facts_of(topology)
    total, leaves, inner, num_roots, roots = split(
        r"(\d+) switches: (\d+) with nodes, (\d+) inner; (\d+) root\(s\): ([^;]+)", stated
    )
    sizes = Counter(str(number) for number in found["switches"].values() if number)
    assert len(found["switches"]) == int(total)
    assert sum(sizes.values()) == int(leaves) == int(total) - int(inner)
    assert topology.source.facts["fabric_roots"] == roots
    assert len(roots.split(", ")) == int(num_roots)
    assert len(found["nodes"]) == int(split(r"(\d+) distinct node names", stated)[0])
    assert dict(sizes) == counted(part(stated, "leaf sizes") or "")
    if "alias" in stated:
        assert all("slurm.alias" in each.attributes for each in topology.vertices if each.kind == "switch")
    assert topology.warnings == ()


@needs(captures("slurm", "BlockSizes"))
def test_blocks_of_slurm(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    found = facts_of(topology)
    assert topology.source.facts["slurm_block_sizes"] == part(stated, "BlockSizes=")
    sizes = Counter(str(number) for number in found["switches"].values())
    assert sum(sizes.values()) == int(split(r"(\d+) blocks", stated)[0])
    assert dict(sizes) == counted(split(r"nodes per block ([^;]*), \d+ distinct", stated)[0])
    assert len(found["nodes"]) == int(split(r"(\d+) distinct nodes", stated)[0])
    assert topology.warnings == ()


@needs(captures("slurm", "3 topologies"))
def test_yaml_of_slurm(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    found = facts_of(topology)
    switches, nodes = split(r"tree (\d+) switches, (\d+) nodes", stated)
    assert (len(found["switches"]), len(found["nodes"])) == (int(switches), int(nodes))
    sizes, blocks = split(r"block_sizes \[(\d+)\], (\d+) blocks", stated)
    assert topology.source.facts["slurm_block_sizes"] == sizes
    assert len(found["blocks"]) == int(blocks)
    assert topology.source.facts["slurm_topologies"] == "tree: tree (default), block: block, flat: flat"
    assert any('a group called "none"' in warning for warning in topology.warnings)


# -- fabrics of InfiniBand


@needs(captures("infiniband", "from switch blocks"))
def test_fabric_of_ibnetdiscover(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    switches = [vertex for vertex in topology.vertices if vertex.kind == "switch"]
    nics = [vertex for vertex in topology.vertices if vertex.kind == "nic"]
    num_switches, num_adapters = split(r"(\d+) switches, (\d+) CAs", stated)
    aggregation = sum(int(switch.attributes.get(SHARP, "0")) for switch in switches)
    assert len(switches) == int(num_switches)
    sharp = re.search(r"(\d+) of them SHARP", stated)
    if sharp is not None:
        assert aggregation == int(sharp[1])
        assert len(nics) == int(num_adapters) - aggregation
    else:  # in an excerpt, adapters without a block of their own are named by their switches
        assert len(nics) == int(num_adapters)
    kinds = {vertex.id: vertex.kind for vertex in topology.vertices}
    between = sum(
        link.lanes or 0 for link in topology.links if kinds[link.src] == kinds[link.dst] == "switch"
    )
    assert between == int(split(r"(\d+) port lines to switches", stated)[0])
    below = sum(link.lanes or 0 for link in topology.links if kinds[link.src] == "nic")
    assert below + aggregation == int(split(r"(\d+) port lines to CAs", stated)[0])
    speed = split(r"speeds \d+x 4x(\w+)", stated)[0]
    rate = {"NDR": 400e9, "HDR": 200e9}[speed]
    assert {nic.speed for nic in nics} == {rate}
    assert {(link.bandwidth_bytes_per_s or 0) / (link.lanes or 1) for link in topology.links} == {rate / 8}
    if "described as" in stated:
        unnamed, named = split(r'(\d+) HCAs are described as "<host> HCA-N" and (\d+) as', stated)
        assert sum(nic.name is None for nic in nics) == int(unnamed)
        assert sum(nic.name is not None for nic in nics) == int(named)
    assert topology.warnings == ()


@needs(captures("infiniband", "`ibnetdiscover -p` format"))
def test_ports_of_ibnetdiscover(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    found = facts_of(topology)
    hosts = split(r"hosts \(([^)]*)\)", stated)[0]
    assert found["nodes"] == hosts.split(", ")
    connected = int(split(r"(\d+) lines describe connected ports", stated)[0])
    idle = int(split(r"(\d+) lines have no peer", stated)[0])
    assert (connected + 1) / 2 == sum(found["fabric_gb_per_s"].values())  # one link is told from one end
    assert found["fabric_gb_per_s"] == {"infiniband 1 12.5": 4}
    assert sum(int(number) for number in found["idle_ports"].values()) == idle
    assert len(found["nic_names"]) == int(split(r"(\d+) from CAs", stated)[0])


@needs(captures("infiniband", "CA blocks"))
def test_fabric_of_iblinkinfo(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    found = facts_of(topology)
    adapters, sharp, switches = split(
        r"(\d+) CA blocks \((\d+) SHARP aggregation node\), (\d+) switch", stated
    )
    assert len(found["nodes"]) == found["num_nics"] == int(adapters) - int(sharp)
    assert len(found["switches"]) == int(switches)
    (switch,) = (vertex for vertex in topology.vertices if vertex.kind == "switch")
    assert switch.attributes[SHARP] == sharp
    assert switch.attributes[IDLE_PORTS] == split(r"(\d+) ports Down", stated)[0]
    assert found["nic_gbit_per_s"] == {"200": found["num_nics"]}
    assert found["fabric_gb_per_s"] == {"infiniband 1 25": found["num_nics"]}


@needs(captures("infiniband", "port lines 8x Switch"))
def test_network_of_ibsim(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    found = facts_of(topology)
    switches, adapters = split(r"(\d+) switches, (\d+) HCAs", stated)
    assert (len(found["switches"]), found["num_nics"]) == (int(switches), int(adapters))
    assert found["fabric_gb_per_s"] == {"infiniband 1 ?": int(adapters), "infiniband 2 ?": 1}


# -- lspci


@needs(captures("lspci", "NVIDIA GPUs, "))
def test_devices_of_lspci(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    kinds = Counter(vertex.kind for vertex in topology.vertices)
    gpus, network, nvswitches = map(
        int, split(r"(\d+) NVIDIA GPUs, (\d+) Mellanox network functions, (\d+) NVSwitches", stated)
    )
    assert (kinds["gpu"], kinds["nvswitch"]) == (gpus, nvswitches)
    text = (FOLDER / file).read_text()
    nics = [vertex for vertex in topology.vertices if vertex.kind == "nic"]
    mellanox = [nic for nic in nics if "ConnectX" in str(nic.model)]
    assert len(mellanox) == network
    addresses = part(stated, "GPU bus ids")
    if addresses is not None:
        assert ", ".join(facts_of(topology)["gpu_addresses"]) == addresses
    roots = part(stated, "root buses")
    if roots is not None:
        named = {vertex.name for vertex in topology.vertices if vertex.kind == "pcie-root"}
        assert named <= {f"pci{root}" for root in roots.split(", ")}
        assert all(f"[{root}]" in text for root in roots.split(", "))


@needs(captures("lspci", "device stanzas"))
def test_links_of_lspci(file):
    stated = INDEX[file].split(". **Note")[0]
    topology = read_files([str(FOLDER / file)])
    found: Counter[tuple[str, ...]] = Counter()
    for vertex in topology.vertices:
        if vertex.kind in ("gpu", "nic") and vertex.pcie is not None:
            pcie = vertex.pcie
            figures = (pcie.max_speed_gt_per_s, pcie.max_width, pcie.speed_gt_per_s, pcie.width)
            found[(*(f"{figure:g}" for figure in figures), str(vertex.numa))] += 1
    expected: Counter[tuple[str, ...]] = Counter()
    for number, *figures in re.findall(
        r"(\d+)x (?:3D|VGA compatible|Ethernet) controller: .*? cap ([\d.]+)GT/s x(\d+) "
        r"sta Speed ([\d.]+)GT/s[^,]*, Width x(\d+).*? numa (\w+)",
        stated,
    ):
        expected[tuple(figures)] += int(number)
    assert found == expected
    if "share switch" in INDEX[file]:
        words = [str(word).split(" ")[0] for word in facts_of(topology)["nearest"]]
        assert words == ["PIX", "PIX"]


@needs(captures("lspci", "LnkCap 4x"))
def test_greps_of_lspci(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    capability, width = split(r"LnkCap 4x ([\d.]+)GT/s x(\d+)", stated)
    speed, now = split(r"LnkSta 4x Speed ([\d.]+)GT/s \(downgraded\), Width x(\d+)", stated)
    assert [vertex.kind for vertex in topology.vertices] == ["pci-device"] * 4
    for vertex in topology.vertices:
        assert vertex.pcie is not None
        assert (vertex.pcie.max_speed_gt_per_s, vertex.pcie.max_width) == (float(capability), int(width))
        assert (vertex.pcie.speed_gt_per_s, vertex.pcie.width) == (float(speed), int(now))


# -- fabrics, as clouds and their tools see them


def values_of(topology: Topology, attribute: str) -> Counter[str]:
    return Counter(v.attributes[attribute] for v in topology.vertices if attribute in v.attributes)


@needs(captures("cloud", "NetworkNodes list lengths"))
def test_instances_of_aws(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    found = facts_of(topology)
    number, types = split(r"(\d+) instances \(([^)]*)\)", stated)
    assert len(found["nodes"]) == int(number) == int(part(stated, "distinct InstanceId") or 0)
    assert dict(values_of(topology, "aws.instance_type")) == counted(types)
    layers = part(stated, "distinct nodes per layer top to bottom:") or ""
    depths = [int(text) for text in layers.split(", ")]
    assert [found["tiers"][str(tier)] for tier in range(len(depths), 0, -1)] == depths
    sizes = Counter(str(number) for number in found["switches"].values() if number)
    assert dict(sizes) == counted(part(stated, "instances per bottom node") or "")
    groups, zones = (set(values_of(topology, f"aws.{name}")) for name in ("placement_group", "zone_id"))
    assert groups == set(re.findall(r"'([^']+)'", part(stated, "group") or "")) - {"None"}
    assert zones == set(re.findall(r"'([^']+)'", part(stated, "zones") or ""))
    assert topology.warnings == ()


@needs(captures("cloud", "accelerator domain"))
def test_model_of_topograph(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    found = facts_of(topology)
    inner, root, leaves, blocks, nodes = split(
        r"(\d+) inner switches \(root (\w+)\), (\d+) leaf switches, (\d+) blocks, (\d+) nodes", stated
    )
    sizes = Counter(str(number) for number in found["switches"].values() if number)
    assert len(found["switches"]) == int(inner) + int(leaves)
    assert topology.source.facts["fabric_roots"] == root
    assert sum(sizes.values()) == int(blocks) == int(leaves)
    assert dict(sizes) == counted(part(stated, "nodes per block") or "")
    assert dict(values_of(topology, "topograph.domain")) == counted(
        part(stated, "nodes per accelerator domain") or ""
    )
    assert len(found["nodes"]) == int(nodes)
    assert topology.warnings == ()


@needs(captures("cloud", "compounded_links"))
def test_graph_of_netq(file):
    stated = INDEX[file]
    topology = read_files([str(FOLDER / file)])
    found = facts_of(topology)
    assert set(found["switches"]) == {"net-unit-l1", "net-unit-l2", "net-unit-s1"}
    assert found["nodes"] == [f"dgx-{number:02d}" for number in range(1, 9)]
    assert split(r"(\d+) hosts dgx-01..08", stated) == ("8",)
    groups, cables = map(int, split(r"(\d+) links grouping (\d+) physical links", stated))
    switches = {vertex.id for vertex in topology.vertices if vertex.kind == "switch"}
    lanes = sum(link.lanes or 0 for link in topology.links if link.src < link.dst)
    assert lanes == cables
    between = {frozenset((link.src, link.dst)) for link in topology.links if {link.src, link.dst} <= switches}
    hosts = {(v.node, link.dst) for v in topology.vertices for link in topology.links
             if link.src == v.id and v.kind == "nic"}  # fmt: skip
    assert len(between) + len(hosts) == groups
    assert topology.warnings == ()
