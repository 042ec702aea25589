"""Simulated networks as text: every algorithm at every size, the best of each, its share of the optimum."""

from collections.abc import Sequence
from typing import Any

from topotune.report.columns import align
from topotune.report.text import describe_algorithm
from topotune.units import format_bytes, format_seconds

_SIZES_A_TABLE = 5
"""So many columns of times beside the names fit in 80."""


def describe_simulation(document: dict[str, Any]) -> str:
    """Tables of at most 80 columns: algorithms below one another, sizes beside one another.

    Of an algorithm with several params each cell is the fastest; what the fastest of all is cut in, and its
    share of the optimum, stands below.
    """
    sizes: Sequence[dict[str, Any]] = document["sizes"]
    parts = [f"allreduce on {document['num_ranks']} ranks, {document['network']}"]
    if document["bottleneck"]:
        parts.append(f"  bottleneck: {_cut(document['bottleneck']['text'])}")
    else:
        parts.append(f"  no optimum: {document['no_bound_reason']}")
    names = list(dict.fromkeys(one["algorithm"] for size in sizes for one in size["predictions"]))
    last = {one["algorithm"]: one["time_s"] for one in reversed(sizes[-1]["predictions"])}
    names.sort(key=last.__getitem__)
    for first in range(0, len(sizes), _SIZES_A_TABLE):
        shown = sizes[first : first + _SIZES_A_TABLE]
        rows = [[name, *(_fastest(size, name) for size in shown)] for name in names]
        if document["bottleneck"]:
            rows.append(["the optimum", *(format_seconds(size["optimum_s"]) for size in shown)])
        parts.append(align(["algorithm", *(format_bytes(size["message_bytes"]) for size in shown)], rows))
    parts.append(
        align(
            ["message size", "of optimum", "fastest"],
            [
                [
                    format_bytes(size["message_bytes"]),
                    _share(size["predictions"][0]["percent_of_optimum"]),
                    _in_words(size["predictions"][0]),
                ]
                for size in sizes
            ],
            left=(0, 2),
        )
    )
    if document.get("nccl_version"):
        parts.append(f"what NCCL {document['nccl_version']} would run, and the time it expects of that")
        parts.append(
            align(
                ["message size", "time", "of optimum", "algorithm, protocol"],
                [_nccl_row(size) for size in sizes],
                left=(0, 3),
            )
        )
    parts.extend(f"warning: {warning}" for warning in document["warnings"])
    return "\n".join(parts)


def _fastest(size: dict[str, Any], name: str) -> str:
    times = [one["time_s"] for one in size["predictions"] if one["algorithm"] == name]
    return format_seconds(min(times)) if times else "–"


def _nccl_row(size: dict[str, Any]) -> list[str]:
    choice = size["nccl"]
    return [
        format_bytes(size["message_bytes"]),
        format_seconds(choice["time_s"]),
        _share(choice["percent_of_optimum"]),
        f"{choice['algorithm']}, {choice['protocol']}",
    ]


def _share(percent: float | None) -> str:
    return "–" if percent is None else f"{percent:.0f} %"


def _in_words(prediction: dict[str, Any]) -> str:
    """Name and small params: groups of many ranks and trees are long."""
    params = {
        name: value
        for name, value in prediction["params"].items()
        if not isinstance(value, list) and value != 1
    }
    return _cut(describe_algorithm(prediction["algorithm"], params), 48)


def _cut(text: str, most: int = 64) -> str:
    return text if len(text) <= most else f"{text[: most - 2]} …"
