"""NVIDIA NetQ's topology graph: switches and hosts of an Ethernet fabric, the cables between their ports."""

import re
from collections import Counter

from topotune.documents import Value, parse_json
from topotune.errors import InputFileError
from topotune.probe.faults import Faults, shown
from topotune.topology.formats.reading import Reader, Reading
from topotune.topology.model import Link, Vertex

_START = re.compile(r"[\[{]")
_NODE_TYPES = re.compile(r'"compounded_(?:nodes|links)"')
_MAX_DEVICES = 65_536
_MAX_CABLES = 400_000

Port = tuple[str, str]  # a device's id, an interface's name


def _recognise(text: str) -> bool:
    return _NODE_TYPES.search(text) is not None and '"interfaces"' in text


def read(text: str, source: str) -> Reading:
    """The graph, as JSON → what it proves.

    Raises:
        InputFileError: no JSON, no such graph, or more than one, or more than a topology holds.
    """
    start = _START.search(text)
    body = "" if start is None else text[start.start() : max(text.rfind("}"), text.rfind("]")) + 1]
    document = parse_json(body.encode("utf-8", "replace"), source)
    if isinstance(document.raw, list):
        document = document.items(1, min_items=1, what="graphs")[0]
    members = document.mapping(64)
    if not {"nodes", "links"} <= set(members):
        raise InputFileError(source, "has no nodes and links")
    faults = Faults()
    devices = _devices(members["nodes"], faults)
    return _reading(devices, _cables(members["links"], devices, faults), faults)


def _devices(nodes: Value, faults: Faults) -> dict[str, Vertex]:
    """Switches, and hosts (which stand for their ports); by NetQ's id."""
    devices: dict[str, Vertex] = {}
    for tier in nodes.items(1_000, what="tiers"):
        for item in _items(tier, "compounded_nodes"):
            members = item.mapping(64)
            if not {"id", "name"} <= set(members):
                item.fail("lacks 'id' or 'name'")
            key, name = members["id"].text(max_length=256), members["name"].text(max_length=256)
            kind = members["device_type"].text() if "device_type" in members else "host"
            if len(devices) >= _MAX_DEVICES:
                item.fail(f"is one of more than {_MAX_DEVICES} devices")
            if devices.setdefault(key, _device(key, name, kind)).name != name:
                item.fail(f"has the id of {shown(devices[key].name or '')}")
    return devices


def _device(key: str, name: str, kind: str) -> Vertex:
    if kind == "switch":
        return Vertex(id=f"switch {key}", kind="switch", name=name)
    return Vertex(id=f"host {key}", kind="nic", node=name, name=name, attributes={"netq.device_type": kind})


def _items(value: Value, key: str) -> list[Value]:
    """The items of a list under a key; none where it is missing."""
    members = value.mapping(64)
    return members[key].items(_MAX_CABLES) if key in members else []


def _cables(links: Value, devices: dict[str, Vertex], faults: Faults) -> list[tuple[Port, Port]]:
    cables: dict[frozenset[Port], tuple[Port, Port]] = {}
    for group in links.items(_MAX_CABLES, what="links"):
        for item in _items(group, "compounded_links"):
            ends = [_port(end) for end in _items(item, "interfaces")]
            if len(ends) != 2 or ends[0][0] == ends[1][0] or not {ends[0][0], ends[1][0]} <= set(devices):
                faults.add("left out, cables without two ends on devices that the graph shows", item.place)
                continue
            cables.setdefault(frozenset(ends), (ends[0], ends[1]))
            if len(cables) > _MAX_CABLES:
                item.fail(f"is one of more than {_MAX_CABLES} cables")
    return list(cables.values())


def _port(end: Value) -> Port:
    members = end.mapping(16)
    if not {"node", "interface"} <= set(members):
        end.fail("lacks 'node' or 'interface'")
    return members["node"].text(max_length=256), members["interface"].text(max_length=256)


def _reading(devices: dict[str, Vertex], cables: list[tuple[Port, Port]], faults: Faults) -> Reading:
    """Hosts' ports as adapters of their own; cables between two switches as one link."""
    vertices = [device for device in devices.values() if device.kind == "switch"]
    adapters: dict[Port, Vertex] = {}
    lanes: Counter[tuple[str, str]] = Counter()
    for cable in cables:
        ids = []
        for key, interface in cable:
            device = devices[key]
            if device.kind == "switch":
                ids.append(device.id)
                continue
            adapter = adapters.setdefault(
                (key, interface),
                Vertex(
                    id=f"{device.id}/{interface}",
                    kind="nic",
                    node=device.node,
                    name=interface,
                    link_layer="Ethernet",
                    attributes=device.attributes,
                ),
            )
            ids.append(adapter.id)
        lanes[min(ids), max(ids)] += 1
    cabled = {key for key, _ in adapters}
    for key, device in devices.items():
        if device.kind == "nic" and key not in cabled:
            faults.add("hosts without a cable", device.node)
    links = tuple(
        Link(src=src, dst=dst, kind="ethernet", lanes=number)
        for (one, other), number in lanes.items()
        for src, dst in ((one, other), (other, one))
    )
    if not vertices and not adapters:
        faults.add("the graph has no switch and no cable")
    return Reading(vertices=(*vertices, *adapters.values()), links=links, warnings=faults.warnings())


READER = Reader("netq-graph", "NetQ topology graph", _recognise, read)
