"""Plans for the tests of exports to training stacks and launchers, and the files expected of them.

``python tests/plan/export_plans.py`` writes those files anew; they are reviewed as code.
"""

from pathlib import Path
from typing import Any

import plan_example

from topotune.plan import Plan, plan_from_document
from topotune.plan.exports import ExportOptions, catalog, find_target

STACKS = (
    "torch",
    "horovod",
    "horovod-env",
    "deepspeed",
    "megatron",
    "megatron-nccl",
    "accelerate",
    "sagemaker",
    "azureml",
    "slurm",
    "kubernetes",
    "tensorflow",
    "xla",
)
GOLDEN = Path(__file__).parent / "exports_expected"
OPTIONS = ExportOptions(plan_path="/shared/plan.json")
BETWEEN_NODES = {
    "name": "between nodes",
    "num_pairs": 8,
    "latency_s": 1.5e-5,
    "latency_ci_s": None,
    "bandwidth_bytes_per_s": 21.5e9,
    "bandwidth_ci_bytes_per_s": None,
    "max_relative_error": None,
}


def make(document: dict[str, Any]) -> Plan:
    return plan_from_document(document, "the test's plan")


def cpu_document() -> dict[str, Any]:
    """Two nodes of two ranks on gloo; two bucket sizes, an order of ranks, an interface."""
    return plan_example.example()


def default_document() -> dict[str, Any]:
    """Every default is kept."""
    document = plan_example.example()
    table = [{"min_bytes": 0, "max_bytes": None, "algorithm": "default"}]
    document["groups"] = [{"shape": document["groups"][0]["shape"], "allreduce": table}]
    document |= {"ddp": None, "rank_order": None}
    document["context"]["interface"] = None
    return document


def gpu_document(*caps_mb: float, two_level_from: int | None = 1048576) -> dict[str, Any]:
    """Two nodes of two GPUs on NCCL, one bucket size, node by node for large messages."""
    document = default_document()
    document["ddp"] = {"bucket_caps_mb": list(caps_mb)} if caps_mb else None
    document["fingerprint"]["hard"] |= {
        "backend": "nccl",
        "device_kind": "cuda (NVIDIA H200)",
        "collective_library": "nccl 2.27",
    }
    document["links"] = [BETWEEN_NODES]
    if two_level_from is not None:
        large = {
            "min_bytes": two_level_from,
            "max_bytes": None,
            "algorithm": "native_hierarchical",
            "params": {"groups": [[0, 1], [2, 3]]},
        }
        small = {"min_bytes": 0, "max_bytes": two_level_from, "algorithm": "default"}
        document["groups"][0]["allreduce"] = [small, large] if two_level_from else [large]
    return document


def channels_document(world: int | None = 16, inside: int | None = 8) -> dict[str, Any]:
    """Two nodes of two GPUs; NCCL's ring at all sizes, with channels, in the world and within each node."""

    def table(channels: int | None) -> list[dict[str, Any]]:
        named = {} if channels is None else {"channels": channels}
        params = {"algo": "ring", "proto": "simple"} | named
        return [{"min_bytes": 0, "max_bytes": None, "algorithm": "nccl", "params": params}]

    document = gpu_document(two_level_from=None)
    world_group = document["groups"][0]
    inside_shape = {"num_ranks": 2, "num_nodes": 1, "ranks_per_node": 2, "stride": 1}
    document["groups"] = [
        world_group | {"allreduce": table(world)},
        {"shape": inside_shape, "allreduce": table(inside), "allgather": table(inside)},
    ]
    return document


PLANS = {
    "cpu": make(cpu_document()),
    "default": make(default_document()),
    "gpu": make(gpu_document(32.5)),
    "channels": make(channels_document()),
}


def text_of(target: str, plan: Plan, options: ExportOptions = OPTIONS) -> str:
    found = find_target(target)
    return found.write(found.from_plan(plan, options).document)


def warnings_of(target: str, plan: Plan, options: ExportOptions = OPTIONS) -> tuple[str, ...]:
    return find_target(target).from_plan(plan, options).warnings


def only_stacks() -> dict[str, str]:
    """The catalog without targets of other families, whose variables launchers' files hold too."""
    return {name: module for name, module in catalog.MODULES.items() if name in STACKS}


if __name__ == "__main__":
    catalog.MODULES = only_stacks()
    GOLDEN.mkdir(exist_ok=True)
    for target in STACKS:
        for name, plan in PLANS.items():
            (GOLDEN / f"{target}.{name}").write_text(text_of(target, plan))
