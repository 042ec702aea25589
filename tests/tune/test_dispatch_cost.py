"""Where default rows lose to the backend's dispatch: told with the size from which on they do not."""

import numpy as np
import pytest
from fake_bench import FAST, FakeBench

from topotune.plan.model import Row
from topotune.report.text import describe_comparison
from topotune.tune.decide import Limit
from topotune.tune.dispatch_cost import (
    DispatchCost,
    loss_in_words,
    note_in_words,
    sizes_of_default_rows,
    time_dispatch,
)
from topotune.tune.options import TuneOptions
from topotune.tune.pipeline import choose_rows
from topotune.tune.sampling import Sampling
from topotune.tune.statistics import Comparison
from topotune.tune.trial import DEFAULTS, DISPATCHED, WRAPPED
from topotune.units import format_bytes

SIZES = (1024, 16384, 1 << 20)


def short_calls(*, dispatch_s, wins_from=1 << 40):
    """A default of 50 µs and 1 GB/s, dispatch on top, and an algorithm that wins from a size on."""

    def true_s(candidate, message_bytes):
        own_s = 50e-6 + message_bytes / 1e9
        if candidate not in DEFAULTS:
            return own_s / 3 if message_bytes >= wins_from else 3 * own_s
        return own_s + dispatch_s * (candidate == DISPATCHED)

    return true_s


def chosen(true_s, *, sizes=SIZES, budget_s=20.0, noise=0.1):
    bench = FakeBench(true_s, noise=noise)
    choice = choose_rows(
        Sampling(bench=bench, rng=np.random.default_rng(0)),
        TuneOptions(budget_s=budget_s, sizes=sizes, seed=0),
        [FAST],
        predicted_s=lambda _candidate, _size: 1e-3,
        limit=Limit(no_bound_reason="made up"),
    )
    return choice, bench


def lines_on_dispatch(choice):
    return [line for line in choice.warnings if "dispatch" in line]


def test_the_plan_says_from_which_size_on_the_backend_is_worth_using():
    choice, bench = chosen(short_calls(dispatch_s=5e-6))
    (line,) = lines_on_dispatch(choice)
    assert line.startswith("the backend's dispatch costs more than 2 % where the plan keeps the default: ")
    assert " at 4 B (" in line
    assert " at 1 KiB (" in line
    # 5 µs are 7.5 % of what 16 KiB take, and 0.5 % of what 1 MiB takes.
    assert " at 16 KiB (" in line
    assert " at 1 MiB" not in line.partition(";")[0]
    assert line.endswith("; the backend is worth using from 1 MiB on")
    assert bench.clock_s <= 20.0


def test_from_where_the_plan_leaves_the_default_it_is_worth_using():
    choice, _ = chosen(short_calls(dispatch_s=5e-6, wins_from=16384), sizes=(1024, 4096, 16384, 65536))
    (line,) = lines_on_dispatch(choice)
    first = next(row.min_bytes for row in choice.rows if row.algorithm != "default")
    assert 4096 < first <= 65536
    assert line.endswith(f"; the backend is worth using from {format_bytes(first)} on")
    assert " at 4 KiB (" in line
    assert "at 64 KiB" not in line


def test_where_dispatch_loses_everywhere_it_is_worth_using_nowhere():
    choice, _ = chosen(short_calls(dispatch_s=100e-6))
    (line,) = lines_on_dispatch(choice)
    assert line.endswith("; the backend is worth using at no larger size that was tried")


@pytest.mark.parametrize("dispatch_s", [0.0, 0.5e-6], ids=["free", "1 %"])
def test_dispatch_within_the_margin_is_noted_and_warned_of_nowhere(dispatch_s):
    choice, _ = chosen(short_calls(dispatch_s=dispatch_s))
    assert lines_on_dispatch(choice) == []
    listed = "4 B, 1 KiB, 16 KiB, 1 MiB"
    said = f"dispatch was timed at {listed}, and costs more than 2 % at none of them"
    assert said in choice.certificate.method


def test_long_calls_hide_dispatch_and_are_not_timed():
    rows = (
        Row(min_bytes=0, max_bytes=4096, algorithm="default"),
        Row(min_bytes=4096, max_bytes=65536, algorithm="ring"),
        Row(min_bytes=65536, max_bytes=None, algorithm="default"),
    )
    default_s = {1024: 1e-4, 4096: 1e-4, 65536: 1e-3, 1 << 20: 6e-3}
    assert sizes_of_default_rows(rows, default_s) == {4: 1e-4, 1024: 1e-4, 65536: 1e-3}
    assert sizes_of_default_rows(rows, {}) == {}


def test_without_time_dispatch_is_not_timed_and_that_is_noted():
    bench = FakeBench(short_calls(dispatch_s=5e-6))
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    assert time_dispatch(sampling, {4: 5e-5, 1024: 5e-5}, deadline_s=1e-4) == ()
    assert bench.blocks == []
    assert note_in_words((), {4: 5e-5, 1024: 5e-5}) == "no time was left to time dispatch at 4 B, 1 KiB"
    assert note_in_words((), {}) is None


def cost(message_bytes, ratio, low, high):
    comparison = Comparison(
        default_median_s=1e-4,
        median_s=1e-4 / ratio,
        ratio=ratio,
        low=low,
        high=high,
        num_rounds=50,
        outlier_share=0.0,
    )
    return DispatchCost(message_bytes=message_bytes, comparison=comparison)


def test_a_size_that_seems_to_lose_or_was_not_timed_is_not_called_worth_it():
    rows = (Row(min_bytes=0, max_bytes=None, algorithm="default"),)
    sizes = (1024, 4096, 16384, 65536)
    costs = (cost(4, 0.90, 0.85, 0.95), cost(1024, 0.96, 0.92, 1.0), cost(4096, 0.99, 0.9, 1.1))
    asked = dict.fromkeys((4, *sizes), 1e-4)
    assert loss_in_words(costs, rows, sizes, asked).endswith("worth using from 4 KiB on")
    assert loss_in_words(costs[:2], rows, sizes, asked).endswith("at no larger size that was tried")
    known = {4: 1e-4, 1024: 1e-4}
    assert loss_in_words(costs[:2], rows, sizes, known).endswith("worth using from 4 KiB on")
    assert loss_in_words(costs[1:], rows, sizes, asked) is None


def test_both_arms_send_over_the_connections_of_the_plan():
    bench = FakeBench(short_calls(dispatch_s=5e-6))
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    time_dispatch(sampling, {4: 5e-5, 1024: 5e-5}, deadline_s=1.0)
    assert {block.arms for block in bench.blocks} == {(WRAPPED, DISPATCHED)}
    assert bench.renewals == 0


def compared(verdicts):
    return {
        "rows": [
            {
                "message_bytes": size,
                "default_median_s": 1e-4,
                "plan_median_s": 1e-4,
                "ratio": 0.9 if verdict == "slower" else 1.0,
                "ratio_ci": [0.9, 1.1],
                "num_samples": 20,
                "algorithm": algorithm,
                "verdict": verdict,
            }
            for size, algorithm, verdict in verdicts
        ],
        "warnings": [],
    }


def test_a_comparison_says_which_rows_are_slower_by_dispatch_alone():
    slower = [(1024, "default", "slower"), (4096, "ring", "slower"), (16384, "default", "same")]
    said = " ".join(describe_comparison(compared(slower)).split())
    assert said.endswith(
        "at 1 KiB the plan keeps the default, and is slower by the backend's dispatch alone: "
        "the backend is worth using from 16 KiB on"
    )
    assert "dispatch" not in describe_comparison(compared(slower[1:]))
