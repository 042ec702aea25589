"""How often the default wins against itself, and whether planted candidates are judged right.

    python benchmarks/false_wins.py [--nproc 2] [--rows 300] [-o benchmarks/data/false-wins-machine.csv]
    topotune lab 2x4 -- python benchmarks/false_wins.py -o benchmarks/data/false-wins-2x4.csv
    topotune lab 2x4 -- python benchmarks/false_wins.py --rows 0 --sizes 256K -o benchmarks/data/planted.csv

Runs on real ranks, on local ones that it starts or, under a launcher or in a lab, on those. Each row is
judged by the very rule of `topotune tune`: points of several sizes, in passes on new connections, in several
looks as long as there is time, corrected for the number of points of their run, with the margin of 2 %.

    null      the default against itself on connections of its own; a "win" is a false one
    slower    the default against itself with 5 % planted as sleep; it must never win
    faster    the same sleep planted in the default's arm: the other must win within the run's budget

Sleep is planted where calls take 2 ms and more: a shorter one cannot be slept exactly. How long it takes to
tell 5 % from the margin of 2 % depends on how much calls and connections scatter; a look that leaves a row
open is followed by one at twice the samples, until the budget ends. Rows are appended to the CSV run by run;
a run that was cut short goes on where it stopped, and only whole runs count. At the end it prints the rates
with their one-sided 95 % limits (Clopper-Pearson); beside each run it says how many rows a minute there are.

Keep what else runs on the machine away, and give the commit beside the file.
"""

import argparse
import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Final

import numpy as np
import torch

from topotune.launch import launcher_here, run_on_ranks
from topotune.tune.confirm import Passes, judge_in_looks
from topotune.tune.judge import PASSES, Confirmation, Point
from topotune.tune.looks import error_share
from topotune.tune.plan_rounds import fewest_rounds
from topotune.tune.sampling import Sampling
from topotune.tune.session import followed, told_to_all
from topotune.tune.statistics import clopper_pearson
from topotune.tune.timing import Station, TorchBench
from topotune.tune.trial import DEFAULT, TWIN, Candidate, Condition
from topotune.tune.world import joined_world
from topotune.units import format_bytes, parse_sizes

SIZES: Final = "4K,64K,1M"
PLANTED: Final = 0.05
LEAST_PLANTED_S: Final = 2e-3
MIN_GAIN: Final = 0.02
FIELDS: Final = (
    "kind", "run", "num_rows", "message_bytes",
    "default_s", "other_s", "ratio", "low", "high", "rounds", "won"
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nproc", type=int, default=2, help="local ranks, without a launcher (default 2)")
    parser.add_argument("--rows", type=int, default=300, help="null rows (default 300)")
    parser.add_argument("--planted", type=int, default=20, help="runs of each planted kind (default 20)")
    parser.add_argument("--sizes", default=SIZES, help=f"message sizes (default {SIZES})")
    parser.add_argument("--rounds", type=int, default=24, help="of a row before its first look (default 24)")
    parser.add_argument("--budget", type=float, default=4.0, help="seconds of a null run (default 4)")
    parser.add_argument(
        "--planted-budget", type=float, default=60.0, help="seconds of a planted run (default 60)"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("benchmarks/data/false-wins.csv"))
    options = parser.parse_args()
    launcher = launcher_here(None)
    payload = {
        "rows": options.rows,
        "planted": options.planted,
        "sizes": list(parse_sizes(options.sizes)),
        "rounds": options.rounds,
        "budget_s": {
            "null": options.budget,
            "slower": options.planted_budget,
            "faster": options.planted_budget,
        },
        "output": str(options.output.absolute()),
    }
    import false_wins  # ranks that are started here import what they run

    run_on_ranks(false_wins.measure, payload, launcher, num_local_ranks=options.nproc, default_ranks=2)
    if launcher.speaks:
        print(summary(read_rows(options.output)))


def measure(payload: dict[str, Any]) -> None:
    """All runs, on one rank."""
    with joined_world(None) as world:
        station = PlantedStation(
            world.planned, world.raw, world.private, world.nodes.node_of_rank, fresh_raw=world.fresh_raw
        )
        if world.rank != 0:
            followed(world, station)
            return
        bench = TorchBench(station, started_s=perf_counter())
        with told_to_all(world, bench):
            run_all(payload, bench)
        bench.end()


class PlantedStation(Station):
    """Sleeps within calls of one arm, by message size, on all ranks; rank 0 says which and how long."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sleeper = ""
        self._sleep_s: dict[int, float] = {}
        self.serve("plant", self._plant)

    def _plant(self, command: Mapping[str, Any]) -> None:
        self._sleeper = command["arm"]
        self._sleep_s = {int(size): time_s for size, time_s in command["sleep_s"].items()}

    def _call(self, arm: Candidate, tensor: torch.Tensor, condition: Condition, batch: int) -> None:
        super()._call(arm, tensor, condition, batch)
        if arm.params_json == self._sleeper:
            sleep(self._sleep_s[tensor.numel() * tensor.element_size()])


def run_all(payload: Mapping[str, Any], bench: TorchBench) -> None:
    output = Path(payload["output"])
    output.parent.mkdir(parents=True, exist_ok=True)
    sizes = payload["sizes"]
    done = whole_runs(read_rows(output))
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    default_s = {}
    for size in sizes:
        times_s = sampling.rounds("pilot", size, (DEFAULT,), 7, first_guess_s=0.01)
        default_s[size] = float(np.median(times_s))
    long = [size for size in sizes if default_s[size] >= LEAST_PLANTED_S]
    wanted = [("null", run, sizes) for run in range(-(-payload["rows"] // len(sizes)))]
    if long:
        wanted += [(kind, run, long) for run in range(payload["planted"]) for kind in ("slower", "faster")]
    else:
        print(f"nothing is planted: no size of these takes {LEAST_PLANTED_S * 1e3:g} ms", flush=True)
    began_s = perf_counter()
    num_rows = 0
    for kind, run, own_sizes in wanted:
        if (kind, run) in done:
            continue
        arm = {"null": "", "slower": TWIN.params_json, "faster": DEFAULT.params_json}[kind]
        sleep_s = {size: PLANTED * default_s[size] for size in own_sizes}
        bench.command({"do": "plant", "arm": arm, "sleep_s": sleep_s})
        points = [
            Point(
                message_bytes=size,
                candidates=(TWIN,),
                searched=False,
                num_rounds=payload["rounds"],
                round_s=3 * default_s[size],
                call_s=default_s[size],
            )
            for size in own_sizes
        ]
        sampling = Sampling(bench=bench, rng=np.random.default_rng(run))
        found = confirmed(points, sampling, run, payload["budget_s"][kind])
        append(output, kind, run, len(own_sizes), found)
        ratios = ", ".join(f"{format_bytes(one.message_bytes)} {one.comparison.ratio:.3f}" for one in found)
        num_rows += len(found)
        rate = 60 * num_rows / (perf_counter() - began_s)
        print(f"{kind} {run}: {ratios} ({rate:.0f} rows a minute)", flush=True)


def confirmed(points: list[Point], sampling: Sampling, run: int, budget_s: float) -> list[Confirmation]:
    """As `topotune tune` does; the first look is taken whatever the budget."""
    until_s = sampling.now_s() + budget_s
    passes = Passes(sampling, deadline_s=math.inf)
    fewest = fewest_rounds(len(points), error_share(0))
    indices = passes.add(points, fewest=fewest)
    sampling.renew()  # each run draws its luck anew
    passes.run(dict.fromkeys(indices, PASSES))
    return judge_in_looks(
        passes,
        indices,
        num_comparisons=len(points),
        fewest=fewest,
        min_gain=MIN_GAIN,
        seed=run,
        until_s=until_s,
    )


def append(path: Path, kind: str, run: int, num_rows: int, found: Sequence[Confirmation]) -> None:
    """A run's rows, in one write."""
    lines = StringIO()
    table = csv.writer(lines, lineterminator="\n")
    if not path.exists():
        table.writerow(FIELDS)
    for one in found:
        compared = one.comparison
        figures = (compared.default_median_s, compared.median_s, compared.ratio, compared.low, compared.high)
        shown = [f"{figure:.6g}" for figure in figures]
        table.writerow((kind, run, num_rows, one.message_bytes, *shown, compared.num_rounds, int(one.passed)))
    with path.open("a") as file:
        file.write(lines.getvalue())


def read_rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def whole_runs(rows: Sequence[Mapping[str, str]]) -> set[tuple[str, int]]:
    """Runs all of whose rows are there."""
    counts = Counter((row["kind"], int(row["run"])) for row in rows)
    return {
        (row["kind"], int(row["run"]))
        for row in rows
        if counts[row["kind"], int(row["run"])] >= int(row["num_rows"])
    }


def summary(rows: Sequence[Mapping[str, str]]) -> str:
    """Rates with their one-sided 95 % limits."""
    lines = []
    for kind, what in (("null", "false wins"), ("slower", "wins of a slower one"), ("faster", "wins")):
        own = [row for row in rows if row["kind"] == kind]
        if own:
            wins = sum(int(row["won"]) for row in own)
            low, high = clopper_pearson(wins, len(own), confidence=0.9)  # both tails 5 %
            limit = f"at least {low:.1%}" if kind == "faster" else f"at most {high:.2%}"
            lines.append(f"{kind}: {wins} {what} in {len(own)} rows; {limit} with 95 % confidence")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
