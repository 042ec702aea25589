"""Predicted reduce-scatters and all-gathers, and link models of some of the ranks."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_links import ALPHA_S, BETA_S_PER_BYTE, SIZES, affine, random_model, uniform

from topotune.links.model import SharedCapacity
from topotune.plan.algorithms import PART_COLLECTIVES
from topotune.simulate import predict_candidate
from topotune.simulate.parts import predict_parts


@pytest.mark.parametrize("collective", PART_COLLECTIVES)
def test_a_ring_takes_one_hop_less_than_ranks_each_of_one_part(collective):
    model = uniform(5)
    times_s = predict_parts(collective, "ring", {}, model, SIZES)
    assert times_s == pytest.approx([4 * (ALPHA_S + size / 5 * BETA_S_PER_BYTE) for size in SIZES])


def test_the_librarys_reduce_scatter_is_its_allreduce():
    model = random_model(4, seed=1)
    assert predict_parts("reduce_scatter", "default", {}, model, SIZES) == pytest.approx(
        predict_candidate("default", {}, model, SIZES)
    )


def test_memory_inside_nodes_leaves_the_ring_between_them():
    nodes = (0, 0, 1, 1)
    model = replace(
        uniform(4, nodes=nodes),
        classes=(affine(ALPHA_S, BETA_S_PER_BYTE), affine(ALPHA_S / 1000, BETA_S_PER_BYTE / 1000)),
        class_names=("between", "within"),
        pair_class=tuple(tuple(-1 if a == b else int(a // 2 == b // 2) for b in range(4)) for a in range(4)),
    )
    for collective in PART_COLLECTIVES:
        times_s = predict_parts(
            collective, "shm_hierarchical", {"groups": [[0, 1], [2, 3]]}, model, SIZES[3:]
        )
        # Each rank has the parts of two ranks to exchange, with one other rank.
        across_s = [2 * (ALPHA_S + size / 4 * BETA_S_PER_BYTE) for size in SIZES[3:]]
        assert np.all(times_s > np.multiply(0.5, across_s))
        assert np.all(times_s < np.multiply(1.2, across_s))


def test_a_model_of_some_ranks_costs_the_same_between_them():
    model = random_model(6, seed=2)
    ranks = [5, 0, 3]
    some = model.among(ranks)
    for a, rank_a in enumerate(ranks):
        for b, rank_b in enumerate(ranks):
            if a != b:
                assert some.cost(a, b) == model.cost(rank_a, rank_b)
    everyone = range(model.num_ranks)
    assert predict_candidate("ring", {}, model.among(everyone), SIZES) == pytest.approx(
        predict_candidate("ring", {}, model, SIZES)
    )


def test_what_sets_of_ranks_share_is_parted_between_them_and_nodes_are_counted_anew():
    nic = SharedCapacity(
        name="link of node b",
        capacity_bytes_per_s=1e9,
        pairs=frozenset((a, b) for a in (2, 3) for b in (0, 1)),
    )
    own = SharedCapacity(name="own", capacity_bytes_per_s=1e9, pairs=frozenset({(2, 0)}))
    other = SharedCapacity(name="other", capacity_bytes_per_s=1e9, pairs=frozenset({(3, 1)}))
    model = uniform(4, nodes=[4, 4, 7, 7], shared=(nic, own, other), near=(frozenset({2, 3}),))
    some = model.among([0, 2], num_alike=2)
    assert some.node_of_rank == (0, 1)
    assert [(one.name, one.capacity_bytes_per_s, set(one.pairs)) for one in some.shared] == [
        ("link of node b", 5e8, {(1, 0)}),
        ("own", 1e9, {(1, 0)}),
    ]
    assert some.near == (frozenset({1}),)
