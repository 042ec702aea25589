"""What is written for NCCL: by the rules of NCCL's own parser, and only what the topology knows."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from topologies import both_ways, cluster

from topotune.errors import UsageError
from topotune.topology import (
    Link,
    PcieLink,
    Source,
    Topology,
    Vertex,
    topology_from_bytes,
    topology_to_document,
)
from topotune.topology.formats import export_topology, read_files

FIXTURES = sorted((Path(__file__).parent / "fixtures" / "nccl-xml").glob("*.xml"))


class NcclParser:
    """NCCL's parser as far as it refuses: one character class after the other, attributes one blank apart."""

    ELEMENT = re.compile(
        r"[ \n]*<(?:(?P<end>/[a-z0-9]+)>|(?P<name>[a-z0-9]+)"
        r"(?P<attributes>(?: [a-z_0-9]+=\"[^\"<>&\n\t]*\")*)(?P<alone>/?)>)"
    )

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.num_elements = 0

    def element(self) -> tuple:
        found = self.ELEMENT.match(self.text, self.at)
        assert found is not None, self.text[self.at : self.at + 80]
        self.at = found.end()
        if found["end"]:
            return found["end"], {}, []
        self.num_elements += 1
        attributes = dict(re.findall(r" ([a-z_0-9]+)=\"([^\"]*)\"", found["attributes"]))
        assert len(attributes) <= 16
        assert all(len(value) <= 255 for value in attributes.values())
        children: list[tuple] = []
        while not found["alone"]:
            child = self.element()
            if child[0] == f"/{found['name']}":
                break
            children.append(child)
        assert len(children) <= 640
        return found["name"], attributes, children


def parse_as_nccl(text: str) -> tuple:
    parser = NcclParser(text)
    root = parser.element()
    assert root[0] == "system"
    assert root[1]["version"] in ("1", "2")
    assert parser.text[parser.at :].strip() == ""
    return root


def plain(element: ET.Element) -> tuple:
    return element.tag, dict(element.attrib), [plain(child) for child in element]


def written(topology: Topology, **options: str) -> str:
    return export_topology(topology, "nccl-xml", **options).text


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_import_export_import_changes_nothing_that_nccl_reads(path):
    topology = read_files([str(path)])
    for node in dict.fromkeys(vertex.node for vertex in topology.vertices if vertex.node is not None):
        text = written(topology, node=node)
        parse_as_nccl(text)
        assert parse_as_nccl(written(read_text(text))) == parse_as_nccl(text)
        through_json = topology_from_bytes(
            json.dumps(topology_to_document(topology), sort_keys=True).encode(), "t.json"
        )
        assert written(through_json, node=node) == text


def read_text(text: str) -> Topology:
    from topotune.topology.formats.capture import clean_capture
    from topotune.topology.formats.catalog import recognised
    from topotune.topology.formats.importing import read_capture_parts
    from topotune.topology.formats.join import join

    capture = clean_capture(text.encode(), "again.xml")
    return join(read_capture_parts(capture, None, recognised(capture)))


@pytest.mark.parametrize(
    "name", ["switches-dual-port", "static-without-classes", "rccl-mesh-of-three"], ids=str
)
def test_a_whole_file_comes_back_element_for_element(name):
    path = next(path for path in FIXTURES if path.stem == name)
    text = path.read_text()
    text = text[text.index("<system version", text.find("-->") + 1) :].replace("0000:C1", "0000:c1")
    assert plain(ET.fromstring(written(read_files([str(path)])))) == plain(ET.fromstring(text))


def test_odd_links_are_kept_though_no_graph_can_hold_them():
    path = next(path for path in FIXTURES if path.stem == "odd-links")
    text = written(read_files([str(path)]))
    lines = [line.strip() for line in text.splitlines() if "nvlink" in line or "c2c" in line]
    assert lines == [
        '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>',
        '<c2c bw="44712" count="10"/>',
        '<nvlink target="0001:00:00.0" count="1" tclass="0x030200"/>',
        '<nvlink target="0009:00:00.0" count="2" tclass="0x030200"/>',
        '<nvlink target="-1" count="1" tclass="0x068000"/>',
    ]
    assert '<pcilink target="0000:06:00.0"/>' in text
    assert 'affinity="ff,ffffff,ffffffff"' in text


def test_a_figure_that_was_corrected_is_the_one_that_is_written():
    path = next(path for path in FIXTURES if path.stem == "switches-dual-port")
    topology = read_files([str(path)])
    slower = replace(
        topology,
        vertices=tuple(
            replace(vertex, speed=180e9) if vertex.kind == "nic"
            else replace(vertex, pcie=PcieLink(max_speed_gt_per_s=16.0, max_width=8)) if vertex.kind == "gpu"
            else vertex
            for vertex in topology.vertices
        ),
    )  # fmt: skip
    text = written(slower)
    assert text.count('speed="180000"') == 2
    assert text.count('class="0x030200" vendor="0x10de"') == 2
    assert text.count('link_speed="16.0 GT/s PCIe" link_width="8"') == 2


def probed() -> Topology:
    """As a probe of two GPUs, one adapter, host bridges and NVLink describes it."""
    vertices = [
        Vertex(id="n/numa/0", kind="numa", node="n", index=0, cpus="0-7,16"),
        Vertex(id="n/cpu/0", kind="cpu", node="n", index=0),
        Vertex(id="n/pcie-root/pci0000:00", kind="pcie-root", node="n", numa=0),
        Vertex(id="n/pcie-root/pci0000:80", kind="pcie-root", node="n"),
        Vertex(id="n/sw", kind="pcie-switch", node="n", pci_address="0000:01:00.0"),
        *(
            Vertex(
                id=f"n/gpu/{index}", kind="gpu", node="n", index=index, pci_address=address,
                pcie=PcieLink(speed_gt_per_s=2.5, width=16, max_speed_gt_per_s=16.0, max_width=16),
            )
            for index, address in enumerate(("0000:03:00.0", "0000:81:00.0"))
        ),
        Vertex(
            id="n/nic/ib0", kind="nic", node="n", name="ib0", rdma_device="mlx5_0", index=1, state="ACTIVE",
            link_layer="InfiniBand", speed=400e9, pci_address="0000:04:00.0",
        ),
        Vertex(
            id="n/nic/ib1", kind="nic", node="n", name="ib1", rdma_device="mlx5_1", index=1, state="DOWN",
            speed=40e9, pci_address="0000:05:00.0",
        ),
        Vertex(id="n/nic/eth0", kind="nic", node="n", name="eth0", speed=10e9),
    ]  # fmt: skip
    links = [
        *both_ways("n/numa/0", "n/cpu/0", "numa"),
        *both_ways("n/pcie-root/pci0000:00", "n/numa/0", "pcie"),
        *both_ways("n/sw", "n/pcie-root/pci0000:00", "pcie"),
        *(
            link
            for name in ("gpu/0", "nic/ib0", "nic/ib1")
            for link in both_ways(f"n/{name}", "n/sw", "pcie")
        ),
        *both_ways("n/gpu/1", "n/pcie-root/pci0000:80", "pcie"),
        *both_ways("n/gpu/0", "n/gpu/1", "nvlink", lanes=4),
    ]
    return Topology(vertices=tuple(vertices), links=tuple(links), source=Source(kind="probe"))


def test_a_probed_machine_is_written_as_far_as_it_is_known():
    assert written(probed()) == (
        '<system version="1">\n'
        '  <cpu numaid="0" affinity="000100ff">\n'
        '    <pci busid="0000:01:00.0" class="0x060400">\n'
        '      <pci busid="0000:03:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">\n'
        '        <gpu dev="0">\n'
        '          <nvlink target="0000:81:00.0" count="4" tclass="0x030200"/>\n'
        "        </gpu>\n"
        "      </pci>\n"
        '      <pci busid="0000:04:00.0" class="0x020700">\n'
        "        <nic>\n"
        '          <net name="mlx5_0" speed="400000" port="1"/>\n'
        "        </nic>\n"
        "      </pci>\n"
        '      <pci busid="0000:05:00.0" class="0x020000">\n'
        "        <nic>\n"
        '          <net name="mlx5_1" port="1"/>\n'
        "        </nic>\n"
        "      </pci>\n"
        "    </pci>\n"
        "  </cpu>\n"
        '  <cpu numaid="-1">\n'
        '    <pci busid="0000:81:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">\n'
        '      <gpu dev="1">\n'
        '        <nvlink target="0000:03:00.0" count="4" tclass="0x030200"/>\n'
        "      </gpu>\n"
        "    </pci>\n"
        "  </cpu>\n"
        "</system>\n"
    )


def test_a_device_without_a_place_stands_below_its_processor_and_that_is_said():
    gpu = Vertex(id="n/gpu/0", kind="gpu", node="n", index=0, pci_address="0000:03:00.0", numa=1)
    exported = export_topology(Topology(vertices=(gpu,), links=(), source=Source(kind="x")), "nccl-xml")
    assert '<cpu numaid="1">\n    <pci busid="0000:03:00.0" class="0x030200"/>' in exported.text
    assert exported.warnings == (
        "place in the PCI tree not known, written straight below the processor: 0000:03:00.0",
    )


GPU = Vertex(id="n/gpu/0", kind="gpu", node="n", index=0, pci_address="0000:03:00.0", numa=0)


@pytest.mark.parametrize(
    ("vertices", "said"),
    [
        ([replace(GPU, pci_address=None)], "GPU 0 has no PCI address"),
        ([replace(GPU, numa=None)], "GPU 0: neither its place in the PCI tree nor its NUMA node is known"),
        ([Vertex(id="n/numa/0", kind="numa", node="n", index=0)], "the topology has no PCI device"),
        ([GPU, replace(GPU, id="m", node="m")], "the topology has 2 nodes; NCCL's file describes one"),
        ([replace(GPU, attributes={"nccl.gpu.sm": 'a"b'})], "sm='a\"b': NCCL's parser takes"),
        ([replace(GPU, attributes={"nccl.gpu.sm": "a" * 256})], "NCCL's parser takes up to 255 characters"),
    ],
)
def test_a_topology_that_does_not_know_enough_is_refused(vertices, said):
    topology = Topology(vertices=tuple(vertices), links=(), source=Source(kind="x"))
    with pytest.raises(UsageError) as refused:
        written(topology)
    assert said in refused.value.message


def test_one_node_of_several_can_be_chosen():
    topology = read_files([str(next(path for path in FIXTURES if path.stem == "two-hosts-of-one-domain"))])
    assert parse_as_nccl(written(topology, node="0xbb"))[2][0][1]["host_hash"] == "0xbb"
    with pytest.raises(UsageError, match="--node x: no such node"):
        written(topology, node="x")


def test_more_elements_than_older_versions_take_are_told():
    vertices = [Vertex(id="n/numa/0", kind="numa", node="n", index=0)]
    links: list[Link] = []
    for number in range(256):
        vertices.append(
            Vertex(id=f"n/sw{number}", kind="pcie-switch", node="n", pci_address=f"0000:{number:02x}:00.0")
        )
        links += both_ways(f"n/sw{number}", "n/numa/0", "pcie")
    exported = export_topology(
        Topology(vertices=tuple(vertices), links=tuple(links), source=Source(kind="x")), "nccl-xml"
    )
    assert exported.warnings[0].startswith("258 elements; before 2.20 NCCL takes 256")


def test_dot_and_graphml_hold_every_vertex_and_link():
    import io

    import networkx

    topology = cluster(2)
    graph = networkx.read_graphml(io.BytesIO(export_topology(topology, "graphml").text.encode()))
    assert set(graph.nodes) == {vertex.id for vertex in topology.vertices}
    assert graph.number_of_edges() == len(topology.links)
    assert graph.nodes["n0/gpu0"]["model"] == "H100"
    dot = export_topology(topology, "dot").text
    assert dot.count(" -- ") == len(topology.links) // 2
    assert all(f'"{vertex.id}" [' in dot for vertex in topology.vertices)


def test_texts_that_dot_and_xml_cannot_hold_are_escaped():
    odd = Vertex(id='a"\\', kind="gpu", node="n\n", name="\ufffe<&>", model="\x01")
    topology = Topology(vertices=(odd,), links=(), source=Source(kind="x"))
    assert '"a\\"\\\\" [' in export_topology(topology, "dot").text
    ET.fromstring(export_topology(topology, "graphml").text)


def test_other_formats_hold_the_whole_topology():
    with pytest.raises(UsageError, match="--node n0: dot holds the whole topology"):
        export_topology(cluster(2), "dot", node="n0")
    with pytest.raises(UsageError, match="--to svg: no such format"):
        export_topology(cluster(1), "svg")
