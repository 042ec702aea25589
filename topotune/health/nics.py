"""GPUs without a network adapter near them."""

from collections.abc import Iterator, Sequence
from typing import Final

from topotune.health.node import Node, is_up, listed
from topotune.links.finding import Finding
from topotune.topology.model import Vertex
from topotune.topology.paths import nearest

_SWITCHED = ("PIX", "PXB")
_ELSEWHERE: Final = "nccl.gpu.nvlinks_elsewhere"
_COST: Final = "cost not known: what the way between sockets carries is not"


def nic_findings(node: Node) -> Iterator[Finding]:
    """GPUs whose nearest adapter is on another socket, or farther than that of most others."""
    nics = [nic for nic in node.rdma_nics or node.nics if is_up(nic) is not False]
    found: dict[str, tuple[str, Sequence[str]]] = {}
    for gpu in node.gpus:
        word, devices = nearest({nic.id: node.paths.between(gpu.id, nic.id) for nic in nics})
        if word is not None:
            found[gpu.id] = (word, devices)
    far = [gpu for gpu in node.gpus if gpu.id in found and found[gpu.id][0] == "SYS"]
    switched = [gpu for gpu in node.gpus if gpu.id in found and found[gpu.id][0] in _SWITCHED]
    local = {nic for word, devices in found.values() if word != "SYS" for nic in devices}
    names = {nic.id: node.called(nic) for nic in nics}
    if far and not local:
        # A view of one rank may leave out the GPUs that the adapter is near to.
        partial = any(_ELSEWHERE in gpu.attributes for gpu in node.gpus)
        yield _far(
            node, far, found, names,
            severity="info" if partial else "warning",
            why="no adapter is on the socket of any GPU",
            advice="move the adapter to a slot of the GPUs' socket",
        )  # fmt: skip
    elif far and len(local) == 1:
        yield _far(
            node, far, found, names,
            severity="info",
            why="the node's only adapter is on another socket",
            advice="place the ranks that talk to other nodes (leaders of a hierarchy) on the GPUs near it",
        )  # fmt: skip
    elif far:
        near = listed([node.called(gpu) for gpu in node.gpus if gpu not in far])
        yield _far(
            node, far, found, names,
            severity="warning",
            why=f"while {near} have one nearer",
            advice=(
                "have their traffic leave through the GPUs that have one (NCCL_PXN_DISABLE=0, a hierarchy "
                "whose "
                "leaders are those), or add adapters there; look whether one is missing from lspci"
            ),
        )  # fmt: skip
    elif 2 * len(switched) > len(found) > len(switched):
        rest = [gpu for gpu in node.gpus if gpu.id in found and gpu not in switched]
        yield _far(
            node, rest, found, names,
            severity="warning",
            why=f"while {len(switched)} of {len(found)} GPUs have one behind their own switch",
            advice="look whether their adapter is missing from lspci, or down; NCCL_PXN_DISABLE=0 till then",
        )  # fmt: skip


def _far(
    node: Node,
    gpus: Sequence[Vertex],
    found: dict[str, tuple[str, Sequence[str]]],
    names: dict[str, str],
    *,
    severity: str,
    why: str,
    advice: str,
) -> Finding:
    word, devices = found[gpus[0].id]
    assert severity in ("info", "warning")
    return Finding(
        code="nic-not-local",
        severity="warning" if severity == "warning" else "info",
        where=node.where(gpus),
        evidence=(
            f"the nearest adapter of {node.called(gpus[0])} is {listed([names[nic] for nic in devices], 4)} "
            f"by {word}, "
            f"{why}; {_COST}"
        ),
        advice=advice,
    )
