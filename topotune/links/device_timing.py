"""Timing copies of GPUs by the device's own events, on streams that run at the same time.

Theory of operation. Each copy of a set has a stream. All streams are held by a kernel that spins until the
host has put everything on them, so that the copies begin together and the host's pace does not count. Each
repetition is between two events on its stream. A copy that is faster than others of its set ends before them;
so of sets the first half of the repetitions counts, while all are at it. A repetition is long beside what
events resolve (half a microsecond).

Host memory of a NUMA node is memory that a thread on that node wrote first, and then pinned.

Source: CUDA runtime documentation, "cudaEventElapsedTime"; nvbandwidth's copy-engine tests for the form.
"""

import os
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import torch

from topotune.links.device_copy import Copy, CopyTest, CopyTiming, copy_tests
from topotune.topology.model import Topology

MESSAGE_BYTES: Final = 32 * 2**20
_NUM_WARMUPS: Final = 2
_NUM_SAMPLES: Final = 12
_HOLD_CYCLES: Final = 20_000_000
"""GPU cycles, some 10 ms, for which streams are held until the host has filled them."""


def why_no_devices() -> str | None:
    """Why no copies can be timed here, in words; None where they can."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    if not torch.cuda.is_available() or torch.cuda.device_count() == 0:
        return "torch sees no GPU on this machine"
    return None


def node_tests(topology: Topology, uuids: Sequence[str]) -> list[CopyTest]:
    """What is worth timing on this machine.

    Args:
        topology: of this machine.
        uuids: of each GPU that this process sees, in CUDA's order, as NVML writes it.
    """
    by_uuid = {vertex.uuid: vertex for vertex in topology.vertices if vertex.kind == "gpu"}
    numbers = {by_uuid[uuid].id: at for at, uuid in enumerate(uuids) if uuid in by_uuid}
    near = {
        at: numa
        for at, uuid in enumerate(uuids)
        if uuid in by_uuid and (numa := by_uuid[uuid].numa) is not None
    }
    numa_nodes = sorted(
        vertex.index
        for vertex in topology.vertices
        if vertex.kind == "numa" and vertex.index is not None and vertex.memory_bytes and vertex.cpus
    )
    below: dict[str, list[int]] = {}
    kinds = {vertex.id: vertex.kind for vertex in topology.vertices}
    above: dict[str, str] = {}
    for link in topology.links:
        if link.kind == "pcie" and kinds[link.dst] in ("pcie-switch", "pcie-root"):
            above.setdefault(link.src, link.dst)
    for gpu, number in numbers.items():
        at = above.get(gpu)
        seen: set[str] = set()
        while at is not None and at not in seen:
            seen.add(at)
            below.setdefault(at, []).append(number)
            at = above.get(at)
    named = {name: sorted(members) for name, members in below.items() if 2 <= len(members) < len(numbers)}
    return copy_tests(len(uuids), near, numa_nodes, named)


def cuda_uuids() -> list[str]:
    """UUID of each GPU that this process sees, in CUDA's order, as NVML writes it."""
    indices = range(torch.cuda.device_count())
    return [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in indices]


def time_copies(
    tests: Sequence[CopyTest], *, node: str, cpus_of_numa: Mapping[int, Sequence[int]], budget_s: float
) -> tuple[list[CopyTiming], int]:
    """Time sets of copies on this process's GPUs, as many as there is time for.

    Args:
        tests: in order of worth.
        node: its name.
        cpus_of_numa: CPUs of each NUMA node, on which memory of that node is written first.
        budget_s: after which no further set is begun.

    Returns:
        what was timed, and how many sets were not.
    """
    memory = _HostMemory(cpus_of_numa)
    ends = time.monotonic() + budget_s
    found: list[CopyTiming] = []
    for done, test in enumerate(tests):
        if time.monotonic() > ends:
            return found, len(tests) - done
        found += _time_set(test, node, memory)
    return found, 0


class _HostMemory:
    """Pinned memory, by NUMA node; one piece for each GPU and direction, reused from set to set."""

    def __init__(self, cpus_of_numa: Mapping[int, Sequence[int]]) -> None:
        self._cpus = cpus_of_numa
        self._pieces: dict[tuple[str, str, str], torch.Tensor] = {}

    def piece(self, place: str, copy: Copy) -> torch.Tensor:
        key = (place, copy.src, copy.dst)
        if key not in self._pieces:
            self._pieces[key] = self._written(place)
        return self._pieces[key]

    def _written(self, place: str) -> torch.Tensor:
        """Pages belong to the node whose thread writes them first."""
        kind, _, number = place.partition(" ")
        usual = os.sched_getaffinity(0)
        wanted = usual & set(self._cpus.get(int(number), ())) if kind == "numa" else usual
        if not wanted:
            wanted = usual  # not ours to run on: the memory is then wherever the kernel puts it
        os.sched_setaffinity(0, wanted)
        try:
            return torch.zeros(MESSAGE_BYTES, dtype=torch.uint8, pin_memory=True)
        finally:
            os.sched_setaffinity(0, usual)


def _time_set(test: CopyTest, node: str, memory: _HostMemory) -> list[CopyTiming]:
    ends = [_ends(copy, memory) for copy in test.copies]
    streams = [torch.cuda.Stream(device) for _, _, device in ends]  # type: ignore[no-untyped-call]
    num_repetitions = _NUM_WARMUPS + _NUM_SAMPLES * (1 if len(test.copies) == 1 else 2)
    events: list[list[Any]] = []
    for stream in streams:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(_HOLD_CYCLES)  # type: ignore[no-untyped-call]
    for (target, source, _), stream in zip(ends, streams, strict=True):
        marks = []
        with torch.cuda.stream(stream):
            for repetition in range(num_repetitions + 1):
                mark = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
                mark.record(stream)
                marks.append(mark)
                if repetition < num_repetitions:
                    target.copy_(source, non_blocking=True)
        events.append(marks)
    for stream in streams:
        stream.synchronize()
    return [
        CopyTiming(
            node=node,
            kind=copy.kind,
            src=copy.src,
            dst=copy.dst,
            message_bytes=MESSAGE_BYTES,
            samples_s=tuple(
                before.elapsed_time(after) / 1e3
                for before, after in pairwise(marks[_NUM_WARMUPS : _NUM_WARMUPS + _NUM_SAMPLES + 1])
            ),
            purpose=test.purpose,
            num_concurrent=len(test.copies),
            peer_access=_peer_access(copy),
        )
        for copy, marks in zip(test.copies, events, strict=True)
    ]


def _ends(copy: Copy, memory: _HostMemory) -> tuple[torch.Tensor, torch.Tensor, torch.device]:
    """Target and source memory, and the device whose engine copies."""
    source, target = (_memory(place, copy, memory) for place in (copy.src, copy.dst))
    return target, source, source.device if source.is_cuda else target.device


def _memory(place: str, copy: Copy, memory: _HostMemory) -> torch.Tensor:
    kind, _, number = place.partition(" ")
    if kind == "gpu":
        return torch.zeros(MESSAGE_BYTES, dtype=torch.uint8, device=torch.device("cuda", int(number)))
    return memory.piece(place, copy)


def _peer_access(copy: Copy) -> bool | None:
    if copy.kind != "device-to-device":
        return None
    src, dst = (int(place.partition(" ")[2]) for place in (copy.src, copy.dst))
    return bool(torch.cuda.can_device_access_peer(src, dst))
