"""Allreduce through shared memory against gloo's own, with Open MPI's beside them where it is installed.

    python benchmarks/shared_memory.py [--ranks 2 4] [--sizes 4K,2M,8M] [--rounds 40] [-o FOLDER]

The ranks time ``dist.all_reduce`` on gloo, ``shm`` and Open MPI's ``MPI_Allreduce`` in the same processes: in
every round some calls of each, in random order, each behind a barrier that ranks leave together; a sample is
the slowest rank's time of one call. Ratios are of medians, above 1 where ``shm`` is faster, with their 95 %
intervals over all rows together. ``others`` is what other processes ran meanwhile, in CPUs: with more than a
tenth the machine was not quiet, and all arms lose, not all alike.

In rows ``busy`` the main thread of every rank runs Python meanwhile, and the calls come from another thread
(not MPI's, whose library is not initialised for threads). Open MPI needs ``mpirun`` and its library, and no
Python package: the library is called through its C interface.

Writes ``shared_memory.csv`` and ``shared_memory.md`` into FOLDER, and prints the latter.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import psutil
import torch
import torch.distributed as dist
from open_mpi import FLOAT, OpenMpi, check_sum, mpirun, open_mpi

import topotune
from topotune.execute import Communicator, build_executable, check_exact
from topotune.launch.local_ranks import run_local
from topotune.tune.statistics import Comparison, compare_arms, corrected
from topotune.units import format_bytes, format_seconds, parse_bytes

SIZES = "4K,64K,256K,1M,2M,8M,32M"
BUSY_SIZES = "4K,256K,2M,8M"
WARM_UPS = 3
CONFIDENCE = 0.95
TIMEOUT = timedelta(minutes=5)
GLOO, SHM, MPI = range(3)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row of the table; what is of Open MPI is None where it was not timed."""

    ranks: int
    message_bytes: int
    main_thread: str
    num_samples: int
    gloo_median_s: float
    shm_median_s: float
    open_mpi_median_s: float | None
    gloo_over_shm: float
    gloo_over_shm_low: float
    gloo_over_shm_high: float
    open_mpi_over_shm: float | None
    open_mpi_over_shm_low: float | None
    open_mpi_over_shm_high: float | None
    others_cpus: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--sizes", default=SIZES, help=f"main thread idle (default {SIZES})")
    parser.add_argument("--busy-sizes", default=BUSY_SIZES, help=f"main thread busy (default {BUSY_SIZES})")
    parser.add_argument("--rounds", type=int, default=40, help="rounds of each row (default 40)")
    parser.add_argument("--calls", type=int, default=5, help="calls in a round (default 5)")
    parser.add_argument("-o", "--output", type=Path, default=Path("shared-memory-results"), help="folder")
    parser.add_argument("--as-rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank is not None:
        run_as_mpi_rank(json.loads(options.as_rank))
        return
    options.output.mkdir(parents=True, exist_ok=True)
    lines = [line for ranks in options.ranks for line in measure(ranks, options)]
    frame = pandas.DataFrame([asdict(line) for line in lines])
    frame.to_csv(options.output / "shared_memory.csv", index=False)
    (options.output / "shared_memory.md").write_text(page(lines))
    print((options.output / "shared_memory.md").read_text())


def measure(ranks: int, options: argparse.Namespace) -> list[Line]:
    idle, busy = (
        [parse_bytes(size) for size in sizes.split(",") if size]
        for sizes in (options.sizes, options.busy_sizes)
    )
    rows = [{"bytes": size, "busy": False} for size in idle] + [
        {"bytes": size, "busy": True} for size in busy
    ]
    confidence = corrected(CONFIDENCE, len(options.ranks) * (2 * len(idle) + len(busy)))
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    payload = {"rows": rows, "rounds": options.rounds, "calls": options.calls, "port": store.port}
    found = run_under_mpi(ranks, payload) if open_mpi() else run_local(ranks, ENTRY, payload)
    return [
        line_of(ranks, row, one["times_s"], one["others_cpus"], confidence)
        for row, one in zip(rows, found, strict=True)
    ]


def line_of(
    ranks: int, row: dict[str, Any], times_s: list[list[float]], others_cpus: float, confidence: float
) -> Line:
    arms = [np.asarray(samples) for samples in times_s]

    def against_shm(arm: int) -> Comparison:
        return compare_arms(arms[arm], arms[SHM], confidence=confidence, seed=0)

    gloo = against_shm(GLOO)
    mpi = against_shm(MPI) if len(arms) > MPI else None
    return Line(
        ranks=ranks,
        message_bytes=row["bytes"],
        main_thread="busy" if row["busy"] else "idle",
        num_samples=gloo.num_rounds,
        gloo_median_s=gloo.default_median_s,
        shm_median_s=gloo.median_s,
        open_mpi_median_s=mpi.default_median_s if mpi else None,
        gloo_over_shm=gloo.ratio,
        gloo_over_shm_low=gloo.low,
        gloo_over_shm_high=gloo.high,
        open_mpi_over_shm=mpi.ratio if mpi else None,
        open_mpi_over_shm_low=mpi.low if mpi else None,
        open_mpi_over_shm_high=mpi.high if mpi else None,
        others_cpus=others_cpus,
    )


def page(lines: list[Line]) -> str:
    head = ("ranks", "message", "main", "gloo", "shm", "gloo / shm", "Open MPI", "Open MPI / shm", "others")
    table = [head, tuple("---:" for _ in head)]
    for line in lines:
        times = (line.gloo_median_s, line.shm_median_s, line.open_mpi_median_s)
        gloo, shm, mpi = (format_seconds(time_s) if time_s is not None else "–" for time_s in times)
        table.append(
            (
                str(line.ranks),
                format_bytes(line.message_bytes),
                line.main_thread,
                gloo,
                shm,
                ratio_text(line.gloo_over_shm, line.gloo_over_shm_low, line.gloo_over_shm_high),
                mpi,
                ratio_text(line.open_mpi_over_shm, line.open_mpi_over_shm_low, line.open_mpi_over_shm_high),
                f"{line.others_cpus:.2f}",
            )
        )
    text = "\n".join("| " + " | ".join(row) + " |" for row in table)
    return f"{text}\n\n    {shlex.join(['python', *sys.argv])}\n\n{', '.join(context())}\n"


def ratio_text(ratio: float | None, low: float | None, high: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f} ({low:.2f} … {high:.2f})"


def context() -> list[str]:
    return [
        f"{datetime.now(UTC):%Y-%m-%d}",
        f"{platform.machine()} with {os.cpu_count()} CPUs",
        f"Linux {platform.release()}",
        f"torch {torch.__version__}",
        f"Python {platform.python_version()}",
        open_mpi() or "no Open MPI (mpirun and libmpi)",
        f"topotune {topotune.__version__}",
    ]


def time_rows(payload: dict[str, Any], mpi: OpenMpi | None = None) -> list[dict[str, Any]]:
    """On every rank: the slowest rank's seconds by row, arm and round, and what others ran meanwhile."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore("127.0.0.1", payload["port"], is_master=False, timeout=TIMEOUT)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    with Communicator(store, rank, size, name="benchmark", timeout=TIMEOUT) as communicator:
        executable = build_executable("shm", {}, communicator)
        if not executable.supports(FLOAT, dist.ReduceOp.SUM):
            raise SystemExit(f"no shared memory: {executable.unavailable}")
        found = []
        for row in payload["rows"]:
            check_exact(executable, row["bytes"])
            arms = [dist.all_reduce, executable.allreduce_]
            if mpi is not None and not row["busy"]:
                check_sum("MPI_Allreduce", mpi.allreduce_, row["bytes"])
                arms.append(mpi.allreduce_)
            leave_together = partial(executable.allreduce_, torch.zeros(1))
            timing = partial(
                time_row, row["bytes"], payload["rounds"], payload["calls"], arms, leave_together
            )
            before = Work.now()
            times_s = beside_python(timing) if row["busy"] else timing()
            found.append({"times_s": times_s, "others_cpus": before.others_cpus()})
    dist.destroy_process_group()
    return found


ENTRY = f"{Path(__file__).stem}:{time_rows.__name__}"


def time_row(
    message_bytes: int,
    rounds: int,
    calls: int,
    arms: list[Callable[[torch.Tensor], Any]],
    leave_together: Callable[[], None],
) -> list[list[float]]:
    tensor = torch.zeros(message_bytes // FLOAT.itemsize)
    times_s = torch.zeros(len(arms), rounds, dtype=torch.float64)
    order = random.Random(message_bytes)
    for number in range(-WARM_UPS, rounds):
        for arm in order.sample(range(len(arms)), len(arms)):
            dist.barrier()
            # Ranks leave gloo's barrier up to milliseconds after each other where they outnumber the cores.
            leave_together()
            arms[arm](tensor)
            begin_s = time.perf_counter()
            for _ in range(calls):
                arms[arm](tensor)
            if number >= 0:
                times_s[arm, number] = (time.perf_counter() - begin_s) / calls
    dist.all_reduce(times_s, dist.ReduceOp.MAX)
    return times_s.tolist()


def beside_python(function: Callable[[], Any]) -> Any:
    """What a function returns that runs in a thread while this one runs Python."""
    with ThreadPoolExecutor(1) as worker:
        outcome = worker.submit(function)
        number = 0
        while not outcome.done():
            for _ in range(10_000):
                number += 1
        return outcome.result()


@dataclass(frozen=True)
class Work:
    """CPU seconds of the whole machine and of this process up to a moment."""

    at_s: float
    machine_s: float
    own_s: float

    @classmethod
    def now(cls) -> "Work":
        times = psutil.cpu_times()
        idle_s = times.idle + getattr(times, "iowait", 0.0)
        # Time of guests is in that of users already.
        counted_twice_s = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        return cls(time.monotonic(), sum(times) - idle_s - counted_twice_s, time.process_time())

    def others_cpus(self) -> float:
        """CPUs that other processes than the ranks took since; collective over the ranks."""
        now = Work.now()
        ranks_s = torch.tensor([now.own_s - self.own_s], dtype=torch.float64)
        dist.all_reduce(ranks_s)
        return max(0.0, now.machine_s - self.machine_s - float(ranks_s)) / (now.at_s - self.at_s)


def run_under_mpi(ranks: int, payload: dict[str, Any]) -> Any:
    command = mpirun("-n", str(ranks), sys.executable, __file__, "--as-rank", json.dumps(payload))
    environment = {"OMP_NUM_THREADS": "1"} | os.environ
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(result.stdout)


def run_as_mpi_rank(payload: dict[str, Any]) -> None:
    os.environ["RANK"] = os.environ["OMPI_COMM_WORLD_RANK"]
    os.environ["WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_SIZE"]
    mpi = OpenMpi()
    found = time_rows(payload, mpi)
    mpi.close()
    if os.environ["RANK"] == "0":
        print(json.dumps(found))


if __name__ == "__main__":
    main()
