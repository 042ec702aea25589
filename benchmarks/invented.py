"""Clusters made up for `benchmarks/regret.py`: what an exhaustive recording of them would hold.

    python benchmarks/invented.py --scatter 0.02 --scatter-small 0.08 --clusters 16 -o invented/
    python benchmarks/regret.py replay --shares 0.15 --seeds 1 invented/*.json

The default takes 5 ms and 72 ns a byte, as gloo does for 8 ranks on two nodes of 200 Mbit/s. Twelve
candidates have latencies and rates of their own, drawn anew for each cluster about those that such algorithms
have: some halve the traffic, some save latency, most are no better than the default. Each departs a little
from its line at each size, predictions are wrong by a factor of its own for each candidate, and samples
scatter log-normally, a share of them twice as long.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
from regret import calls_of

SIZES: Final = (1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
SMALL_BELOW: Final = 1 << 18
REPEATS: Final = 7
DEFAULT_S, DEFAULT_S_PER_BYTE = 5e-3, 72e-9
GROUPS: Final = [[0, 1, 2, 3], [4, 5, 6, 7]]
CANDIDATES: Final[tuple[tuple[str, dict[str, Any], float, float], ...]] = (
    ("ring", {"channels": 1}, 1.1, 1.02),
    ("ring", {"channels": 2}, 1.25, 0.98),
    ("shm_hierarchical", {"groups": GROUPS}, 0.45, 0.56),
    ("hierarchical", {"pieces": 4}, 0.8, 0.60),
    ("hierarchical", {"pieces": 16}, 1.3, 0.55),
    ("forest", {"pieces": 8}, 1.2, 0.57),
    ("forest", {"pieces": 32}, 2.6, 0.53),
    ("recursive_doubling", {}, 0.6, 1.9),
    ("halving_doubling", {}, 0.75, 1.04),
    ("double_binary_tree", {"pieces": 4}, 0.85, 1.25),
    ("double_binary_tree", {"pieces": 16}, 1.6, 1.05),
    ("swing", {}, 0.78, 1.1),
)
"""Algorithm, parameters, and over the default's: latency, time a byte."""

OF_A_CLUSTER, OFF_THE_LINE, PREDICTED_OFF_THE_LINE = 0.12, 0.02, 0.05
"""Standard deviations, in log-time."""

STRETCH: Final = 1.3
"""Wall time of a recording over its calls."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scatter", type=float, default=0.02, help="of a sample, in log-time (default 0.02)")
    parser.add_argument(
        "--scatter-small", type=float, default=0.08, help="the same below 256 KiB (default 0.08)"
    )
    parser.add_argument("--outliers", type=float, default=0.01, help="share of samples twice as long")
    parser.add_argument("--wrong", type=float, default=0.15, help="of a prediction (default 0.15)")
    parser.add_argument("--clusters", type=int, default=16, help="how many (default 16)")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for number in range(options.clusters):
        invented = cluster(
            number,
            scatter=lambda size: options.scatter_small if size < SMALL_BELOW else options.scatter,
            outliers=options.outliers,
            wrong=options.wrong,
        )
        (options.output / f"cluster-{number:02}.json").write_text(json.dumps(invented, indent=1) + "\n")


def cluster(seed: int, *, scatter: Any, outliers: float, wrong: float) -> dict[str, Any]:
    """A recording of one cluster."""
    rng = np.random.default_rng(seed)
    arms = [("default", dict[str, Any](), 1.0, 1.0), *CANDIDATES]
    prediction_off = np.exp(rng.normal(0, wrong, len(arms)))
    own = np.exp(rng.normal(0, OF_A_CLUSTER, (len(arms), 2)))
    own[0] = 1.0
    sizes = []
    for size in SIZES:
        found = []
        for (algorithm, params, latency, rate), off, (of_latency, of_rate) in zip(
            arms, prediction_off, own, strict=True
        ):
            time_s = DEFAULT_S * latency * of_latency + DEFAULT_S_PER_BYTE * rate * of_rate * size
            time_s *= math.exp(rng.normal(0, OFF_THE_LINE))
            samples_s = time_s * np.exp(rng.normal(0, scatter(size), REPEATS))
            samples_s *= np.where(rng.random(REPEATS) < outliers, 2.0, 1.0)
            predicted_s = time_s * off * math.exp(rng.normal(0, PREDICTED_OFF_THE_LINE))
            arm = {"algorithm": algorithm, "params": params}
            found.append({**arm, "predicted_s": predicted_s, "times_s": samples_s.tolist()})
        sizes.append({"message_bytes": size, "arms": found})
    calls_s = sum(calls_of(one["arms"]) for one in sizes)
    return {"took_s": STRETCH * calls_s, "sizes": sizes}


if __name__ == "__main__":
    main()
