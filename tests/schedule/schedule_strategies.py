"""Hypothesis strategies: every generator joins the property tests by a line in ``schedules``."""

from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from topotune.plan.grouping import ACROSS
from topotune.schedule import double_binary_tree, halving_doubling, hierarchical, recursive_doubling, ring

MAX_RANKS = 33

num_ranks = st.integers(1, MAX_RANKS)
pieces = st.integers(1, 4)


@st.composite
def partitions(draw, max_ranks=MAX_RANKS):
    """Any partition of 0 … n-1: sizes and order of groups, and of ranks within them, are free."""
    order = draw(st.integers(1, max_ranks).flatmap(lambda n: st.permutations(range(n))))
    ends = draw(st.sets(st.integers(1, len(order)), max_size=6)) | {len(order)}
    groups, begin = [], 0
    for end in sorted(ends):
        groups.append(order[begin:end])
        begin = end
    return groups


@st.composite
def nested_partitions(draw, max_ranks=MAX_RANKS):
    """Any partition of a partition."""
    inner = draw(partitions(max_ranks))
    return [[inner[number] for number in outer] for outer in draw(partitions_of(len(inner)))]


def partitions_of(count):
    return st.permutations(range(count)).flatmap(
        lambda order: st.sets(st.integers(1, count), max_size=3).map(
            lambda ends: [list(order[begin:end]) for begin, end in pairwise([0, *sorted({*ends, count})])]
        )
    )


any_groups = partitions() | nested_partitions()
few_groups = partitions(max_ranks=7) | nested_partitions(max_ranks=7)

schedules = st.one_of(
    st.builds(ring, num_ranks, channels=st.integers(1, 3), pieces=pieces),
    st.builds(double_binary_tree, num_ranks, pieces=pieces),
    st.builds(recursive_doubling, num_ranks),
    st.builds(halving_doubling, num_ranks),
    st.builds(hierarchical, any_groups, across=st.sampled_from(ACROSS), pieces=st.integers(1, 3)),
)

small_schedules = st.one_of(
    st.builds(ring, st.integers(2, 6), channels=st.integers(1, 2), pieces=st.integers(1, 2)),
    st.builds(double_binary_tree, st.integers(2, 9), pieces=st.integers(1, 2)),
    st.builds(recursive_doubling, st.integers(2, 9)),
    st.builds(halving_doubling, st.integers(2, 9)),
    st.builds(hierarchical, few_groups, across=st.sampled_from(ACROSS)),
).filter(lambda schedule: schedule.num_transfers > 0)


def integer_inputs(num_ranks: int, num_elements: int, seed: int) -> np.ndarray:
    """Random 64-bit parts: their sum modulo 2^64 tells how often each of them is in it."""
    return np.random.default_rng(seed).integers(
        -(2**63), 2**63, size=(num_ranks, num_elements), dtype=np.int64
    )
