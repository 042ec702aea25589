"""Who writes and reads what in shared memory, and when: no two ranks may meet there."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topotune.execute.shared_memory import stages as stages_of
from topotune.execute.shared_memory.segment import CACHE_LINE_BYTES, NUM_BUFFERS
from topotune.execute.shared_memory.stages import slices, stages, turns

PLANS = {
    "allreduce": (stages_of.ALLREDUCE, stages_of.ALLREDUCE),
    "allreduce everywhere": (stages_of.ALLREDUCE_EVERYWHERE, stages_of.ALLREDUCE_EVERYWHERE),
    "reduce-scatter": (stages_of.REDUCE_SCATTER, stages_of.REDUCE_SCATTER),
    "all-gather": (stages_of.ALLGATHER, stages_of.ALLGATHER),
    "reduce": stages_of.REDUCE_TO_FIRST,
    "broadcast": stages_of.BROADCAST_FROM_FIRST,
}
TURNS = "allreduce in turns"
SLOT_BYTES = 4 * CACHE_LINE_BYTES
SLOT = SLOT_BYTES // 4  # elements
RANKS_AND_PIECES = st.integers(2, 5).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


def planned(name, num_elements, rank, num_ranks, num_pieces, first_buffer):
    """A rank's stages of one call on float32, and in how many buffers."""
    if name == TURNS:
        cut = slices(num_elements, 4, num_ranks * SLOT_BYTES, num_pieces)
        return turns(cut, rank, num_ranks, num_pieces, first_buffer), len(cut)
    cut = slices(num_elements, 4, SLOT_BYTES, num_ranks)
    return stages(PLANS[name][rank != 0], cut, rank, num_ranks, first_buffer), len(cut)


def accesses(rank, num_ranks, num_pieces, step):
    """Ranges of buffers, as (buffer, first, end), that a step writes, and those that it reads."""
    code, buffer, _, length, piece, detail = step
    pieces = [(min(i * piece, length), min((i + 1) * piece, length)) for i in range(num_ranks)]
    own = pieces[rank]

    def slot(owner, first, end):
        return (buffer, owner * SLOT + first, owner * SLOT + end)

    match code:
        case stages_of.GIVE:
            return [slot(rank, 0, own[0]), slot(rank, own[1], length)], []
        case stages_of.GIVE_ALL:
            return [slot(rank, 0, length)], []
        case stages_of.REDUCE:
            return [slot(rank, *own)], [slot(other, *own) for other in range(num_ranks) if other != rank]
        case stages_of.REDUCE_ALL:
            return [], [slot(other, 0, length) for other in range(num_ranks) if other != rank]
        case stages_of.TAKE:
            return [], [slot(other, *pieces[other]) for other in range(num_ranks)]
        case stages_of.TAKE_FIRST:
            return [], [slot(0, 0, length)]
        case stages_of.KEEP:
            return [], [slot(rank, *own)]
        case stages_of.PUBLISH:
            return [slot(rank, *own)], []
        case stages_of.BEGIN | stages_of.ADD | stages_of.FINISH:
            return [(buffer, *pieces[detail])], []
        case stages_of.COLLECT:
            return [], [(buffer, *pieces[index]) for index in range(num_pieces) if index != detail]
    raise AssertionError(code)


@dataclass(frozen=True)
class Access:
    """Part of a buffer, used by the ``number``-th stage of a rank, which knew of so many stages of each."""

    rank: int
    number: int
    known: tuple[int, ...]
    first: int
    end: int
    writes: bool

    def may_meet(self, other):
        """Whether they touch the same place, one writes it, and nothing keeps them apart in time."""
        return (
            (self.writes or other.writes)
            and max(self.first, other.first) < min(self.end, other.end)
            and other.known[self.rank] <= self.number
            and self.known[other.rank] <= other.number
        )


def run(programs, num_pieces):
    """Run each rank's stages as the waits allow, and return all accesses by buffer: with vector clocks.

    The k-th wait for a rank is for its k-th post, however late it is noticed.
    """
    num_ranks = len(programs)
    at = [0] * num_ranks
    known = [[0] * num_ranks for _ in programs]
    posts, waited = defaultdict(list), Counter()
    found = defaultdict(list)
    while any(number < len(program) for number, program in zip(at, programs, strict=True)):
        ready = [
            rank
            for rank, program in enumerate(programs)
            if at[rank] < len(program)
            and all(waited[rank, peer] < len(posts[rank, peer]) for peer in program[at[rank]].awaits)
        ]
        assert ready, f"all wait: {at}"
        for rank in ready:
            stage = programs[rank][at[rank]]
            for peer in stage.awaits:
                known[rank] = list(map(max, known[rank], posts[rank, peer][waited[rank, peer]]))
                waited[rank, peer] += 1
            for row in range(0, len(stage.steps), 6):
                step = stage.steps[row : row + 6]
                for writes, places in zip(
                    (True, False), accesses(rank, num_ranks, num_pieces, step), strict=True
                ):
                    for buffer, first, end in places:
                        access = Access(rank, at[rank], tuple(known[rank]), first, end, writes)
                        found[buffer].append(access)
            at[rank] += 1
            known[rank][rank] = at[rank]
            for peer in stage.tells:
                posts[peer, rank].append(tuple(known[rank]))
    assert all(waited[pair] == len(told) for pair, told in posts.items()), "a post that nobody waited for"
    return found


@settings(max_examples=60, deadline=None)
@given(
    ranks_and_pieces=RANKS_AND_PIECES,
    calls=st.lists(
        st.tuples(st.sampled_from([TURNS, *sorted(PLANS)]), st.integers(1, 700)), min_size=1, max_size=5
    ),
)
def test_nothing_is_written_while_another_rank_may_use_it(ranks_and_pieces, calls):
    """Nor between calls: a rank may begin the next one while others are still in this one."""
    num_ranks, num_pieces = ranks_and_pieces
    programs = []
    for rank in range(num_ranks):
        program, next_buffer = [], 0
        for name, num_elements in calls:
            made, num_slices = planned(name, num_elements, rank, num_ranks, num_pieces, next_buffer)
            program += made
            next_buffer = (next_buffer + num_slices) % NUM_BUFFERS
        programs.append(program)
    for buffer, uses in run(programs, num_pieces).items():
        for index, one in enumerate(uses):
            for other in uses[:index]:
                assert one.rank == other.rank or not one.may_meet(other), f"buffer {buffer}: {one} {other}"


@given(
    num_elements=st.integers(1, 5000),
    itemsize=st.sampled_from([1, 2, 4, 8]),
    num_ranks=st.integers(2, 9),
    room_lines=st.integers(1, 50),
)
def test_slices_cover_a_message_fit_a_buffer_and_are_cut_at_cache_lines(
    num_elements, itemsize, num_ranks, room_lines
):
    room_bytes = room_lines * CACHE_LINE_BYTES
    cut = slices(num_elements, itemsize, room_bytes, num_ranks)
    covered = 0
    for slice_ in cut:
        assert slice_.start == covered
        assert 0 < slice_.length * itemsize <= room_bytes
        assert slice_.piece * itemsize % CACHE_LINE_BYTES == 0
        assert sum(map(slice_.piece_length, range(num_ranks))) == slice_.length
        covered += slice_.length
    assert covered == num_elements


@pytest.mark.parametrize(("plan", "num_meetings"), [("allreduce", 4), ("allreduce everywhere", 3)])
def test_slices_follow_each_other_with_one_meeting_each(plan, num_meetings):
    cut = slices(3 * SLOT, 4, SLOT_BYTES, 2)
    assert len(cut) == 3
    assert len(stages(PLANS[plan][0], cut, 0, 2, 0)) - 1 == num_meetings


@given(num_elements=st.integers(1, 3000), ranks_and_pieces=RANKS_AND_PIECES)
def test_in_turns_every_rank_adds_to_every_piece_once(num_elements, ranks_and_pieces):
    num_ranks, num_pieces = ranks_and_pieces
    cut = slices(num_elements, 4, num_ranks * SLOT_BYTES, num_pieces)
    done = defaultdict(dict)
    for rank in range(num_ranks):
        for stage in turns(cut, rank, num_ranks, num_pieces, 0):
            for row in range(0, len(stage.steps), 6):
                code, _, start, _, _, piece = stage.steps[row : row + 6]
                if code != stages_of.COLLECT:
                    assert rank not in done[start, piece]
                    done[start, piece][rank] = code
    assert done.keys() == {(slice_.start, piece) for slice_ in cut for piece in range(num_pieces)}
    for codes in done.values():
        between = num_ranks - 2
        assert sorted(codes.values()) == [stages_of.BEGIN, *[stages_of.ADD] * between, stages_of.FINISH]


def waits(num_slices, num_ranks, num_pieces):
    cut = slices(num_slices * num_ranks * SLOT, 4, num_ranks * SLOT_BYTES, num_pieces)
    assert len(cut) == num_slices
    return [
        [len(stage.awaits) for stage in turns(cut, rank, num_ranks, num_pieces, 0)]
        for rank in range(num_ranks)
    ]


def test_in_turns_a_rank_waits_once_for_each_piece_it_does_not_begin_and_once_for_the_end():
    assert waits(1, 4, 2) == [[0, 1, 2], [1, 1, 1], [0, 1, 2], [1, 1, 1]]
    assert waits(1, 3, 3) == [[0, 1, 1, 2]] * 3
    assert waits(1, 5, 1) == [[0, 1], [1, 1], [1, 1], [1, 1], [1, 0]]


def test_in_turns_the_next_slice_begins_with_the_end_of_the_one_before():
    assert waits(2, 3, 3) == [[0, 1, 1, 2, 1, 1, 2]] * 3
