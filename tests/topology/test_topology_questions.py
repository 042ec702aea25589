"""What can be asked of a topology: nearness, counts, its hash, its picture."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from topologies import both_ways, cluster, relabelled, topologies

from topotune.errors import UsageError
from topotune.topology import (
    Link,
    Paths,
    PcieLink,
    Source,
    Topology,
    Vertex,
    nvlink_bandwidth_bytes_per_s,
    pcie_bandwidth_bytes_per_s,
    render,
    structure_hash,
    summary,
)


@pytest.mark.parametrize(
    ("speed", "width", "gigabytes"),
    [
        (2.5, 16, 4.0),
        (5.0, 16, 8.0),
        (8.0, 16, 15.754),
        (16.0, 16, 31.508),
        (32.0, 16, 63.015),
        (64.0, 16, 121.0),
    ],
)
def test_pcie_carries_what_its_encoding_leaves(speed, width, gigabytes):
    assert pcie_bandwidth_bytes_per_s(speed, width) == pytest.approx(gigabytes * 1e9, rel=1e-4)


@pytest.mark.parametrize(("speed", "width"), [(7.0, 16), (16.0, 0), (0.0, 1)])
def test_a_pcie_link_that_cannot_be_has_no_bandwidth(speed, width):
    with pytest.raises(ValueError, match="PCI Express"):
        pcie_bandwidth_bytes_per_s(speed, width)


@pytest.mark.parametrize(
    ("version", "expected"), [(1, 20e9), (2, 25e9), (6, 25e9), (7, 50e9), (5, None), (None, None)]
)
def test_nvlink_rates_follow_the_version(version, expected):
    assert nvlink_bandwidth_bytes_per_s(version) == expected


def test_words_follow_the_tree():
    paths = Paths(cluster(2))
    words = {
        pair: paths.between(f"n0/gpu{pair[0]}", f"n0/gpu{pair[1]}")
        for pair in ["01", "02", "03", "10", "30", "23"]
    }
    assert words == {"01": "PIX", "10": "PIX", "02": "PHB", "03": "SYS", "30": "SYS", "23": "SYS"}
    assert [paths.between(f"n0/gpu{gpu}", "n0/nic") for gpu in range(4)] == ["PIX", "PIX", "PHB", "SYS"]
    assert paths.between("n0/gpu0", "n1/gpu0") is None


def test_where_the_tree_is_hidden_numa_decides_or_nothing_does():
    gpus = [
        Vertex(id=str(number), kind="gpu", node="a", numa=numa) for number, numa in enumerate((0, 0, 1, None))
    ]
    paths = Paths(Topology(vertices=tuple(gpus), links=(), source=Source(kind="made up")))
    assert [paths.between("0", other) for other in "123"] == ["NODE", "SYS", None]


def test_nodes_that_nothing_joins_have_no_word_whatever_their_numa():
    gpus = tuple(Vertex(id=node, kind="gpu", node=node, numa=0) for node in "ab")
    assert Paths(Topology(vertices=gpus, links=(), source=Source(kind="made up"))).between("a", "b") is None


def test_a_way_does_not_lead_through_another_device():
    vertices = tuple(Vertex(id=name, kind="gpu", node="a") for name in "abc")
    links = (*both_ways("a", "b", "pcie"), *both_ways("b", "c", "pcie"))
    paths = Paths(Topology(vertices=vertices, links=links, source=Source(kind="made up")))
    assert (paths.between("a", "b"), paths.between("a", "c")) == ("PIX", None)


def test_nvlinks_straight_and_switched_are_counted_together():
    vertices = (
        *(Vertex(id=name, kind="gpu", node="a") for name in ("x", "y")),
        Vertex(id="far", kind="gpu", node="b"),
        *(Vertex(id=f"s{number}", kind="nvswitch") for number in range(3)),
    )
    links = [*both_ways("x", "y", "nvlink", lanes=2)]
    for number in range(3):
        for gpu in ("x", "y", "far"):
            links += both_ways(gpu, f"s{number}", "nvlink", lanes=4)
    topology = Topology(vertices=vertices, links=tuple(links), source=Source(kind="made up"))
    found = {(pair["a"], pair["b"]): pair["path"] for pair in summary(topology)["gpu_pairs"]}
    assert found == {("x", "y"): "NV14", ("x", "far"): "NV12", ("y", "far"): "NV12"}


def test_nvlinks_through_a_switch_are_as_many_as_the_poorer_end_has():
    vertices = (*(Vertex(id=name, kind="gpu", node="a") for name in "xy"), Vertex(id="s", kind="nvswitch"))
    links = (*both_ways("x", "s", "nvlink", lanes=4), *both_ways("y", "s", "nvlink", lanes=3))
    paths = Paths(Topology(vertices=vertices, links=links, source=Source(kind="made up")))
    assert (paths.between("x", "y"), paths.between("y", "x")) == ("NV3", "NV3")


def test_a_summary_counts_and_pairs_inside_nodes():
    found = summary(cluster(3))
    assert (found["num_nodes"], found["num_gpus"], found["num_nics"], found["num_numa"]) == (3, 12, 3, 6)
    assert Counter(pair["path"] for pair in found["gpu_pairs"]) == {"PIX": 3, "PHB": 6, "SYS": 9}
    assert Counter(row["path"] for row in found["gpu_nic_paths"]) == {"PIX": 6, "PHB": 3, "SYS": 3}
    assert set(found["gpu_nic_paths"][0]) == {"gpu", "nic", "path"}


@settings(deadline=None, max_examples=40)
@given(topology=topologies(), seed=st.integers(0, 2**16))
def test_relabelling_changes_no_answer(topology, seed):
    dice = random.Random(seed)
    order = list(range(len(topology.vertices)))
    dice.shuffle(order)
    names = {vertex.id: f"v{number}" for number, vertex in enumerate(topology.vertices)}
    other = relabelled(topology, names, order)
    assert structure_hash(other) == structure_hash(topology)
    words, renamed = Paths(topology), Paths(other)
    for a in names:
        for b in names:
            if a != b:
                assert renamed.between(names[a], names[b]) == words.between(a, b)
    assert Counter(pair["path"] for pair in summary(other)["gpu_pairs"]) == Counter(
        pair["path"] for pair in summary(topology)["gpu_pairs"]
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda link: replace(link, lanes=8) if link.src == "n0/gpu0" else link,
        lambda link: (
            replace(link, dst="n0/root1") if (link.src, link.dst) == ("n0/gpu2", "n0/root0") else link
        ),
    ],
    ids=["fewer lanes", "elsewhere"],
)
def test_another_structure_has_another_hash(change):
    topology = cluster(1)
    other = replace(topology, links=tuple(map(change, topology.links)))
    assert structure_hash(other) != structure_hash(topology)


def test_the_hash_does_not_see_what_is_measured_or_named():
    topology = cluster(1)
    measured = replace(
        topology,
        vertices=tuple(
            replace(each, node="other", pci_address="0000:01:00.0", state="down")
            for each in topology.vertices
        ),
        links=tuple(
            replace(each, bandwidth_bytes_per_s=1e9, latency_s=1e-6, origin="measured")
            for each in topology.links
        ),
        warnings=("something",),
    )
    assert structure_hash(measured) == structure_hash(topology)


PICTURE = """\
node n0
  2 × EPYC
  NUMA
    0  CPUs 0  1 GiB
    1  CPUs 1  1 GiB
  GPUs: 4 × H100
    GPU0  NUMA ?
    GPU1  NUMA ?
    GPU2  NUMA ?
    GPU3  NUMA ?
  Network
    ib0  ACTIVE  400 Gbit/s
  GPU to GPU
          GPU0  GPU1  GPU2  GPU3
    GPU0     X   PIX   PHB   SYS
    GPU1   PIX     X   PHB   SYS
    GPU2   PHB   PHB     X   SYS
    GPU3   SYS   SYS   SYS     X
  nearest adapters
    GPU0  PIX  ib0
    GPU1  PIX  ib0
    GPU2  PHB  ib0
    GPU3  SYS  ib0"""


def test_the_picture_of_a_node():
    assert render(cluster(1)) == PICTURE


def test_nodes_that_look_the_same_are_drawn_once():
    lines = render(cluster(64)).splitlines()
    assert lines[0] == "64 nodes like this: n0, n1, n2, n3, n4, n5, n6, n7 and 56 more"
    assert lines[1:] == PICTURE.splitlines()[1:]


def test_a_wide_matrix_is_cut_into_blocks():
    gpus = tuple(Vertex(id=f"g{n}", kind="gpu", node="a", index=n, numa=n // 8) for n in range(16))
    lines = render(Topology(vertices=gpus, links=(), source=Source(kind="made up")), width=60).splitlines()
    assert max(map(len, lines)) <= 60
    headings = [line.split() for line in lines if line.split()[0] == "GPU0" and line.startswith("     ")]
    rest = [line.split() for line in lines if line.startswith("     ") and line.split()[0] != "GPU0"]
    drawn = [label for heading in (*headings, *rest) for label in heading]
    assert drawn == [f"GPU{number}" for number in range(16)]
    rows = [line.split() for line in lines if line.split()[0] == "GPU9" and not line.startswith("     ")]
    assert [cell for row in rows[1:] for cell in row[1:]] == ["SYS"] * 8 + ["NODE", "X"] + ["NODE"] * 6


def test_a_thousand_nodes_are_answered_and_drawn():
    topology = cluster(1000)
    assert len(summary(topology)["gpu_pairs"]) == 6000
    assert render(topology).startswith("1000 nodes like this: n0, n1, ")


def test_more_pairs_than_can_be_listed_are_refused():
    gpus = tuple(Vertex(id=str(number), kind="gpu", node="a") for number in range(2000))
    crowd = Topology(vertices=gpus, links=(), source=Source(kind="made up"))
    with pytest.raises(UsageError, match="more than 1000000 pairs of GPUs"):
        summary(crowd)
    assert "2000 GPUs: too many to draw" in render(crowd)


def test_a_picture_obeys_no_control_characters_and_says_what_is_not_known():
    vertices = (Vertex(id="n", kind="nic", node="evil\x1b[2J", name="eth\x070"),)
    topology = Topology(
        vertices=vertices,
        links=(),
        source=Source(kind="made up"),
        warnings=("network speed not known: eth0",),
    )
    text = render(topology)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.splitlines()[-2:] == ["not known", "  - network speed not known: eth0"]


@settings(deadline=None, max_examples=25)
@given(topology=topologies(), width=st.integers(40, 120))
def test_a_picture_fits_its_width(topology, width):
    assert all(len(line) <= width for line in render(topology, width).splitlines())


def test_a_pcie_link_below_its_ability_shows_both():
    gpu = Vertex(
        id="g", kind="gpu", node="a", index=0, model="A100",
        pcie=PcieLink(speed_gt_per_s=2.5, width=8, max_speed_gt_per_s=16.0, max_width=16),
    )  # fmt: skip
    assert "gen 1 x8 (of gen 4 x16)" in render(
        Topology(vertices=(gpu,), links=(), source=Source(kind="made up"))
    )


def test_a_link_between_one_pair_of_one_kind_stands_once():
    vertices = (Vertex(id="a", kind="gpu"), Vertex(id="b", kind="gpu"))
    link = Link(src="a", dst="b", kind="nvlink")
    with pytest.raises(ValueError, match="two nvlink links run from 'a' to 'b'"):
        Topology(vertices=vertices, links=(link, link), source=Source(kind="made up"))
