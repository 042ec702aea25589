"""What a call costs on ``topotune`` beyond the backend that it wraps.

    python benchmarks/dispatch.py [--blocks 300] [--calls 20] [--json]

Times ``dist.all_reduce`` on a ``topotune`` group and on a raw ``gloo`` group of the same ranks, in blocks
that alternate in random order, and prints the difference per call ("cost"): the median over pairs of blocks
with a bootstrap interval. The rows say what the call meets: no plan at all, or a plan whose row for this size
is the default. Two more rows show other collectives, and three what the watch for drift costs calls that the
plan serves: "gloo" is there a topotune group without the watch. A collective ends with its slowest rank, so a
block counts as its slowest rank's time. "work" is the same difference in CPU time of the calling thread: with
more runnable threads than processors the clock shows mostly whom the kernel ran.
"""

import argparse
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import topotune
from topotune.execute.fingerprint import combine_facts, local_facts
from topotune.plan import Certificate, Context, Group, GroupShape, Plan, Row

BUDGET_US = 30.0
Pair = tuple[tuple[float, float], tuple[float, float]]
"""One block on gloo and one on topotune, each (by the clock, of the thread's work)."""
SIZES = (4, 1024, 65536)
WATCHED = 16
RESAMPLES = 2000


@dataclass(frozen=True, kw_only=True)
class Line:
    """One row of the table; times in µs per call, ``work_us`` by the calling thread's CPU clock."""

    ranks: int
    call: str
    gloo_us: float
    topotune_us: float
    cost_us: float
    cost_ci_us: tuple[float, float]
    work_us: float
    num_pairs: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--blocks", type=int, default=300, help="pairs of blocks per row (default 300)")
    parser.add_argument("--calls", type=int, default=20, help="calls per block (default 20)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    lines = [line for ranks in options.ranks for line in measure(ranks, options.blocks, options.calls)]
    if options.json:
        rows = [asdict(line) for line in lines]
        print(json.dumps({"context": context(), "budget_us": BUDGET_US, "rows": rows}))
        return
    pairs = f"95 % interval of the cost, {options.blocks} pairs"
    print(f"{'ranks':>5}  {'call':<42} {'gloo':>9} {'topotune':>9} {'cost':>8} {'work':>8}  {pairs}")
    for line in lines:
        low, high = line.cost_ci_us
        print(
            f"{line.ranks:>5}  {line.call:<42} {line.gloo_us:>6.1f} µs {line.topotune_us:>6.1f} µs "
            f"{line.cost_us:>5.1f} µs {line.work_us:>5.1f} µs  {low:.1f} … {high:.1f}"
        )
    worst = max(line.cost_us for line in lines)
    print(f"most: {worst:.1f} µs a call; the budget is {BUDGET_US:g} µs ({', '.join(context().values())})")


def context() -> dict[str, str]:
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "torch": f"torch {torch.__version__}",
        "python": f"Python {platform.python_version()}",
        "topotune": f"topotune {topotune.__version__}",
    }


def measure(num_ranks: int, num_blocks: int, num_calls: int) -> list[Line]:
    """Start the ranks, with and without a plan, and compare."""
    lines: list[Line] = []
    for planned in (False, True):
        queue = mp.get_context("spawn").SimpleQueue()
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        processes = mp.start_processes(
            run_rank,
            (num_ranks, server.port, planned, num_blocks, num_calls, queue),
            nprocs=num_ranks,
            join=False,
        )
        samples = queue.get()
        while not processes.join():
            pass
        lines += [compare(num_ranks, call, pairs) for call, pairs in samples.items()]
    return lines


def run_rank(
    rank: int, num_ranks: int, port: int, planned: bool, num_blocks: int, num_calls: int, queue: Any
) -> None:
    torch.set_num_threads(1)
    topotune.use(plan(num_ranks) if planned else None)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    os.environ["TOPOTUNE_REPORT"] = os.devnull
    dist.init_process_group("topotune", store=store, rank=rank, world_size=num_ranks)
    raw = dist.new_group(backend="gloo")
    unwatched = None
    if planned and num_ranks > 1:
        os.environ["TOPOTUNE_DRIFT"] = "off"
        unwatched = dist.new_group(backend="topotune")
    order = random.Random(0)  # the same order on all ranks
    samples: dict[str, list[Pair]] = {}
    rows = [(name, call, raw) for name, call in calls(planned)]
    if unwatched is not None:
        rows += [(f"{name} by the plan, watched", call, unwatched) for name, call in watched_calls(num_ranks)]
    for name, call, without in rows:
        for _ in range(3):
            time_block(call, dist.group.WORLD, num_calls)
            time_block(call, without, num_calls)
        pairs = []
        for _ in range(num_blocks):
            groups = [without, dist.group.WORLD]
            order.shuffle(groups)
            times = {group: time_block(call, group, num_calls) for group in groups}
            pairs.append([times[without], times[dist.group.WORLD]])
        slowest = torch.tensor(pairs)  # shape (num_blocks, 2 groups, 2 clocks)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=raw)
        samples[name] = slowest.tolist()
    if rank == 0:
        queue.put(samples)
    dist.destroy_process_group()


def calls(planned: bool) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    for size in SIZES:
        yield f"all_reduce {size} B, {'default row' if planned else 'no plan'}", all_reduce_of(size)
    if planned:
        tensor = torch.zeros(1)
        yield "broadcast 4 B, under a plan", lambda group: dist.broadcast(tensor, 0, group=group)
        yield "barrier, under a plan", lambda group: dist.barrier(group=group)


def watched_calls(num_ranks: int) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Of about WATCHED bytes, by the plan."""
    part = torch.zeros(max(1, WATCHED // 4 // num_ranks))
    whole = torch.zeros(num_ranks * part.numel())
    size = f"{whole.nbytes} B"
    yield f"all_reduce {size}", lambda group: dist.all_reduce(whole, group=group)
    yield f"reduce_scatter {size}", lambda group: dist.reduce_scatter_single(part, whole, group=group)
    yield f"all_gather {size}", lambda group: dist.all_gather_single(whole, part, group=group)


def all_reduce_of(size: int) -> Callable[[Any], Any]:
    tensor = torch.zeros(size // 4)
    return lambda group: dist.all_reduce(tensor, group=group)


def time_block(call: Callable[[Any], Any], group: Any, num_calls: int) -> tuple[float, float]:
    """Seconds per call by the clock, and of the calling thread's own work."""
    dist.barrier(group=group)
    begin, begin_work = time.perf_counter(), time.thread_time()
    for _ in range(num_calls):
        call(group)
    end_work, end = time.thread_time(), time.perf_counter()
    return (end - begin) / num_calls, (end_work - begin_work) / num_calls


def compare(num_ranks: int, call: str, pairs: list[Pair]) -> Line:
    costs = [1e6 * (after[0] - before[0]) for before, after in pairs]
    resampling = random.Random(0)
    medians = sorted(statistics.median(resampling.choices(costs, k=len(costs))) for _ in range(RESAMPLES))
    return Line(
        ranks=num_ranks,
        call=call,
        gloo_us=1e6 * statistics.median(before[0] for before, _ in pairs),
        topotune_us=1e6 * statistics.median(after[0] for _, after in pairs),
        work_us=1e6 * statistics.median(after[1] - before[1] for before, after in pairs),
        cost_us=statistics.median(costs),
        cost_ci_us=(medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]),
        num_pairs=len(pairs),
    )


def plan(num_ranks: int) -> Plan:
    """A plan that fits this machine: algorithms of its own from 1 MiB and for WATCHED, else the default."""
    starts = [(0, "default"), (WATCHED, "ring"), (2 * WATCHED, "default"), (2**20, "ring")]
    ends = [begin for begin, _ in starts[1:]] + [None]
    rows = tuple(
        Row(min_bytes=begin, max_bytes=end, algorithm=name, no_bound_reason="a benchmark")
        for (begin, name), end in zip(starts, ends, strict=True)
    )
    return Plan(
        groups=(
            Group(
                shape=GroupShape(num_ranks=num_ranks, num_nodes=1, ranks_per_node=num_ranks, stride=1),
                allreduce=rows,
                reduce_scatter=rows,
                allgather=rows,
            ),
        ),
        fingerprint=combine_facts([local_facts("gloo")] * num_ranks, [0] * num_ranks),
        certificate=Certificate(
            method="none", num_comparisons=0, correction="none", confidence=0.95, min_gain=0.02
        ),
        context=Context(
            created="2026-01-01T00:00:00Z",
            topotune_version=topotune.__version__,
            seed=0,
            budget_s=1.0,
            elapsed_s=1.0,
        ),
    )


if __name__ == "__main__":
    main()
