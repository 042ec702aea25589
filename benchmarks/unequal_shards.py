"""What shards in proportion to the hosts' rates bring where a host is slow, on an emulated cluster.

    topotune lab 4x2-degraded -- python benchmarks/unequal_shards.py [--profile 4x2-degraded] [-o FILE.json]

Every rank of the cluster runs it. From the links as measured, it takes the candidates of `topotune tune` that
give every host an equal share of the work, and those whose shares follow the measured rates (forests and
parameter servers that were fitted to them). Of each kind the best predicted are timed a few times, and the
fastest is kept: these two and gloo's default then take turns in random order on fresh samples. Every result
is checked first. Ratios are of medians, the equal shards' time over the other, with the 95 % interval of both
together; a time is the slowest rank's. With --profile the provable limits at the links' configured rates
stand beside them: of any allreduce, and of one in which each host sends and receives equal shards, which the
slowest link limits.
"""

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from joined_bench import on_joined_bench

import topotune
from topotune.bounds import Bound, CapacityGraph, graph_allreduce_bound
from topotune.errors import UsageError
from topotune.lab import read_profile
from topotune.lab.limit import line_rate_graph
from topotune.tune.arrangement import Arrangement
from topotune.tune.sampling import Sampling
from topotune.tune.shortlist import PredictedTime, shortlist
from topotune.tune.statistics import compare_arms, corrected
from topotune.tune.timing import TorchBench
from topotune.tune.trial import DEFAULT, Candidate
from topotune.units import format_bytes, format_seconds, parse_bytes

TRIED: Final = 4
TRIED_ROUNDS: Final = 3
CONFIDENCE: Final = 0.95


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="8M", help="of the message (default 8M)")
    parser.add_argument("--rounds", type=int, default=16, help="of fresh samples (default 16)")
    parser.add_argument("--profile", help="the lab profile it runs on: its limits")
    parser.add_argument("-o", "--output", type=Path, help="the samples, as JSON")
    options = parser.parse_args()
    message_bytes = parse_bytes(options.size)
    found = on_joined_bench(
        lambda _, arrangement, bench: time_arms(bench, arrangement, message_bytes, options.rounds)
    )
    if found is None:
        return
    document = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "topotune": topotune.__version__,
        "torch": torch.__version__,
        "profile": options.profile,
        "message_bytes": message_bytes,
        "arms": found,
        "limits_s": {} if options.profile is None else limits_s(options.profile, message_bytes),
    }
    print_result(document)
    if options.output is not None:
        options.output.write_text(json.dumps(document, indent=1) + "\n")


def time_arms(
    bench: TorchBench, arrangement: Arrangement, message_bytes: int, rounds: int
) -> dict[str, dict[str, Any]]:
    """The default, and the best of each kind: what it is, and its seconds by round."""
    sampling = Sampling(bench=bench, rng=np.random.default_rng(0))
    predicted_s = arrangement.predictor([message_bytes])
    every = arrangement.candidates()
    fitted = [one for one in every if is_fitted(one)]
    if not fitted:
        raise UsageError(
            "nothing is fitted to hosts here: all measured links are equal", hint="run it on 4x2-degraded"
        )
    equal = [one for one in every if not is_fitted(one)]
    chosen = {
        "default": DEFAULT,
        "equal": fastest(sampling, equal, predicted_s, message_bytes),
        "unequal": fastest(sampling, fitted, predicted_s, message_bytes),
    }
    arms = tuple(chosen.values())
    times_s = sampling.rounds("confirm", message_bytes, arms, rounds, first_guess_s=1.0)
    return {
        name: {**one.to_json(), "label": one.label, "times_s": times_s[:, column].tolist()}
        for column, (name, one) in enumerate(chosen.items())
    }


def is_fitted(candidate: Candidate) -> bool:
    """Whether its shares are of the measured rates."""
    return candidate.algorithm == "forest" or "shares" in candidate.params


def fastest(
    sampling: Sampling, candidates: Sequence[Candidate], predicted_s: PredictedTime, message_bytes: int
) -> Candidate:
    """Of the best predicted, by a few rounds of their own."""
    best = shortlist(candidates, predicted_s, message_bytes)[:TRIED]
    right = tuple(one for one in best if sampling.check(one, message_bytes) is None)
    times_s = sampling.rounds("search", message_bytes, right, TRIED_ROUNDS, first_guess_s=1.0)
    for one, median_s in zip(right, np.median(times_s, axis=0), strict=True):
        print(
            f"  {one.label}: {format_seconds(median_s)} of {format_seconds(predicted_s(one, message_bytes))}"
        )
    return right[int(np.argmin(np.median(times_s, axis=0)))]


def limits_s(profile: str, message_bytes: int) -> dict[str, float]:
    """Seconds at line rate: of any allreduce, and where each host has the slowest host's rate."""
    graph = line_rate_graph(read_profile(profile))
    if graph is None:
        return {}
    slowest = min(graph.capacities.values())
    equal = CapacityGraph(
        capacities=dict.fromkeys(graph.capacities, slowest), compute=graph.compute, names=graph.names
    )
    bounds = {"any": graph_allreduce_bound(graph), "equal shards": graph_allreduce_bound(equal)}
    return {name: one.time_s(message_bytes) for name, one in bounds.items() if isinstance(one, Bound)}


def print_result(document: dict[str, Any]) -> None:
    arms, limits = document["arms"], document["limits_s"]
    for name, arm in arms.items():
        print(f"{name:>8}  {format_seconds(float(np.median(arm['times_s'])))}  {arm['label']}")
    for name, limit in limits.items():
        print(f"   limit  {format_seconds(limit)}  {name}, at line rate")
    unequal_s = np.array(arms["unequal"]["times_s"])
    confidence = corrected(CONFIDENCE, 2)
    for name in ("equal", "default"):
        compared = compare_arms(np.array(arms[name]["times_s"]), unequal_s, confidence=confidence, seed=0)
        print(
            f"{format_bytes(document['message_bytes'])}: {name} / unequal {compared.ratio:.2f} "
            f"[{compared.low:.2f}, {compared.high:.2f}] over {len(unequal_s)} rounds"
        )


if __name__ == "__main__":
    main()
