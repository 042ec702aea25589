"""Ranks agree on interfaces: real processes and sockets. Places are given; all of them are this machine."""

import os
import socket

import pytest
import torch
import torch.distributed as dist
from gloo_world import run_world

from topotune.errors import TopotuneError
from topotune.interfaces import agreement
from topotune.interfaces.choice import Candidate
from topotune.interfaces.own import GLOO_VARIABLE, OWN_VARIABLE

pytestmark = pytest.mark.gloo

HOST = socket.gethostname()
LO = Candidate(name="lo", address="127.0.0.1")
LO_2 = Candidate(name="lo2", address="127.0.0.2")
NOWHERE = Candidate(name="eth9", address="192.0.2.77")  # of TEST-NET-1: no machine has it


def join(rank, num_ranks, store, by_rank):
    """Join as the rank says: its place, and its variables, candidates, or attributes of the module."""
    given = by_rank[rank]
    for variable in (GLOO_VARIABLE, OWN_VARIABLE, "SM_NETWORK_INTERFACE_NAME"):
        os.environ.pop(variable, None)
    os.environ.update(given.get("variables", {}))
    agreement.own_place = lambda: given["place"]
    if "candidates" in given:
        agreement.read_candidates = lambda forced: given["candidates"]
    for name, value in given.get("module", {}).items():
        setattr(agreement, name, value)
    try:
        found = agreement.join_network()
    except TopotuneError as problem:
        return type(problem).__name__, problem.message
    group_sum = None
    if given.get("use"):
        dist.init_process_group("gloo")
        ones = torch.ones(3)
        dist.all_reduce(ones)
        group_sum = ones.tolist()
        dist.destroy_process_group()
    return found.interfaces, found.lines, found.common, os.environ.get(GLOO_VARIABLE), group_sum


def on_places(*places: str, **given):
    return [{"place": place, **given} for place in places]


def test_on_one_node_gloo_chooses_by_itself():
    assert run_world(2, join, on_places("a", "a")) == [((), (), None, None, None)] * 2


@pytest.mark.parametrize("variable", [OWN_VARIABLE, GLOO_VARIABLE])
def test_on_one_node_what_is_forced_is_used(variable):
    forced = {OWN_VARIABLE: "--interface or TOPOTUNE_INTERFACE", GLOO_VARIABLE: GLOO_VARIABLE}[variable]
    results = run_world(2, join, on_places("a", "a", variables={variable: "lo"}, use=True))
    assert [result[0] for result in results] == [("lo",)] * 2
    assert [result[1] for result in results] == [(f"lo on {HOST} (forced by {forced})",), ()]
    assert [result[2:] for result in results] == [("lo", "lo", [2.0, 2.0, 2.0])] * 2


def test_nodes_that_reach_each_other_use_what_is_forced():
    results = run_world(4, join, on_places("a", "a", "b", "b", variables={OWN_VARIABLE: "lo"}, use=True))
    line = f"lo on {HOST} and {HOST}#2 (forced by --interface or TOPOTUNE_INTERFACE)"
    assert [result[1] for result in results] == [(line,), (), (), ()]
    assert [(result[0], *result[2:]) for result in results] == [(("lo",), "lo", "lo", [4.0, 4.0, 4.0])] * 4


def test_the_only_candidate_is_used():
    results = run_world(2, join, on_places("a", "b", candidates=[LO], use=True))
    assert [result[:1] + result[2:] for result in results] == [(("lo",), "lo", "lo", [2.0, 2.0, 2.0])] * 2
    assert results[0][1] == (f"lo on {HOST} and {HOST}#2 (the only one)",)


def test_of_several_that_are_reached_one_is_chosen_by_what_arrives():
    results = run_world(3, join, on_places("a", "b", "b", candidates=[NOWHERE, LO, LO_2]))
    assert all(result[0] in (("lo",), ("lo2",)) for result in results)
    assert results[1][0] == results[2][0], "ranks of a node use one"
    words = results[0][1][0].split("; ")
    assert words[0].endswith(("(the fastest", "(none is faster"))
    assert words[1].startswith("lo ")
    assert "bit/s, lo2 " in words[1]
    assert words[2] == "eth9 not reached)"


def test_a_node_that_is_not_reached_is_named_on_every_rank():
    by_rank = [*on_places("a", "a", candidates=[LO]), *on_places("b", candidates=[NOWHERE])]
    message = f"node {HOST}#2 is not reached from {HOST}: tried eth9 of {HOST}#2 at 192.0.2.77"
    assert run_world(3, join, by_rank) == [("RunError", f"{message} (nothing can listen there)")] * 3


def test_a_forced_interface_that_is_not_there_is_refused_on_every_rank():
    by_rank = [
        *on_places("a", variables={OWN_VARIABLE: "lo"}),
        *on_places("b", variables={OWN_VARIABLE: "ib7"}),
    ]
    message = (
        f"network interface 'ib7' of node {HOST}, forced by --interface or TOPOTUNE_INTERFACE, does not exist"
    )
    assert run_world(2, join, by_rank) == [("UsageError", message)] * 2


def test_ranks_of_a_node_that_are_forced_apart_are_refused():
    by_rank = [*on_places("a", variables={GLOO_VARIABLE: "lo"}), *on_places("a")]
    message = (
        f"different network interfaces are forced on ranks of node {HOST}: lo (GLOO_SOCKET_IFNAME) on rank 0,"
        " nothing on rank 1"
    )
    assert run_world(2, join, by_rank) == [("UsageError", message)] * 2


def test_nodes_with_different_versions_are_refused():
    by_rank = [*on_places("a"), *on_places("b", module={"__version__": "9.9"})]
    (kind, message), _ = results = run_world(2, join, by_rank)
    assert kind == "UsageError"
    assert message.startswith(f"node {HOST} runs topotune 0.")
    assert message.endswith(f"node {HOST} runs 9.9")
    assert results[0] == results[1]


def test_joining_twice_is_joining_anew():
    by_rank = on_places("a", "a", variables={OWN_VARIABLE: "lo"})
    assert [result[0] for result in run_world(2, join_twice, by_rank)] == [("lo",)] * 2


def join_twice(rank, num_ranks, store, by_rank):
    first = join(rank, num_ranks, store, on_places("a", "a"))
    assert first[0] == ()
    return join(rank, num_ranks, store, by_rank)


def test_a_node_whose_rank_dies_is_named():
    results = run_world(3, join_and_die, timeout_s=120, deaths=[2])
    assert results[:2] == [("RunError", f"node {HOST}#2 went silent (rank 2)")] * 2


def join_and_die(rank, num_ranks, store):
    agreement._DOORS_WITHIN_S = agreement._ATTEMPTS_WITHIN_S = 1.5
    given = on_places("a", "a", "b", candidates=[LO])
    if rank == 2:
        agreement.Door = lambda addresses: os._exit(1)
    return join(rank, num_ranks, store, given)


@pytest.mark.slow
def test_ranks_that_do_not_come_are_named():
    results = run_world(2, join_for_three)
    assert results == [("RunError", "rank 2 of 3 did not come within 10 s")] * 2


def join_for_three(rank, num_ranks, store):
    os.environ["WORLD_SIZE"] = "3"
    try:
        agreement.join_network(agreement.timedelta(seconds=10))
    except TopotuneError as problem:
        return type(problem).__name__, problem.message


def test_a_store_that_is_not_there_is_named(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    for name, value in {
        "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    with pytest.raises(TopotuneError) as caught:
        agreement.join_network(agreement.timedelta(seconds=1))
    assert caught.value.message.startswith(
        f"rank 1 did not reach the store of all ranks at 127.0.0.1:{port}: "
    )
