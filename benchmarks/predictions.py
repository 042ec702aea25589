"""How close predictions come on the lab clusters: `simulate` on measured links against what `tune` then sees.

    python benchmarks/predictions.py [--profiles 2x4 …] [--sizes 1M,4M] [--budget 90s] [-o FOLDER]

For each cluster its links are measured in the lab, all candidates are predicted on them, and a tuning run in
a second lab times those that it finds worth timing. Of each that was timed while the main thread was idle the
error is predicted / median - 1. Messages of which the bottleneck link carries fewer than 16 bursts (512 KiB)
pass the lab's token buckets above its rate. Needs Linux and root.
"""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from topotune.lab import LabProfile, list_profiles, read_profile
from topotune.tune.journal import read_journal
from topotune.units import parse_sizes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [profile.name for profile in list_profiles() if len(profile.nodes) > 1]
    parser.add_argument("--profiles", nargs="+", default=names, help="default: all of several nodes")
    parser.add_argument("--sizes", default="1M,4M", help="message sizes (default 1M,4M)")
    parser.add_argument("--budget", default="90s", help="of each tuning (default 90s)")
    parser.add_argument("-o", "--output", type=Path, default=Path("predictions"), help="folder")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    frames = []
    for name in options.profiles:
        profile = read_profile(name)
        rows = compare(profile, options.sizes, options.budget, options.output)
        frames.append(pandas.DataFrame(rows))
        pandas.concat(frames).to_csv(options.output / "predictions.csv", index=False)
    table = pandas.concat(frames)
    table["absolute"] = table["error"].abs()
    print(
        table.groupby(["cluster", "message_bytes"])["absolute"]
        .agg(candidates="count", median="median", worst="max")
        .assign(bias=table.groupby(["cluster", "message_bytes"])["error"].median())
        .to_string(float_format=lambda value: f"{100 * value:.1f} %")
    )
    overall = table.groupby("cluster")["absolute"].median().median()
    print(f"\nmedian over clusters of the median error: {100 * overall:.1f} %")


def compare(profile: LabProfile, sizes: str, budget: str, folder: Path) -> list[dict[str, Any]]:
    """Every candidate that was timed at a size: predicted and measured."""
    links, plan = folder / f"{profile.name}.links.json", folder / f"{profile.name}.plan.json"
    journal = plan.with_name(f"{plan.stem}.journal.jsonl")
    topotune("lab", profile.name, "--", sys.executable, "-m", "topotune", "measure", "-o", links, "--force")
    tune = ("tune", "--sizes", sizes, "--budget", budget, "-o", plan, "--force")
    topotune("lab", profile.name, "--", sys.executable, "-m", "topotune", *tune)
    predicted = {
        (size["message_bytes"], one["algorithm"], key(one["params"])): one["time_s"]
        for size in json.loads(topotune("simulate", links, "--sizes", sizes, "--json"))["sizes"]
        for one in size["predictions"]
    }
    samples: dict[Any, list[float]] = {}
    for trial in read_journal(journal).finished:
        if trial.trial.get("condition") != "idle" or "times_s" not in trial.outcome:
            continue
        for number, arm in enumerate(trial.trial["arms"]):
            name = (trial.trial["message_bytes"], arm["algorithm"], key(arm["params"]))
            samples.setdefault(name, []).extend(row[number] for row in trial.outcome["times_s"])
    wanted = set(parse_sizes(sizes))
    return [
        {
            "cluster": profile.name,
            "message_bytes": name[0],
            "algorithm": name[1],
            "params": name[2],
            "predicted_s": predicted[name],
            "median_s": float(np.nanmedian(np.array(times_s, dtype=float))),
            "num_samples": len(times_s),
            "error": predicted[name] / float(np.nanmedian(np.array(times_s, dtype=float))) - 1,
        }
        for name, times_s in sorted(samples.items())
        if name in predicted and name[0] in wanted
    ]


def key(params: dict[str, Any]) -> str:
    """Parameters as one text."""
    return json.dumps(params, sort_keys=True)


def topotune(*arguments: str | Path) -> str:
    """What a topotune command prints."""
    command = [sys.executable, "-m", "topotune", *map(str, arguments)]
    print(shlex.join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode} of {shlex.join(command)}")
    return done.stdout


if __name__ == "__main__":
    main()
