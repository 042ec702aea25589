import json

import numpy as np
import pytest

from topotune.errors import InputFileError, UsageError
from topotune.schedule import Schedule, verify
from topotune.schedule.document import read_schedule, to_document
from topotune.schedule.interpret import interpret
from topotune.schedule.model import REDUCE
from topotune.schedule.msccl import msccl_program
from topotune.schedule.mscclpp import execution_plan
from topotune.schedule.parameter_server import (
    dedicated_servers,
    dedicated_servers_of_nodes,
    parameter_server,
)


def changed(schedule, **columns):
    names = ("step", "channel", "src", "dst", "chunk", "op")
    facts = {name: getattr(schedule, name) for name in names}
    facts |= {"chunk_bounds": schedule.chunk_bounds, "servers": schedule.servers, **columns}
    return Schedule(algorithm="x", num_ranks=schedule.num_ranks, **facts)


SCHEDULES = [
    dedicated_servers(owners, servers, shares=shares(owners, servers), pieces=pieces)
    for owners, servers in ((1, 1), (3, 1), (4, 3))
    for shares in (lambda n, m: None, lambda n, m: [1] * (n + m), lambda n, m: [2] + [0] * (n - 1) + [3] * m)
    for pieces in (1, 3)
] + [
    dedicated_servers_of_nodes(nodes, servers, pieces=pieces)
    for nodes in ([[0]], [[0, 1], [2, 3]], [[0, 2], [1, 3], [4]])
    for servers in (1, 3)
    for pieces in (1, 2)
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ranks_get_the_sum_of_what_ranks_have_whatever_servers_held(schedule):
    assert verify(schedule) == ()
    held = np.random.default_rng(0).integers(-50, 50, size=(schedule.num_ranks, 37))
    owners = schedule.num_owners
    assert (interpret(schedule, held)[:owners] == held[:owners].sum(axis=0)).all()


def test_a_schedule_that_adds_what_a_server_held_is_found_out():
    schedule = dedicated_servers(3, 1)
    adds = changed(schedule, op=np.full_like(schedule.op, REDUCE))
    codes = {violation.code: violation.message for violation in verify(adds)}
    assert "what server 3 held before" in codes["scratch"]
    without = changed(schedule, servers=())
    assert [violation.code for violation in verify(without)] == ["missing"]


@pytest.mark.parametrize("servers", [(4,), (1, 1), (2, 1), (0, 1, 2, 3), (-1,)])
def test_servers_that_are_no_ranks_are_found_out(servers):
    assert "servers" in {one.code for one in verify(changed(dedicated_servers(3, 1), servers=servers))}


def test_a_document_keeps_the_servers(tmp_path):
    schedule = dedicated_servers(4, 2, shares=[1, 0, 1, 0, 3, 3])
    document = to_document(schedule)
    assert document["servers"] == [4, 5]
    assert "servers" not in to_document(parameter_server(4))
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(document))
    again = read_schedule(path)
    assert again.servers == (4, 5)
    assert (again.dst == schedule.dst).all()
    path.write_text(json.dumps({**document, "servers": [3, 4]}))
    with pytest.raises(InputFileError, match="is no allreduce"):
        read_schedule(path)


def test_no_rank_is_sent_for_by_two_servers_at_once():
    schedule = dedicated_servers(8, 4)
    for step in set(schedule.step[schedule.dst >= 8].tolist()):
        now = schedule.src[(schedule.step == step) & (schedule.dst >= 8)].tolist()
        assert len(set(now)) == len(now)


@pytest.mark.parametrize("program", [msccl_program, execution_plan])
def test_programs_of_gpus_have_no_room_for_servers(program):
    with pytest.raises(UsageError, match="1 servers that own no part"):
        program(dedicated_servers(3, 1))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: dedicated_servers(0, 1), "num_owners is 0"),
        (lambda: dedicated_servers(4, 0), "num_servers is 0"),
        (lambda: dedicated_servers(4, 1, shares=[1, 1]), "2 shares for 5 ranks"),
        (lambda: dedicated_servers(2, 1, shares=[0, 0, 0]), "no rank serves"),
        (lambda: dedicated_servers(2, 1, shares=[1, -1, 1]), "a share is -1"),
        (lambda: dedicated_servers_of_nodes([[0, 1], [1]], 1), "do not hold each rank"),
        (lambda: dedicated_servers_of_nodes([[0], []], 1), "do not hold each rank"),
    ],
)
def test_what_cannot_be_is_refused_with_its_value(call, says):
    with pytest.raises(UsageError, match=says):
        call()


def test_more_than_a_thousand_ranks_may_all_be_servers():
    schedule = parameter_server(1100)
    assert schedule.num_transfers == 2 * 1100 * 1099
