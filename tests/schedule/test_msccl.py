"""Schedules as MSCCL programs, run by an interpreter of their own rules."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topotune.errors import InputFileError, UsageError
from topotune.schedule import build, halving_doubling, ring
from topotune.schedule.msccl import MAX_BYTES, msccl_program
from topotune.schedule.msccl_xml import read_msccl, write_msccl

GROUPS = [[0, 1], [2, 3]]
SCHEDULES = {
    "ring": ("ring", {}, 4),
    "ring of channels": ("ring", {"channels": 2, "pieces": 3}, 5),
    "tree": ("double_binary_tree", {"pieces": 2}, 6),
    "recursive doubling": ("recursive_doubling", {}, 6),
    "halving doubling": ("halving_doubling", {}, 8),
    "swing": ("swing", {}, 6),
    "bine": ("bine", {}, 8),
    "torus": ("torus", {"rows": 2}, 6),
    "parameter server": ("parameter_server", {"servers": [1, 3]}, 5),
    "hierarchical": ("hierarchical", {"groups": GROUPS}, 4),
    "unequal": ("forest", {"weights": [90, 10], "down": [[-1, 0, 1], [1, -1, 1]]}, 3),
    "one rank": ("ring", {}, 1),
}


def run(program, seed, slots):
    """What each GPU holds of each chunk: how often each rank's part is in it, run in a random legal order.

    A send waits for a free slot of its connection, as an interpreter with ``slots`` buffers does.
    """
    draw = random.Random(seed)
    num_gpus = len(program.gpus)
    held = np.zeros((num_gpus, program.num_chunks, num_gpus), dtype=int)
    held[range(num_gpus), :, range(num_gpus)] = 1
    connections, done = {}, {}
    at = {(gpu, number): 0 for gpu, blocks in enumerate(program.gpus) for number in range(len(blocks))}

    def advance(gpu, number):
        block = program.gpus[gpu][number]
        step = block.steps[at[gpu, number]]
        if step.waits_for and not done.get((gpu, *step.waits_for)):
            return False
        if step.kind == "s":
            queue = connections.setdefault((gpu, block.sends_to, block.channel), [])
            if len(queue) == slots:
                return False
            queue.append(held[gpu, step.chunk : step.chunk + step.count].copy())
        elif step.kind != "nop":
            queue = connections.get((block.receives_from, gpu, block.channel))
            if not queue:
                return False
            own = held[gpu, step.chunk : step.chunk + step.count]
            arrived = queue.pop(0)
            assert arrived.shape == own.shape
            own[:] = own + arrived if step.kind == "rrc" else arrived
        done[gpu, number, at[gpu, number]] = step.is_waited_for
        at[gpu, number] += 1
        return True

    unfinished = list(at)
    while unfinished:
        draw.shuffle(unfinished)
        assert any([advance(*place) for place in unfinished]), "nothing can go on"
        unfinished = [
            place for place in unfinished if at[place] < len(program.gpus[place[0]][place[1]].steps)
        ]
    assert not any(connections.values())
    return held


@pytest.mark.parametrize("case", SCHEDULES)
@pytest.mark.parametrize("slots", [1, 8])
def test_programs_leave_every_part_once_on_every_gpu_in_any_order(case, slots):
    program = msccl_program(build(*SCHEDULES[case]))
    for seed in range(5):
        assert (run(program, seed, slots) == 1).all()


@pytest.mark.parametrize("case", SCHEDULES)
def test_programs_are_read_back_as_they_were_written(case):
    program = msccl_program(build(*SCHEDULES[case]))
    text = write_msccl(program)
    assert read_msccl(text, "a file") == program
    assert write_msccl(read_msccl(text, "a file")) == text


def test_a_program_of_two_ranks_in_full():
    lines = write_msccl(msccl_program(ring(2))).splitlines()
    assert lines[0] == (
        '<algo name="topotune_ring" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" '
        f'coll="allreduce" inplace="1" outofplace="0" minBytes="0" maxBytes="{MAX_BYTES}">'
    )
    # Rank 0 sends chunk 1, reduces what arrives into chunk 0, sends that, and takes the sum of chunk 1.
    assert [line.replace(' srcbuf="i"', "").replace(' dstbuf="i"', "") for line in lines[1:10]] == [
        '  <gpu id="0" i_chunks="2" o_chunks="0" s_chunks="0">',
        '    <tb id="0" send="1" recv="-1" chan="0">',
        '      <step s="0" type="s" srcoff="1" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="1"/>',
        '      <step s="1" type="s" srcoff="0" dstoff="0" cnt="1" depid="1" deps="0" hasdep="0"/>',
        "    </tb>",
        '    <tb id="1" send="-1" recv="1" chan="0">',
        '      <step s="0" type="rrc" srcoff="0" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>',
        '      <step s="1" type="r" srcoff="1" dstoff="1" cnt="1" depid="0" deps="0" hasdep="0"/>',
        "    </tb>",
    ]


def test_unequal_chunks_become_several_equal_ones():
    program = msccl_program(build("forest", {"weights": [90, 10], "down": [[-1, 0, 1], [1, -1, 1]]}, 3))
    assert program.num_chunks == 10
    assert {step.count for block in program.gpus[0] for step in block.steps if step.kind != "nop"} == {1, 9}


def test_no_step_moves_more_than_msccl_takes():
    program = msccl_program(build("forest", {"weights": [999, 1], "down": [[-1, 0], [-1, 0]]}, 2))
    counts = [step.count for block in program.gpus[0] for step in block.steps]
    assert max(counts) == 71
    assert (run(program, 0, 1) == 1).all()


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        (
            ("ring", {"pieces": 128}, 4),
            "topotune_ring takes 768 steps of a thread block, and MSCCL at most 256",
        ),
        (("ring", {"channels": 64}, 2), "topotune_ring takes 33 channels, and MSCCL at most 32"),
        (
            ("parameter_server", {"servers": [0]}, 40),
            "topotune_parameter_server takes 39 peers in one channel",
        ),
    ],
    ids=["steps", "channels", "peers"],
)
def test_what_msccl_cannot_take_is_refused(schedule, problem):
    with pytest.raises(UsageError) as raised:
        msccl_program(build(*schedule))
    assert raised.value.message.startswith(f"--to msccl-xml: {problem}")


TEXT = write_msccl(msccl_program(halving_doubling(4)))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('coll="allreduce"', 'coll="allgather"', "line 1: algo has coll='allgather', not 'allreduce'"),
        ('ngpus="4"', 'ngpus="5"', "line 1: algo holds 4 gpus, and ngpus is 5"),
        ('type="rrc"', 'type="re"', "line 10: step has type='re', not one of r, rrc, nop"),
        ('srcoff="2"', 'srcoff="4"', "line 4: step has srcoff='4', not a whole number from 0 to 3"),
        (
            'depid="3" deps="0"',
            'depid="9" deps="0"',
            "line 6: step waits for step 0 of thread block 9, which is",
        ),
        ('hasdep="1"', 'hasdep="0"', "line 12: step waits for step 0 of thread block 0, which has hasdep 0"),
        ("</algo>", "", "line 91: ends before the program does"),
        (
            "<algo",
            "<!DOCTYPE a [<!ENTITY b 'c'>]><algo",
            "line 1: declares the entity 'b', which no topology needs",
        ),
    ],
)
def test_programs_of_another_kind_are_refused_by_line(old, new, problem):
    with pytest.raises(InputFileError) as raised:
        read_msccl(TEXT.replace(old, new, 1), "a file")
    assert raised.value.message.startswith(f"a file: {problem}")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damaged_programs_are_refused_or_read_as_what_they_say(data):
    at = data.draw(st.integers(0, len(TEXT) - 1))
    damaged = TEXT[:at] + data.draw(st.sampled_from(["", "9", "-", "\0", "<", '"'])) + TEXT[at + 1 :]
    try:
        program = read_msccl(damaged, "a file")
    except InputFileError:
        return
    assert read_msccl(write_msccl(program), "a file") == program
