"""Plans that fit the jobs which tests start on this machine, so that algorithms of the plan really run."""

from dataclasses import replace
from typing import Any

from topotune.execute.fingerprint import combine_facts, local_facts
from topotune.plan import Certificate, Context, Ddp, Group, GroupShape, Plan, Row

WORLD_ROWS = (
    (0, "default", {}),
    (32, "recursive_doubling", {}),
    (1024, "ring", {"channels": 2, "pieces": 2}),
    (65536, "native_reduce_scatter_allgather", {}),
)
PARTS_ROWS = (
    (0, "default", {}),
    (64, "halving_doubling", {}),
    (1024, "ring", {"channels": 2}),
    (65536, "shm", {}),
)
PAIR_ROWS = ((0, "default", {}), (32, "ring", {}))


def rows(*starts: tuple[int, str, dict[str, Any]]) -> tuple[Row, ...]:
    """A table from (min_bytes, algorithm, params)."""
    ends = [start[0] for start in starts[1:]] + [None]
    return tuple(
        Row(min_bytes=begin, max_bytes=end, algorithm=name, params=params, no_bound_reason="a test")
        for (begin, name, params), end in zip(starts, ends, strict=True)
    )


def job_plan(num_ranks: int, world_rows: tuple[Row, ...] | None = None, **changes: Any) -> Plan:
    """A plan for ``num_ranks`` ranks on this machine, and for pairs of them with stride 1 and 2."""
    groups = [
        Group(
            shape=GroupShape(num_ranks=num_ranks, num_nodes=1, ranks_per_node=num_ranks, stride=1),
            allreduce=rows(*WORLD_ROWS) if world_rows is None else world_rows,
            reduce_scatter=rows(*PARTS_ROWS),
            allgather=rows(*PARTS_ROWS),
        )
    ]
    if num_ranks > 2:
        groups += [
            Group(
                shape=GroupShape(num_ranks=2, num_nodes=1, ranks_per_node=2, stride=stride),
                allreduce=rows(*PAIR_ROWS),
                reduce_scatter=rows(*PAIR_ROWS),
                allgather=rows(*PAIR_ROWS),
            )
            for stride in (1, 2)
        ]
    plan = Plan(
        groups=tuple(groups),
        fingerprint=combine_facts([local_facts("gloo")] * num_ranks, [0] * num_ranks),
        certificate=Certificate(
            method="a test", num_comparisons=1, correction="holm", confidence=0.95, min_gain=0.02
        ),
        context=Context(
            created="2026-01-31T12:00:00Z", topotune_version="0", seed=0, budget_s=1.0, elapsed_s=1.0
        ),
        ddp=Ddp(bucket_caps_mb=(0.001,)),
    )
    return replace(plan, **changes)
