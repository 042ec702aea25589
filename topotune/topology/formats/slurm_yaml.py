"""Slurm's topology.yaml: several named topologies, of which one is the cluster's own.

The tree gives the switches (the one that is the cluster's own, else the first); blocks stand as attributes of
the hosts where there is a tree, else in its place. A flat topology says nothing, tori and rings are named and
left out.

Source: Slurm, topology.yaml(5).
"""

import re
from typing import Any

from topotune.errors import InputFileError
from topotune.probe.faults import Faults, shown
from topotune.topology.formats.fabric_tree import FabricTree
from topotune.topology.formats.reading import Reader, Reading
from topotune.topology.formats.slurm_topology import KIND
from topotune.topology.formats.yaml_tree import Tree, parse_yaml, texts_of

BLOCK = "slurm.block"
"""Attribute of a host's adapter: the block that it is in, where a tree gives the switches."""

_START = re.compile(r"^[ ]{0,16}-[ ]{1,8}topology[ \t]{0,8}:", re.MULTILINE)
_KINDS = ("tree", "block", "flat", "ring", "torus3d")
_NOWHERE = "none"


def _recognise(text: str) -> bool:
    return _START.search(text) is not None


def read(text: str, source: str) -> Reading:
    """A file → what it proves.

    Raises:
        InputFileError: no list of topologies, none of them a tree or blocks, or as `parse_yaml` and
            `FabricTree`.
    """
    faults = Faults()
    document = parse_yaml(text, source)
    if not isinstance(document, list) or not document:
        raise InputFileError(source, "is no list of topologies, each starting with: - topology: NAME")
    entries = [_Entry(item, source) for item in document]
    tree = FabricTree(source, faults)
    chosen = {kind: _chosen(entries, kind, faults) for kind in ("tree", "block")}
    if not any(chosen.values()):
        kinds = ", ".join(entry.label for entry in entries[:5])
        raise InputFileError(
            source,
            f"has no topology of kind tree or block, which alone say what joins hosts: {kinds[:300]}",
        )
    facts: dict[str, str | int | float | bool | None] = {
        "slurm_topologies": ", ".join(entry.label for entry in entries)[:1000]
    }
    if chosen["tree"] is not None:
        _add_all(tree, chosen["tree"], "switches", "switch", "children")
    if chosen["block"] is not None:
        sizes = chosen["block"].body.get("block_sizes")
        facts["slurm_block_sizes"] = ",".join(texts_of(sizes))[:200] or None
        if chosen["tree"] is None:
            _add_all(tree, chosen["block"], "blocks", "block", "children")
        else:
            for name, item in _items(chosen["block"], "blocks", "block", faults):
                for host in _names(tree, item.get("nodes")):
                    tree.host(host, {BLOCK: name})
    for entry in entries:
        if entry.kind not in ("tree", "block", "flat"):
            faults.add("left out, topologies of another kind than tree, block and flat", entry.label)
    return tree.reading(facts)


class _Entry:
    """One topology of the list."""

    def __init__(self, item: Tree, source: str) -> None:
        if not isinstance(item, dict) or not isinstance(item.get("topology"), str):
            raise InputFileError(source, "has an entry without a topology's name")
        self.name = str(item["topology"])
        self.is_default = str(item.get("cluster_default")).lower() in ("true", "yes")
        self.kind = next((kind for kind in _KINDS if kind in item), "unknown")
        body: Any = item.get(self.kind)
        self.body: dict[str, Tree] = body if isinstance(body, dict) else {}

    @property
    def label(self) -> str:
        """As warnings and facts call it."""
        return f"{self.name[:100]}: {self.kind}{' (default)' if self.is_default else ''}"


def _chosen(entries: list[_Entry], kind: str, faults: Faults) -> _Entry | None:
    """The cluster's own of a kind, else the first."""
    found = sorted((entry for entry in entries if entry.kind == kind), key=lambda entry: not entry.is_default)
    for other in found[1:]:
        faults.add(f"left out, a second topology of kind {kind}", other.name[:100])
    return found[0] if found else None


def _items(entry: _Entry, many: str, one: str, faults: Faults) -> list[tuple[str, dict[str, Tree]]]:
    items = entry.body.get(many)
    result = []
    for item in items if isinstance(items, list) else []:
        name = item.get(one) if isinstance(item, dict) else None
        if isinstance(item, dict) and isinstance(name, str) and 0 < len(name) <= 256:
            result.append((name, item))
        else:
            faults.add(f"left out, entries without the name of a {one}", shown(str(item)))
    return result


def _add_all(tree: FabricTree, entry: _Entry, many: str, one: str, below: str) -> None:
    for name, item in _items(entry, many, one, tree.faults):
        hosts = _names(tree, item.get("nodes"))
        if name == _NOWHERE and hosts:
            problem = 'a group called "none", by which nodes without a place are meant'
            tree.faults.add(problem, f"{len(hosts)} nodes")
        tree.add(
            name,
            place=f"{one} {shown(name)}",
            children=_names(tree, item.get(below)),
            hosts=hosts,
            attributes={KIND: "block"} if one == "block" else {},
        )


def _names(tree: FabricTree, value: Tree) -> list[str]:
    return [name for text in texts_of(value) if text.strip() for name in tree.expand(text, None)]


READER = Reader("slurm-yaml", "Slurm topology.yaml", _recognise, read)
