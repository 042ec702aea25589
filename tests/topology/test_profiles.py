"""Known machines: a shipped profile holds what it says, gives the optima of the literature, and is found."""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from topotune.bounds import graph_from_topology
from topotune.bounds.optimum import optima
from topotune.documents import json_schema
from topotune.errors import InputFileError, UsageError
from topotune.probe.instance_type import read_hints
from topotune.topology.catalog import load_profile, profile_names, shipped_profiles
from topotune.topology.profile_topology import machine_network, machine_topology
from topotune.topology.recognition import recognise

NAMES = profile_names()
FOLDER = Path(__file__).parents[2] / "profiles" / "machines"
JOINED = [
    profile.name
    for profile in map(load_profile, NAMES)
    if profile.nic is not None and profile.nic.bits_per_s is not None and profile.num_nodes == 1
]


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_is_valid_and_called_as_its_file(name):
    document = json.loads((FOLDER / f"{name}.json").read_bytes())
    jsonschema.validate(document, json_schema("profile"))
    assert load_profile(name).name == document["name"] == name


def test_titles_are_unique():
    titles = [profile.title for profile in shipped_profiles()]
    assert len(set(titles)) == len(titles)


def objects(document):
    if isinstance(document, dict):
        yield document
        for value in document.values():
            yield from objects(value)
    elif isinstance(document, list):
        for value in document:
            yield from objects(value)


@pytest.mark.parametrize("name", NAMES)
def test_every_part_with_figures_says_its_source(name):
    document = json.loads((FOLDER / f"{name}.json").read_bytes())
    named = ("gpu", "cpu", "nic", "nvlinks", "layout", "marks")
    parts = [document[part] for part in named if document.get(part)]
    parts += [*document.get("thresholds", []), *document.get("allreduce", [])]
    assert all(part["source"].strip() for part in parts)


@pytest.mark.parametrize("name", NAMES)
def test_the_machine_has_what_its_profile_counts(name):
    profile = load_profile(name)
    for topology in (machine_topology(profile), machine_network(profile)):
        gpus = [vertex for vertex in topology.vertices if vertex.kind == "gpu"]
        assert len(gpus) == profile.num_gpus * profile.num_nodes
        assert len({vertex.node for vertex in gpus}) == profile.num_nodes
    nics = [vertex for vertex in machine_topology(profile).vertices if vertex.kind == "nic"]
    assert len(nics) == profile.num_nics * profile.num_nodes


@pytest.mark.parametrize("name", JOINED)
def test_two_of_them_are_joined(name):
    network = machine_network(load_profile(name), 2)
    assert len(network.ranks) == 2 * load_profile(name).num_gpus
    assert optima(graph_from_topology(network)).allreduce.algbw_bytes_per_s > 0


def test_nothing_is_said_of_nodes_whose_adapters_have_a_rate_that_no_source_says():
    profile = load_profile("azure-nc24s_v3")
    assert [nic.speed for nic in machine_topology(profile, 2).vertices if nic.kind == "nic"] == [None, None]
    assert optima(graph_from_topology(machine_network(profile))).num_ranks == 4
    with pytest.raises(UsageError, match="no source says how fast its adapters are"):
        machine_network(profile, 2)


# allgather: algbw of message / time, in GB/s
@pytest.mark.parametrize(
    ("name", "num_nodes", "gb_per_s"),
    [
        ("dgx-a100", 2, 346.67),
        ("azure-nd40rs_v2", 2, 25.0),
        ("azure-nd40rs_v2", 4, 16.67),
    ],
)
def test_the_optima_of_the_literature_come_out(name, num_nodes, gb_per_s):
    found = optima(graph_from_topology(machine_network(load_profile(name), num_nodes))).allgather
    assert round(float(found.algbw_bytes_per_s) / 1e9, 2) == gb_per_s


IN_NETWORK = {"aws-p5.48xlarge", "aws-p5en.48xlarge"}
"""Machines whose published figures use reduction in the switches, which this optimum leaves out: twice it."""

CHECKABLE = [
    (profile.name, figures)
    for profile in shipped_profiles()
    for figures in profile.allreduce
    if figures.num_ranks == profile.num_gpus * figures.num_nodes and figures.num_nodes <= 4
]


@pytest.mark.parametrize(
    ("name", "figures"), CHECKABLE, ids=[f"{name} {one.num_ranks} ranks" for name, one in CHECKABLE]
)
def test_no_published_figure_is_faster_than_the_optimum(name, figures):
    profile = load_profile(name)
    num_nodes = None if figures.num_nodes == profile.num_nodes else figures.num_nodes
    found = optima(graph_from_topology(machine_network(profile, num_nodes)))
    limit = found.allreduce.busbw_bytes_per_s * (2.0 if name in IN_NETWORK else 1.0)
    assert 0 < max(figures.busbw_bytes_per_s(point) for point in figures.points) <= limit


@pytest.mark.parametrize("name", [name for name in NAMES if load_profile(name).num_nodes == 1])
def test_a_machine_is_recognised_by_what_its_cloud_calls_it(name, tmp_path):
    profile = load_profile(name)
    if profile.marks is None or not profile.marks.instance_types:
        pytest.skip("no cloud sells it")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "version").write_text("Linux\n")
    hints = read_hints({"SM_CURRENT_INSTANCE_TYPE": profile.marks.instance_types[0]}, tmp_path)
    found = recognise(machine_topology(profile), hints)
    assert found.profile is not None
    assert found.profile.name == name
    assert name in found.text


@pytest.mark.parametrize("name", [name for name in NAMES if load_profile(name).num_nodes == 1])
def test_without_a_name_a_machine_is_never_taken_for_another(name):
    found = recognise(machine_topology(load_profile(name)), ())
    assert found.profile is None or found.profile.name == name
    assert found.text


def test_a_machine_that_no_profile_describes_is_taken_for_none(tmp_path):
    document = json.loads((FOLDER / "dgx-h100.json").read_bytes())
    document["gpu"]["models"] = ["Unheard-Of 9000"]
    (tmp_path / "other.json").write_text(json.dumps(document))
    found = recognise(machine_topology(load_profile(tmp_path / "other.json")), ())
    assert found.profile is None
    assert found.candidates == ()


def test_a_wrong_name_is_refused_with_near_ones():
    with pytest.raises(UsageError) as caught:
        load_profile("dgx-h10")
    assert "dgx-h100" in caught.value.hint


def test_a_broken_file_is_refused_with_its_place(tmp_path):
    document = json.loads((FOLDER / "dgx-h100.json").read_bytes())
    document["nic"]["bits_per_s"] = -1
    (tmp_path / "mine.json").write_text(json.dumps(document))
    with pytest.raises(InputFileError) as caught:
        load_profile(tmp_path / "mine.json")
    assert "nic.bits_per_s" in caught.value.message


def sold_as(profile):
    return () if profile.marks is None else profile.marks.instance_types


def test_the_page_of_machines_has_each_of_them():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "machines.md").read_text()
    listed = re.findall(r"^\| `([^`]+)` \| (.+?) \| (.+?) \| (\d+) \|$", page, re.MULTILINE)
    assert listed == [
        (
            profile.name,
            profile.title,
            ", ".join(f"`{name}`" for name in sold_as(profile)) or "–",
            str(len(profile.allreduce)),
        )
        for profile in shipped_profiles()
    ]
