"""A training step of FSDP2 under topotune against the same on gloo, on an emulated cluster.

    topotune lab 2x4 -- python benchmarks/fsdp.py [--rounds 12] [-o fsdp-2x4.json]
    topotune lab 2x4 -- python benchmarks/fsdp.py --plan plan.json

Every rank of the cluster runs it. A stack of linear layers, each sharded over all ranks, does real forward
and backward passes: all-gathers before the layers, reduce-scatters behind them. The same model stands on a
raw gloo group and on the ``topotune`` group, and the two take turns in random order; losses must agree.
Without --plan both collectives run --algorithm, over the nodes' groups of ranks where there are several
nodes. The result is the ratio of medians, default / plan, with its 95 % interval; a step's time is the
slowest rank's.
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import topotune
from topotune.links.messages import Messages
from topotune.tune.statistics import compare_arms
from topotune.tune.world import World, joined_world
from topotune.units import format_bytes, format_seconds

CONFIDENCE = 0.95
WAYS = ("default", "plan")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plan", type=Path, help="a plan for this cluster (default: --algorithm)")
    parser.add_argument("--algorithm", choices=("memory", "ring"), default="memory")
    parser.add_argument("--layers", type=int, default=4, help="of the model (default 4)")
    parser.add_argument("--width", type=int, default=1024, help="of each layer (default 1024)")
    parser.add_argument("--batch", type=int, default=8, help="rows of a batch on each rank (default 8)")
    parser.add_argument("--rounds", type=int, default=12, help="steps of each way (default 12, at least 8)")
    parser.add_argument("-o", "--output", type=Path, help="write all samples, as JSON")
    options = parser.parse_args()
    with joined_world(None if options.plan is None else str(options.plan)) as world:
        if options.plan is None:
            override = algorithm(options.algorithm, world)
            world.planned.set_override("reduce_scatter", override)
            world.planned.set_override("allgather", override)
        document = measure(options, world)
        if world.rank == 0:
            print(describe(document), flush=True)
            if options.output is not None:
                options.output.write_text(json.dumps(document, indent=1) + "\n")


def algorithm(name: str, world: World) -> tuple[str, dict[str, Any]]:
    """What both collectives run, and its params."""
    if name == "ring":
        return "ring", {}
    node_of_rank = world.nodes.node_of_rank
    nodes = [
        [rank for rank, own in enumerate(node_of_rank) if own == node] for node in sorted(set(node_of_rank))
    ]
    return ("shm", {}) if len(nodes) == 1 else ("shm_hierarchical", {"groups": nodes})


def measure(options: argparse.Namespace, world: World) -> dict[str, Any]:
    """Both ways in turns; on all ranks alike."""
    messages = Messages(world.private.group)
    groups: dict[str, dist.ProcessGroup] = {"default": world.raw, "plan": world.planned}
    steps = {way: Step(options, groups[way], world.rank) for way in WAYS}
    order = np.random.default_rng(0)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    losses: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(options.rounds + 2):  # the first ones make connections, memory and buffers
        for index in order.permutation(len(WAYS)):
            way = WAYS[index]
            messages.barrier()
            began_s = perf_counter()
            losses[way].append(steps[way].run())
            mine_s = perf_counter() - began_s
            slowest_s = max(time_s for (time_s,) in messages.gather_numbers(mine_s))
            if number >= 2:
                times[way].append(slowest_s)
    if not np.allclose(losses["default"], losses["plan"], rtol=1e-4):
        raise SystemExit(f"losses differ: {losses}")
    default_s, plan_s = (np.array(times[way]) for way in WAYS)
    compared = compare_arms(default_s, plan_s, confidence=CONFIDENCE, seed=0)
    calls = {
        f"{collective} {name}": count
        for (collective, name), count in sorted(world.planned.calls.items())
        if collective in ("allgather", "reduce_scatter")
    }
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"topotune": topotune.__version__, "torch": torch.__version__},
        "num_ranks": world.num_ranks,
        "num_nodes": len(set(world.nodes.node_of_rank)),
        "layers": options.layers,
        "width": options.width,
        "batch": options.batch,
        "parameter_bytes": options.layers * options.width * options.width * 4,
        "calls": calls,
        "times_s": times,
        "ratio": compared.ratio,
        "ratio_ci": [compared.low, compared.high],
    }


class Step:
    """A sharded model and its optimiser on one group; the same weights and batches on every group."""

    def __init__(self, options: argparse.Namespace, group: dist.ProcessGroup, rank: int) -> None:
        torch.manual_seed(0)
        layers = [nn.Linear(options.width, options.width, bias=False) for _ in range(options.layers)]
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        self.model = nn.Sequential(*layers)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.batch = torch.randn(options.batch, options.width, generator=torch.Generator().manual_seed(rank))

    def run(self) -> float:
        """One step; its loss."""
        self.optimizer.zero_grad()
        loss = self.model(self.batch).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return float(loss.detach())


def describe(document: dict[str, Any]) -> str:
    low, high = document["ratio_ci"]
    medians = {way: format_seconds(float(np.median(document["times_s"][way]))) for way in WAYS}
    calls = ", ".join(f"{count} {name}" for name, count in document["calls"].items())
    return (
        f"FSDP2 step, {document['layers']} layers of {format_bytes(document['width'] ** 2 * 4)}, "
        f"{document['num_ranks']} ranks, {document['num_nodes']} nodes\n"
        f"default {medians['default']}, plan {medians['plan']}: "
        f"{document['ratio']:.2f} [{low:.2f}, {high:.2f}], {len(document['times_s']['plan'])} steps each\n"
        f"calls on the plan's group: {calls}"
    )


if __name__ == "__main__":
    main()
