"""Every lab cluster, every size: gloo, Open MPI, Horovod where it is installed, the plan, the optimum.

    python benchmarks/peers.py [--profiles 2x4 …] [--plans FOLDER] [--sizes 16K,…,16M] [-o FOLDER]

``mpirun`` starts the ranks on the nodes of the lab, so that in one run, in the same processes, interleaved,
are timed: ``dist.all_reduce`` of torch on gloo; Open MPI's ``MPI_Allreduce`` as it decides by itself, and by
each of the algorithms of its component ``tuned``; Horovod's allreduce, where Horovod was built for MPI; and
``dist.all_reduce`` on the backend ``topotune`` under the cluster's plan. Every arm's sums are checked first.

A round is some calls of each arm, arms in random order, behind a barrier; a sample is the slowest rank's time
of a call. Open MPI's best algorithm is the one with the least median in rounds of its own, which are then
thrown away: its time is of fresh rounds, like all others. Ratios are of medians, above 1 where the plan is
faster, with the 95 % interval over all rows of a cluster together. ``limit`` is the shortest possible time at
the links' configured rates.

The kernel shares 2 cores among up to 8 ranks, so Open MPI is told to yield while it waits
(``mpi_yield_when_idle``), as ``mpirun`` tells it where it sees that ranks outnumber cores.

Plans are read from FOLDER (``NAME.plan.json``, as ``benchmarks/lab.py`` leaves them), or tuned into the
output folder first. Writes ``peers.csv``, ``peers.md`` and ``peers.html`` (the picture); a cluster whose
samples stand there already is not run again. Needs Linux, root, Open MPI, ``nsenter``, and the extra
``report``.
"""

import argparse
import json
import os
import platform
import random
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import plotly.express
import torch
import torch.distributed as dist
from open_mpi import FLOAT, OpenMpi, check_sum, mpirun, open_mpi

import topotune
from topotune.bounds import graph_allreduce_bound
from topotune.bounds.bound import Bound
from topotune.lab import Cluster, LabProfile, list_profiles, read_profile
from topotune.lab.limit import line_rate_graph
from topotune.tune.statistics import compare_arms, corrected
from topotune.units import format_bytes, format_seconds, parse_bytes

SIZES = "16K,64K,256K,1M,4M,16M"
BUDGET = "300s"
CONFIDENCE = 0.95
TIMEOUT = timedelta(minutes=10)
PORT = 29517
SAMPLE_S = 0.05
MOST_CALLS = 10
SCREENING_ROUNDS = 3
GLOO, PLAN, HOROVOD = "gloo", "plan", "horovod"
MPI_DEFAULT, MPI_BEST = "open_mpi default", "open_mpi best"

Arm = Callable[[torch.Tensor], Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [profile.name for profile in list_profiles()]
    parser.add_argument("--profiles", nargs="+", default=names, help="default: all that ship")
    parser.add_argument("--sizes", default=SIZES, help=f"message sizes (default {SIZES})")
    parser.add_argument("--plans", type=Path, help="folder of plans; none: they are tuned first")
    parser.add_argument("--budget", default=BUDGET, help=f"of each tuning (default {BUDGET})")
    parser.add_argument("--rounds", type=int, default=12, help="rounds of each row (default 12)")
    parser.add_argument("-o", "--output", type=Path, default=Path("peers-results"), help="folder")
    parser.add_argument("--as-rank", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank is not None:
        run_as_rank(options.as_rank)
        return
    if not open_mpi():
        sys.exit("Open MPI is not installed (mpirun and libmpi; Debian: openmpi-bin)")
    options.output.mkdir(parents=True, exist_ok=True)
    sizes = [parse_bytes(size) for size in options.sizes.split(",")]
    rows: list[dict[str, Any]] = []
    for name in options.profiles:
        profile = read_profile(name)
        samples = options.output / f"{profile.name}.samples.json"
        if not samples.exists():
            run_on_lab(profile, plan_for(profile, options), sizes, options.rounds, samples)
        rows += rows_of(profile, json.loads(samples.read_text()))
        frame = pandas.DataFrame(rows)
        frame.to_csv(options.output / "peers.csv", index=False)
        (options.output / "peers.md").write_text(page(frame))
        picture(frame).write_html(options.output / "peers.html", include_plotlyjs=True)
    print((options.output / "peers.md").read_text())


def plan_for(profile: LabProfile, options: argparse.Namespace) -> Path:
    """The cluster's plan, tuned now where there is none."""
    plan: Path = (options.plans or options.output) / f"{profile.name}.plan.json"
    if not plan.exists():
        command = [sys.executable, "-m", "topotune", "lab", profile.name, "--"]
        command += [sys.executable, "-m", "topotune", "tune", "--sizes", options.sizes]
        command += ["--budget", options.budget, "-o", str(plan)]
        print(shlex.join(command), file=sys.stderr, flush=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return plan.resolve()


def run_on_lab(profile: LabProfile, plan: Path, sizes: list[int], rounds: int, output: Path) -> None:
    """Time all arms in the cluster, under mpirun; writes the samples."""
    task = output.with_suffix(".task")
    task.write_text(
        json.dumps(
            {
                "master": profile.nodes[0].name,
                "rank_of_position": [rank for ranks in profile.ranks_of_nodes() for rank in ranks],
                "plan": str(plan),
                "sizes": sizes,
                "rounds": rounds,
                "output": str(output.resolve()),
            }
        )
    )
    with Cluster(profile) as cluster:
        agent = cluster.folder / "enter-node"  # in place of ssh
        entries = "\n".join(f"{node}) pid={pid} ;;" for node, pid in cluster.record.holders.items())
        agent.write_text(
            f"#!/bin/sh\nnode=$1; shift\ncase $node in\n{entries}\nesac\n"
            'exec nsenter --target "$pid" --net --uts --ipc --mount sh -c "$*"\n'
        )
        agent.chmod(0o700)
        hosts = ",".join(f"{node.name}:{node.ranks}" for node in profile.nodes)
        settings = {
            "plm_rsh_agent": str(agent),
            "btl_tcp_if_include": "eth0",
            "oob_tcp_if_include": "eth0",
            "mpi_yield_when_idle": "1",
            "coll_tuned_use_dynamic_rules": "1",
        }
        command = mpirun(*(word for setting in settings.items() for word in ("--mca", *setting)))
        for variable in ("PYTHONPATH", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS"):
            command += ["-x", variable]
        command += ["-H", hosts, sys.executable, __file__, "--as-rank", str(task.resolve())]
        print(f"{profile.name}: {shlex.join(command)}", file=sys.stderr, flush=True)
        environment = dict(os.environ) | {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        exit_code = cluster.popen(0, command, env=environment).wait()
    task.unlink()
    if exit_code:
        sys.exit(f"{profile.name}: exit code {exit_code} of mpirun")


def run_as_rank(task_file: Path) -> None:
    task = json.loads(task_file.read_text())
    mpi = OpenMpi()
    # mpirun fills node by node; the profile may number ranks in turns over the nodes.
    rank = task["rank_of_position"][int(os.environ["OMPI_COMM_WORLD_RANK"])]
    size = len(task["rank_of_position"])
    os.environ["TOPOTUNE_PLAN"] = task["plan"]
    os.environ["LOCAL_WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"]
    torch.set_num_threads(1)
    store = dist.TCPStore(
        task["master"], PORT, size, is_master=rank == 0, timeout=TIMEOUT, wait_for_workers=False
    )
    dist.init_process_group("topotune", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    planned: Any = dist.group.WORLD
    if planned.agreement is None or planned.agreement.plan is None:
        sys.exit(f"rank {rank}: the plan does not fit: {planned.agreement}")
    gloo = dist.new_group(backend="gloo", timeout=TIMEOUT)
    arms: dict[str, Arm] = {GLOO: lambda tensor: dist.all_reduce(tensor, group=gloo), PLAN: dist.all_reduce}
    algorithms = {f"open_mpi {name}": arm for name, arm in mpi.communicators().items()}
    if (horovod := horovod_arm()) is not None:
        arms[HOROVOD] = horovod
    found = [time_size(size, task["rounds"], arms, algorithms, gloo) for size in task["sizes"]]
    if rank == 0:
        versions = {"open_mpi": open_mpi(), "torch": torch.__version__, "topotune": topotune.__version__}
        Path(task["output"]).write_text(json.dumps({"versions": versions, "sizes": found}))
    dist.destroy_process_group()
    mpi.close()


def horovod_arm() -> Arm | None:
    """Horovod's allreduce; None where it is not installed, or cannot run under mpirun."""
    try:
        import horovod.torch
    except ImportError:
        return None
    if not horovod.torch.mpi_built():
        return None
    horovod.torch.init()
    return lambda tensor: horovod.torch.allreduce_(tensor, op=horovod.torch.Sum, name=f"{tensor.nbytes}")


def time_size(
    message_bytes: int, rounds: int, arms: Mapping[str, Arm], algorithms: Mapping[str, Arm], group: Any
) -> dict[str, Any]:
    """The slowest rank's seconds by arm and round, the same on all ranks."""
    for name, arm in (arms | algorithms).items():
        check_sum(name, arm, message_bytes)
    screened = time_rounds(message_bytes, SCREENING_ROUNDS, algorithms, group)
    best = min(screened, key=lambda name: float(np.median(screened[name])))
    compared = {**arms, MPI_DEFAULT: algorithms[MPI_DEFAULT], MPI_BEST: algorithms[best]}
    return {
        "message_bytes": message_bytes,
        "best": best.removeprefix("open_mpi "),
        "times_s": time_rounds(message_bytes, rounds, compared, group),
    }


def time_rounds(
    message_bytes: int, rounds: int, arms: Mapping[str, Arm], group: Any
) -> dict[str, list[float]]:
    tensor = torch.zeros(message_bytes // FLOAT.itemsize)
    times_s = torch.zeros(len(arms), rounds, dtype=torch.float64)
    order = random.Random(message_bytes)
    calls = 1
    for number in range(-1, rounds):
        slowest_s = torch.zeros(len(arms), dtype=torch.float64)
        for index, arm in order.sample(list(enumerate(arms.values())), len(arms)):
            dist.barrier(group)
            begin_s = time.perf_counter()
            for _ in range(calls):
                arm(tensor)
            slowest_s[index] = (time.perf_counter() - begin_s) / calls
        dist.all_reduce(slowest_s, dist.ReduceOp.MAX, group)
        if number < 0:  # connects and warms up; and all ranks learn from it how many calls make a sample
            calls = max(1, min(MOST_CALLS, int(SAMPLE_S / float(slowest_s.max()))))
        else:
            times_s[:, number] = slowest_s
    return dict(zip(arms, times_s.tolist(), strict=True))


def rows_of(profile: LabProfile, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a size and arm; times in seconds."""
    graph = line_rate_graph(profile)
    bound = None if graph is None else graph_allreduce_bound(graph)
    confidence = corrected(CONFIDENCE, sum(len(one["times_s"]) - 1 for one in found["sizes"]))
    rows = []
    for one in found["sizes"]:
        size = one["message_bytes"]
        limit_s = bound.time_s(size) if isinstance(bound, Bound) else None
        plan_s = np.asarray(one["times_s"][PLAN])
        for name, times_s in one["times_s"].items():
            compared = compare_arms(np.asarray(times_s), plan_s, confidence=confidence, seed=0)
            is_plan = name == PLAN
            rows.append(
                {
                    "cluster": profile.name,
                    "message_bytes": size,
                    "arm": name,
                    "algorithm": one["best"] if name == MPI_BEST else "",
                    "num_samples": len(times_s),
                    "median_s": float(np.median(times_s)),
                    "ratio_to_plan": None if is_plan else compared.ratio,
                    "ratio_low": None if is_plan else compared.low,
                    "ratio_high": None if is_plan else compared.high,
                    "limit_s": limit_s,
                    **{f"version_{key}": value for key, value in found["versions"].items()},
                }
            )
    return rows


def page(frame: pandas.DataFrame) -> str:
    """The table as a Markdown page, with what it was made with."""
    arms = [arm for arm in dict.fromkeys(frame["arm"]) if arm != PLAN]
    head = ["cluster", "size", "limit", "plan", *(f"{arm} / plan" for arm in arms)]
    versions = frame.iloc[0]
    lines = [
        "# The lab clusters: the plan and its peers",
        "",
        f"    {shlex.join(['python', *sys.argv])}",
        "",
        f"topotune {versions.version_topotune}, torch {versions.version_torch}, {versions.version_open_mpi}, "
        f"Python {platform.python_version()}, Linux {platform.release()}, {os.cpu_count()} cores, "
        f"{datetime.now(UTC):%Y-%m-%d}.",
        "",
        "Float32; medians; each peer's time, and its ratio to the plan's, above 1 where the plan is faster, "
        "with the simultaneous 95 % interval over a cluster's rows.",
        "",
        f"| {' | '.join(head)} |",
        f"| --- | {' | '.join('---:' for _ in head[1:])} |",
    ]
    for (cluster, size), rows in frame.groupby(["cluster", "message_bytes"], sort=False):
        by_arm = {row.arm: row for row in rows.itertuples()}
        plan = by_arm[PLAN]
        cells = [f"`{cluster}`", format_bytes(size)]
        cells.append("none" if pandas.isna(plan.limit_s) else format_seconds(plan.limit_s))
        cells.append(format_seconds(plan.median_s))
        for arm in arms:
            row = by_arm[arm]
            algorithm = f" ({row.algorithm})" if row.algorithm else ""
            cells.append(
                f"{format_seconds(row.median_s)}{algorithm}: "
                f"{row.ratio_to_plan:.2f} [{row.ratio_low:.2f}, {row.ratio_high:.2f}]"
            )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Geometric means of the ratios, all rows:", ""]
    for arm in arms:
        ratios = frame.loc[frame["arm"] == arm, "ratio_to_plan"].astype(float)
        lines.append(f"- {arm}: {np.exp(np.log(ratios).mean()):.2f}")
    return "\n".join([*lines, ""])


def picture(frame: pandas.DataFrame) -> Any:
    """Time against size, a panel a cluster."""
    limits = frame.drop_duplicates(["cluster", "message_bytes"]).dropna(subset=["limit_s"])
    limits = limits.assign(arm="limit", median_s=limits["limit_s"])
    return plotly.express.line(
        pandas.concat([frame, limits]),
        x="message_bytes",
        y="median_s",
        color="arm",
        facet_col="cluster",
        facet_col_wrap=4,
        log_x=True,
        log_y=True,
        markers=True,
        labels={"message_bytes": "message, bytes", "median_s": "median, s"},
        title="Allreduce on the lab clusters",
    )


if __name__ == "__main__":
    main()
