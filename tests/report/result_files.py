"""One small result file of every kind, with a text of the caller's choice wherever a file may hold a name."""

import json
from pathlib import Path
from typing import Any

from plan_example import example as plan_document

from topotune.links.document import to_document as measurement_to_document
from topotune.links.measurement import Measurement, PairTiming
from topotune.schedule.document import to_document as schedule_to_document
from topotune.schedule.ring import ring
from topotune.topology import topology_to_document
from topotune.topology.model import Link, Source, Topology, Vertex
from topotune.tune.journal import ENDED, Journal

HOSTILE = """</script><script>window.owned=1</script><img src=x onerror="window.owned=2">'"&{{7*7}}<b>=1+1"""

KINDS = (
    "check", "comparison", "gradients", "journal", "measurement", "optimum", "plan", "prediction", "schedule",
    "topology",
)  # fmt: skip


def write_all(folder: Path, text: str = "a") -> dict[str, Path]:
    """Kind → its file."""
    documents = {
        "check": check(text),
        "comparison": comparison(text),
        "gradients": gradients(text),
        "measurement": measurement_to_document(measurement(2, 2, text)),
        "optimum": optimum(text),
        "plan": plan(text),
        "prediction": prediction(text),
        "schedule": schedule_to_document(ring(4)),
        "topology": topology_to_document(cluster(3, text=text)),
    }
    paths = {}
    for kind, document in documents.items():
        paths[kind] = folder / f"{kind}.json"
        paths[kind].write_text(json.dumps(document))
    paths["journal"] = folder / "plan.journal.jsonl"
    write_journal(paths["journal"], text)
    assert set(paths) == set(KINDS)
    return paths


def check(text: str) -> dict[str, Any]:
    finding = {
        "code": "slow-node",
        "where": f"node {text}",
        "evidence": f"49 Mbit/s of {text}",
        "advice": text,
    }
    return {
        "schema": "topotune/check", "schema_version": 1, "num_ranks": 4, "node_names": [text, "b"],
        "created": "2026-11-30T09:00:00+00:00", "elapsed_s": 2.0, "profile": None, "warnings": [text],
        "findings": [
            {**finding, "severity": "error", "cost_percent": 60.0},
            {**finding, "severity": "info", "cost_percent": None},
        ],
    }  # fmt: skip


def comparison(text: str) -> dict[str, Any]:
    row = {"default_median_s": 0.002, "plan_median_s": 0.001, "ratio": 2.0, "ratio_ci": [1.5, 2.5]}
    rows = [
        {**row, "message_bytes": size, "num_samples": 9, "verdict": "faster", "algorithm": text}
        for size in (1024, 65536, 2**20)
    ]
    return {
        "schema": "topotune/comparison", "schema_version": 1, "plan": text, "num_ranks": 4,
        "confidence": 0.95, "correction": "bonferroni", "rows": rows, "warnings": [text],
        "step": compared_step(text),
        "tables": [
            {"collective": name, "group": text, "num_ranks": 2, "rows": rows}
            for name in ("allgather", "reduce_scatter")
        ],
    }  # fmt: skip


def compared_step(text: str) -> dict[str, Any]:
    """A backward of 0.1 s; the default's second bucket, and less of the plan's, lie behind it."""

    def timeline(*buckets: tuple[int, float, float, float]) -> dict[str, Any]:
        keys = ("num_bytes", "complete_s", "start_s", "end_s")
        return {"backward_s": 0.1, "buckets": [dict(zip(keys, one, strict=True)) for one in buckets]}

    return {
        "default_median_s": 0.17, "plan_median_s": 0.14, "ratio": 1.2, "ratio_ci": [1.1, 1.3],
        "num_samples": 9, "verdict": "faster", "gradients": text, "backward_s": 0.1, "compute": text,
        "num_threads": 1, "default_layout_bytes": [2**20, 2**22], "plan_layout_bytes": [2**21, 3 * 2**20],
        "default_timeline": timeline((2**20, 0.02, 0.02, 0.04), (2**22, 0.1, 0.1, 0.16)),
        "plan_timeline": timeline((2**21, 0.03, 0.03, 0.07), (3 * 2**20, 0.06, 0.07, 0.13)),
        "bound": {"kind": "wire", "text": f"wire-bound: {text}"},
    }  # fmt: skip


def gradients(text: str) -> dict[str, Any]:
    return {
        "schema": "topotune/gradients", "schema_version": 1, "backward_s": 0.1, "timed": True,
        "source": text[:200], "num_steps": 10, "warnings": [text],
        "gradients": [
            {"num_bytes": 2**18, "dtype": "float32", "ready_s": 0.01 * number} for number in range(1, 11)
        ],
    }  # fmt: skip


def optimum(text: str) -> dict[str, Any]:
    best = {
        "algbw_bytes_per_s": 1e9, "busbw_bytes_per_s": 1.5e9, "exact": True,
        "bottleneck": {"text": f"link of {text}", "cut": [text]},
    }  # fmt: skip
    return {
        "schema": "topotune/optimum", "schema_version": 1, "warnings": [text], "num_ranks": 4,
        "allreduce": best, "allgather": best, "reduce_scatter": best, "latency_s": 1e-5,
        "flat_ring": {"algbw_bytes_per_s": 5e8, "busbw_bytes_per_s": 7.5e8}, "sizes": [],
    }  # fmt: skip


def prediction(text: str) -> dict[str, Any]:
    def size(message_bytes: int) -> dict[str, Any]:
        times = {"ring": 2e-3, "tree": 1e-3, text[:100]: 3e-3}
        return {
            "message_bytes": message_bytes,
            "optimum_s": 5e-4,
            "nccl": {"algorithm": text[:100], "protocol": "ll", "time_s": 2e-3, "percent_of_optimum": None},
            "predictions": [
                {"algorithm": name, "params": {"pieces": 2}, "time_s": time_s, "percent_of_optimum": 50.0}
                for name, time_s in times.items()
            ],
        }

    return {
        "schema": "topotune/prediction", "schema_version": 1, "num_ranks": 4, "network": text,
        "rank_order": None, "nccl_version": text[:100], "bottleneck": {"text": text, "cut": [text]},
        "no_bound_reason": None,
        "sizes": [size(1024), size(2**20)], "warnings": [text],
    }  # fmt: skip


def plan(text: str) -> dict[str, Any]:
    document = plan_document()
    document["fingerprint"]["soft"]["hosts"] = [text, "b"]
    document["context"]["network"] = text
    document["certificate"]["method"] = text
    document["warnings"] = [text]
    document["groups"][0]["allreduce"][1]["bottleneck"]["text"] = text
    return document


def measurement(num_nodes: int, ranks_per_node: int, text: str = "a", slow_node: int = -1) -> Measurement:
    """Every pair at two sizes; links of one node may have a quarter of the rate of the others."""
    nodes = [rank // ranks_per_node for rank in range(num_nodes * ranks_per_node)]

    def timing(src: int, dst: int, message_bytes: int) -> PairTiming:
        rate = 1e10 if nodes[src] == nodes[dst] else 1e9
        if slow_node in (nodes[src], nodes[dst]) and nodes[src] != nodes[dst]:
            rate /= 4
        time_s = 1e-5 + message_bytes / rate
        return PairTiming(
            src=src,
            dst=dst,
            message_bytes=message_bytes,
            one_way_s=(time_s,) * 3,
            half_round_trip_s=(time_s,) * 3,
        )

    ranks = range(len(nodes))
    return Measurement(
        num_ranks=len(nodes),
        node_of_rank=tuple(nodes),
        node_names=tuple(f"{text} {node}" for node in range(num_nodes)),
        pairs=tuple(timing(s, d, size) for s in ranks for d in ranks if s != d for size in (8, 2**20)),
        reduce_s_per_byte=(1e-10, 1e-10),
        warnings=(text,),
    )


def cluster(num_nodes: int, *, text: str = "a", slow: tuple[str, ...] = ()) -> Topology:
    """Nodes of two GPUs and a NIC below a PCI Express switch, leaf switches of 32 nodes, one spine."""
    vertices, links = [], []

    def join(a: str, b: str, kind: str, rate: float) -> None:
        rate = rate / 2 if a in slow else rate
        links.extend(Link(src=s, dst=d, kind=kind, bandwidth_bytes_per_s=rate) for s, d in ((a, b), (b, a)))

    num_leaves = -(-num_nodes // 32)
    for number in range(num_nodes):
        node = f"{text} {number}"
        switch, nic = f"{node}/switch", f"{node}/nic"
        vertices.append(Vertex(id=switch, kind="pcie-switch", node=node))
        vertices.append(Vertex(id=nic, kind="nic", node=node, name=text, speed=4e11, model=text))
        join(nic, switch, "pcie", 5e10)
        for gpu in (f"{node}/gpu0", f"{node}/gpu1"):
            vertices.append(Vertex(id=gpu, kind="gpu", node=node, index=int(gpu[-1]), model=text))
            join(gpu, switch, "pcie", 5e10)
        join(f"{node}/gpu0", f"{node}/gpu1", "nvlink", 2e11)
        join(nic, f"leaf {number // 32}", "infiniband", 5e10)
    for leaf in range(num_leaves):
        vertices.append(Vertex(id=f"leaf {leaf}", kind="switch"))
        join(f"leaf {leaf}", f"spine {text}", "infiniband", 4e11)
    vertices.append(Vertex(id=f"spine {text}", kind="switch"))
    source = Source(kind="test", facts={text: text})
    return Topology(vertices=tuple(vertices), links=tuple(links), source=source, warnings=(text,))


def write_journal(path: Path, text: str, *, ends: bool = True) -> None:
    """Two trials that ended, one that did not."""
    arms = [{"algorithm": "default", "params": {}}, {"algorithm": text[:100], "params": {"pieces": 2}}]
    with Journal(path, {"topotune_version": text[:100], "options": {"budget_s": 60.0}, "seed": 0}) as journal:
        for at_s, kind in ((1.0, "search"), (3.0, "confirm")):
            trial = {"kind": kind, "message_bytes": 65536, "arms": arms, "num_rounds": 2, "condition": "idle"}
            number = journal.begin({**trial, "at_s": at_s})
            outcome = {"times_s": [[0.002, 0.001], [0.0021, None]], "num_missed": 1, "problem": None}
            journal.end(number, {**outcome, "at_s": at_s + 1})
        told = {"message_bytes": 65536, **arms[1], "state": "COMPLETE", "log_ratio": -0.7, "num_rounds": 2}
        journal.note("told", {**told, "problem": text})
        journal.note("finalists", {"finalists": [{"message_bytes": 65536, **arms[1]}]})
        journal.note("links", {"measurement": measurement_to_document(measurement(2, 2))})
        if ends:
            journal.note(ENDED, {"plan": plan("a")})
        journal.begin({**trial, "kind": text[:100], "at_s": 5.0})
