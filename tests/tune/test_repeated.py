"""Two tunings of the same cluster give the same plan, but for rows whose intervals overlap."""

import numpy as np
import pytest
from fake_bench import FAST, RECURSIVE, SLOW, TREE, FakeBench, default_time, factors

from topotune.plan.lookup import find_row
from topotune.tune.decide import Limit
from topotune.tune.options import TuneOptions
from topotune.tune.pipeline import choose_rows
from topotune.tune.sampling import Sampling

SIZES = (4096, 65536, 1 << 20)


def tuned(seed, noise):
    table = {
        FAST: lambda size: 1.6 if size <= 65536 else 1.3,
        TREE: lambda size: 1.55 if size <= 65536 else 2.0,
        RECURSIVE: 1.04,
        SLOW: 0.8,
    }
    bench = FakeBench(factors(table), noise=noise, seed=seed)
    return choose_rows(
        Sampling(bench=bench, rng=np.random.default_rng(seed)),
        TuneOptions(budget_s=30.0, sizes=SIZES, seed=seed),
        list(table),
        predicted_s=lambda candidate, size: default_time(size),
        limit=Limit(no_bound_reason="made up"),
    )


@pytest.mark.parametrize("noise", [0.02, 0.15])
def test_two_tunings_differ_only_where_their_intervals_overlap(noise):
    first, second = tuned(1, noise), tuned(2, noise)
    for size in SIZES:
        one, other = (find_row(choice.rows, size) for choice in (first, second))
        if (one.algorithm, one.params) == (other.algorithm, other.params):
            continue
        (low, high), (other_low, other_high) = one.evidence.ratio_ci, other.evidence.ratio_ci
        assert max(low, other_low) <= min(high, other_high), f"at {size}: {one.algorithm}, {other.algorithm}"
    assert find_row(first.rows, 1 << 20).algorithm == find_row(second.rows, 1 << 20).algorithm
