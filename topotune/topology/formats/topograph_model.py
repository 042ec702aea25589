"""Models of NVIDIA's Topograph simulator: switches, and blocks of nodes below them.

Older models call blocks ``capacity_blocks`` and name the NVLink domain ``nvlink``; newer ones have it as an
annotation that ends in ``/domain``. A block's ``switch`` is the leaf that its nodes are on.
"""

import re

from topotune.errors import InputFileError
from topotune.probe.faults import Faults, shown
from topotune.topology.formats.fabric_tree import FabricTree
from topotune.topology.formats.reading import Reader, Reading
from topotune.topology.formats.yaml_tree import Tree, parse_yaml, texts_of

DOMAIN = "topograph.domain"
"""Attribute of a host's adapter: the NVLink domain that its block is."""

_SWITCHES = re.compile(r"^switches:[ \t]*(?:#|$)", re.MULTILINE)
_BLOCKS = re.compile(r"^(?:capacity_)?blocks:[ \t]*(?:#|$)", re.MULTILINE)


def _recognise(text: str) -> bool:
    return _SWITCHES.search(text) is not None and _BLOCKS.search(text) is not None


def read(text: str, source: str) -> Reading:
    """A model → what it says.

    Raises:
        InputFileError: no such model, or as `parse_yaml` and `FabricTree`.
    """
    document = parse_yaml(text, source)
    if not isinstance(document, dict):
        raise InputFileError(source, "has no switches and blocks")
    faults = Faults()
    tree = FabricTree(source, faults)
    children: dict[str, list[str]] = {}
    for name, item in _named(document.get("switches"), "name", faults):
        children[name] = _names(tree, item.get("switches"))
    hosts: dict[str, list[str]] = {name: [] for name in children}
    for name, item in _named(document.get("blocks") or document.get("capacity_blocks"), "switch", faults):
        nodes = _names(tree, item.get("nodes"))
        hosts.setdefault(name, []).extend(nodes)
        domain = _domain(item)
        for node in nodes:
            tree.host(node, {} if domain is None else {DOMAIN: domain})
    for name, below in hosts.items():
        tree.add(name, children=children.get(name, ()), hosts=below)
    return tree.reading()


def _named(value: Tree, key: str, faults: Faults) -> list[tuple[str, dict[str, Tree]]]:
    """Entries with their names: of a mapping its keys, of a list what stands under ``key``, else ``name``."""
    if isinstance(value, dict):
        return [(name, item if isinstance(item, dict) else {}) for name, item in value.items() if name]
    found = []
    for item in value if isinstance(value, list) else []:
        name = (item.get(key) or item.get("name")) if isinstance(item, dict) else None
        if isinstance(item, dict) and isinstance(name, str):
            found.append((name, item))
        else:
            faults.add(f"left out, entries without a {key}", shown(str(item)))
    return found


def _domain(item: dict[str, Tree]) -> str | None:
    annotations = item.get("annotations")
    if isinstance(annotations, dict):
        found = [
            text for key, text in annotations.items() if key.endswith("/domain") and isinstance(text, str)
        ]
        if found:
            return found[0]
    nvlink = item.get("nvlink")
    return nvlink if isinstance(nvlink, str) else None


def _names(tree: FabricTree, value: Tree) -> list[str]:
    return [name for text in texts_of(value) if text.strip() for name in tree.expand(text, None)]


READER = Reader("topograph-model", "Topograph model", _recognise, read)
