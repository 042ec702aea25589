"""``topotune probe`` on all nodes of a launcher: each node looks at itself, rank 0 puts them together."""

import base64
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from topotune.documents import MAX_DOCUMENT_BYTES
from topotune.errors import InputFileError, RunError, UsageError
from topotune.interfaces.roll_call import RollCall, by_place, own_place
from topotune.probe import probe
from topotune.probe.host_names import facts_of_others
from topotune.probe.kernel_text import format_cpulist, parse_cpulist
from topotune.topology import Topology, topology_from_bytes, topology_to_document
from topotune.topology.gather import RankPlace, gather_topologies
from topotune.topology.overview import by_node

_TIMEOUT: Final = timedelta(seconds=120)
_LOOK_WITHIN_S: Final = 60.0
_RESOLVE_WITHIN_S: Final = 5.0
_MAX_NAMES: Final = 64
_MAX_GPUS: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class NodesSeen:
    """What the nodes of all ranks are.

    Attributes:
        together: one topology of them, with the ranks in it.
        each: as each was seen, in the same order.
        rank_cpus: on which CPUs each rank may run, as the kernel lists them.
    """

    together: Topology
    each: tuple[Topology, ...]
    rank_cpus: tuple[str, ...]


def probe_all_nodes(root: Path = Path("/"), *, timeout: timedelta = _TIMEOUT) -> Topology | None:
    """One topology of the nodes of all ranks, as `probe_each_node` sees them. Collective."""
    seen = probe_each_node(root, timeout=timeout)
    return None if seen is None else seen.together


def probe_each_node(root: Path = Path("/"), *, timeout: timedelta = _TIMEOUT) -> NodesSeen | None:
    """The nodes of all ranks, each as it sees itself. Collective.

    One rank of each node looks, the others wait. Nodes are in the order of their lowest ranks; ranks that see
    the same network interfaces of one machine are on one node.

    Args:
        root: the folder that holds sys, proc and etc, on each node.
        timeout: until all ranks must have come.

    Returns:
        What was seen on rank 0, None on the others.

    Raises:
        UsageError: a node has no such root.
        RunError: ranks that did not come, or a node that went silent. The same on every rank.
    """
    call = RollCall("probe", timeout=timeout)
    call.say(
        "here",
        {
            "place": own_place(),
            "local_rank": int(os.environ["LOCAL_RANK"]),
            "visible_gpus": read_visible_gpus(os.environ),
            "cpus": format_cpulist(os.sched_getaffinity(0)),
        },
    )
    within_s = timeout.total_seconds()
    here: list[dict[str, Any]] = []
    if call.rank == 0:
        try:
            here = call.hear_all("here", within_s)
        except RunError as problem:
            call.tell_failure(("looking",), problem)
        else:
            leaders = {ranks[0] for ranks in by_place([words["place"] for words in here])}
            call.tell("looking", {rank: rank in leaders for rank in range(call.size)})
    looks = call.told("looking", 2 * within_s)
    if looks:
        call.say("node", _look(root))
    places = by_place([words["place"] for words in here])
    seen: list[Topology] = []
    if call.rank == 0:
        try:
            seen = _heard(call, places)
        except (RunError, UsageError) as problem:
            call.tell_failure(("names", "end"), problem)
        else:
            call.tell("names", {ranks[0]: names for ranks, names in zip(places, _names(seen), strict=True)})
    if looks:
        names = call.told("names", within_s + _LOOK_WITHIN_S)
        call.say("resolved", facts_of_others(names, _RESOLVE_WITHIN_S))
    gathered = None
    if call.rank == 0:
        resolved = call.hear("resolved", [ranks[0] for ranks in places], 2 * _RESOLVE_WITHIN_S)
        for number, ranks in enumerate(places):
            seen[number] = _with_facts(seen[number], resolved.get(ranks[0], {}))
        gathered = _gathered(seen, places, here)
        call.tell("end", dict.fromkeys(range(call.size)))
    call.told("end", within_s + _LOOK_WITHIN_S)
    return gathered


def read_visible_gpus(environment: Mapping[str, str]) -> list[str] | None:
    """CUDA_VISIBLE_DEVICES as the runtime takes it, up to the first that is none; None if it is not set."""
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return None
    words = [word.strip() for word in text[: _MAX_GPUS * 64].split(",")]
    ends = [number for number, word in enumerate(words) if not word or word.startswith("-")]
    return words[: min([*ends, _MAX_GPUS])]


def _look(root: Path) -> dict[str, Any]:
    try:
        document = json.dumps(topology_to_document(probe(root)), separators=(",", ":"))
    except UsageError as problem:
        return {"problem": [problem.message, problem.hint]}
    return {"topology": base64.b64encode(zlib.compress(document.encode())).decode("ascii")}


def _heard(call: RollCall, places: Sequence[Sequence[int]]) -> list[Topology]:
    """What each node is, by place.

    Raises:
        RunError: one does not say so in time.
        UsageError: one cannot be looked at.
    """
    heard = call.hear("node", [ranks[0] for ranks in places], _LOOK_WITHIN_S)
    topologies = []
    for ranks in places:
        if ranks[0] not in heard:
            raise RunError(
                f"the node of rank {ranks[0]} did not say within {_LOOK_WITHIN_S:g} s what it is",
                hint="look at what that rank printed last",
            )
        if "problem" in heard[ranks[0]]:
            message, hint = heard[ranks[0]]["problem"]
            raise UsageError(message, hint=hint)
        topologies.append(_unpacked(heard[ranks[0]]["topology"], f"the topology of rank {ranks[0]}'s node"))
    return topologies


def _names(seen: Sequence[Topology]) -> list[list[str]]:
    """For each node, names of others that it shall look up: all, or so many of those that come next.

    A thousand nodes that look up a thousand names each are a burden to name servers and show no more.
    ``localhost``, which a node without a name has, is none; nor are names out of captured trees.
    """
    if any(each.source.path is not None for each in seen):
        return [[] for _ in seen]
    own = [next((vertex.node for vertex in each.vertices if vertex.node), "localhost") for each in seen]
    return [
        [
            each
            for each in dict.fromkeys((*own[number + 1 :], *own[:number]))
            if each not in (name, "localhost")
        ][:_MAX_NAMES]
        for number, name in enumerate(own)
    ]


def _with_facts(topology: Topology, facts: Mapping[str, str]) -> Topology:
    source = replace(topology.source, facts={**topology.source.facts, **facts})
    return replace(topology, source=source)


def _gathered(
    topologies: Sequence[Topology], places: Sequence[Sequence[int]], here: Sequence[Mapping[str, Any]]
) -> NodesSeen:
    node_of_rank = {rank: index for index, ranks in enumerate(places) for rank in ranks}
    together = gather_topologies(
        topologies,
        [
            RankPlace(
                node=node_of_rank[rank],
                local_rank=words["local_rank"],
                visible_gpus=None if words["visible_gpus"] is None else tuple(words["visible_gpus"]),
                socket=_socket_of(parse_cpulist(words["cpus"]), topologies[node_of_rank[rank]]),
            )
            for rank, words in enumerate(here)
        ],
    )
    return NodesSeen(
        together=together, each=tuple(topologies), rank_cpus=tuple(words["cpus"] for words in here)
    )


def _unpacked(text: str, source: str) -> Topology:
    data = zlib.decompressobj().decompress(base64.b64decode(text), MAX_DOCUMENT_BYTES + 1)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise InputFileError(
            source,
            f"has {len(data)} bytes, more than the {MAX_DOCUMENT_BYTES} that such a document may have",
        )
    return topology_from_bytes(data, source)


def _socket_of(cpus: frozenset[int], topology: Topology) -> int | None:
    """Index of the socket that has all these CPUs; None where they are spread."""
    for sockets in by_node(topology, "cpu").values():
        for number, socket in enumerate(sockets):
            if cpus <= parse_cpulist(socket.cpus or ""):
                return number
    return None
