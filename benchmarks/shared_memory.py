"""Allreduce through shared memory against gloo's own, and Open MPI's where it is installed.

    python benchmarks/shared_memory.py [--ranks 2 4] [--sizes 4K,256K,2M,8M] [--rounds 60] [--json]

Times ``shm`` and ``dist.all_reduce`` on gloo: in every round some calls of each behind a barrier, in random
order; a sample is the slowest rank's time of one call. (Of several, since ranks leave a barrier one after
the other, on a loaded machine much later than a call takes.) ``ratio`` is gloo / shm with its 95 % interval,
corrected for the number of rows. In the rows ``busy`` the main thread of every rank runs Python meanwhile,
and the calls come from a worker thread. Open MPI (mpirun and mpi4py) is timed by itself, in the same way.
"""

import argparse
import importlib.util
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import topotune
from topotune.execute import Communicator, build_executable, check_exact
from topotune.execute.launch import run_local
from topotune.tune.statistics import compare_arms
from topotune.units import format_bytes, format_seconds, parse_bytes

SIZES = "4K,64K,256K,1M,2M,8M"
BUSY_SIZES = "4K,256K,2M,8M"
WARM_UPS = 5
CONFIDENCE = 0.95
TIMEOUT = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row of the table; ``mpi_median_s`` is None where there is no Open MPI or a row is busy."""

    ranks: int
    message_bytes: int
    busy: bool
    gloo_median_s: float
    shm_median_s: float
    ratio: float
    ratio_ci: tuple[float, float]
    num_samples: int
    mpi_median_s: float | None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--sizes", default=SIZES, help=f"main thread idle (default {SIZES})")
    parser.add_argument("--busy-sizes", default=BUSY_SIZES, help=f"main thread busy (default {BUSY_SIZES})")
    parser.add_argument("--rounds", type=int, default=60, help="rounds of each row (default 60)")
    parser.add_argument("--calls", type=int, default=10, help="calls in a round (default 10)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--as-mpi-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    idle, busy = (
        [parse_bytes(size) for size in sizes.split(",") if size]
        for sizes in (options.sizes, options.busy_sizes)
    )
    if options.as_mpi_rank:
        time_mpi(idle, options.rounds, options.calls)
        return
    confidence = 1 - (1 - CONFIDENCE) / (len(options.ranks) * (len(idle) + len(busy)))
    mpi = has_mpi()
    lines = [line for ranks in options.ranks for line in measure(ranks, idle, busy, options, confidence, mpi)]
    if options.json:
        print(json.dumps({"context": context(), "open_mpi": mpi, "rows": [asdict(line) for line in lines]}))
        return
    show(lines, mpi)


def show(lines: list[Line], mpi: bool) -> None:
    print(
        f"{'ranks':>5} {'message':>8} {'main':>5} {'gloo':>10} {'shm':>10} {'ratio':>6}  95 % interval   n",
        end="",
    )
    print(f"{'Open MPI':>13}" if mpi else "")
    for line in lines:
        low, high = line.ratio_ci
        print(
            f"{line.ranks:>5} {format_bytes(line.message_bytes):>8} {'busy' if line.busy else 'idle':>5} "
            f"{format_seconds(line.gloo_median_s):>10} {format_seconds(line.shm_median_s):>10} "
            f"{line.ratio:>6.2f}  {low:.2f} … {high:.2f}  {line.num_samples:>4}",
            end="",
        )
        print(f"{format_seconds(line.mpi_median_s):>13}" if line.mpi_median_s is not None else "")
    if not mpi:
        print("Open MPI is not there (mpirun and mpi4py)")
    print(", ".join(context().values()))


def context() -> dict[str, str]:
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "load": f"load {os.getloadavg()[0]:.1f}",
        "torch": f"torch {torch.__version__}",
        "python": f"Python {platform.python_version()}",
        "topotune": f"topotune {topotune.__version__}",
    }


def measure(
    ranks: int,
    idle: list[int],
    busy: list[int],
    options: argparse.Namespace,
    confidence: float,
    mpi: bool,
) -> Iterator[Line]:
    rows = [{"bytes": size, "busy": False} for size in idle] + [
        {"bytes": size, "busy": True} for size in busy
    ]
    payload = {"rows": rows, "rounds": options.rounds, "calls": options.calls}
    samples = run_local(ranks, f"{Path(__file__).stem}:time_rows", payload)
    mpi_medians = run_mpi(ranks, idle, options) if mpi else []
    for index, (row, (gloo_s, shm_s)) in enumerate(zip(rows, samples, strict=True)):
        found = compare_arms(np.asarray(gloo_s), np.asarray(shm_s), confidence=confidence, seed=0)
        yield Line(
            ranks=ranks,
            message_bytes=row["bytes"],
            busy=row["busy"],
            gloo_median_s=found.default_median_s,
            shm_median_s=found.median_s,
            ratio=found.ratio,
            ratio_ci=(found.low, found.high),
            num_samples=found.num_rounds,
            mpi_median_s=mpi_medians[index] if index < len(mpi_medians) else None,
        )


def time_rows(payload: dict[str, Any]) -> list[list[list[float]]]:
    """On every rank: seconds of gloo and of shm in each round, for each row; those of the slowest rank."""
    dist.init_process_group("gloo", timeout=TIMEOUT)
    store = dist.distributed_c10d._get_default_store()
    rank, size = dist.get_rank(), dist.get_world_size()
    with Communicator(store, rank, size, name="benchmark", timeout=TIMEOUT) as communicator:
        executable = build_executable("shm", {}, communicator)
        if not executable.supports(torch.float32, dist.ReduceOp.SUM):
            raise SystemExit(f"no shared memory: {executable.unavailable}")
        samples = []
        for row in payload["rows"]:
            check_exact(executable, row["bytes"])
            timing = partial(time_row, row["bytes"], payload["rounds"], payload["calls"], executable)
            samples.append(beside_python(timing) if row["busy"] else timing())
    dist.destroy_process_group()
    return samples


def time_row(message_bytes: int, rounds: int, calls: int, executable: Any) -> list[list[float]]:
    tensor = torch.zeros(message_bytes // 4)
    arms = (lambda: dist.all_reduce(tensor), lambda: executable.allreduce_(tensor))
    for arm in arms:
        for _ in range(WARM_UPS):
            arm()
    times_s = torch.zeros(len(arms), rounds, dtype=torch.float64)
    order = random.Random(message_bytes)
    for number in range(rounds):
        for arm in order.sample(range(len(arms)), len(arms)):
            dist.barrier()
            begin_s = time.perf_counter()
            for _ in range(calls):
                arms[arm]()
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


def has_mpi() -> bool:
    return shutil.which("mpirun") is not None and importlib.util.find_spec("mpi4py") is not None


def run_mpi(ranks: int, sizes: list[int], options: argparse.Namespace) -> list[float]:
    """Medians of Open MPI's allreduce, seconds."""
    command = ["mpirun", "--oversubscribe", "-n", str(ranks), sys.executable, __file__, "--as-mpi-rank"]
    if os.geteuid() == 0:
        command.insert(1, "--allow-run-as-root")
    command += ["--sizes", ",".join(map(str, sizes)), "--rounds", str(options.rounds)]
    command += ["--calls", str(options.calls)]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    return json.loads(result.stdout)


def time_mpi(sizes: list[int], rounds: int, calls: int) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    medians = []
    for message_bytes in sizes:
        array = np.zeros(message_bytes // 4, dtype=np.float32)
        samples = []
        for number in range(WARM_UPS + rounds):
            world.Barrier()
            begin_s = time.perf_counter()
            for _ in range(calls):
                world.Allreduce(MPI.IN_PLACE, array)
            slowest_s = world.allreduce((time.perf_counter() - begin_s) / calls, MPI.MAX)
            if number >= WARM_UPS:
                samples.append(slowest_s)
        medians.append(statistics.median(samples))
    if world.Get_rank() == 0:
        print(json.dumps(medians))


if __name__ == "__main__":
    main()
