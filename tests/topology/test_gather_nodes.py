"""`topotune probe` on all ranks: real processes at a real store. Places are given; all are this machine."""

import base64
import os
import zlib
from pathlib import Path

import pytest
from gloo_world import run_world

from topotune.documents import MAX_DOCUMENT_BYTES
from topotune.errors import InputFileError, TopotuneError
from topotune.launch import cluster_probe
from topotune.launch.cluster_probe import read_visible_gpus
from topotune.probe import probe


def look(rank, num_ranks, store, places, roots, local_ranks):
    cluster_probe.own_place = lambda: places[rank]
    os.environ["LOCAL_RANK"] = str(local_ranks[rank])
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    try:
        topology = cluster_probe.probe_all_nodes(Path(roots[rank]))
    except TopotuneError as problem:
        return type(problem).__name__, problem.message, problem.hint
    return topology


def test_each_node_is_looked_at_once_and_rank_0_has_them_all():
    topology, *others = run_world(3, look, "abb", ["/"] * 3, [0, 0, 1])
    assert others == [None, None]
    here = probe()
    name = next(vertex.node for vertex in here.vertices)
    assert list(dict.fromkeys(vertex.node for vertex in topology.vertices)) == [name, f"{name}#2"]
    assert len(topology.vertices) == 2 * len(here.vertices)
    assert [vertex.split("/")[0] for vertex in topology.ranks] == [name, f"{name}#2", f"{name}#2"]
    assert topology.source.kind == "probe, 2 nodes"


def test_a_rank_alone_sees_its_node():
    (topology,) = run_world(1, look, "a", ["/"], [0])
    here = probe()
    assert topology.vertices == here.vertices
    assert topology.source.facts == here.source.facts
    assert len(topology.ranks) == 1


def test_a_root_that_one_node_does_not_have_is_refused_on_every_rank():
    results = run_world(3, look, "aab", ["/", "/", "/no/such/root"], [0, 1, 0])
    assert [result[:2] for result in results] == [
        ("UsageError", "root folder '/no/such/root' does not exist")
    ] * 3


def test_a_node_that_goes_silent_is_named():
    results = run_world(2, look_and_die, deaths=[1])
    assert results[0][:2] == ("RunError", "the node of rank 1 did not say within 3 s what it is")


def look_and_die(rank, num_ranks, store):
    cluster_probe._LOOK_WITHIN_S = 3.0
    if rank == 1:
        cluster_probe.probe = lambda root: os._exit(1)
    return look(rank, num_ranks, store, "ab", ["/", "/"], [0, 0])


def test_what_unpacks_to_more_than_a_document_may_have_is_refused():
    bomb = base64.b64encode(zlib.compress(b" " * (MAX_DOCUMENT_BYTES * 4))).decode()
    with pytest.raises(
        InputFileError, match="has 16777217 bytes, more than the 16777216 that such a document may have"
    ):
        cluster_probe._unpacked(bomb, "the topology of rank 1's node")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ("", []),
        ("-1", []),
        ("2, 3", ["2", "3"]),
        ("1,-1,2", ["1"]),
        ("GPU-1234,GPU-5678", ["GPU-1234", "GPU-5678"]),
        (",".join(map(str, range(1000))), [str(number) for number in range(64)]),
    ],
    ids=["not set", "none", "none by number", "two", "up to the first that is none", "UUIDs", "too many"],
)
def test_visible_gpus_are_read_as_the_runtime_does(value, expected):
    environment = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    assert read_visible_gpus(environment) == expected
