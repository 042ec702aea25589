"""The fingerprint of the cluster that stands before us, by which a plan knows where it belongs.

Each rank looks at what is around it (`local_facts`); the caller gathers the facts of all ranks in its own
way, and `combine_facts` makes one fingerprint of them, the same on every rank.
"""

import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from topotune.plan import Fingerprint, HardFingerprint, SoftFingerprint


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """What one rank sees. Plain values: ``dataclasses.asdict`` and ``RankFacts(**facts)`` carry it as JSON.

    Attributes:
        backend: of torch.distributed: ``gloo``, ``nccl``.
        device_kind: ``cpu``, or ``cuda (NVIDIA H200)``.
        device_count: GPUs of the node, or its logical CPUs, whether this rank may use all of them or not.
        collective_library: with major.minor: ``gloo (torch 2.13)``, ``nccl 2.27``.
        host: the host's name.
        driver: version of the NVIDIA driver; None without one.
        kernel: release of the kernel.
        torch: full version of torch.
    """

    backend: str
    device_kind: str
    device_count: int
    collective_library: str
    host: str
    driver: str | None
    kernel: str
    torch: str


def local_facts(backend: str, device_type: str = "cpu") -> RankFacts:
    """Look around.

    Args:
        backend: that does the collectives: ``gloo`` or ``nccl`` (not ``topotune``, which wraps one of them).
        device_type: where the messages are: ``cpu`` or ``cuda``.
    """
    driver, num_gpus = _nvidia()
    if device_type == "cuda":
        device_kind = f"cuda ({torch.cuda.get_device_name()})"
        # The launcher may show each rank only its own GPU; the driver counts those of the node.
        device_count = num_gpus or torch.cuda.device_count()
    else:
        device_kind, device_count = device_type, os.cpu_count() or 1
    return RankFacts(
        backend=backend,
        device_kind=device_kind,
        device_count=device_count,
        collective_library=_collective_library(backend),
        host=socket.gethostname(),
        driver=driver,
        kernel=os.uname().release,
        torch=torch.__version__,
    )


def combine_facts(facts: Sequence[RankFacts], node_of_rank: Sequence[int]) -> Fingerprint:
    """One fingerprint of what all ranks see.

    Where ranks see different things, all of them stand in it, joined by commas; of device counts, the least.

    Args:
        facts: rank → facts; at least one.
        node_of_rank: rank → number of its node, by verified shared-memory handshake.
    """
    assert len(facts) == len(node_of_rank) >= 1
    nodes = sorted(set(node_of_rank))
    return Fingerprint(
        hard=HardFingerprint(
            backend=_joined(fact.backend for fact in facts),
            device_kind=_joined(fact.device_kind for fact in facts),
            device_count=min(fact.device_count for fact in facts),
            world_size=len(facts),
            ranks_per_node=tuple(list(node_of_rank).count(node) for node in nodes),
            collective_library=_joined(fact.collective_library for fact in facts),
        ),
        soft=SoftFingerprint(
            hosts=tuple(facts[list(node_of_rank).index(node)].host for node in nodes),
            driver=_joined(fact.driver for fact in facts if fact.driver) or None,
            kernel=_joined(fact.kernel for fact in facts),
            torch=_joined(fact.torch for fact in facts),
        ),
    )


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts)))


def _collective_library(backend: str) -> str:
    if backend == "nccl":
        major, minor = torch.cuda.nccl.version()[:2]  # type: ignore[no-untyped-call]
        return f"nccl {major}.{minor}"
    # Gloo carries no version of its own; it is built into torch.
    return f"{backend} (torch {'.'.join(torch.__version__.split('.')[:2])})"


def _nvidia() -> tuple[str | None, int]:
    """Version of the NVIDIA driver and number of GPUs it drives; (None, 0) without one."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None, 0
    try:
        version = pynvml.nvmlSystemGetDriverVersion()
        return (version.decode() if isinstance(version, bytes) else version), pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return None, 0
    finally:
        pynvml.nvmlShutdown()
