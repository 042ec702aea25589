"""Several files: of one machine they fill each other in, of several they stand side by side."""

import json
import re
from pathlib import Path

import pytest
from reading_facts import facts_of

from topotune.errors import InputFileError, UsageError
from topotune.topology import topology_to_document
from topotune.topology.formats import export_topology, read_files
from topotune.topology.formats.catalog import reader_named

FIXTURES = Path(__file__).parent / "fixtures"

XML = """<system version="1">
  <cpu numaid="0" affinity="0000ffff">
    <pci busid="0000:21:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16"/>
    <pci busid="0000:22:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
      <nic><net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" maxconn="1" gdr="1"/></nic>
    </pci>
  </cpu>
  <cpu numaid="1" affinity="ffff0000">
    <pci busid="0000:c1:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16"/>
  </cpu>
</system>
"""
LEGEND = "\n  NV#  = NVLinks\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
MATRIX = (
    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tNV4\tPHB\t0-15\t0\n"
    "GPU1\tNV4\t X \tSYS\t16-31\t1\n"
    "NIC0\tPHB\tSYS\t X \t\t\n" + LEGEND
)
LINKS = "".join(
    f"GPU {gpu}: NVIDIA A40 (UUID: GPU-0000000{gpu}-0000-0000-0000-000000000000)\n"
    + "".join(f"\t Link {link}: 14.062 GB/s\n" for link in range(4))
    for gpu in range(2)
)


def query(*buses: str, driver: str = "570.1") -> str:
    text = f"Driver Version                            : {driver}\n"
    text += f"Attached GPUs                             : {len(buses)}\n"
    for number, bus in enumerate(buses):
        text += f"GPU {bus}\n    Product Name                          : NVIDIA A40\n"
        text += (
            f"    GPU UUID                              : GPU-0000000{number}-0000-0000-0000-000000000000\n"
        )
    return text


QUERY = query("00000000:21:00.0", "00000000:C1:00.0")


def put(folder: Path, **texts: str) -> list[str]:
    paths = []
    for name, text in texts.items():
        path = folder / name
        path.write_text(text)
        paths.append(str(path))
    return paths


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2), (2, 0, 3, 1)], ids=str)
def test_files_of_one_machine_fill_each_other_in_whatever_their_order(tmp_path, order):
    files = put(tmp_path, xml=XML, matrix=MATRIX, links=LINKS, query=QUERY)
    topology = read_files([files[at] for at in order])
    found = facts_of(topology)
    assert (found["num_gpus"], found["num_nics"]) == (2, 1)
    assert sorted(
        vertex.id for vertex in topology.vertices if vertex.kind in ("gpu", "nic", "numa")
    ) == sorted(vertex.id for vertex in topology.vertices)
    gpu = {vertex.index: vertex for vertex in topology.vertices if vertex.kind == "gpu"}[1]
    assert (gpu.pci_address, gpu.uuid, gpu.model) == (
        "0000:c1:00.0", "GPU-00000001-0000-0000-0000-000000000000", "NVIDIA A40",
    )  # fmt: skip
    assert (gpu.numa, gpu.cpu_affinity) == (1, "16-31")
    assert gpu.pcie is not None
    assert gpu.pcie.max_width == 16
    assert found["ports"] == ["4 of 4 at 14.062"] * 2
    assert found["gpu_pairs"] == {"NV4": 1}
    assert found["nearest"] == ["PHB mlx5_0", "SYS mlx5_0"]
    assert found["nic_gbit_per_s"] == {"200": 1}
    assert found["nvlink_gb_per_s"] == [14.062]


def test_numbers_meet_addresses_in_the_drivers_order_and_that_is_said(tmp_path):
    topology = read_files(put(tmp_path, matrix=MATRIX, xml=XML))
    assert [(v.index, v.pci_address) for v in topology.vertices if v.kind == "gpu"] == [
        (0, "0000:21:00.0"),
        (1, "0000:c1:00.0"),
    ]
    assert any("in ascending order, as the driver numbers them" in line for line in topology.warnings)


def test_the_same_file_twice_changes_nothing(tmp_path):
    (file,) = put(tmp_path, matrix=MATRIX)
    assert read_files([file, file]).vertices == read_files([file]).vertices


SWITCHED = XML.replace(
    '<pci busid="0000:21', '<pci busid="0000:20:00.0" class="0x060400"><pci busid="0000:21'
).replace("</cpu>", "</pci></cpu>", 1)
OTHER_BUS = query("00000000:21:00.0", "00000000:C2:00.0")
OTHER_DRIVER = query("00000000:21:00.0", "00000000:C1:00.0", driver="1.2")


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (MATRIX, MATRIX.replace("NV4", "NV2"), "of node0/gpu/0 and node0/gpu/1 is 2 here and 4 there"),
        (MATRIX, MATRIX.replace("0-15", "0-7"), "cpu_affinity of gpu 0 is '0-7' here and '0-15' there"),
        (MATRIX, "\tGPU0\nGPU0\t X \n", "the number of GPUs is 1 here and 2 there"),
        (LINKS, LINKS.replace("A40", "A16"), "model of gpu 0 is 'NVIDIA A16' here and 'NVIDIA A40' there"),
        (MATRIX, LINKS.replace("GPU 1:", "GPU 5:"), "lists 2 GPUs, {second} shows GPU 5"),
        (QUERY, OTHER_BUS, "pci_address of gpu 1 is '0000:c2:00.0' here and '0000:c1:00.0' there"),
        (QUERY, OTHER_DRIVER, "nvidia_driver is '1.2' here and '570.1' there"),
        (XML, XML.replace("200000", "100000"), "speed of nic mlx5_0 is 100000000000.0 here and 2000"),
        (XML, XML.replace('width="16"', 'width="8"'), "max_width of gpu 0000:21:00.0 is 8 here and 16 there"),
        (SWITCHED, MATRIX.replace("PHB", "SYS"), "says SYS between node0/gpu/0000:21:00.0 and node0/nic/"),
    ],
    ids=["nvlinks", "cpus", "counts", "models", "number", "address", "driver", "speed", "width", "place"],
)
def test_files_that_contradict_each_other_are_refused_with_both_values(tmp_path, first, second, said):
    files = put(tmp_path, first=first, second=second)
    with pytest.raises(InputFileError) as refused:
        read_files(files)
    assert said.format(second=files[1]) in refused.value.message
    assert all(name in refused.value.message for name in files[:1] if "says" not in said)
    assert refused.value.exit_code == 2


def test_two_nodes_are_two_where_they_are_named(tmp_path):
    files = put(tmp_path, xml=XML, matrix=MATRIX, other=MATRIX.replace("NV4", "NV2"))
    topology = read_files([f"a={files[0]}", f"a={files[1]}", f"b={files[2]}"])
    assert facts_of(topology)["nodes"] == ["a", "b"]
    assert facts_of(topology)["gpu_pairs"] == {"NV4": 1, "NV2": 1}
    assert {vertex.id.split("/")[0] for vertex in topology.vertices} == {"a", "b"}


def test_a_file_without_a_name_among_several_nodes_is_refused(tmp_path):
    files = put(tmp_path, xml=XML, matrix=MATRIX, links=LINKS)
    with pytest.raises(UsageError, match="does not say which node it is of: a, b") as refused:
        read_files([f"a={files[0]}", f"b={files[1]}", files[2]])
    assert refused.value.hint == f"write a={files[2]}"


def test_a_file_of_another_host_than_it_was_called_is_refused(tmp_path):
    log = FIXTURES / "nccl-log" / "two-gpus-nvswitch.txt"
    with pytest.raises(InputFileError, match="is of the host 'n7', not of 'a' as it was called"):
        read_files([f"a={log}"])
    assert facts_of(read_files([f"n7={log}"]))["nodes"] == ["n7"]


def test_adapters_without_names_are_not_counted_twice(tmp_path):
    files = put(tmp_path, xml=XML, matrix=MATRIX.split("NIC Legend")[0])
    topology = read_files(files)
    assert facts_of(topology)["nic_names"] == ["mlx5_0"]
    assert any("whose names the file does not tell" in line for line in topology.warnings)


def test_switches_are_inferred_only_where_a_gpu_has_too_few_links(tmp_path):
    three = "\tGPU0\tGPU1\tGPU2\n" + "".join(
        f"GPU{a}\t" + "\t".join("X" if a == b else "NV2" for b in range(3)) + "\n" for a in range(3)
    )
    straight = read_files(put(tmp_path, matrix=three))
    assert facts_of(straight)["nvlinks"] == [[2, 4]] * 3
    two_ports = "".join(
        f"GPU {gpu}: A (UUID: x)\n\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n" for gpu in range(3)
    )
    switched = read_files(put(tmp_path, matrix=three, links=two_ports))
    assert facts_of(switched)["nvlinks"] == [[1, 2]] * 3
    assert facts_of(switched)["gpu_pairs"] == facts_of(straight)["gpu_pairs"] == {"NV2": 3}
    assert facts_of(switched)["nvlink_gb_per_s"] == [25.0]
    assert {link.origin for link in switched.links} == {"inferred"}


def test_our_own_json_comes_back_as_it_was_and_takes_other_files_in(tmp_path):
    files = put(tmp_path, xml=XML, matrix=MATRIX)
    topology = read_files(files[:1])
    own = tmp_path / "machine.json"
    own.write_text(json.dumps(topology_to_document(topology)))
    assert read_files([str(own)]) == topology
    assert facts_of(read_files([str(own), files[1]]))["gpu_pairs"] == {"NV4": 1}
    with pytest.raises(UsageError, match="does not say which node it is of: a, node0"):
        read_files([str(own), f"a={files[0]}", files[1]])


def test_a_session_with_several_outputs_is_read_whole(tmp_path):
    (file,) = put(tmp_path, session=f"$ nvidia-smi topo -m\n{MATRIX}\n$ nvidia-smi nvlink -s\n{LINKS}\n")
    found = facts_of(read_files([file]))
    assert found["formats"] == ["nvidia-smi-topo", "nvidia-smi-nvlink"]
    assert found["ports"] == ["4 of 4 at 14.062"] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "is in no format that topotune reads"),
        ("", "is empty"),
        ("a\0b", "byte 1: is no text: a byte of 0"),
        ('<graphs version="1">\n</graphs>', "line 1: is an NCCL graph file"),
        ('<groups version="1"><group><system version="1"/></group></groups>', "is a catalogue of several"),
        ('<system version="3"><cpu numaid="0"/></system>', "line 1: is topology XML of version '3'"),
        ("\n" + XML + XML, "line 2: holds more than one <system>"),
        (XML.replace("</cpu>", "</cup>", 1), "line 7: is no XML: mismatched tag"),
        ('<system version="1">\n</system>', "holds no <cpu>"),
        ("\tGPU0\tGPU1\nGPU0\t X \nGPU1\tSYS\n", "rows without a cell for each of the 2 columns: GPU0 in"),
        ("\tGPU0\tGPU1\nGPU0\tSYS\t X \nGPU1\t X \tSYS\n", "rows whose X is not under their own name: GPU0"),
        (QUERY + query("00000000:21:00.0"), "line 11: shows the GPU 0000:21:00.0 twice"),
        ('<nvidia_smi_log>\n<gpu id="00000000:21:00.0"/>\n<gpu id="0000:21:00.0"/></nvidia_smi_log>',
         "line 3: a GPU 0000:21:00.0 is shown twice"),
        ("<nvidia_smi_log><gpu/></nvidia_smi_log>", "line 1: a GPU has no PCI address"),
        ('[{"gpu": 0, "bdf": "0000:0c:00.0", "links": [\n'
         '{"gpu": 1, "bdf": "0000:0c:00.0", "link_type": "XGMI"}\n]}]',
         "is GPU 1 at 0000:0c:00.0, and another entry"),
        ("- topology: a\n  ring:\n    rings:\n    - ring: r\n      nodes: n[1-8]\n",
         "has no topology of kind tree or block, which alone say what joins hosts: a: ring"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_by_line_and_reason(tmp_path, text, said):
    (file,) = put(tmp_path, file=text)
    with pytest.raises(InputFileError, match=re.escape(said)):
        read_files([file])


def test_a_format_can_be_forced(tmp_path):
    (file,) = put(tmp_path, file=f"{MATRIX}\n{LINKS}")
    assert facts_of(read_files([file], format_name="nvidia-smi-nvlink"))["formats"] == ["nvidia-smi-nvlink"]
    with pytest.raises(InputFileError, match="holds no <system> element"):
        read_files([file], format_name="nccl-xml")
    with pytest.raises(UsageError, match="--format ini: no such format"):
        reader_named("ini")


def test_an_imported_machine_that_knows_its_addresses_can_be_written_for_nccl(tmp_path):
    topology = read_files(put(tmp_path, matrix=MATRIX, query=QUERY))
    written = export_topology(topology, "nccl-xml")
    assert '<nvlink target="0000:c1:00.0" count="4" tclass="0x030200"/>' in written.text
    (file,) = put(tmp_path, back=written.text)
    assert facts_of(read_files([file]))["gpu_pairs"] == {"NV4": 1}


def test_parts_are_still_found_where_what_they_are_called_is_too_long_for_a_document():
    from topotune.documents import MAX_TEXT
    from topotune.topology.formats.reading import Reading, fitting
    from topotune.topology.model import Link, Vertex

    long = "s" * (MAX_TEXT + 1)
    reading = fitting(
        Reading(
            vertices=(
                Vertex(id=long, kind="switch", node=None, name=long),
                Vertex(id="n1", kind="switch", node=None, name="n1"),
            ),
            links=(Link(src=long, dst="n1", kind="unknown"),),
        )
    )
    assert [(vertex.id, vertex.name) for vertex in reading.vertices] == [(long, None), ("n1", "n1")]
    assert (reading.links[0].src, reading.links[0].dst) == (long, "n1")
