"""How far a plan is from what exhaustive measurement would have chosen, and at what cost.

    topotune lab 2x4 -- python benchmarks/regret.py record -o benchmarks/data/exhaustive-2x4.json
    python benchmarks/regret.py replay benchmarks/data/exhaustive-*.json [--shares 0.15,0.5,1]

``record`` runs on every rank of a cluster: it times the default and up to 12 candidates, the best predicted,
at 6 sizes, 7 repeats each in random order, and writes every sample with what was predicted, and how long all
of it took. Once per cluster.

``replay`` needs no cluster: the whole choosing of `topotune tune` runs on those samples and a clock of their
own, with a budget that is a share of the exhaustive measuring time. What the plan has at each size is held
against the best median of all: the regret, as geometric mean over the sizes, over 20 seeds. Clusters that are
made up for it come from `benchmarks/invented.py`.
"""

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from joined_bench import on_joined_bench

import topotune
from topotune.plan.lookup import find_row
from topotune.tune.arrangement import Arrangement
from topotune.tune.decide import Limit
from topotune.tune.options import TuneOptions
from topotune.tune.pipeline import choose_rows
from topotune.tune.sampling import Sampling, num_warmups
from topotune.tune.shortlist import PredictedTime, shortlist
from topotune.tune.statistics import Samples
from topotune.tune.timing import TorchBench
from topotune.tune.trial import DEFAULT, DEFAULTS, Block, BlockTimes, Candidate, Check
from topotune.tune.world import World
from topotune.units import format_bytes, parse_sizes

SIZES: Final = "16K,64K,256K,1M,4M,16M"
MOST_CANDIDATES: Final = 12
REPEATS: Final = 7
SEEDS: Final = 20
_CHECK_CALLS: Final = 2


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    modes = parser.add_subparsers(dest="mode", required=True)
    recording = modes.add_parser("record", help="on every rank of a cluster")
    recording.add_argument("--sizes", default=SIZES, help=f"message sizes (default {SIZES})")
    recording.add_argument("--repeats", type=int, default=REPEATS, help=f"of each (default {REPEATS})")
    recording.add_argument(
        "--candidates", type=int, default=MOST_CANDIDATES, help=f"at most (default {MOST_CANDIDATES})"
    )
    recording.add_argument("-o", "--output", type=Path, required=True)
    replaying = modes.add_parser("replay", help="on recorded files")
    replaying.add_argument("files", type=Path, nargs="+")
    replaying.add_argument("--shares", default="0.15,0.5,1", help="of the exhaustive time, as budgets")
    replaying.add_argument("--seeds", type=int, default=SEEDS, help=f"runs of each (default {SEEDS})")
    options = parser.parse_args()
    if options.mode == "record":
        record(parse_sizes(options.sizes), options.repeats, options.candidates, options.output)
        return
    clusters = {path: Recorded(json.loads(path.read_text())) for path in options.files}
    for share in map(float, options.shares.split(",")):
        all_losses: dict[int, list[float]] = defaultdict(list)
        all_took: list[float] = []
        print(f"budget {share:.0%} of the exhaustive time")
        for path, recorded in clusters.items():
            losses, took = replay(recorded, share, options.seeds)
            print(f"  {path} ({recorded.exhaustive_s:.0f} s): {described(losses, took)}", flush=True)
            all_took += took
            for size, own in losses.items():
                all_losses[size] += own
        if len(clusters) > 1 and len({len(own) for own in all_losses.values()}) == 1:
            print(f"  all: {described(all_losses, all_took)}")


def record(sizes: tuple[int, ...], repeats: int, most: int, output: Path) -> None:
    """Time everything, on one rank."""
    output.parent.mkdir(parents=True, exist_ok=True)

    def time_all(world: World, arrangement: Arrangement, bench: TorchBench) -> dict[str, Any]:
        predicted_s = arrangement.predictor(sizes)
        sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
        began_s = bench.now_s()
        chosen = best_of_each_size(arrangement.candidates(), predicted_s, sizes, most)
        tables = [table(sampling, chosen, predicted_s, size, repeats) for size in sizes]
        return {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "num_ranks": world.num_ranks,
            "node_of_rank": list(world.nodes.node_of_rank),
            "topotune": topotune.__version__,
            "torch": torch.__version__,
            "took_s": bench.now_s() - began_s,
            "sizes": tables,
        }

    document = on_joined_bench(time_all)
    if document is not None:
        output.write_text(json.dumps(document, indent=1) + "\n")
        print(f"written to {output}")


def best_of_each_size(
    candidates: list[Candidate], predicted_s: PredictedTime, sizes: tuple[int, ...], most: int
) -> list[Candidate]:
    """The best predicted of each size, then the second of each, and so on: the same for all sizes."""
    ranked = [shortlist(candidates, predicted_s, size) for size in sizes]
    in_turn = [one for same_rank in zip_longest(*ranked) for one in same_rank if one is not None]
    return list(dict.fromkeys(in_turn))[:most]


def table(
    sampling: Sampling, candidates: list[Candidate], predicted_s: PredictedTime, size: int, repeats: int
) -> dict[str, Any]:
    """Samples of one size, by candidate; without what is predicted to be hopeless there."""
    began_s = sampling.now_s()
    exact = [one for one in shortlist(candidates, predicted_s, size) if sampling.check(one, size) is None]
    times_s = sampling.rounds("search", size, (DEFAULT, *exact), repeats, first_guess_s=0.05)
    print(f"{format_bytes(size)}: {len(exact)} candidates", flush=True)
    return {
        "message_bytes": size,
        "took_s": sampling.now_s() - began_s,
        "arms": [
            {**one.to_json(), "predicted_s": predicted_s(one, size), "times_s": times_s[:, column].tolist()}
            for column, one in enumerate((DEFAULT, *exact))
        ],
    }


class Recorded:
    """Recorded samples; between recorded sizes those of the nearest, on the line between both medians."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.times_s: dict[int, dict[Candidate, np.ndarray]] = {}
        self.predicted_s: dict[int, dict[Candidate, float]] = {}
        for one in document["sizes"]:
            arms = {Candidate.of(arm["algorithm"], arm["params"]): arm for arm in one["arms"]}
            size = one["message_bytes"]
            self.times_s[size] = {arm: np.array(found["times_s"]) for arm, found in arms.items()}
            self.predicted_s[size] = {arm: found["predicted_s"] for arm, found in arms.items()}
        calls_s = {one["message_bytes"]: calls_of(one["arms"]) for one in document["sizes"]}
        self.exhaustive_s: float = document.get("took_s", sum(calls_s.values()))
        stretch = self.exhaustive_s / sum(calls_s.values())
        took_s = {one["message_bytes"]: one.get("took_s") for one in document["sizes"]}
        self.stretches = {
            size: stretch if took_s[size] is None else took_s[size] / calls_s[size] for size in calls_s
        }

    def stretch(self, message_bytes: int) -> float:
        """Wall time over that of the calls: of the size, or of all where that was not recorded."""
        return self.stretches[self.near(message_bytes)]

    def near(self, message_bytes: int) -> int:
        return min(self.times_s, key=lambda size: abs(math.log(size / message_bytes)))

    def samples_s(self, arm: Candidate, message_bytes: int) -> np.ndarray:
        own = DEFAULT if arm in DEFAULTS else arm
        medians_s = {
            other: float(np.median(arms[own])) for other, arms in self.times_s.items() if own in arms
        }
        size = min(medians_s, key=lambda other: abs(math.log(other / message_bytes)))
        return self.times_s[size][own] * (between(medians_s, message_bytes) / medians_s[size])

    def candidates(self) -> list[Candidate]:
        return list(dict.fromkeys(arm for arms in self.times_s.values() for arm in arms if arm != DEFAULT))

    def prediction(self, arm: Candidate, message_bytes: int) -> float:
        if arm not in self.predicted_s[self.near(message_bytes)]:
            return math.inf
        by_size = {size: arms[arm] for size, arms in self.predicted_s.items() if arm in arms}
        return between(by_size, message_bytes)


def calls_of(arms: Sequence[Mapping[str, Any]]) -> float:
    """Seconds of all calls that were made for the samples of one size: checks and warm-ups as well."""
    calls_s = 0.0
    for arm in arms:
        is_default = arm["algorithm"] == DEFAULT.algorithm
        median_s = float(np.median(arm["times_s"]))
        untimed = num_warmups(median_s, again=not is_default) + (0 if is_default else _CHECK_CALLS)
        calls_s += sum(arm["times_s"]) + untimed * median_s
    return calls_s


def between(time_s: dict[int, float], message_bytes: int) -> float:
    """Between sizes, linear in log-log; beyond them in proportion."""
    low, high = min(time_s), max(time_s)
    if message_bytes > high:
        return time_s[high] * message_bytes / high
    sizes = sorted(time_s)
    logs = np.interp(math.log(message_bytes), np.log(sizes), np.log([time_s[size] for size in sizes]))
    return float(np.exp(logs)) if message_bytes > low else time_s[low]


class Replay:
    """A bench whose samples were recorded, and whose clock is theirs.

    A call, also of a check or a warm-up, costs as much more than it takes as it did when all were recorded:
    starts are spaced, ranks agree.
    """

    def __init__(self, recorded: Recorded, seed: int) -> None:
        self.recorded = recorded
        self.rng = np.random.default_rng(seed)
        self.clock_s = 0.0

    def now_s(self) -> float:
        return self.clock_s

    def renew(self) -> None:
        pass

    def check(self, candidate: Candidate, message_bytes: int, *, limit_s: float | None) -> Check:
        taken_s = drawn(self.recorded.samples_s(candidate, message_bytes), _CHECK_CALLS, self.rng)
        self.clock_s += self.recorded.stretch(message_bytes) * float(taken_s.sum())
        return Check(problem=None, call_s=float(taken_s.min()))

    def run(self, block: Block) -> BlockTimes:
        shape = (len(block.orders), len(block.arms))
        times_s = np.empty(shape)
        stretch = self.recorded.stretch(block.message_bytes)
        for column, arm in enumerate(block.arms):
            samples_s = self.recorded.samples_s(arm, block.message_bytes)
            times_s[:, column] = drawn(samples_s, len(block.orders), self.rng)
            self.clock_s += stretch * block.warmups[column] * float(np.median(samples_s))
        self.clock_s += stretch * float(times_s.sum())
        return BlockTimes(times_s=times_s, num_missed=0, scheme="clock")


def drawn(samples_s: Samples, count: int, rng: np.random.Generator) -> Samples:
    """Samples drawn anew, in a smoothed bootstrap that keeps the variance of their logs.

    Of the seven values alone medians would leap from one to the next, as those of a clock never do. Bandwidth
    and shrinking: Silverman, Density Estimation (1986), 3.4.2 and 6.4.1, about the median.
    """
    logs = np.log(samples_s)
    centre, deviation = np.median(logs), float(np.std(logs))
    low, high = np.percentile(logs, (25, 75))
    bandwidth = 0.9 * min(deviation, float(high - low) / 1.34) * len(logs) ** -0.2
    if bandwidth == 0:
        return rng.choice(samples_s, count)
    away = rng.choice(logs, count) - centre + bandwidth * rng.standard_normal(count)
    smoothed: Samples = np.exp(centre + away / math.hypot(1.0, bandwidth / deviation))
    return smoothed


def replay(recorded: Recorded, share: float, seeds: int) -> tuple[dict[int, list[float]], list[float]]:
    """Choose with this share of the exhaustive time as budget, once with each seed.

    Returns:
        size → log(chosen / best) of each run; and the share of the exhaustive time that each took.
    """
    budget_s = share * recorded.exhaustive_s
    losses: dict[int, list[float]] = {size: [] for size in recorded.times_s}
    took = []
    for seed in range(seeds):
        bench = Replay(recorded, seed)
        choice = choose_rows(
            Sampling(bench=bench, rng=np.random.default_rng(seed)),
            TuneOptions(budget_s=budget_s, sizes=tuple(sorted(recorded.times_s)), seed=seed),
            recorded.candidates(),
            predicted_s=recorded.prediction,
            limit=Limit(no_bound_reason="replayed"),
        )
        for size, arms in recorded.times_s.items():
            row = find_row(choice.rows, size)
            medians_s = {arm: float(np.median(times_s)) for arm, times_s in arms.items()}
            chosen = Candidate.of(row.algorithm, row.params)
            losses[size].append(math.log(medians_s[chosen] / min(medians_s.values())))
        took.append(bench.clock_s / recorded.exhaustive_s)
    return losses, took


def described(losses: Mapping[int, Sequence[float]], took: Sequence[float]) -> str:
    """Regret as geometric mean over the sizes, and at each of them."""
    of_runs = [percent(run) for run in zip(*losses.values(), strict=True)]
    by_size = ", ".join(f"{format_bytes(size)} {percent(own):.1f}" for size, own in losses.items())
    everything = [loss for own in losses.values() for loss in own]
    return (
        f"regret {percent(everything):.1f} % (worst run {max(of_runs):.1f} %; {by_size}); "
        f"the run took {np.mean(took):.0%} of the exhaustive time"
    )


def percent(losses: Sequence[float]) -> float:
    """Geometric mean of ratios whose logs are given, less 1."""
    return 100 * (math.exp(float(np.mean(losses))) - 1)


if __name__ == "__main__":
    main()
