"""How often ``topotune check`` finds what is not there, and what is, on emulated clusters.

    python benchmarks/inference.py [--runs 20] [--budget 20s] [--profiles 8x1 4x2 …] [-o FOLDER]
    python benchmarks/inference.py --again FOLDER

On healthy profiles a finding of warning or above is a false one; on those with something hidden a run counts
as found where exactly the planted thing is named, with its rate within 15 %. Rates come with the upper end of
their one-sided 95 % interval (Clopper-Pearson): 0 false findings in 20 runs bound the rate at 14 %, in 60 at
5 %. Every measurement is kept in FOLDER, also those of an interrupted benchmark, and ``--again`` judges those
that are there without measuring. Measuring needs Linux and root.
"""

import argparse
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from scipy import stats

import topotune
from topotune.documents import read_document
from topotune.links import Measurement, Structure, find, fit_links, infer_structure, measurement_from_document

MBIT = 1e6 / 8
TOLERANCE = 0.15


@dataclass(frozen=True)
class Planted:
    """What a profile hides: groups of nodes with their uplink, or a slow node; nothing if neither."""

    groups: tuple[tuple[int, ...], ...] = ()
    uplink_mbit_per_s: float = 0.0
    slow_node: int | None = None
    slow_mbit_per_s: float = 0.0

    @property
    def is_healthy(self) -> bool:
        return not self.groups and self.slow_node is None


PROFILES = {
    "8x1": Planted(),
    "4x2": Planted(),
    "4x2-scattered": Planted(),
    "2x4": Planted(),
    "1x4": Planted(),
    "4x2-degraded": Planted(slow_node=2, slow_mbit_per_s=50),
    "racks-2x2x2": Planted(groups=((0, 1), (2, 3)), uplink_mbit_per_s=100),
    "racks-2x4x1": Planted(groups=((0, 1, 2, 3), (4, 5, 6, 7)), uplink_mbit_per_s=200),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profiles", nargs="+", choices=PROFILES, default=list(PROFILES), metavar="NAME")
    parser.add_argument("--runs", type=int, default=20, help="of each profile (default 20)")
    parser.add_argument("--budget", default="20s", help="of each run (default 20s)")
    parser.add_argument("-o", "--output", type=Path, default=Path("inference-results"), help="folder")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="judge the measurements in FOLDER")
    options = parser.parse_args()
    if options.again is None:
        options.output.mkdir(parents=True, exist_ok=True)
        print(
            f"topotune {topotune.__version__}, torch {torch.__version__}, Linux {platform.release()}, "
            f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; budget {options.budget} a run"
        )
    folder = options.again or options.output
    verdicts: dict[str, list[Verdict]] = {name: [] for name in options.profiles}
    for name in options.profiles:
        files = sorted(folder.glob(f"{name}.[0-9]*.json"))
        if options.again is None:
            first = len(files)
            files = [folder / f"{name}.{number:04}.json" for number in range(first, first + options.runs)]
        for file in files:
            if options.again is None:
                measure(name, options.budget, file)
            verdict = judge(PROFILES[name], measurement_from_document(read_document(file), str(file)))
            verdicts[name].append(verdict)
            print(f"  {file.name}: {verdict.words}", file=sys.stderr)
    print_table({name: found for name, found in verdicts.items() if found})


def measure(name: str, budget: str, file: Path) -> None:
    """One run in a lab of its own."""
    command = [sys.executable, "-m", "topotune"]
    done = subprocess.run(
        [*command, "lab", name, "--", *command, "measure", "--budget", budget, "-o", str(file)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode != 0:
        # torchrun's agents say much when one of them is gone; topotune's own words are one line.
        own = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        sys.exit(f"{name}: exit code {done.returncode}: {own[0] if own else done.stderr[-2000:]}")


@dataclass(frozen=True)
class Verdict:
    """What one run found: whether all that is planted, and what besides."""

    found: bool
    false: tuple[str, ...]
    words: str
    measured_s: float


def judge(planted: Planted, measurement: Measurement) -> Verdict:
    """Compare what a measurement says with what there is."""
    structure = infer_structure(measurement)
    findings = find(measurement, fit_links(measurement, structure=structure), structure)
    slow = None if planted.slow_node is None else f"node {measurement.node_names[planted.slow_node]}"
    false = [
        f"{finding.code}, {finding.where}: {finding.evidence}"
        for finding in findings
        if finding.severity != "info"
        and not (finding.code == "slow-node" and finding.where == slow)
        and not (finding.code == "oversubscribed-uplink" and planted.groups)
    ]
    false += [f"nodes {group.nodes}" for group in structure.groups if group.nodes not in planted.groups]
    found = not planted.is_healthy and is_found(planted, structure)
    return Verdict(
        found=found,
        false=tuple(false),
        words="; ".join([*(["found"] if found else []), *false]) or structure.no_groups or "not found",
        measured_s=measurement.elapsed_s or 0.0,
    )


def print_table(verdicts: dict[str, list[Verdict]]) -> None:
    print(
        f"{'profile':16}  {'false findings':>14}  {'rate at most':>12}  {'planted found':>13}  {'s a run':>7}"
    )
    healthy: list[Verdict] = []
    for name, runs in verdicts.items():
        is_healthy = PROFILES[name].is_healthy
        found = "–" if is_healthy else f"{sum(run.found for run in runs)} of {len(runs)}"
        took_s = sum(run.measured_s for run in runs) / len(runs)
        healthy += runs if is_healthy else []
        print(f"{name:16}  {false_findings(runs)}  {found:>13}  {took_s:7.1f}")
    if healthy:
        print(f"{'all healthy':16}  {false_findings(healthy)}")


def false_findings(runs: list[Verdict]) -> str:
    """How many runs had any, and the upper end of the one-sided 95 % interval of their rate."""
    num_false = sum(bool(run.false) for run in runs)
    at_most = stats.beta.ppf(0.95, num_false + 1, len(runs) - num_false) if num_false < len(runs) else 1.0
    return f"{f'{num_false} of {len(runs)}':>14}  {at_most:>12.1%}"


def is_found(planted: Planted, structure: Structure) -> bool:
    """Whether all that is planted was found, with its rates."""

    def near(rate_bytes_per_s: float, mbit_per_s: float) -> bool:
        return abs(rate_bytes_per_s / (mbit_per_s * MBIT) - 1) <= TOLERANCE

    if planted.slow_node is not None:
        slow = {(fault.source, fault.sink): fault.rate_bytes_per_s for fault in structure.faults}
        ends = ((planted.slow_node, None), (None, planted.slow_node))
        if not all(end in slow and near(slow[end], planted.slow_mbit_per_s) for end in ends):
            return False
    if {group.nodes for group in structure.groups} != set(planted.groups):
        return False
    return all(
        len(group.uplinks) == 2
        and all(near(uplink.capacity_bytes_per_s, planted.uplink_mbit_per_s) for uplink in group.uplinks)
        for group in structure.groups
    )


if __name__ == "__main__":
    main()
