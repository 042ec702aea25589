"""Every lab cluster, every size: the default, the plan, and the limit of the network.

    python benchmarks/lab.py [--profiles 2x4 4x2 …] [--sizes 4K,…,16M] [--budget 300s] [-o FOLDER]

For each profile a plan is tuned in the lab, then compared with the default on fresh samples in a second run
of the lab (so that nothing but the plan's file is carried over). Times are medians; ``ratio`` is default /
plan with its 95 % interval over all rows of a cluster together; ``limit`` is the shortest possible time at
the links' configured rates. A transfer reaches about 0.96 of that rate (packet headers, TCP), and small
messages cost latency that the limit leaves out.

Writes ``lab.csv``, ``lab.md`` and the plans and comparisons behind them into FOLDER; a cluster whose
comparison stands there already is not run again. Needs Linux and root.
"""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas
import torch

import topotune
from topotune import units
from topotune.bounds import graph_allreduce_bound
from topotune.bounds.bound import Bound
from topotune.lab import LabProfile, list_profiles, read_profile
from topotune.lab.limit import line_rate_graph
from topotune.plan import find_row, load_plan

SIZES = "4K,16K,64K,256K,1M,4M,8M,16M"
BUDGET = "300s"
COMPARE_BUDGET = "90s"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [profile.name for profile in list_profiles()]
    parser.add_argument("--profiles", nargs="+", default=names, help="default: all that ship")
    parser.add_argument("--sizes", default=SIZES, help=f"message sizes (default {SIZES})")
    parser.add_argument("--budget", default=BUDGET, help=f"of each tuning (default {BUDGET})")
    parser.add_argument(
        "--compare-budget", default=COMPARE_BUDGET, help=f"of each comparison (default {COMPARE_BUDGET})"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("lab-results"), help="folder")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    load_before = os.getloadavg()[0]
    rows: list[dict[str, Any]] = []
    for name in options.profiles:
        profile = read_profile(name)
        plan = options.output / f"{profile.name}.plan.json"
        comparison = options.output / f"{profile.name}.comparison.json"
        sizes = ("--sizes", options.sizes)
        if not comparison.exists():
            on_lab(profile, "tune", "--budget", options.budget, *sizes, "-o", plan)
            on_lab(profile, "compare", plan, "--budget", options.compare_budget, *sizes, "-o", comparison)
        rows += rows_of(profile, plan, comparison)
        frame = pandas.DataFrame(rows)
        frame.to_csv(options.output / "lab.csv", index=False)
        (options.output / "lab.md").write_text(page(frame, load_before))
    print((options.output / "lab.md").read_text())


def on_lab(profile: LabProfile, *arguments: str | Path) -> None:
    """Run a topotune command on all ranks of the cluster; a finding (exit code 3) is a result too."""
    command = [sys.executable, "-m", "topotune", "lab", profile.name, "--", sys.executable, "-m", "topotune"]
    command += [*map(str, arguments), "--force"]
    print(shlex.join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.DEVNULL)
    if done.returncode not in (0, 3):
        sys.exit(f"exit code {done.returncode} of {shlex.join(command)}")


def rows_of(profile: LabProfile, plan_file: Path, comparison_file: Path) -> list[dict[str, Any]]:
    """One row a size; times in seconds."""
    table = load_plan(plan_file).groups[0].allreduce
    assert table is not None
    graph = line_rate_graph(profile)
    bound = None if graph is None else graph_allreduce_bound(graph)
    rows = []
    for compared in json.loads(comparison_file.read_text())["rows"]:
        size = compared["message_bytes"]
        limit_s = bound.time_s(size) if isinstance(bound, Bound) else None
        rows.append(
            {
                "cluster": profile.name,
                "message_bytes": size,
                "algorithm": find_row(table, size).algorithm,
                "default_median_s": compared["default_median_s"],
                "plan_median_s": compared["plan_median_s"],
                "ratio": compared["ratio"],
                "ratio_low": compared["ratio_ci"][0],
                "ratio_high": compared["ratio_ci"][1],
                "num_samples": compared["num_samples"],
                "verdict": compared["verdict"],
                "limit_s": limit_s,
                "plan_percent_of_limit": None
                if limit_s is None
                else 100 * limit_s / compared["plan_median_s"],
            }
        )
    return rows


def page(frame: pandas.DataFrame, load_before: float) -> str:
    """The table as a Markdown page, with what it was made with."""
    lines = [
        "# The lab clusters: default, plan, limit",
        "",
        f"    {shlex.join(['python', *sys.argv])}",
        "",
        f"topotune {topotune.__version__}, torch {torch.__version__}, Python {platform.python_version()}, "
        f"Linux {platform.release()}, {os.cpu_count()} cores, load {load_before:.1f} before it began, "
        f"{datetime.now(UTC):%Y-%m-%d}.",
        "",
        "Float32, gloo's default against the plan, interleaved; medians. `ratio` is default / plan with its "
        "simultaneous 95 % interval over a cluster's rows. `limit` is the shortest possible time at line "
        "rate; transfers reach about 0.96 of it.",
        "",
        "| cluster | size | default | plan | algorithm | ratio | limit | plan reaches |",
        "| --- | ---: | ---: | ---: | --- | --- | ---: | ---: |",
    ]
    for row in frame.itertuples():
        has_limit = not pandas.isna(row.limit_s)
        cells = (
            f"`{row.cluster}`",
            units.format_bytes(row.message_bytes),
            units.format_seconds(row.default_median_s),
            units.format_seconds(row.plan_median_s),
            row.algorithm,
            f"{row.ratio:.2f} [{row.ratio_low:.2f}, {row.ratio_high:.2f}] {row.verdict}",
            units.format_seconds(row.limit_s) if has_limit else "none",
            f"{row.plan_percent_of_limit:.0f} %" if has_limit else "",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
