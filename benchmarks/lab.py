"""Every lab cluster, every size: the default, the plan, and the limit of the network.

    python benchmarks/lab.py [--profiles 2x4 4x2 …] [--sizes 4K,…,16M] [--budget 300s] [-o FOLDER]

For each profile a plan is tuned in the lab, then compared with the default on fresh samples in a second run
of the lab (so that nothing but the plan's file is carried over). Times are medians; ``ratio`` is default /
plan with its 95 % interval over all rows of a cluster together; ``limit`` is the shortest possible time at
the links' configured rates. A transfer reaches about 0.96 of that rate (packet headers, TCP), and small
messages cost latency that the limit leaves out.

A cluster of one node has no limit. Beside it stands what the host's memory does: the time in which as many
processes as there are ranks, at once, copy a message each (`copy_bandwidth` says why that, and why it is no
bound), and what share of the plan's time that is.

Writes ``lab.csv``, ``lab.md`` and the plans, comparisons and copies behind them into FOLDER; a cluster whose
comparison stands there already is not run again, and copies that stand there are not timed again. Needs Linux
and root.
"""

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas
import torch
from copy_bandwidth import Copies, measure

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
        rows += rows_of(profile, plan, comparison, copies_of(profile, comparison))
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


def copies_of(profile: LabProfile, comparison_file: Path) -> dict[int, Copies]:
    """Copies of the compared sizes by as many processes as the cluster has ranks; none of several nodes."""
    if len(profile.nodes) > 1:
        return {}
    path = comparison_file.with_name(f"{profile.name}.copies.json")
    if not path.exists():
        sizes = [row["message_bytes"] for row in json.loads(comparison_file.read_text())["rows"]]
        found = measure(profile.num_ranks, sizes)
        path.write_text(json.dumps([asdict(one) for one in found]))
    return {one["message_bytes"]: Copies(**one) for one in json.loads(path.read_text())}


def rows_of(
    profile: LabProfile, plan_file: Path, comparison_file: Path, copies: Mapping[int, Copies]
) -> list[dict[str, Any]]:
    """One row a size; times in seconds.

    Args:
        profile: the cluster.
        plan_file: of it.
        comparison_file: of that plan.
        copies: by size; what was not timed, as on several nodes, is missing.
    """
    table = load_plan(plan_file).groups[0].allreduce
    assert table is not None
    graph = line_rate_graph(profile)
    bound = None if graph is None else graph_allreduce_bound(graph)
    rows = []
    for compared in json.loads(comparison_file.read_text())["rows"]:
        size = compared["message_bytes"]
        limit_s = bound.time_s(size) if isinstance(bound, Bound) else None
        copied = copies.get(size)
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
                "copy_s": None if copied is None else copied.median_s,
                "copied_bytes_per_s": None if copied is None else copied.copied_bytes_per_s,
                "copy_percent_of_plan": None
                if copied is None
                else copied.percent_of(compared["plan_median_s"]),
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
        "rate; transfers reach about 0.96 of it. Where there is none, on one node, `copies` is the time in "
        "which as many processes as ranks copy a message each, at once: as many bytes as an allreduce reads "
        "and writes at least; a yardstick, not a bound.",
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
            *(limit_cells(row) if has_limit else copies_cells(row)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def limit_cells(row: Any) -> tuple[str, str]:
    """The limit, and what share of it the plan reaches."""
    return units.format_seconds(row.limit_s), f"{row.plan_percent_of_limit:.0f} %"


def copies_cells(row: Any) -> tuple[str, str]:
    """Where there is no limit: the copies beside it, and what share of the plan's time they take."""
    if pandas.isna(row.copy_s):
        return "none", ""
    rate = units.format_rate(row.copied_bytes_per_s)
    return (
        f"none; copies {units.format_seconds(row.copy_s)} ({rate})",
        f"copies take {row.copy_percent_of_plan:.0f} % of it",
    )


if __name__ == "__main__":
    main()
