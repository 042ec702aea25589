"""Plans about NCCL, for its exporters' tests.

``python tests/plan/nccl_plans.py`` refreshes the golden files.
"""

from pathlib import Path

from plan_example import example

from topotune.plan import Plan, plan_from_document
from topotune.plan.exports import ExportOptions, find_target

GOLDEN = Path(__file__).parent / "nccl_golden"


def nccl(algo, proto, channels=None):
    params = {"algo": algo, "proto": proto}
    return {"algorithm": "nccl", "params": params if channels is None else params | {"channels": channels}}


DEFAULT = {"algorithm": "default"}
RING = nccl("ring", "simple", 16)


def table(*choices, bounds=None):
    """Rows over all sizes; the bounds between them are 1 KiB apart where none are given."""
    bounds = [1024 * (index + 1) for index in range(len(choices) - 1)] if bounds is None else bounds
    ends = [0, *bounds, None]
    return [
        {"min_bytes": ends[index], "max_bytes": ends[index + 1], **choice}
        for index, choice in enumerate(choices)
    ]


def plan_of(
    *,
    backend="nccl",
    library="nccl 2.27",
    num_nodes=2,
    ranks_per_node=8,
    more_groups=(),
    **tables,
) -> Plan:
    """A plan whose world group has these tables."""
    num_ranks = num_nodes * ranks_per_node
    shape = {"num_ranks": num_ranks, "num_nodes": num_nodes, "ranks_per_node": ranks_per_node, "stride": 1}
    document = example()
    document.update(groups=[{"shape": shape, **tables}, *more_groups], rank_order=None)
    document["fingerprint"]["hard"].update(
        backend=backend,
        device_kind="cuda (NVIDIA H200)",
        device_count=ranks_per_node,
        world_size=num_ranks,
        ranks_per_node=[ranks_per_node] * num_nodes,
        collective_library=library,
    )
    document["fingerprint"]["soft"]["hosts"] = [f"n{number}" for number in range(num_nodes)]
    return plan_from_document(document, "plan")


def group(num_ranks, num_nodes, stride, **tables):
    shape = {
        "num_ranks": num_ranks,
        "num_nodes": num_nodes,
        "ranks_per_node": num_ranks // num_nodes,
        "stride": stride,
    }
    return {"shape": shape, **tables}


THREE_ROWS = plan_of(
    allreduce=table(nccl("tree", "ll"), nccl("tree", "ll128", 8), RING, bounds=[65536, 4194304])
)
ONE_ROW = plan_of(allreduce=table(nccl("nvls_tree", "simple")))
DEFAULT_ONLY = plan_of(allreduce=table(DEFAULT, DEFAULT), allgather=table(DEFAULT))
ON_GLOO = plan_of(
    backend="gloo",
    library="gloo (torch 2.13)",
    allreduce=table(DEFAULT, {"algorithm": "ring", "params": {"channels": 2}}),
)
LARGE = plan_of(
    allreduce=table(
        *[
            DEFAULT if index % 7 == 3 else nccl("ring" if index % 2 else "tree", "simple", 1 + index % 64)
            for index in range(200)
        ]
    ),
    reduce_scatter=table(nccl("ring", "ll"), nccl("pat", "simple", 4)),
    allgather=table(DEFAULT, nccl("nvls", "simple")),
    more_groups=[group(8, 1, 1, allreduce=table(nccl("ring", "ll128", 24), DEFAULT, bounds=[1]))],
)
ALL_TABLES = plan_of(
    num_nodes=1,
    allreduce=table(nccl("tree", "ll", 16), RING),
    reduce_scatter=table(RING),
    allgather=table(RING),
)
PLANS = {
    "one-row": ONE_ROW,
    "three-rows": THREE_ROWS,
    "200-rows": LARGE,
    "default-only": DEFAULT_ONLY,
    "gloo": ON_GLOO,
    "all-tables": ALL_TABLES,
}

GOLDEN_FILES = {
    f"{name}.{suffix}": (target, PLANS[name])
    for suffix, target, names in (
        ("table", "nccl-tuner", PLANS),
        ("csv", "nccl-tuner-csv", ("one-row", "three-rows", "200-rows", "all-tables")),
        ("conf", "nccl-env", PLANS),
    )
    for name in names
}


def exported(target, plan, version=None):
    """The text for a target, and the warnings."""
    found = find_target(target)
    translated = found.from_plan(plan, ExportOptions(version=version))
    return found.write(translated.document), translated.warnings


if __name__ == "__main__":
    for name, (target, plan) in GOLDEN_FILES.items():
        (GOLDEN / name).write_text(exported(target, plan)[0])
