"""A training step under topotune against DDP's default on gloo, on an emulated cluster.

    topotune lab 2x4 -- python benchmarks/step.py --profile 2x4 [--rounds 8] [-o step-2x4.json]
    topotune lab 4x2 -- python benchmarks/step.py --profile 4x2

Every rank of the cluster runs it. Real DDP exchanges ResNet-50's full list of gradients (or --params N, or
--gradients FILE) in real buckets; the backward is emulated (--compute sleep: the nodes of a lab share this
machine's cores, which a real cluster's would not; or matmul), and takes half of the time that the default's
exchange does (--backward-share). Four ways to run the step take turns in random order:

    default          gloo, torch's own buckets
    algorithm        the plan's algorithm, torch's own buckets
    buckets          gloo, the best buckets for gloo
    both             the plan's algorithm, the best buckets for it

Better buckets are the fastest of a few steps with what `tune` would try: what the model proposes, and torch's
own. Each way is compared with the default in the same rounds: the ratio of medians with its 95 % interval.
Beside it stand the step that the model predicts from the times of single allreduces, measured first, and,
where --profile names the cluster, the step with these very buckets if each allreduce ran at the provable
limit of the links. Without --plan, all sizes run --algorithm over the nodes' groups of ranks; the table says
which algorithm each bucket ran on.
"""

import argparse
import json
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import topotune
from topotune.bounds import NoBound, graph_allreduce_bound
from topotune.execute.fingerprint import combine_facts, local_facts
from topotune.lab import read_profile
from topotune.lab.limit import line_rate_graph
from topotune.links.messages import Messages
from topotune.plan import Certificate, Context, Group, Plan, Row, find_group
from topotune.plan.lookup import find_row
from topotune.plan.model import DEFAULT_ALGORITHM
from topotune.step.bottleneck import bound_of_step
from topotune.step.buckets import ddp_buckets, layout_of, limits_of
from topotune.step.curve import Curve
from topotune.step.projection import Layout, layout_with, project
from topotune.step.timeline import timeline_of
from topotune.train.agreement import shape_of
from topotune.train.ddp import takes_cap_list
from topotune.tune.options import StepOptions
from topotune.tune.session import step_ranks_of
from topotune.tune.statistics import compare_arms
from topotune.tune.step_bench import StepBench, slowest
from topotune.tune.step_choice import proposals_of
from topotune.tune.step_ranks import Way
from topotune.tune.timing import Station, TorchBench
from topotune.tune.world import World, joined_world
from topotune.units import MIB, format_bytes, format_seconds, parse_bytes

SIZES = ("64K", "1M", "4M", "12M")
CONFIDENCE = 0.95
LOOK_ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", help="the lab cluster that this runs on, for the limit of its links")
    parser.add_argument(
        "--plan", type=Path, help="a plan for this cluster (default: --algorithm at all sizes)"
    )
    parser.add_argument("--algorithm", default="shm_hierarchical", help="over the nodes' groups of ranks")
    parser.add_argument("--rounds", type=int, default=8, help="of the four ways (default 8, at least 6)")
    parser.add_argument("--backward-share", type=float, default=0.5, help="of the exchange (default 0.5)")
    parser.add_argument("--compute", choices=("matmul", "sleep"), default="sleep")
    parser.add_argument("--gradients", help="a file of gradients (default: ResNet-50's)")
    parser.add_argument("--params", type=int, help="of a typical transformer")
    parser.add_argument("--sizes", default=",".join(SIZES), help="of single allreduces that are timed first")
    parser.add_argument("--repeats", type=int, default=3, help="of each of them (default 3)")
    parser.add_argument("-o", "--output", type=Path, help="write all samples, as JSON")
    options = parser.parse_args()
    step = StepOptions(
        gradients_path=options.gradients, num_parameters=options.params, compute=options.compute
    )
    plan = None if options.plan is None else str(options.plan)
    with joined_world(plan) as world, closing(step_ranks_of(world)) as ranks:
        station = Station(world.planned, world.raw, world.private, world.nodes.node_of_rank)
        station.serve("step", ranks.do)
        station.serve("time", lambda command: time_allreduces(world, command["sizes"], command["repeats"]))
        if world.rank != 0:
            station.follow()
            return
        bench = TorchBench(station, started_s=perf_counter())
        document = measure(options, step, bench, world)
        bench.end()
    print(describe(document), flush=True)
    if options.output is not None:
        options.output.write_text(json.dumps(document, indent=1) + "\n")


def time_allreduces(world: World, sizes: Sequence[int], repeats: int) -> dict[str, list[list[float]]]:
    """Seconds of single allreduces on both groups, slowest rank's; by way, size, repeat. On all ranks."""
    messages = Messages(world.private.group)
    taken: dict[str, list[list[float]]] = {"default": [], "plan": []}
    for size in sizes:
        tensor = torch.zeros(size // 4)
        times: dict[str, list[float]] = {"default": [], "plan": []}
        for _ in range(repeats + 1):  # the first one makes connections and memory
            for way, group in (("default", world.raw), ("plan", world.planned)):
                messages.barrier()
                start_s = perf_counter()
                dist.all_reduce(tensor, group=group)
                mine_s = perf_counter() - start_s
                times[way].append(max(time_s for (time_s,) in messages.gather_numbers(mine_s)))
        for way in taken:
            taken[way].append(times[way][1:])
    return taken


def measure(
    options: argparse.Namespace, step: StepOptions, bench: TorchBench, world: World
) -> dict[str, Any]:
    """Rank 0's part: all decisions."""
    steps = StepBench(bench.command, step.compute_on("gloo"), np.random.default_rng(0))
    if options.plan is None:
        steps.adopt(plan_of(world, options.algorithm))
    sizes = [parse_bytes(size) for size in options.sizes.split(",")]
    times = bench.command({"do": "time", "sizes": sizes, "repeats": options.repeats})
    curves = {
        way: Curve(tuple(sizes), tuple(float(np.median(repeats)) for repeats in by_size))
        for way, by_size in times.items()
    }
    gradients = step.gradients()
    own = layout_of(gradients.gradients, ddp_buckets(gradients, limits_of(None)))
    exchange_s = sum(curves["default"].time_s(num_bytes) for num_bytes in own)
    gradients = gradients.with_backward(options.backward_share * exchange_s)
    steps.begin(gradients)
    takes_list = takes_cap_list()
    best = {
        curve: fastest_caps(
            steps, way, proposals_of(project(gradients, curves[curve], takes_list=takes_list))
        )
        for way, curve in (("raw", "default"), ("plan", "plan"))
    }
    ways = {
        "default": ("raw", "default", None),
        "algorithm": ("plan", "plan", None),
        "buckets": ("raw", "default", best["default"]),
        "both": ("plan", "plan", best["plan"]),
    }
    alone = steps.stand("alone", "alone")
    for name, (way, _, caps) in ways.items():
        stand = steps.stand(name, way, caps)
        expected = layout_with(gradients, curves["default"], caps).layout_bytes
        assert stand.layout_bytes == expected, f"{name}: {stand.layout_bytes}, not {expected}"
    taken = steps.rounds(tuple(ways), max(6, options.rounds))
    limit = None
    if options.profile is not None:
        graph = line_rate_graph(read_profile(options.profile))
        limit = None if graph is None else graph_allreduce_bound(graph)
    rows = []
    for name, (_, curve, caps) in ways.items():
        layout = layout_with(gradients, curves[curve], caps)
        compared = compare_arms(
            slowest(taken["default"]), slowest(taken[name]), confidence=CONFIDENCE, seed=0
        )
        limit_s = None
        if limit is not None and not isinstance(limit, NoBound):
            limit_s = timeline_of(gradients, layout.buckets, limit.time_s).step_s
        rows.append(
            {
                "way": name,
                "median_s": compared.median_s,
                "ratio": compared.ratio,
                "ratio_ci": [compared.low, compared.high],
                "predicted_s": layout.step_s,
                "limit_s": limit_s,
                "layout_bytes": list(layout.layout_bytes),
                "algorithms": algorithms_of(world, ways[name][0], layout.layout_bytes),
                "samples_s": slowest(taken[name]).tolist(),
            }
        )
    bound = bound_of_step(rows[0]["median_s"], alone.by_rank_s, own, curves["default"])
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "profile": options.profile,
        "plan": "plan" if options.plan is not None else options.algorithm,
        "num_ranks": world.num_ranks,
        "gradients": gradients.in_words(),
        "backward_s": gradients.backward_s,
        "compute": step.compute_on("gloo"),
        "sizes": sizes,
        "allreduce_s": times,
        "bound": bound.text,
        "rows": rows,
        "torch": torch.__version__,
        "topotune": topotune.__version__,
    }


def fastest_caps(steps: StepBench, way: Way, proposals: dict[str, Layout]) -> tuple[float, ...] | None:
    """The caps whose steps were the fastest of a few; None for torch's own."""
    arms = {"its own": None} | {name: layout.caps_mb for name, layout in proposals.items()}
    for name, caps in arms.items():
        steps.stand(name, way, caps)
    taken = steps.rounds(tuple(arms), LOOK_ROUNDS)
    steps.drop(*arms)
    return arms[min(arms, key=lambda name: float(np.median(slowest(taken[name]))))]


def plan_of(world: World, algorithm: str) -> Plan:
    """One algorithm at all sizes, over the ranks of each node."""
    nodes = world.nodes.node_of_rank
    groups = [[rank for rank, node in enumerate(nodes) if node == one] for one in sorted(set(nodes))]
    params = {"groups": groups} if "hierarchical" in algorithm else {}
    row = Row(min_bytes=0, max_bytes=None, algorithm=algorithm, params=params, no_bound_reason="a benchmark")
    return Plan(
        groups=(Group(shape=shape_of(range(world.num_ranks), nodes), allreduce=(row,)),),
        fingerprint=combine_facts([local_facts("gloo")] * world.num_ranks, nodes),
        certificate=Certificate(
            method="none", num_comparisons=0, correction="none", confidence=CONFIDENCE, min_gain=0.0
        ),
        context=Context(
            created="2026-01-01T00:00:00Z",
            topotune_version=topotune.__version__,
            seed=0,
            budget_s=1.0,
            elapsed_s=1.0,
        ),
    )


def algorithms_of(world: World, way: Way, layout_bytes: Sequence[int]) -> list[str]:
    """What exchanges each bucket: an algorithm of the plan in use, or gloo where it or the way says so."""
    agreement = world.planned.agreement
    if way == "raw" or agreement is None or agreement.plan is None:
        return ["gloo"] * len(layout_bytes)
    table = find_group(agreement.plan, agreement.shape())
    rows = () if table is None else table.allreduce or ()
    names = [find_row(rows, size).algorithm if rows else DEFAULT_ALGORITHM for size in layout_bytes]
    return ["gloo" if name == DEFAULT_ALGORITHM else name for name in names]


def by_size(layout_bytes: Sequence[int], algorithms: Sequence[str]) -> str:
    """Which bucket sizes each algorithm ran at, largest share of the bytes first."""
    sizes: dict[str, list[int]] = {}
    for size, name in zip(layout_bytes, algorithms, strict=True):
        sizes.setdefault(name, []).append(size)
    return "; ".join(
        f"{name}: {len(own)} of {format_bytes(min(own))}"
        + (f" to {format_bytes(max(own))}" if min(own) < max(own) else "")
        for name, own in sorted(sizes.items(), key=lambda item: -sum(item[1]))
    )


def describe(document: dict[str, Any]) -> str:
    lines = [
        f"{document['profile'] or 'here'}, {document['num_ranks']} ranks, {document['plan']}; "
        f"{document['gradients']}, emulated by {document['compute']}",
        f"the default is {document['bound']}",
        f"{'way':<10} {'step':>9} {'ratio':>6}  {'95 % interval':<14} {'model':>9} {'limit':>9}  buckets",
    ]
    for row in document["rows"]:
        low, high = row["ratio_ci"]
        limit = "–" if row["limit_s"] is None else format_seconds(row["limit_s"])
        layout = row["layout_bytes"]
        shown = ", ".join(f"{num_bytes / MIB:.1f}" for num_bytes in layout[:12])
        lines.append(
            f"{row['way']:<10} {format_seconds(row['median_s']):>9} {row['ratio']:>6.2f}  "
            f"{f'{low:.2f} … {high:.2f}':<14} {format_seconds(row['predicted_s']):>9} {limit:>9}  "
            f"{len(layout)}: {shown}{' …' if len(layout) > 12 else ''} MiB"
        )
        if any(one != "gloo" for one in row["algorithms"]):
            lines.append(f"{'':<10} run by {by_size(layout, row['algorithms'])}")
    largest = document["sizes"][-1]
    default, plan = (np.median(document["allreduce_s"][way][-1]) for way in ("default", "plan"))
    lines.append(
        f"one allreduce of {format_bytes(largest)}: {format_seconds(default)} by default, "
        f"{format_seconds(plan)} under the plan; {len(document['rows'][0]['samples_s'])} rounds"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
