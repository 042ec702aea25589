import math

import link_workers
import pytest
from gloo_world import run_world

from topotune.links.clock import fit_drift, offset_from_pings


@pytest.mark.gloo
@pytest.mark.parametrize(
    "node_of_rank", [None, [0, 0, 0], [0, 1, 1]], ids=["unknown", "one node", "two nodes"]
)
def test_clocks_of_one_machine_agree_within_their_stated_error(node_of_rank):
    results = run_world(3, link_workers.clocks, node_of_rank)
    for rank, result in enumerate(results):
        assert result["unsynced_error_s"] == math.inf
        # Processes of one machine read the same clock, so the true offset is 0.
        for offset_s, error_s in result["synced"]:
            assert abs(offset_s) <= error_s < math.inf, rank
        if node_of_rank == [0, 0, 0] or rank == 0:
            assert [offset_s for offset_s, _ in result["synced"]] == [0.0, 0.0]
            assert max(error_s for _, error_s in result["synced"]) <= 1e-6


@pytest.mark.gloo
def test_nobody_starts_before_the_agreed_time_and_latecomers_know_it():
    for result in run_world(2, link_workers.clocks, None):
        assert result["late_s"] >= 0
        assert result["woke_after_start_s"] >= result["late_s"]
        assert result["too_late_s"] >= 1.0


def test_offset_is_that_of_the_fastest_ping_and_its_error_half_the_round_trip():
    pings = [(1.0, 101.9, 2.0), (3.0, 103.5, 3.4), (5.0, 106.0, 6.0)]
    offset_s, error_s = offset_from_pings(pings)
    assert offset_s == pytest.approx(100.3)
    assert error_s == pytest.approx(0.2)


def test_drift_is_fitted_once_synchronisations_pin_it_down():
    history = [(100.0 + t, 5.0 + 2e-5 * t, 1e-6) for t in (0.0, 2.0, 4.0, 6.0)]
    drift, error = fit_drift(history)
    assert drift == pytest.approx(2e-5, rel=1e-3)
    assert error == pytest.approx(2e-6 / 6)


@pytest.mark.parametrize(
    "history",
    [
        [(100.0, 5.0, 1e-6)],
        [(100.0, 5.0, 1e-6), (100.5, 5.00001, 1e-6)],
        [(100.0, 5.0, 1e-3), (110.0, 5.0, 1e-3)],
        [(100.0, 5.0, 1e-6), (110.0, 5.1, 1e-6)],
    ],
    ids=["one", "too close", "too rough", "no clock drifts like that"],
)
def test_drift_that_is_not_pinned_down_counts_as_error(history):
    assert fit_drift(history) == (0.0, 5e-5)
