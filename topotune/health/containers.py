"""A container that shows less than the machine has."""

from collections.abc import Iterator
from typing import Final

from topotune.health.node import Node, cpus_in
from topotune.links.finding import Finding
from topotune.units import format_bytes

_DOCKER_SHM: Final = 64 * 2**20
_ENOUGH_SHM: Final = 2**30  # what NVIDIA's guides give containers (--shm-size=1g)


def container_findings(node: Node) -> Iterator[Finding]:
    """All findings about what a container, or a job's allocation, hides or limits."""
    yield from _hidden_gpus(node)
    yield from _few_cpus(node)
    yield from _shared_memory(node)


def _hidden_gpus(node: Node) -> Iterator[Finding]:
    hidden, container = node.count("num_gpus_hidden"), node.text("container")
    if not hidden:
        return
    shown = len(node.gpus)
    alone = container is not None and shown == 1
    inside = f"this {container} container" if container else "this allocation"
    yield Finding(
        code="container-hides-gpus",
        severity="warning" if alone else "info",
        where=node.where(),
        evidence=(
            f"{shown} of {shown + hidden} GPUs of the PCI bus can be used here: what is found describes "
            f"{inside}"
            + (
                ", and ranks in containers of one GPU each have neither NVLink nor peer access to each "
                "other; cost not "
                "known: the other GPUs' links are not shown"
                if alone
                else ""
            )
        ),
        advice="give all GPUs of the job to one container (--gpus all), with a rank for each inside it",
    )


def _few_cpus(node: Node) -> Iterator[Finding]:
    usable, number = node.text("usable_cpus"), node.count("num_cpus")
    if usable is None or not number:
        return
    count = len(cpus_in(usable))
    ranks = max(1, len(node.gpus))
    if 0 < count < min(number, ranks):
        yield Finding(
            code="few-cpus",
            severity="info",
            where=node.where(),
            evidence=(
                f"this process may run on {count} of {number} CPUs, fewer than the {ranks} GPUs have ranks; "
                "cost not "
                "known: it is one of computing"
            ),
            advice="ask the scheduler or container for more CPUs: --cpus-per-task, --cpuset-cpus",
        )


def _shared_memory(node: Node) -> Iterator[Finding]:
    size = node.count("shm_bytes")
    if size is None or size >= _ENOUGH_SHM:
        return
    small = size <= _DOCKER_SHM
    yield Finding(
        code="shm-small",
        severity="warning" if small else "info",
        where=node.where(),
        evidence=(
            f"/dev/shm has {format_bytes(size)}"
            + (
                ", as Docker makes it: NCCL, gloo's and PyTorch's shared memory fail or fall back where "
                "ranks of a node "
                "exchange through it; cost not known: it depends on which"
                if small
                else ": enough for few ranks"
            )
        ),
        advice=(
            "docker run --shm-size=1g or more (--ipc=host); Kubernetes: an emptyDir with medium Memory on "
            "/dev/shm"
        ),
    )
