"""Copies that GPUs make or take part in: which are worth timing on a node, and what was timed.

Theory of operation. A copy alone shows a link; copies together show what they share. So each GPU copies to
and from the host's memory alone, near (the NUMA node that its driver calls near) and far; each two GPUs copy
alone, each way; and sets of copies run together: all GPUs to the host and back, those below one PCI Express
switch or root port, and disjoint pairs of GPUs. How much slower a copy is in a set than alone is what its
members share. Host memory is pinned: a copy of other memory is two copies, and the first is the processor's.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal, get_args

Kind = Literal["host-to-device", "device-to-host", "device-to-device", "nccl"]
"""What moves data: a copy engine between a host's memory and a GPU, or two GPUs; or NCCL between ranks."""

KINDS: Final = get_args(Kind)
ALONE: Final = "alone"
_MAX_PAIRS: Final = 240
"""Ordered pairs of GPUs that are timed alone: 16 GPUs; of more, neighbours only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Copy:
    """One copy.

    Attributes:
        kind: of copy engine, or NCCL.
        src, dst: ``gpu 0``, ``numa 1``, ``host`` (memory of no known NUMA node), or ``rank 3``.
    """

    kind: Kind
    src: str
    dst: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind!r} is none of {', '.join(KINDS)}")
        if self.src == self.dst:
            raise ValueError(f"a copy from {self.src} to itself")


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyTest:
    """Copies that run at the same time.

    Attributes:
        purpose: ``alone``, or what the set is of (``all GPUs from the host``, ``below 0000:10:00.0``).
        copies: of the set.
    """

    purpose: str
    copies: tuple[Copy, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CopyTiming:
    """One copy of a set that was timed.

    Attributes:
        node: name of the node.
        kind, src, dst: which, as of `Copy`.
        message_bytes: of each repetition.
        samples_s: times of one repetition each, by the device's own events.
        purpose: of its set.
        num_concurrent: copies in the set.
        peer_access: of two GPUs: whether one reaches the other's memory; None of other copies.
    """

    node: str
    kind: Kind
    src: str
    dst: str
    message_bytes: int
    samples_s: tuple[float, ...]
    purpose: str = ALONE
    num_concurrent: int = 1
    peer_access: bool | None = None

    def __post_init__(self) -> None:
        Copy(kind=self.kind, src=self.src, dst=self.dst)
        if self.message_bytes < 1 or self.num_concurrent < 1:
            raise ValueError(f"{self.num_concurrent} copies of {self.message_bytes} bytes")
        if not self.samples_s or not all(0 < sample < math.inf for sample in self.samples_s):
            raise ValueError("a copy needs samples, all above 0 s")

    @property
    def copy(self) -> Copy:
        """Which copy."""
        return Copy(kind=self.kind, src=self.src, dst=self.dst)

    @property
    def bytes_per_s(self) -> float:
        """By the median of the samples."""
        return self.message_bytes / statistics.median(self.samples_s)


def copy_tests(
    num_gpus: int,
    near_numa: Mapping[int, int],
    numa_nodes: Sequence[int],
    below: Mapping[str, Sequence[int]],
) -> list[CopyTest]:
    """What is worth timing on one node.

    Args:
        num_gpus: that this process sees.
        near_numa: GPU → its NUMA node, of those whose node is known.
        numa_nodes: that the host has; empty where nobody says.
        below: PCI Express switch or root port → GPUs below it.
    """
    gpus = range(num_gpus)
    tests = [CopyTest(purpose=ALONE, copies=(copy,)) for gpu in gpus for copy in _with_host(gpu, numa_nodes)]
    pairs = list(combinations(gpus, 2))
    if 2 * len(pairs) > _MAX_PAIRS:
        pairs = [(gpu, gpu + 1) for gpu in range(num_gpus - 1)]
    tests += [
        CopyTest(purpose=ALONE, copies=(_between(src, dst),))
        for pair in pairs
        for src, dst in (pair, pair[::-1])
    ]
    sets = [
        ("all GPUs", tuple(gpus)),
        *((f"below {name}", tuple(members)) for name, members in below.items()),
    ]
    for name, members in sets:
        if len(members) < 2:
            continue
        homes = {gpu: _home(gpu, near_numa, numa_nodes) for gpu in members}
        into = tuple(Copy(kind="host-to-device", src=homes[gpu], dst=f"gpu {gpu}") for gpu in members)
        out = tuple(Copy(kind="device-to-host", src=f"gpu {gpu}", dst=homes[gpu]) for gpu in members)
        tests.append(CopyTest(purpose=f"{name}, from the host", copies=into))
        tests.append(CopyTest(purpose=f"{name}, to the host", copies=out))
    for gpu in gpus:
        home = _home(gpu, near_numa, numa_nodes)
        both = (
            Copy(kind="host-to-device", src=home, dst=f"gpu {gpu}"),
            Copy(kind="device-to-host", src=f"gpu {gpu}", dst=home),
        )
        tests.append(CopyTest(purpose="both ways at once", copies=both))
    if num_gpus >= 4:
        half = num_gpus // 2
        for purpose, matched in (
            ("disjoint pairs of neighbours", [(2 * at, 2 * at + 1) for at in range(half)]),
            ("disjoint pairs across", [(at, at + half) for at in range(half)]),
        ):
            tests.append(CopyTest(purpose=purpose, copies=tuple(_between(src, dst) for src, dst in matched)))
    return tests


def _with_host(gpu: int, numa_nodes: Sequence[int]) -> Iterable[Copy]:
    """Of one GPU with each NUMA node's memory, near and far, both ways."""
    for home in [f"numa {node}" for node in numa_nodes] or ["host"]:
        yield Copy(kind="host-to-device", src=home, dst=f"gpu {gpu}")
        yield Copy(kind="device-to-host", src=f"gpu {gpu}", dst=home)


def _home(gpu: int, near_numa: Mapping[int, int], numa_nodes: Sequence[int]) -> str:
    """Where a GPU's messages would lie: its own NUMA node where that is known, else the first."""
    if gpu in near_numa and near_numa[gpu] in numa_nodes:
        return f"numa {near_numa[gpu]}"
    return f"numa {numa_nodes[0]}" if numa_nodes else "host"


def _between(src: int, dst: int) -> Copy:
    return Copy(kind="device-to-device", src=f"gpu {src}", dst=f"gpu {dst}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shared:
    """What copies lose together.

    Attributes:
        node, purpose: of the set.
        alone_bytes_per_s: of its copies alone, added up.
        together_bytes_per_s: of them together, added up.
    """

    node: str
    purpose: str
    alone_bytes_per_s: float
    together_bytes_per_s: float

    @property
    def share(self) -> float:
        """Of what they reach alone."""
        return self.together_bytes_per_s / self.alone_bytes_per_s


def shared_by(timings: Iterable[CopyTiming]) -> list[Shared]:
    """Each set that was timed, against its copies alone; without those whose copies were not timed alone."""
    alone: dict[tuple[str, Copy], float] = {}
    sets: dict[tuple[str, str], list[CopyTiming]] = {}
    for timing in timings:
        if timing.purpose == ALONE:
            alone[timing.node, timing.copy] = timing.bytes_per_s
        else:
            sets.setdefault((timing.node, timing.purpose), []).append(timing)
    found = []
    for (node, purpose), members in sets.items():
        if all((node, member.copy) in alone for member in members):
            found.append(
                Shared(
                    node=node,
                    purpose=purpose,
                    alone_bytes_per_s=sum(alone[node, member.copy] for member in members),
                    together_bytes_per_s=sum(member.bytes_per_s for member in members),
                )
            )
    return found
