"""What a collective can be made of takes no less than the collective itself: what breaks that is told."""

import pytest

from topotune.tune.across_tables import TimedTable, violations_across
from topotune.tune.consistency import LIBRARY, PLAN, Timed
from topotune.tune.mesh import GroupSet, read_groups

KIB = 1024
WORLD = GroupSet(name="world", groups=(tuple(range(8)),))
DP, TP = read_groups("dp=4,tp=2", 8)  # dp: 0 2 4 6 and 1 3 5 7; tp: 0 1, 2 3, ...
HALVES = "0-3;4-7"


def timed(*points, error=0.01):
    return {size: Timed(message_bytes=size, median_s=time_s, error=error) for size, time_s in points}


def table(collective, group_set, *points, plan=None, error=0.01):
    return TimedTable(
        collective=collective,
        group_set=group_set,
        timed={LIBRARY: timed(*points, error=error), PLAN: timed(*(plan or points), error=error)},
    )


def parts_of(group_set, size, scatter_s, gather_s):
    return [
        table("reduce_scatter", group_set, (size, scatter_s)),
        table("allgather", group_set, (size, gather_s)),
    ]


def test_an_allreduce_that_is_slower_than_its_parts_is_told_with_what_is_to_be_gained():
    tables = [table("allreduce", WORLD, (64 * KIB, 10e-3)), *parts_of(WORLD, 64 * KIB, 2e-3, 3e-3)]
    assert violations_across(tables) == [
        "an allreduce is slower than reduce-scatter and all-gather (a measuring error, or a gain of up to "
        "50% by native_reduce_scatter_allgather, or by what makes the parts in the plan): the default: "
        "allreduce, world, takes 10 ms at 64 KiB, and its parts 2 ms + 3 ms"
    ]


def test_a_gain_that_the_plan_has_already_is_none():
    tables = [
        table("allreduce", WORLD, (64 * KIB, 10e-3), plan=[(64 * KIB, 4e-3)]),
        *parts_of(WORLD, 64 * KIB, 2e-3, 3e-3),
    ]
    (line,) = violations_across(tables)
    assert "(a measuring error, or slow where the plan is faster)" in line


def test_a_plan_whose_parts_became_faster_than_its_allreduce_is_told_although_the_library_keeps_the_rule():
    tables = [
        table("allreduce", WORLD, (64 * KIB, 10e-3)),
        table("reduce_scatter", WORLD, (64 * KIB, 9e-3), plan=[(64 * KIB, 2e-3)]),
        table("allgather", WORLD, (64 * KIB, 9e-3), plan=[(64 * KIB, 3e-3)]),
    ]
    (line,) = violations_across(tables)
    assert line.endswith("the plan: allreduce, world, takes 10 ms at 64 KiB, and its parts 2 ms + 3 ms")


@pytest.mark.parametrize(
    "tables",
    [
        pytest.param(
            [table("allreduce", WORLD, (64 * KIB, 5.4e-3)), *parts_of(WORLD, 64 * KIB, 2e-3, 3e-3)],
            id="within-the-tolerance",
        ),
        pytest.param(
            [
                table("allreduce", WORLD, (64 * KIB, 10e-3), error=0.3),
                *parts_of(WORLD, 64 * KIB, 2e-3, 3e-3),
            ],
            id="within-the-scatter",
        ),
        pytest.param(
            [table("allreduce", WORLD, (64 * KIB, 10e-3)), *parts_of(WORLD, 16 * KIB, 2e-3, 3e-3)],
            id="other-sizes",
        ),
        pytest.param(
            [table("allreduce", WORLD, (64 * KIB, 10e-3)), *parts_of(TP, 64 * KIB, 2e-3, 3e-3)],
            id="other-groups",
        ),
        pytest.param(
            [
                table("allreduce", WORLD, (64 * KIB, 10e-3)),
                table("reduce_scatter", WORLD, (64 * KIB, 1e-3)),
            ],
            id="one-part-alone",
        ),
    ],
)
def test_what_was_not_timed_alike_or_breaks_nothing_beyond_doubt_is_not_told(tables):
    assert violations_across(tables) == []


def test_a_hierarchy_takes_no_longer_than_its_stages():
    tables = [
        table("allreduce", WORLD, (64 * KIB, 20e-3)),
        *parts_of(TP, 64 * KIB, 1e-3, 2e-3),
        table("allreduce", DP, (32 * KIB, 5e-3), (64 * KIB, 9e-3)),
    ]
    (line,) = violations_across(tables)
    assert line.startswith("an allreduce is slower than its stages inside groups and across them (")
    assert "a gain of up to 60% by native_hierarchical" in line
    # Each rank has half of the message when pairs are done: 32 KiB go across.
    assert line.endswith("20 ms at 64 KiB, and inside tp, across dp and inside again 1 ms + 5 ms + 2 ms")


def test_stages_whose_groups_are_no_grid_say_nothing():
    # In halves of neighbours, groups of 0 1, 2 3 … lie inside, not across.
    (halves,) = read_groups(HALVES, 8)
    tables = [
        table("allreduce", WORLD, (64 * KIB, 20e-3)),
        *parts_of(TP, 64 * KIB, 1e-3, 2e-3),
        table("allreduce", halves, (32 * KIB, 1e-3)),
    ]
    assert not any("stages" in line for line in violations_across(tables))


@pytest.mark.parametrize("collective", ["allreduce", "reduce_scatter", "allgather"])
def test_groups_take_no_longer_than_a_superset_with_room_for_all_of_them(collective):
    # Four pairs in the world: a message of 16 KiB each needs one of 64 KiB there.
    tables = [
        table(collective, TP, (16 * KIB, 20e-3)),
        table(collective, WORLD, (16 * KIB, 1e-3), (64 * KIB, 5e-3)),
    ]
    (line,) = violations_across(tables)
    assert line.startswith("groups are slower than the larger ones that they lie in (")
    assert line.endswith(
        f"{collective}, tp, takes 20 ms at 16 KiB, and world, with room for all of them, 5 ms at 64 KiB"
    )


def test_a_superset_that_is_faster_in_a_message_of_the_same_size_alone_breaks_nothing():
    tables = [
        table("allreduce", TP, (64 * KIB, 4e-3)),
        table("allreduce", WORLD, (64 * KIB, 1.1e-3)),
    ]
    assert violations_across(tables) == []  # four calls carry what the four pairs exchange at once


def test_several_calls_of_a_superset_stand_in_where_none_so_large_was_timed():
    tables = [table("allreduce", TP, (64 * KIB, 9e-3)), table("allreduce", WORLD, (64 * KIB, 1e-3))]
    (line,) = violations_across(tables)
    assert line.endswith("world, with room for all of them, 4 ms at 64 KiB in 4 calls")


def test_groups_that_lie_across_larger_ones_are_not_held_against_them():
    (halves,) = read_groups(HALVES, 8)
    tables = [
        table("allreduce", halves, (64 * KIB, 1e-3)),
        table("allreduce", GroupSet(name="far", groups=((0, 4), (1, 5), (2, 6), (3, 7))), (64 * KIB, 90e-3)),
    ]
    assert violations_across(tables) == []
