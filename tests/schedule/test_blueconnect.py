import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_strategies import integer_inputs

from topotune.errors import UsageError
from topotune.schedule import build, hierarchical, interpret, verify
from topotune.schedule.blueconnect import blueconnect, factorisations


@st.composite
def levels(draw):
    factors = draw(st.lists(st.integers(2, 4), min_size=1, max_size=4).filter(lambda f: math.prod(f) <= 36))
    return factors, draw(st.permutations(range(len(factors))))


@settings(deadline=None, max_examples=12)
@given(levels(), st.integers(1, 3))
def test_any_levels_in_any_order_are_an_allreduce_with_the_bytes_of_a_ring(case, pieces):
    factors, order = case
    num_ranks = math.prod(factors)
    schedule = blueconnect(num_ranks, factors, order=order, pieces=pieces)
    assert verify(schedule) == ()
    sent = np.bincount(schedule.src, schedule.chunk_fractions()[schedule.chunk], minlength=num_ranks)
    assert sent == pytest.approx(np.full(num_ranks, 2 * (num_ranks - 1) / num_ranks))
    parts = integer_inputs(num_ranks, 2 * num_ranks * pieces, seed=pieces)
    assert (interpret(schedule, parts) == parts.sum(axis=0)).all()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_first_level_in_order_carries_most_and_each_later_one_less_by_what_is_scattered(order):
    factors = [2, 3, 4]
    schedule = blueconnect(24, factors, order=list(order))
    share = schedule.chunk_fractions()[schedule.chunk]
    left = 1.0
    for level in order:
        stride = math.prod(factors[:level])
        moved = schedule.src // stride % factors[level] != schedule.dst // stride % factors[level]
        sent = np.bincount(schedule.src[moved], share[moved], minlength=24)
        assert sent == pytest.approx(np.full(24, 2 * left * (factors[level] - 1) / factors[level]))
        left /= factors[level]


def test_in_the_order_of_the_levels_it_moves_what_hierarchical_moves():
    ours = blueconnect(24, [2, 3, 4])
    racks = [[[6 * rack + 2 * node, 6 * rack + 2 * node + 1] for node in range(3)] for rack in range(4)]
    theirs = hierarchical(racks)
    assert ours.step.max() == theirs.step.max()
    for name in ("step", "src", "dst", "op"):
        ours_sorted, theirs_sorted = (np.sort(getattr(one, name)) for one in (ours, theirs))
        np.testing.assert_array_equal(ours_sorted, theirs_sorted)


def test_pieces_overlap_stages():
    whole, cut = (blueconnect(16, [2, 2, 2, 2], pieces=pieces) for pieces in (1, 4))
    assert whole.step.max() + 1 == 8
    assert cut.step.max() + 1 == 8 + 3


def test_every_choice_of_levels_is_offered_in_every_order_that_hierarchical_does_not_have():
    nodes, racks = (tuple(tuple(range(a, a + size)) for a in range(0, 16, size)) for size in (2, 4))
    pods = (tuple(range(8)), tuple(range(8, 16)))
    found = list(factorisations([nodes, racks, pods], 16))
    of_four = [order for factors, order in found if factors == [2, 2, 2, 2]]
    assert sorted(of_four) == sorted(map(list, itertools.permutations(range(4))))
    assert [order for factors, order in found if factors == [4, 4]] == [[1, 0]]
    assert len([factors for factors, _ in found if len(factors) == 3]) == 3 * 5
    for factors, order in found:
        assert verify(build("blueconnect", {"factors": factors, "order": order}, 16)) == ()


def test_levels_of_unequal_groups_or_scattered_ranks_offer_none():
    assert list(factorisations([((0, 1), (2, 3, 4))], 5)) == []
    assert list(factorisations([((0, 2), (1, 3))], 4)) == []


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({"factors": [2, 3]}, "factors [2, 3] make up 6 ranks, not 8"),
        ({"factors": [8, 1]}, "factors is [8, 1], not of whole numbers from 2 to 8"),
        ({"factors": 8}, "factors is 8, not a list of 1 to 12 whole numbers"),
        ({"factors": [2, 4], "order": [0, 0]}, "order is [0, 0], which does not name each of 2 levels once"),
        ({"factors": [2, 4], "order": [1]}, "order is [1], which does not name each of 2 levels once"),
        ({"factors": [2, 4], "pieces": 0}, "pieces is 0, not a whole number from 1 to 1024"),
        ({}, "blueconnect needs the parameter 'factors'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_value(call, says):
    with pytest.raises(UsageError) as caught:
        build("blueconnect", call, 8)
    assert caught.value.message == f"blueconnect: {says}"
