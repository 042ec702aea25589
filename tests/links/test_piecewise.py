import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topotune.links.model import LinkCost
from topotune.links.piecewise import boundaries, fit_piecewise

SIZES = [8, 64, 512, 1024, 4096, 16384, 65536, 262144, 2**20, 2**22, 2**24]


def fitted(sizes, times, error=0.03):
    fit = fit_piecewise(sizes, times, [error] * len(sizes))
    return LinkCost(
        from_bytes=boundaries(fit, sizes), alpha_s=fit.alpha_s, beta_s_per_byte=fit.beta_s_per_byte
    )


@pytest.mark.parametrize("noise", [0.0, 0.02], ids=["exact", "2 % noise"])
@pytest.mark.parametrize(
    "planted",
    [
        LinkCost(from_bytes=(0,), alpha_s=(20e-6,), beta_s_per_byte=(1e-9,)),
        LinkCost(from_bytes=(0,), alpha_s=(0.0,), beta_s_per_byte=(1e-9,)),
        LinkCost(from_bytes=(0, 2000), alpha_s=(20e-6, 60e-6), beta_s_per_byte=(1e-8, 1e-9)),
        LinkCost(
            from_bytes=(0, 2000, 2**19), alpha_s=(10e-6, 50e-6, 900e-6), beta_s_per_byte=(2e-8, 3e-10, 1e-9)
        ),
    ],
    ids=["line", "no latency", "a jump", "three protocols, cheaper bytes in the middle"],
)
def test_fit_recovers_planted_costs(planted, noise):
    rng = np.random.default_rng(1)
    times = planted.time_s(SIZES) * np.exp(noise * rng.standard_normal(len(SIZES)))
    cost = fitted(SIZES, times.tolist(), error=max(noise, 0.005))
    assert len(cost.from_bytes) == len(planted.from_bytes)
    assert cost.time_s(SIZES) == pytest.approx(planted.time_s(SIZES), rel=0.005 + 3 * noise)
    assert cost.bandwidth_bytes_per_s == pytest.approx(planted.bandwidth_bytes_per_s, rel=0.005 + 3 * noise)
    assert cost.latency_s == pytest.approx(planted.latency_s, rel=0.005 + 3 * noise, abs=1e-7)


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=len(SIZES)))
def test_costs_are_never_negative_and_segments_ascend(times):
    cost = fitted(SIZES[: len(times)], times)  # LinkCost refuses negative costs and segments out of order
    assert np.all(cost.time_s(SIZES) >= 0)
    assert len(cost.from_bytes) <= 3


def test_a_line_with_noise_stays_one_segment():
    rng = np.random.default_rng(2)
    segments = []
    for _ in range(100):
        times = (30e-6 + 1e-9 * np.array(SIZES)) * np.exp(0.03 * rng.standard_normal(len(SIZES)))
        segments.append(len(fitted(SIZES, times.tolist(), error=0.03).from_bytes))
    assert segments.count(1) >= 90


def test_segments_that_meet_begin_where_they_meet():
    sizes = [8, 100, 200, 400, 10_000, 20_000, 40_000, 80_000]
    times = [max(1e-5 + 1e-9 * size, 1e-8 * size) for size in sizes]
    cost = fitted(sizes, times, error=0.001)
    assert cost.from_bytes == (0, pytest.approx(1e-5 / 9e-9, rel=0.01))


def test_a_jump_is_put_halfway_on_the_logarithmic_scale():
    sizes = [8, 100, 1000, 100_000, 200_000, 400_000]
    times = [1e-5, 1e-5, 1e-5, 1.001, 1.002, 1.004]
    assert fitted(sizes, times).from_bytes == (0, 10_000)


def test_the_largest_size_may_stand_alone():
    """A link that lets 32 KiB pass at once: only the largest message shows its rate."""
    sizes = [8, 1024, 8192, 65536, 2**20]
    times = [40e-6, 40e-6, 640e-6, 5.5e-3, 165e-3]
    cost = fitted(sizes, times)
    assert cost.time_s(sizes) == pytest.approx(times, rel=0.1)
    assert cost.bandwidth_bytes_per_s == pytest.approx(2**20 / 165e-3, rel=0.01)


def test_a_single_size_is_taken_as_it_is():
    assert fitted([1024], [5e-5]).time_s(1024) == pytest.approx(5e-5)
