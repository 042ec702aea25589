"""One plan with everything in it, for tests that change one thing."""

import copy
from typing import Any

_EVIDENCE = {
    "median_s": 0.001,
    "default_median_s": 0.0012,
    "ratio": 1.2,
    "ratio_ci": [1.1, 1.3],
    "num_samples": 40,
    "measured_bytes": 65536,
    "extrapolated": False,
    "predicted_s": 0.0009,
    "confirmed_bytes": [1024, 50000, 65536],
    "backward_ratio_ci": [1.0, 1.2],
    "busy_ratio": 1.1,
}
_DOCUMENT = {
    "schema": "topotune/plan",
    "schema_version": 1,
    "groups": [
        {
            "shape": {"num_ranks": 4, "num_nodes": 2, "ranks_per_node": 2, "stride": 1},
            "allreduce": [
                {
                    "min_bytes": 0,
                    "max_bytes": 1024,
                    "algorithm": "default",
                    "params": {},
                    "percent_of_optimum": None,
                    "bottleneck": None,
                    "no_bound_reason": "one rank a node",
                    "evidence": None,
                },
                {
                    "min_bytes": 1024,
                    "max_bytes": 1048576,
                    "algorithm": "ring",
                    "params": {"channels": 2, "pieces": 4},
                    "percent_of_optimum": 81.5,
                    "bottleneck": {"text": "link of node b", "cut": ["2", "3"]},
                    "no_bound_reason": None,
                    "evidence": _EVIDENCE,
                },
                {
                    "min_bytes": 1048576,
                    "max_bytes": None,
                    "algorithm": "hierarchical",
                    "params": {"groups": [[0, 1], [2, 3]], "across": "ring"},
                    "percent_of_optimum": 90,
                    "bottleneck": {"text": "link of node b", "cut": ["2", "3"]},
                    "no_bound_reason": None,
                    "evidence": _EVIDENCE,
                },
            ],
        },
        {
            "shape": {"num_ranks": 2, "num_nodes": 1, "ranks_per_node": 2, "stride": 1},
            "allgather": [{"min_bytes": 0, "max_bytes": None, "algorithm": "default"}],
        },
    ],
    "fingerprint": {
        "hard": {
            "backend": "gloo",
            "device_kind": "cpu",
            "device_count": 2,
            "world_size": 4,
            "ranks_per_node": [2, 2],
            "collective_library": "gloo (torch 2.13)",
        },
        "soft": {"hosts": ["a", "b"], "driver": None, "kernel": "6.8.0", "torch": "2.13.0+cpu"},
    },
    "certificate": {
        "method": "paired blocks",
        "num_comparisons": 6,
        "correction": "holm",
        "confidence": 0.95,
        "min_gain": 0.02,
        "false_win_rate": 0.0,
        "false_win_rate_ci": [0.0, 0.1],
        "num_null_trials": 30,
    },
    "context": {
        "created": "2026-01-31T12:00:00Z",
        "topotune_version": "0.1.0",
        "seed": 7,
        "budget_s": 60,
        "elapsed_s": 58.25,
        "versions": {"torch": "2.13.0+cpu"},
        "network": "ens9 on a and b (the fastest; eth0 940 Mbit/s, ens9 9.4 Gbit/s)",
        "interface": "ens9",
    },
    "links": [
        {
            "name": "within a node",
            "num_pairs": 4,
            "latency_s": 2e-05,
            "latency_ci_s": [1.9e-05, 2.1e-05],
            "bandwidth_bytes_per_s": 3.1e9,
            "bandwidth_ci_bytes_per_s": None,
            "max_relative_error": 0.08,
        }
    ],
    "ddp": {
        "bucket_caps_mb": [1, 25],
        "layout_bytes": [1048576, 26214400],
        "projected_from": [1048576],
        "evidence": _EVIDENCE,
        "projection_loss": 0.01,
        "gradients": "ResNet-50: 161 gradients, 97.5 MiB, backward 1.2 s",
        "compute": "matmul",
        "bound": "wire-bound",
    },
    "rank_order": [0, 2, 1, 3],
    "warnings": ["the machine was busy"],
}


def example() -> dict[str, Any]:
    return copy.deepcopy(_DOCUMENT)
