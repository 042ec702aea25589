"""A job on every rank of a lab of two nodes: the second one's link becomes ten times slower on the way."""

import json
import warnings

import torch
import torch.distributed as dist
from pyroute2 import IPRoute

import topotune
from topotune.execute.fingerprint import combine_facts, local_facts
from topotune.lab.network import INTERFACE
from topotune.plan import Certificate, Context, Group, GroupShape, Plan, Row
from topotune.train import drift
from topotune.train.detector import Rules

MOST_CALLS = 2000
FLOATS = 65536

PLAN = Plan(
    groups=(
        Group(
            shape=GroupShape(num_ranks=2, num_nodes=2, ranks_per_node=1, stride=1),
            allreduce=(Row(min_bytes=0, max_bytes=None, algorithm="ring"),),
        ),
    ),
    fingerprint=combine_facts([local_facts("gloo")] * 2, [0, 1]),
    certificate=Certificate(
        method="a test", num_comparisons=1, correction="holm", confidence=0.95, min_gain=0.02
    ),
    context=Context(
        created="2026-01-31T12:00:00Z", topotune_version="0", seed=0, budget_s=1.0, elapsed_s=1.0
    ),
)


def main() -> None:
    drift.OPTIONS = drift.DriftOptions(
        rules=Rules(skip=2, window=4, order=1, learn=4, least_s=0.0), check_every_ns=10_000_000
    )
    with warnings.catch_warnings(record=True):  # the hosts are others
        topotune.use(PLAN)
        dist.init_process_group("topotune")
    watch = dist.group.WORLD._drift
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(MOST_CALLS):
            if number == 30 and dist.get_rank() == 1:
                slow_down()
            dist.all_reduce(torch.ones(FLOATS))
            # All ranks have the same events after the same call.
            if watch is None or watch.events:
                break
    if dist.get_rank() == 0:
        findings = [] if watch is None else [event.verdict.finding for event in watch.events]
        print(json.dumps({"findings": findings, "warnings": [str(one.message) for one in caught]}))
    dist.destroy_process_group()


def slow_down() -> None:
    with IPRoute() as route:
        (end,) = route.link_lookup(ifname=INTERFACE)
        route.tc("del", index=end)
        route.tc("add", "tbf", index=end, rate=20_000_000 // 8, burst=32768, limit=2**24)


if __name__ == "__main__":
    main()
