"""A fabric's file and one node's: the node stands for every host, its adapters take the fabric's places."""

import json
from collections import Counter
from pathlib import Path

import pytest
from reading_facts import facts_of

from topotune.errors import UsageError
from topotune.topology import Topology, render, topology_to_document
from topotune.topology.formats import read_files

NODE = """<system version="1">
  <cpu numaid="0" affinity="ff">
    <pci busid="0000:10:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:21:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
      <pci busid="0000:22:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x1" maxconn="1" gdr="1"/></nic>
      </pci>
      <pci busid="0000:31:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
      <pci busid="0000:32:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic><net name="mlx5_1" dev="1" speed="400000" port="1" guid="0x2" maxconn="1" gdr="1"/></nic>
      </pci>
    </pci>
  </cpu>
</system>
"""
TREE = "SwitchName=top Switches=l[1-2]\nSwitchName=l1 Nodes=n[1-3]\nSwitchName=l2 Nodes=n[4-6],io1\n"


def put(folder: Path, **texts: str) -> list[str]:
    paths = []
    for name, text in texts.items():
        path = folder / name
        path.write_text(text)
        paths.append(str(path))
    return paths


def cables_of(topology: Topology, host: str) -> dict[str, str]:
    """Adapter → the switch it leads to, with kind, GB/s and origin of the link."""
    names = {vertex.id: vertex for vertex in topology.vertices}
    return {
        str(names[link.src].name): f"{names[link.dst].name} {link.kind} "
        f"{(link.bandwidth_bytes_per_s or 0) / 1e9:g} {link.origin}"
        for link in topology.links
        if names[link.src].node == host and names[link.dst].kind == "switch"
    }


def test_a_node_stands_for_all_hosts_of_its_pattern(tmp_path):
    tree, node = put(tmp_path, tree=TREE, node=NODE)
    topology = read_files([tree, f"n*={node}"])
    found = facts_of(topology)
    assert found["nodes"] == ["io1", "n1", "n2", "n3", "n4", "n5", "n6"]
    assert (found["num_gpus"], found["gpu_pairs"]) == (12, {"PIX": 6})
    assert cables_of(topology, "n1") == {f"mlx5_{n}": "l1 infiniband 50 inferred" for n in range(2)}
    assert cables_of(topology, "n6") == {f"mlx5_{n}": "l2 infiniband 50 inferred" for n in range(2)}
    assert cables_of(topology, "io1") == {"None": "l2 unknown 0 observed"}
    assert [vertex.guid for vertex in topology.vertices if vertex.kind == "nic"] == [None] * 13
    assert any("n1 and 5 more hosts: all 2 adapters are taken" in line for line in topology.warnings)
    assert any("1 hosts match no pattern" in line for line in topology.warnings)
    assert topology_to_document(topology) == json.loads(json.dumps(topology_to_document(topology)))


def test_hosts_of_one_make_are_shown_once(tmp_path):
    leaves = "".join(f"SwitchName=l{n} Nodes=n[{n * 32:04d}-{n * 32 + 31:04d}]\n" for n in range(32))
    eight = NODE.replace("</cpu>", "")
    gpus = "".join(f'<pci busid="0001:{n:02x}:00.0" class="0x030200"/>' for n in range(6))
    tree, node = put(
        tmp_path,
        tree=f"SwitchName=top Switches=l[0-31]\n{leaves}",
        node=eight.replace("</system>", f"{gpus}</cpu></system>"),
    )
    topology = read_files([tree, f"*={node}"])
    assert facts_of_size(topology) == (1024, 8192)
    lines = render(topology).split("\n")
    assert lines[0].startswith("1024 nodes like this: n0000, n0001, ")
    assert sum("nodes like this" in line or line.startswith("node ") for line in lines) == 1
    assert "  tier 1   32 switches   each 64 adapters, 1 link up   400 Gbit/s" in lines
    assert max(map(len, lines)) <= 80


def facts_of_size(topology: Topology) -> tuple[int, int]:
    nodes = {vertex.node for vertex in topology.vertices} - {None}
    return len(nodes), Counter(vertex.kind for vertex in topology.vertices)["gpu"]


def test_a_host_with_a_file_of_its_own_keeps_it(tmp_path):
    other = NODE.replace("0000:31:00.0", "0000:41:00.0")
    tree, node, own = put(tmp_path, tree=TREE, node=NODE, own=other)
    topology = read_files([tree, f"n2={own}", f"n?={node}"])
    buses = {
        vertex.node: vertex.pci_address
        for vertex in topology.vertices
        if vertex.kind == "gpu" and vertex.pci_address != "0000:21:00.0"
    }
    assert buses == {f"n{n}": "0000:41:00.0" if n == 2 else "0000:31:00.0" for n in range(1, 7)}
    assert cables_of(topology, "n2") == {f"mlx5_{n}": "l1 infiniband 50 inferred" for n in range(2)}


FABRIC = """Switch	8 "S-00000000000000a0"		# "rail 0"
[1]	"H-0000000000000011"[1](11) 		# "n1 {0}" lid 5 4xHDR
[2]	"H-0000000000000013"[1](13) 		# "n2 {0}" lid 5 4xHDR

Switch	8 "S-00000000000000b0"		# "rail 1"
[1]	"H-0000000000000012"[1](12) 		# "n1 {1}" lid 5 4xHDR
[2]	"H-0000000000000014"[1](14) 		# "n2 {1}" lid 5 4xHDR
"""


@pytest.mark.parametrize("names", [("mlx5_0", "mlx5_1"), ("HCA-1", "HCA-2")], ids=["names", "numbers"])
def test_adapters_take_the_places_that_the_fabric_shows(tmp_path, names):
    fabric, node = put(tmp_path, fabric=FABRIC.format(*names), node=NODE)
    topology = read_files([fabric, f"*={node}"])
    for host in ("n1", "n2"):
        assert cables_of(topology, host) == {
            "mlx5_0": "rail 0 infiniband 25 observed",
            "mlx5_1": "rail 1 infiniband 25 observed",
        }
    told = [line for line in topology.warnings if "order of their numbers" in line]
    assert len(told) == (names[0] == "HCA-1")


def test_a_fabric_and_a_hosts_ports_meet_by_guid(tmp_path):
    ports = "".join(
        f"CA 'mlx5_{number}'\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n"
        f"\t\tRate: 200\n\t\tPort GUID: 0x{guid}\n\t\tLink layer: InfiniBand\n"
        for number, guid in ((0, 12), (1, 11))
    )
    fabric, own = put(tmp_path, fabric=FABRIC.format("HCA-1", "HCA-2"), ports=ports)
    topology = read_files([fabric, f"n1={own}"])
    assert cables_of(topology, "n1") == {
        "mlx5_1": "rail 0 infiniband 25 observed",
        "mlx5_0": "rail 1 infiniband 25 observed",
    }


def test_patterns_that_nothing_answers_are_refused(tmp_path):
    tree, node = put(tmp_path, tree=TREE, node=NODE)
    with pytest.raises(
        UsageError, match=r"x\*=…: no host without a file of its own has such a name"
    ) as refused:
        read_files([tree, f"x*={node}"])
    assert refused.value.hint == "there are: n1, n2, n3, n4, n5"
    with pytest.raises(UsageError, match="there is no file that names hosts"):
        read_files([f"*={node}"])
    with pytest.raises(UsageError, match=r"n\*=…: must be one node, and not: None"):
        read_files([tree, f"n*={tree}"])
