"""Who writes and reads what in shared memory, and when: no two ranks may meet there."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topotune.execute import shared_memory_stages as stages_of
from topotune.execute.shared_memory_segment import CACHE_LINE_BYTES, NUM_BUFFERS
from topotune.execute.shared_memory_stages import slices, stages

PLANS = {
    "allreduce": (stages_of.ALLREDUCE, stages_of.ALLREDUCE),
    "allreduce everywhere": (stages_of.ALLREDUCE_EVERYWHERE, stages_of.ALLREDUCE_EVERYWHERE),
    "reduce-scatter": (stages_of.REDUCE_SCATTER, stages_of.REDUCE_SCATTER),
    "all-gather": (stages_of.ALLGATHER, stages_of.ALLGATHER),
    "reduce": stages_of.REDUCE_TO_FIRST,
    "broadcast": stages_of.BROADCAST_FROM_FIRST,
}
SLOT_BYTES = 4 * CACHE_LINE_BYTES


def accesses(rank, num_ranks, step):
    """Ranges of slots, as (buffer, owner, first, end), that a step writes, and those that it reads."""
    code, buffer, _, length, piece, _ = step
    pieces = [(min(r * piece, length), min((r + 1) * piece, length)) for r in range(num_ranks)]
    own = pieces[rank]
    others = [r for r in range(num_ranks) if r != rank]
    match code:
        case stages_of.GIVE:
            return [(buffer, rank, 0, own[0]), (buffer, rank, own[1], length)], []
        case stages_of.GIVE_ALL:
            return [(buffer, rank, 0, length)], []
        case stages_of.REDUCE:
            return [(buffer, rank, *own)], [(buffer, other, *own) for other in others]
        case stages_of.REDUCE_ALL:
            return [], [(buffer, other, 0, length) for other in others]
        case stages_of.TAKE:
            return [], [(buffer, other, *pieces[other]) for other in range(num_ranks)]
        case stages_of.TAKE_FIRST:
            return [], [(buffer, 0, 0, length)]
        case stages_of.KEEP:
            return [], [(buffer, rank, *own)]
        case stages_of.PUBLISH:
            return [(buffer, rank, *own)], []
    raise AssertionError(code)


def overlap(a, b):
    return a[:2] == b[:2] and max(a[2], b[2]) < min(a[3], b[3])


@settings(max_examples=60, deadline=None)
@given(
    num_ranks=st.integers(2, 5),
    calls=st.lists(st.tuples(st.sampled_from(sorted(PLANS)), st.integers(1, 700)), min_size=1, max_size=6),
)
def test_nothing_is_written_while_another_rank_reads_or_writes_it(num_ranks, calls):
    """Between two meetings ranks run in any order, also at the end of a call and the begin of the next."""
    writes, reads = defaultdict(list), defaultdict(list)
    for rank in range(num_ranks):
        epoch = next_buffer = 0
        for name, num_elements in calls:
            cut = slices(num_elements, 4, SLOT_BYTES, num_ranks)
            for stage, steps in enumerate(stages(PLANS[name][rank != 0], cut, rank, next_buffer)):
                epoch += stage > 0
                for row in range(0, len(steps), 6):
                    written, read = accesses(rank, num_ranks, steps[row : row + 6])
                    writes[epoch] += [(rank, place) for place in written]
                    reads[epoch] += [(rank, place) for place in read]
            next_buffer = (next_buffer + len(cut)) % NUM_BUFFERS
    for epoch, written in writes.items():
        for rank, place in written:
            assert place[1] == rank
            for other, seen in written + reads[epoch]:
                assert other == rank or not overlap(place, seen), f"epoch {epoch}: {place} {seen}"


@given(
    num_elements=st.integers(1, 5000),
    itemsize=st.sampled_from([1, 2, 4, 8]),
    num_ranks=st.integers(2, 9),
    slot_lines=st.integers(1, 50),
)
def test_slices_cover_a_message_fit_a_slot_and_are_cut_at_cache_lines(
    num_elements, itemsize, num_ranks, slot_lines
):
    slot_bytes = slot_lines * CACHE_LINE_BYTES
    cut = slices(num_elements, itemsize, slot_bytes, num_ranks)
    covered = 0
    for slice_ in cut:
        assert slice_.start == covered
        assert 0 < slice_.length * itemsize <= slot_bytes
        assert slice_.piece * itemsize % CACHE_LINE_BYTES == 0
        assert sum(map(slice_.piece_length, range(num_ranks))) == slice_.length
        covered += slice_.length
    assert covered == num_elements


@pytest.mark.parametrize(("plan", "num_meetings"), [("allreduce", 4), ("allreduce everywhere", 3)])
def test_slices_follow_each_other_with_one_meeting_each(plan, num_meetings):
    cut = slices(3 * SLOT_BYTES // 4, 4, SLOT_BYTES, 2)
    assert len(cut) == 3
    assert len(stages(PLANS[plan][0], cut, 0, 0)) - 1 == num_meetings
