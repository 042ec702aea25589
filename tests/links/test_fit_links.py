import itertools
from dataclasses import replace

import numpy as np
import pytest
from made_up_links import SIZES, affine, exchange, measured

from topotune.bounds import allreduce_bound
from topotune.links import Measurement, RoundTripTimes, fit_links, link_classes
from topotune.links.fit import _with_visible_bandwidth
from topotune.links.piecewise import PiecewiseFit

INSIDE, ACROSS = affine(20e-6, 2e9), affine(80e-6, 1e9)


def two_level(node_of_rank, slow=None):
    """Costs within and between nodes; what touches node ``slow`` has a quarter of the bandwidth."""

    def cost(src, dst):
        a, b = node_of_rank[src], node_of_rank[dst]
        if a == b:
            return INSIDE
        return affine(80e-6, 0.25e9) if slow in (a, b) else ACROSS

    return cost


def test_one_node_is_one_class_with_intervals_around_the_truth():
    nodes = [0] * 4
    model = fit_links(measured(nodes, two_level(nodes)))
    assert model.class_names == ("within a node",)
    (cost,) = model.classes
    assert cost.latency_s == pytest.approx(20e-6, rel=0.03)
    assert cost.bandwidth_bytes_per_s == pytest.approx(2e9, rel=0.03)
    assert cost.alpha_ci_s[0] <= 20e-6 * 1.01
    assert cost.alpha_ci_s[1] >= 20e-6 * 0.99
    assert cost.bandwidth_ci_bytes_per_s[0] <= cost.bandwidth_bytes_per_s <= cost.bandwidth_ci_bytes_per_s[1]
    assert cost.max_relative_error < 0.05
    assert model.reduce_s_per_byte == 3e-10
    assert all(model.pair_class[a][b] == (-1 if a == b else 0) for a in range(4) for b in range(4))


def test_pairs_within_and_between_nodes_are_two_classes():
    nodes = [0, 0, 1, 1]
    model = fit_links(measured(nodes, two_level(nodes)))
    assert model.class_names == ("within a node", "between nodes")
    assert model.cost(0, 1).bandwidth_bytes_per_s == pytest.approx(2e9, rel=0.05)
    assert model.cost(0, 3).bandwidth_bytes_per_s == pytest.approx(1e9, rel=0.05)
    assert [link.num_pairs for link in link_classes(model)] == [4, 8]


def test_a_slow_node_splits_off_by_name():
    nodes = [0, 1, 2, 3]
    model = fit_links(measured(nodes, two_level(nodes, slow=2)))
    assert model.class_names == ("between nodes, 1 of 2 by speed", "between nodes, to or from node c")
    assert model.cost(1, 2).bandwidth_bytes_per_s == pytest.approx(0.25e9, rel=0.05)
    assert model.cost(0, 3).bandwidth_bytes_per_s == pytest.approx(1e9, rel=0.05)


def test_a_node_slow_in_one_direction_splits_off_by_direction():
    model = fit_links(measured([0, 1, 2], lambda src, dst: affine(5e-5, 0.4e9 if src == 1 else 1e9)))
    assert model.class_names == ("between nodes, 1 of 2 by speed", "between nodes, from node b")


@pytest.mark.parametrize(
    ("fastest_s", "num_classes"),
    [(None, 2), (lambda a, b: 5e-5, 1), (lambda a, b: 2e-4 if 3 in (a, b) else 5e-5, 2)],
    ids=["no round trips were taken", "they are alike", "they differ"],
)
def test_latencies_split_pairs_only_where_the_fastest_round_trips_differ_too(fastest_s, num_classes):
    measurement = measured([0, 1, 2, 3], lambda a, b: affine(2e-4 if 3 in (a, b) else 5e-5, 1e9))
    if fastest_s is not None:
        trips = [(a, b, fastest_s(a, b)) for a, b in itertools.combinations(range(4), 2)]
        round_trips = tuple(RoundTripTimes(a=a, b=b, min_s=s, samples_s=(s,)) for a, b, s in trips)
        measurement = replace(measurement, round_trips=round_trips)
    assert len(fit_links(measurement).classes) == num_classes


@pytest.mark.parametrize("seed", range(10))
def test_noise_splits_nothing(seed):
    nodes = [0, 0, 1, 1, 2, 2]
    model = fit_links(measured(nodes, two_level(nodes), noise=0.15, num_samples=7, seed=seed))
    assert model.class_names == ("within a node", "between nodes")


def test_pairs_that_drift_by_less_than_the_gap_stay_together():
    nodes = [0, 1, 2, 3]
    model = fit_links(
        measured(nodes, lambda a, b: affine(8e-5 * (1 + 0.1 * a), 1e9 * (1 + 0.06 * b)), noise=0.001)
    )
    assert model.class_names == ("between nodes",)


def test_fitting_is_repeatable():
    nodes = [0, 0, 1]
    measurement = measured(nodes, two_level(nodes))
    assert fit_links(measurement) == fit_links(measurement)


def test_relabelling_ranks_relabels_the_model():
    nodes, order = [0, 0, 1, 1], [2, 0, 3, 1]
    plain = fit_links(measured(nodes, two_level(nodes), noise=0.0))
    shuffled_nodes = [1 - nodes[old] if nodes[order[0]] else nodes[old] for old in order]
    shuffled = fit_links(measured(shuffled_nodes, two_level(shuffled_nodes), noise=0.0))
    for a in range(4):
        for b in range(4):
            if a != b:
                assert shuffled.cost(a, b).time_s(4096) == pytest.approx(
                    plain.cost(order[a], order[b]).time_s(4096)
                )


def test_memory_of_a_node_is_what_all_its_pairs_reach_together():
    nodes = [0] * 4
    together = exchange(0, [(0, 1), (2, 3)], 2**22, 0.01) + exchange(1, [(0, 2), (1, 3)], 2**22, 0.01)
    alone = exchange(2, [(0, 1)], 2**22, 0.005)
    model = fit_links(measured(nodes, two_level(nodes), exchanges=together + alone))
    (shared,) = model.shared
    assert (shared.name, shared.is_limit) == ("memory of node a", False)
    assert shared.capacity_bytes_per_s == pytest.approx(4 * 2**22 / 0.01)
    assert len(shared.pairs) == 12


def test_a_link_that_concurrent_pairs_fill_is_a_limit_at_the_best_rate_seen():
    nodes = [0, 0, 1, 1, 2, 2]
    size, rate = 2**22, 1e9
    rounds = exchange(0, [(0, 2), (1, 4)], size, 2 * size / rate) + exchange(
        1, [(2, 4), (3, 5)], size, 2 * size / rate
    )
    model = fit_links(measured(nodes, two_level(nodes), exchanges=rounds, noise=0.001))
    limits = {shared.name: shared for shared in model.shared}
    for direction in ("sending", "receiving"):
        for node in "abc":
            link = limits[f"link of node {node}, {direction}"]
            assert link.capacity_bytes_per_s == pytest.approx(1e9, rel=0.02)
            assert link.capacity_bytes_per_s >= 1e9 * (1 - 0.005)
            assert link.is_limit
    assert (0, 2) in limits["link of node a, sending"].pairs
    assert (2, 0) in limits["link of node a, receiving"].pairs
    assert (0, 1) not in limits["link of node a, sending"].pairs


def test_a_node_whose_partners_may_be_the_limit_has_none():
    """A fast node among slow ones: alone it reaches a partner's rate, with three partners thrice that."""
    nodes, size = [0, 1, 2, 3], 2**22
    fan = exchange(0, [(0, 1), (0, 2), (0, 3)], size, size / 1e9)
    others = exchange(1, [(1, 0), (1, 2), (1, 3)][1:], size, 2 * size / 1e9)
    model = fit_links(measured(nodes, lambda *_: affine(1e-5, 1e9), exchanges=fan + others, noise=0.001))
    limits = {shared.name: shared for shared in model.shared}
    assert not limits["link of node a, sending"].is_limit
    assert limits["link of node a, sending"].capacity_bytes_per_s == pytest.approx(3e9, rel=0.02)
    assert limits["link of node b, sending"].is_limit
    bound = allreduce_bound(model)
    assert bound.time_s(1e9) == pytest.approx(
        1.0, rel=0.02
    )  # what node b alone must carry, whatever node a can do


def test_two_nodes_limit_each_other_even_untested():
    nodes = [0, 1]
    model = fit_links(measured(nodes, two_level(nodes)))
    assert all(shared.is_limit for shared in model.shared)
    assert allreduce_bound(model).time_s(1e9) == pytest.approx(1.0, rel=0.05)


def test_overhead_of_a_call_is_what_all_ranks_at_once_add():
    nodes = [0] * 4
    small = exchange(0, [(0, 1), (2, 3)], 8, 90e-6)
    model = fit_links(measured(nodes, two_level(nodes), exchanges=small, noise=0.0))
    assert model.call_overhead_s == pytest.approx(70e-6, rel=0.01)


def test_costs_grow_beyond_the_largest_message_even_if_none_was_seen():
    model = fit_links(measured([0, 0], lambda *_: lambda size: 5e-5, sizes=(8, 64, 1024), noise=0.0))
    assert np.isfinite(model.classes[0].bandwidth_bytes_per_s)
    assert model.classes[0].time_s(1024) == pytest.approx(5e-5, rel=0.05)


def test_pairs_that_were_not_timed_take_the_class_of_their_kind():
    nodes = [0, 0, 1, 1]
    full = measured(nodes, two_level(nodes))
    some = Measurement(
        num_ranks=4,
        node_of_rank=full.node_of_rank,
        node_names=full.node_names,
        pairs=tuple(pair for pair in full.pairs if {pair.src, pair.dst} in ({0, 1}, {0, 2})),
    )
    model = fit_links(some)
    assert model.cost(2, 3) == model.cost(0, 1)
    assert model.cost(3, 1) == model.cost(0, 2)


def test_a_kind_of_pair_that_was_never_timed_is_refused():
    nodes = [0, 0, 1]
    full = measured(nodes, two_level(nodes))
    inside = Measurement(
        num_ranks=3,
        node_of_rank=full.node_of_rank,
        node_names=full.node_names,
        pairs=tuple(pair for pair in full.pairs if {pair.src, pair.dst} == {0, 1}),
    )
    with pytest.raises(ValueError, match="no pair of ranks between nodes was timed"):
        fit_links(inside)


def test_a_single_rank_has_no_classes():
    model = fit_links(Measurement(num_ranks=1, node_of_rank=(0,), node_names=("a",), pairs=()))
    assert (model.classes, model.shared) == ((), ())


def test_sizes_of_the_whole_plan_are_fitted_closely():
    nodes = [0] * 3
    model = fit_links(measured(nodes, two_level(nodes), noise=0.03))
    assert model.classes[0].time_s(SIZES) == pytest.approx([INSIDE(size) for size in SIZES], rel=0.08)


def test_a_bandwidth_that_the_errors_could_have_hidden_is_a_plain_number():
    """What a plan's reader takes for a number: a NumPy scalar is none."""
    fit = _with_visible_bandwidth(
        PiecewiseFit(starts=(0,), alpha_s=(1e-3,), beta_s_per_byte=(0.0,)), 2**20, np.float64(1e-3)
    )
    assert type(fit.beta_s_per_byte[-1]) is float
    assert fit.beta_s_per_byte[-1] > 0
