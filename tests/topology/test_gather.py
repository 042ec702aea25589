"""Several nodes' topologies as one."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from topologies import cluster, topologies

from topotune.topology import (
    Pair,
    Source,
    Topology,
    Vertex,
    render,
    structure_hash,
    summary,
    topology_from_document,
    topology_to_document,
)
from topotune.topology.gather import RankPlace, gather_topologies, unique_names


def machine(name: str, *, gpus: int = 0, sockets: int = 1, warnings=(), **facts) -> Topology:
    vertices = [
        Vertex(id=f"{name}/cpu/{number}", kind="cpu", node=name, index=number) for number in range(sockets)
    ]
    vertices += [
        Vertex(
            id=f"{name}/gpu/{number}", kind="gpu", node=name, index=number, uuid=f"GPU-{number}{number}aa-bb"
        )
        for number in range(gpus)
    ]
    source = Source(kind="probe", created="2026-01-01T00:00:00+00:00", facts=facts)
    return Topology(vertices=tuple(vertices), links=(), source=source, warnings=tuple(warnings))


def ranks_on(*counts: int, **given) -> list[RankPlace]:
    return [
        RankPlace(node=node, local_rank=local, **given)
        for node, count in enumerate(counts)
        for local in range(count)
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "b"], ("a", "b")),
        (["a", "a", "a"], ("a", "a#2", "a#3")),
        (["a", "a#2", "a"], ("a", "a#2", "a#3")),
        (["a", "a", "a#2"], ("a", "a#2", "a#2#2")),
        ([], ()),
    ],
)
def test_names_become_unique(names, expected):
    assert unique_names(names) == expected


def test_nodes_stand_apart_in_their_order():
    gathered = gather_topologies([machine("b", gpus=1), machine("a")])
    assert [vertex.id for vertex in gathered.vertices] == ["b/cpu/0", "b/gpu/0", "a/cpu/0"]
    assert [vertex.node for vertex in gathered.vertices] == ["b", "b", "a"]
    assert gathered.source.kind == "probe, 2 nodes"
    assert summary(gathered)["num_nodes"] == 2


def test_nodes_of_one_name_stay_two():
    gathered = gather_topologies([cluster(1), cluster(1)])
    assert {vertex.node for vertex in gathered.vertices} == {"n0", "n0#2"}
    assert all(vertex.id.startswith(f"{vertex.node}/") for vertex in gathered.vertices)
    assert summary(gathered)["num_gpus"] == 8
    assert [pair["path"] for pair in summary(gathered)["gpu_pairs"]] == [
        pair["path"] for pair in summary(cluster(2))["gpu_pairs"]
    ]
    assert structure_hash(gathered) == structure_hash(cluster(2))


def test_pairs_come_along():
    one = replace(machine("a", gpus=2), pairs=(Pair(a="a/gpu/0", b="a/gpu/1", path="SYS"),))
    gathered = gather_topologies([one, one])
    assert [(pair.a, pair.b) for pair in gathered.pairs] == [
        ("a/gpu/0", "a/gpu/1"),
        ("a#2/gpu/0", "a#2/gpu/1"),
    ]


def test_one_node_stays_as_it_is_but_for_its_ranks():
    alone = machine("a", sockets=2, kernel="6.1", warnings=["no NUMA nodes are shown here"])
    gathered = gather_topologies([alone], ranks_on(3))
    assert gathered == replace(alone, ranks=("a/cpu/0", "a/cpu/1", "a/cpu/0"))


def test_facts_that_nodes_share_stand_once_and_others_with_their_nodes():
    nodes = [
        machine("a", kernel="5.15", container=None, num_cpus=1, gpu_driver="570"),
        machine("b", kernel="6.1", container=None, num_cpus=True),
        machine("c", kernel="5.15", container=None, num_cpus=1),
    ]
    assert gather_topologies(nodes).source.facts == {
        "kernel of a, c": "5.15",
        "kernel of b": "6.1",
        "container": None,
        "num_cpus of a, c": 1,
        "num_cpus of b": True,
        "gpu_driver of a": "570",
    }


def test_facts_of_many_different_nodes_are_bounded():
    nodes = [machine(f"n{number}", memory_bytes=number, kernel="6.1") for number in range(1000)]
    facts = gather_topologies(nodes).source.facts
    assert len(facts) == 9
    assert facts["kernel"] == "6.1"


def test_equal_warnings_stand_once_with_their_nodes():
    nodes = [machine("a", warnings=["x", "y"]), machine("b", warnings=["y"]), machine("c")]
    assert gather_topologies(nodes).warnings == ("a: x", "a, b: y")


def test_the_latest_look_dates_it():
    late = machine("b")
    late = replace(late, source=replace(late.source, created="2026-01-01T00:00:09+00:00"))
    assert gather_topologies([machine("a"), late]).source.created == "2026-01-01T00:00:09+00:00"


@pytest.mark.parametrize(
    ("nodes", "ranks", "expected"),
    [
        ([machine("a", gpus=2), machine("b", gpus=2)], ranks_on(2, 2),
         ("a/gpu/0", "a/gpu/1", "b/gpu/0", "b/gpu/1")),
        ([machine("a", gpus=4)], ranks_on(1), ("a/gpu/0",)),
        ([machine("a", gpus=2, sockets=2)], ranks_on(4), ("a/cpu/0", "a/cpu/1", "a/cpu/0", "a/cpu/1")),
        ([machine("a", sockets=2)], ranks_on(2, socket=1), ("a/cpu/1", "a/cpu/1")),
        ([machine("a"), machine("a")], ranks_on(1, 2), ("a/cpu/0", "a#2/cpu/0", "a#2/cpu/0")),
        ([machine("a", gpus=4)], ranks_on(2, visible_gpus=("2", "3")), ("a/gpu/2", "a/gpu/3")),
        ([machine("a", gpus=4)], ranks_on(2, visible_gpus=("3",)), ("a/gpu/3", "a/gpu/3")),
        ([machine("a", gpus=4)], ranks_on(1, visible_gpus=("GPU-33",)), ("a/gpu/3",)),
        ([machine("a", gpus=4)], ranks_on(1, visible_gpus=("GPU-",)), ("a/cpu/0",)),
        ([machine("a", gpus=4)], ranks_on(2, visible_gpus=()), ("a/cpu/0", "a/cpu/0")),
        ([machine("a", gpus=1)], ranks_on(1, visible_gpus=("7",)), ("a/cpu/0",)),
        ([machine("a", gpus=1)], [RankPlace(node=0, local_rank=5)], ("a/cpu/0",)),
    ],
    ids=[
        "a GPU each", "fewer ranks than GPUs", "more ranks than GPUs", "bound to a socket", "no GPUs",
        "of those visible", "each shown its own", "by UUID", "a UUID that fits several", "none visible",
        "one that is not there", "a local rank beyond all GPUs",
    ],
)  # fmt: skip
def test_ranks_stand_on_what_they_drive(nodes, ranks, expected):
    assert gather_topologies(nodes, ranks).ranks == expected


def test_ranks_of_a_node_that_shows_nothing_are_left_out_and_it_is_said():
    bare = Topology(
        vertices=(Vertex(id="b/nic/eth0", kind="nic", node="b"),), links=(), source=Source(kind="probe")
    )
    gathered = gather_topologies([machine("a"), bare], ranks_on(1, 1))
    assert gathered.ranks == ()
    assert gathered.warnings == ("where ranks run is not known: b shows neither GPUs nor processors",)


def test_equal_nodes_are_drawn_once_with_their_names_and_ranks():
    lines = render(gather_topologies([machine(name) for name in "abc"], ranks_on(2, 2, 2))).split("\n")
    assert lines[0] == "3 nodes like this: a, b, c"
    assert "ranks: 6, 2 on each of 3 nodes" in lines
    lines = render(gather_topologies([machine("a"), machine("b", sockets=2)], ranks_on(1, 3))).split("\n")
    assert [line for line in lines if line.startswith("node")] == ["node a", "node b"]
    assert "ranks: 4, 1 to 3 on each of 2 nodes" in lines


@settings(max_examples=30)
@given(st.lists(topologies(), min_size=1, max_size=3))
def test_gathering_loses_no_vertex_and_no_link_and_can_be_written(nodes):
    nodes = [replace(node, ranks=()) for node in nodes]
    gathered = gather_topologies(nodes)
    assert len(gathered.vertices) == sum(len(node.vertices) for node in nodes)
    assert len(gathered.links) == sum(len(node.links) for node in nodes)
    assert topology_from_document(topology_to_document(gathered), "gathered") == gathered
