"""How often the detector of drift suspects what is steady, and how soon it sees what has changed.

    python benchmarks/drift_rates.py [--series 200] [--calls 10000]

No network: times of calls are drawn from kinds of noise, around one and the same usual time. Each line: the
suspicions in all calls of steady series, as a rate for 100,000 calls with its one-sided 95 % upper limit;
and, where calls become slower by a factor after 2,000 of them, the share that is seen within 2,000 more, and
the median of calls until then. A suspicion is not yet a warning: all ranks must have it, and the plan must
then lose a trial against the default.
"""

import argparse
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from topotune.train.detector import Detector, Rules

Floats = npt.NDArray[np.float64]
FACTORS = (1.25, 1.5, 2.0)
STEADY = 2000


def autocorrelated(rng: np.random.Generator, num: int, correlation: float, deviation: float) -> Floats:
    """Logarithms of an autoregressive series."""
    steps = rng.normal(0.0, deviation * math.sqrt(1 - correlation**2), num)
    series = np.empty(num)
    last = rng.normal(0.0, deviation)
    for index, step in enumerate(steps):
        last = correlation * last + step
        series[index] = last
    return series


NOISES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "log-normal, 10 %": lambda rng, num: rng.normal(0.0, 0.1, num),
    "log-normal, 30 %": lambda rng, num: rng.normal(0.0, 0.3, num),
    "Student's t, 2 degrees, 10 %": lambda rng, num: 0.1 * rng.standard_t(2, num).clip(-20, 20),
    "floor and Pareto tail 1.1": lambda rng, num: np.log1p(0.1 * rng.pareto(1.1, num)),
    "floor and exponential wait": lambda rng, num: np.log1p(rng.exponential(1.0, num)),
    "two modes, 30 % fast": lambda rng, num: (
        np.where(rng.random(num) < 0.3, 0.0, 0.7) + rng.normal(0.0, 0.05, num)
    ),
    "autocorrelated 0.9, 10 %": lambda rng, num: autocorrelated(rng, num, 0.9, 0.1),
    "autocorrelated 0.9, 20 %": lambda rng, num: autocorrelated(rng, num, 0.9, 0.2),
    "autocorrelated 0.99, 10 %": lambda rng, num: autocorrelated(rng, num, 0.99, 0.1),
}


def first_suspicion(logarithms: Floats) -> int | None:
    """The call, from 1, at which a detector says that calls are slower; None if it never does."""
    detector = Detector(Rules(least_s=0.0))
    for number, time_s in enumerate(np.exp(logarithms) * 1e-3, 1):
        detector.observe(float(time_s), float(number))
        if detector.slower:
            return number
    return None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", type=int, default=200, help="of each kind of noise (default 200)")
    parser.add_argument("--calls", type=int, default=10_000, help="of each steady series (default 10000)")
    options = parser.parse_args()
    slower = "  ".join(f"{f'x {factor:g}':>14}" for factor in FACTORS)
    print(f"{'noise':<30} {'suspicions in 100,000 calls':>28}  {slower}")
    for name, noise in NOISES.items():
        rng = np.random.default_rng(0)
        found, calls = 0, 0
        for _ in range(options.series):
            first = first_suspicion(noise(rng, options.calls))
            found += first is not None
            calls += options.calls if first is None else first
        upper = chi2.ppf(0.95, 2 * (found + 1)) / 2
        rate = f"{found / calls * 1e5:.2f} (below {upper / calls * 1e5:.2f})"
        shown = []
        for factor in FACTORS:
            series = [noise(rng, 2 * STEADY) for _ in range(max(1, options.series // 5))]
            for one in series:
                one[STEADY:] += math.log(factor)
            firsts = [first_suspicion(one) for one in series]
            seen = [first - STEADY for first in firsts if first is not None and first > STEADY]
            after = f"{np.median(seen):.0f}" if seen else "–"
            shown.append(f"{len(seen) / len(series):>7.0%} {after:>6}")
        print(f"{name:<30} {rate:>28}  {'  '.join(shown)}")


if __name__ == "__main__":
    main()
