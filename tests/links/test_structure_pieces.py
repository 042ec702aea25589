import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topotune.links import FlowTest, RoundTripTimes
from topotune.links.inference.ends import fit_ends
from topotune.links.inference.fair_shares import fair_shares
from topotune.links.inference.partition import partition

NONE_CROSS = np.zeros((4, 4), dtype=bool)


@pytest.mark.parametrize(
    ("own", "uses", "capacities", "rates"),
    [
        ([10, 10], [[1], [1]], [10], [5, 5]),
        ([2, 10], [[1], [1]], [10], [2, 8]),
        ([10, 10, 10], [[1, 0], [1, 1], [0, 1]], [10, 4], [8, 2, 2]),
        ([10, 3], [[0], [0]], [1], [10, 3]),
        ([10, 10], [[1], [1]], [np.inf], [10, 10]),
    ],
    ids=["in halves", "the slow one spares", "two links", "not on the link", "no limit"],
)
def test_fair_shares_are_max_min_fair(own, uses, capacities, rates):
    got = fair_shares(np.array(own, float), np.array(uses, bool), np.array(capacities, float))
    assert got == pytest.approx(rates)


@given(st.data())
def test_fair_shares_fill_no_link_over_and_leave_no_flow_that_could_have_more(data):
    num_flows, num_links = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    own = np.array(data.draw(st.lists(st.integers(1, 50), min_size=num_flows, max_size=num_flows)), float)
    flags = st.lists(st.booleans(), min_size=num_links, max_size=num_links)
    uses = np.array(data.draw(st.lists(flags, min_size=num_flows, max_size=num_flows)))
    capacities = np.array(
        data.draw(st.lists(st.integers(1, 80), min_size=num_links, max_size=num_links)), float
    )
    rates = fair_shares(own, uses, capacities)
    loads = uses.T @ rates
    assert np.all(loads <= capacities * (1 + 1e-9))
    assert np.all(rates <= own * (1 + 1e-9))
    full = loads >= capacities * (1 - 1e-9)
    for flow in range(num_flows):
        largest_on_a_full_link = any(
            rates[flow] >= rates[uses[:, link]].max() * (1 - 1e-9)
            for link in np.flatnonzero(full & uses[flow])
        )
        assert rates[flow] >= own[flow] * (1 - 1e-9) or largest_on_a_full_link


def test_pairs_that_attract_are_joined_and_those_that_repel_are_parted():
    weights = {(0, 1): 2.0, (2, 3): 2.0, (0, 2): -1.0, (1, 3): -1.0, (0, 3): 0.5}
    assert partition(4, weights) == [[0, 1], [2, 3]]


def test_one_pair_that_repels_parts_no_group():
    weights = {(a, b): 1.0 for a in range(5) for b in range(a + 1, 5)} | {(1, 3): -1.0}
    assert partition(5, weights) == [[0, 1, 2, 3, 4]]


def test_a_node_that_all_but_one_group_repels_belongs_to_that_one():
    inside = {(0, 1): 1.0, (1, 2): 1.0, (3, 4): 1.0, (4, 5): 1.0}
    between = {(0, 3): -1.0, (1, 4): -1.0, (2, 5): -1.0}
    assert partition(7, inside | between | {(3, 6): -1.0}) == [[0, 1, 2, 6], [3, 4, 5]]


def test_nodes_that_were_never_measured_stay_by_themselves():
    assert partition(3, {(0, 1): 1.0}) == [[0, 1], [2]]


def test_each_end_has_the_median_of_the_paths_that_it_limits():
    sending, receiving = np.array([10.0, 10.0, 4.0, 10.0]), np.array([10.0, 6.0, 10.0, 10.0])
    rates = np.minimum(sending[:, None], receiving[None, :])
    rates[0, 3] = 2.0  # a slow path moves neither of its ends
    np.fill_diagonal(rates, np.nan)
    ends = fit_ends(rates, NONE_CROSS)
    assert ends.sending == pytest.approx(sending)
    assert ends.receiving == pytest.approx(receiving)


def test_paths_behind_uplinks_say_nothing_of_their_ends():
    rates = np.full((4, 4), np.nan)
    rates[0, 1] = rates[1, 0] = 10.0
    rates[0, 2] = rates[2, 0] = 3.0
    behind = NONE_CROSS.copy()
    behind[:2, 2:] = behind[2:, :2] = True
    ends = fit_ends(rates, behind)
    assert ends.sending[:2] == pytest.approx([10.0, 10.0])
    assert np.isnan(ends.sending[2:]).all()


FLOWS = {"purpose": "round", "flows": ((0, 1), (2, 3)), "message_bytes": 1, "number": 0}


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"flows": ()}, "must be one at least"),
        ({"flows": ((0, 0), (2, 3))}, "each between two ranks"),
        ({"flows": ((0, 1), (0, 3))}, "a rank sends or receives in two of them"),
        ({"rates_bytes_per_s": ((1.0,),)}, "2 flows and rates of 1"),
        ({"rates_bytes_per_s": ((1.0,), (1.0, 2.0))}, "must be as many for all"),
        ({"rates_bytes_per_s": ((), ())}, "one at least"),
        ({"rates_bytes_per_s": ((1.0,), (0.0,))}, "not above 0"),
        ({"message_bytes": 0}, "flows of 0 bytes"),
    ],
)
def test_flow_tests_check_themselves(changed, problem):
    with pytest.raises(ValueError, match=problem):
        FlowTest(**{**FLOWS, "rates_bytes_per_s": ((1.0,), (2.0,)), **changed})


def test_medians_of_flows_are_in_the_order_of_the_flows():
    test = FlowTest(**FLOWS, rates_bytes_per_s=((1.0, 5.0, 2.0), (9.0, 7.0, 8.0)))
    assert (test.num_repetitions, test.median_rates_bytes_per_s) == (3, (2.0, 8.0))


@pytest.mark.parametrize(
    ("a", "b", "min_s", "samples_s", "problem"),
    [
        (1, 1, 1e-5, (1e-5,), "between ranks 1 and 1"),
        (0, 1, 1e-5, (), "ascending"),
        (0, 1, 1e-5, (2e-5, 1e-5), "ascending"),
        (0, 1, 3e-5, (2e-5,), "fastest"),
        (0, 1, 0.0, (2e-5,), "fastest"),
    ],
)
def test_round_trips_check_themselves(a, b, min_s, samples_s, problem):
    with pytest.raises(ValueError, match=problem):
        RoundTripTimes(a=a, b=b, min_s=min_s, samples_s=samples_s)
