"""GPUs in ``topotune measure``: one rank of each node times its copies; all ranks time NCCL between nodes."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from topotune.execute.communicator import Communicator
from topotune.execute.nccl_communicator import NcclCommunicator
from topotune.links.device_copy import CopyTiming
from topotune.links.device_timing import cuda_uuids, node_tests, time_copies, why_no_devices
from topotune.links.measurement import Measurement
from topotune.links.messages import Messages
from topotune.links.nccl_pairs import time_nccl_pairs
from topotune.probe import probe
from topotune.probe.kernel_text import parse_cpulist

SHARE: Final = 0.3
"""Of the budget, where any node has GPUs."""

FACT: Final = "device_copies"
"""What a measurement says of GPUs, in words, where it timed none."""


def any_devices(messages: Messages) -> bool:
    """Whether any rank sees a GPU; the same on all. Collective."""
    return any(messages.gather(why_no_devices() is None))


def with_devices(
    measurement: Measurement, private: Communicator, *, budget_s: float, with_nccl: bool
) -> Measurement:
    """A measurement with what its nodes' GPUs do. Collective.

    Args:
        measurement: of the ranks' links; equal on all ranks.
        private: of the same ranks, on gloo.
        budget_s: for the copies of a node.
        with_nccl: each rank has a GPU of its own, and NCCL joins them.

    Returns:
        on all ranks the same; without GPUs, with the reason among its facts.

    Raises:
        RunError: a rank did not answer.
    """
    messages = Messages(private.group)
    node = measurement.node_of_rank[messages.rank]
    is_first = measurement.node_of_rank.index(node) == messages.rank
    why = why_no_devices()
    own: dict[str, Any] = {"why": why, "copies": [], "left": 0}
    if is_first and why is None:
        timings, own["left"] = _copies_here(measurement.node_names[node], budget_s)
        own["copies"] = [asdict(timing) for timing in timings]
    heard = messages.gather(own)
    copies = [_timing(one) for part in heard for one in part["copies"]]
    if with_nccl and len(measurement.node_names) > 1:
        with NcclCommunicator(
            private.store, private.rank, private.size, name="pairs", timeout=private.timeout
        ) as nccl:
            copies += time_nccl_pairs(nccl, messages, measurement.node_of_rank, measurement.node_names)
    warnings = _warnings(heard)
    facts = (
        {} if copies else {FACT: f"none: {next((part['why'] for part in heard if part['why']), 'no time')}"}
    )
    return replace(
        measurement,
        device_copies=tuple(copies),
        facts=measurement.facts | facts,
        warnings=(*measurement.warnings, *warnings),
    )


def _copies_here(node: str, budget_s: float) -> tuple[list[CopyTiming], int]:
    topology = probe()
    tests = node_tests(topology, cuda_uuids())
    cpus = {
        vertex.index: sorted(parse_cpulist(vertex.cpus))
        for vertex in topology.vertices
        if vertex.kind == "numa" and vertex.index is not None and vertex.cpus
    }
    return time_copies(tests, node=node, cpus_of_numa=cpus, budget_s=budget_s)


def _warnings(heard: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    left = sum(part["left"] for part in heard)
    return (f"there was no time for {left} sets of GPU copies: a larger --budget gives it",) if left else ()


def _timing(plain: dict[str, Any]) -> CopyTiming:
    """As another rank sent it."""
    return CopyTiming(**{**plain, "samples_s": tuple(plain["samples_s"])})
