"""Schedules as MSCCL++ execution plans, run by an interpreter of its rules, each rank at its own pace."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topotune.errors import InputFileError, UsageError
from topotune.schedule import build
from topotune.schedule.mscclpp import MAX_OPERATIONS, execution_plan
from topotune.schedule.mscclpp_json import read_mscclpp, write_mscclpp

GOLDEN = Path(__file__).with_name("mscclpp_two_ranks.json")
SCHEDULES = {
    "ring": ("ring", {}, 4),
    "ring of channels": ("ring", {"channels": 2, "pieces": 1}, 5),
    "tree": ("double_binary_tree", {}, 6),
    "recursive doubling": ("recursive_doubling", {}, 6),
    "recursive doubling of 16": ("recursive_doubling", {}, 16),
    "halving doubling": ("halving_doubling", {}, 8),
    "swing": ("swing", {}, 6),
    "bine": ("bine", {}, 8),
    "parameter server": ("parameter_server", {"servers": [1, 3]}, 5),
    "hierarchical": ("hierarchical", {"groups": [[0, 1], [2, 3]]}, 4),
    "unequal": ("forest", {"weights": [90, 10], "down": [[-1, 0, 1], [1, -1, 1]]}, 3),
    "one rank": ("ring", {}, 1),
}
NUM_CALLS = 3


class Run:
    """Calls of one plan, one after the other on each GPU, without any barrier between GPUs."""

    def __init__(self, plan, seed):
        self.plan = plan
        self.draw = random.Random(seed)
        num = len(plan.gpus)
        self.held = np.zeros((num, plan.num_chunks, num), dtype=np.int64)
        self.held[range(num), :, range(num)] = 1
        self.scratch = [np.full((gpu.scratch_chunks, num), -1, dtype=np.int64) for gpu in plan.gpus]
        self.signals = {}
        self.threads = [
            [rank, number, call, 0]
            for rank, gpu in enumerate(plan.gpus)
            for number in range(len(gpu.blocks))
            for call in (0,)
        ]

    def go(self):
        while any(thread[2] < NUM_CALLS for thread in self.threads):
            self.draw.shuffle(self.threads)
            assert any([self.advance(thread) for thread in self.threads]), "nothing can go on"
        assert not any(self.signals.values())
        return self.held

    def advance(self, thread):
        rank, number, call, at = thread
        if call >= NUM_CALLS or (at == 0 and any(t[2] < call for t in self.threads if t[0] == rank)):
            return False  # a kernel ends when all of its thread blocks have
        block = self.plan.gpus[rank].blocks[number]
        operation = block.operations[at]
        peers = [block.peers[peer] for peer in operation.peers]
        if operation.kind == "wait":
            # The thread block's channel to a peer is joined with the peer's thread block of that order.
            if not all(self.signals.get((peer, rank, number), 0) for peer in peers):
                return False
            for peer in peers:
                self.signals[peer, rank, number] -= 1
        elif operation.kind == "signal":
            for peer in peers:
                self.signals[rank, peer, number] = self.signals.get((rank, peer, number), 0) + 1
        elif operation.kind != "nop":
            own = self.held[rank, operation.chunk : operation.chunk + operation.count]
            where = peers[0] if operation.kind == "put" else rank
            slot = self.scratch[where][operation.slot : operation.slot + operation.count]
            if operation.kind == "put":
                assert (slot == -1).all(), "a place is overwritten before it was read"
                slot[:] = own
            else:
                assert (slot != -1).all(), "a place is read before it was written"
                own[:] = own + slot if operation.kind == "re" else slot
                slot[:] = -1
        thread[3] += 1
        if thread[3] == len(block.operations):
            thread[2], thread[3] = call + 1, 0
        return True


@pytest.mark.parametrize("case", SCHEDULES)
def test_plans_leave_every_part_once_on_every_gpu_call_after_call_at_any_pace(case):
    plan = execution_plan(build(*SCHEDULES[case]))
    num = len(plan.gpus)
    for seed in range(4):
        held = Run(plan, seed).go()
        # After each call every rank holds what the sum of all ranks' was.
        assert (held == num ** (NUM_CALLS - 1)).all() or num == 1


@pytest.mark.parametrize("case", SCHEDULES)
def test_plans_are_read_back_as_they_were_written(case):
    plan = execution_plan(build(*SCHEDULES[case]))
    text = write_mscclpp(plan)
    assert read_mscclpp(text, "a file") == plan
    assert write_mscclpp(read_mscclpp(text, "a file")) == text


def test_a_plan_of_two_ranks_in_full():
    assert write_mscclpp(execution_plan(build("ring", {}, 2))) == GOLDEN.read_text()


def test_both_ends_of_every_channel_of_a_thread_block_exist():
    plan = execution_plan(build("ring", {"channels": 2, "pieces": 1}, 5))
    for rank, gpu in enumerate(plan.gpus):
        for number, block in enumerate(gpu.blocks):
            assert all(rank in plan.gpus[peer].blocks[number].peers for peer in block.peers)
            assert len(block.operations) <= MAX_OPERATIONS


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        (
            ("ring", {}, 8),
            "topotune_ring takes 101 operations of a thread block, and MSCCL++ has room for 64",
        ),
        (("parameter_server", {"servers": [0]}, 20), "topotune_parameter_server takes 19 peers of a thread"),
        (("ring", {"channels": 64, "pieces": 64}, 4), "topotune_ring takes "),
    ],
    ids=["operations", "peers", "chunks"],
)
def test_what_has_no_room_in_mscclpp_is_refused(schedule, problem):
    with pytest.raises(UsageError) as raised:
        execution_plan(build(*schedule))
    assert raised.value.message.startswith(f"--to mscclpp-json: {problem}")


TEXT = write_mscclpp(execution_plan(build("recursive_doubling", {}, 4)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"allreduce"', '"allgather"'),
        ('"inplace": true', '"inplace": false'),
        ('"name": "re"', '"name": "pipeline"'),
        ('"buffer_id": 0', '"buffer_id": 9'),
        ('"scratch_chunks": 2', '"scratch_chunks": 3'),
        ('"gpus"', '"gpu"'),
    ],
)
def test_plans_of_another_kind_are_refused_by_name(old, new):
    assert old in TEXT
    changed = TEXT.replace(old, new, 1)
    if old == '"scratch_chunks": 2':  # a plan of ours may be of more scratch; it is then another
        assert read_mscclpp(changed, "a file") != read_mscclpp(TEXT, "a file")
        return
    with pytest.raises(InputFileError, match=r"^a file: "):
        read_mscclpp(changed, "a file")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damaged_plans_are_refused_or_read_as_what_they_say(data):
    at = data.draw(st.integers(0, len(TEXT) - 1))
    damaged = TEXT[:at] + data.draw(st.sampled_from(["", "9", "-", "\0", "[", '"'])) + TEXT[at + 1 :]
    try:
        plan = read_mscclpp(damaged, "a file")
    except InputFileError:
        return
    assert write_mscclpp(plan) == damaged


def test_the_keys_are_those_of_mscclpps_own_plans():
    gpu = json.loads(TEXT)["gpus"][0]
    assert set(gpu) == {
        "id",
        "input_chunks",
        "output_chunks",
        "scratch_chunks",
        "threadblocks",
        "channels",
        "remote_buffers",
        "semaphores",
    }
    assert set(gpu["threadblocks"][0]) == {"id", "ops", "channels", "remote_buffer_refs"}
