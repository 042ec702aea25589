"""What a GPU's driver says holds it back: power limits, clocks, errors on NVLinks.

None of these has a cost that a topology could prove, so all are ``info``: how much a lower power limit costs
depends on the model that is trained, and an NVLink that repeats some packets loses little, until it fails.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from topotune.health.node import Node, listed
from topotune.links.finding import Finding
from topotune.topology.model import CLOCK_LIMITS, NVLINK_ERRORS, POWER_DEFAULT_W, POWER_LIMIT_W, Vertex

_MAX_SHOWN: Final = 8


def gpu_state_findings(node: Node) -> Iterator[Finding]:
    """All findings about the state of a node's GPUs."""
    yield from _lowered_power(node)
    yield from _held_clocks(node)
    yield from _nvlink_errors(node)


def _lowered_power(node: Node) -> Iterator[Finding]:
    """GPUs that may draw less than they were made for, one finding for each pair of figures."""
    alike: dict[tuple[str, str], list[Vertex]] = defaultdict(list)
    for gpu in node.gpus:
        limit, usual = (gpu.attributes.get(name, "") for name in (POWER_LIMIT_W, POWER_DEFAULT_W))
        watts = [_number(text) for text in (limit, usual)]
        if watts[0] is not None and watts[1] is not None and watts[0] < watts[1]:
            alike[limit, usual].append(gpu)
    for (limit, usual), gpus in alike.items():
        yield Finding(
            code="power-limit-lowered",
            severity="info",
            where=node.where(gpus),
            evidence=f"may draw {limit} W, and its default is {usual} W; cost not known: that of computing",
            advice=f"nvidia-smi -pl {usual} (rocm-smi --resetpoweroverdrive on AMD), if nobody wants it so",
        )


def _held_clocks(node: Node) -> Iterator[Finding]:
    alike: dict[str, list[Vertex]] = defaultdict(list)
    for gpu in node.gpus:
        if CLOCK_LIMITS in gpu.attributes:
            alike[gpu.attributes[CLOCK_LIMITS]].append(gpu)
    for reasons, gpus in alike.items():
        yield Finding(
            code="clocks-held",
            severity="info",
            where=node.where(gpus),
            evidence=f"when looked at, clocks were held down by: {reasons}",
            advice=(
                "nvidia-smi -q -d PERFORMANCE under load; heat: airflow, cooling; power brake: supplies; "
                "power cap: the limit that is set"
            ),
        )


def _nvlink_errors(node: Node) -> Iterator[Finding]:
    erring = [link for link in node.topology.links if NVLINK_ERRORS in link.attributes]
    gpus = {gpu.id: gpu for gpu in node.gpus}
    from_gpus = [link for link in erring if link.src in gpus]
    if not from_gpus:
        return
    said = [
        f"{node.called(gpus[link.src])} to {node.called(node.vertices[link.dst])}: "
        f"{link.attributes[NVLINK_ERRORS]}"
        for link in from_gpus
    ]
    yield Finding(
        code="nvlink-errors",
        severity="info",
        where=node.where([gpus[src] for src in dict.fromkeys(link.src for link in from_gpus)]),
        evidence=f"NVLinks counted errors since their driver was loaded: {listed(said, _MAX_SHOWN)}",
        advice=(
            "look again after some traffic: counters that grow, recoveries above all, mean a bad link; "
            "dmesg (Xid 74), nvidia-smi nvlink -e"
        ),
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
