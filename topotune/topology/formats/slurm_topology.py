"""Slurm's topology.conf (tree and block) and ``scontrol show topology``: which nodes are near each other.

One ``SwitchName=`` or ``BlockName=`` a line, keywords in any case, hosts and switches as compressed lists.
What scontrol prints repeats at every level all nodes below it; only those of the lowest level are on their
switch.
A block is no switch, but like one it holds nodes that are nearer to each other than to others.

Source: Slurm, topology.conf(5), scontrol(1).
"""

import re
from collections.abc import Iterator, Sequence

from topotune.probe.faults import Faults
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.fabric_tree import FabricTree
from topotune.topology.formats.reading import Reader, Reading
from topotune.topology.formats.spelling import whole

KIND = "slurm.kind"
"""Attribute of a switch: ``block`` where it is one."""

_LINE = re.compile(r"^[ \t>]{0,40}(?:SwitchName|BlockName)[ \t]{0,8}=[ \t]{0,8}\S", re.I | re.MULTILINE)
_WORD = re.compile(r"([A-Za-z]{1,40})[ \t]{0,8}=[ \t]{0,8}(\S{1,200000})")
_ALIAS = re.compile(r"[ \t>]{0,40}#[ \t]{0,8}([^\s=]{1,256})=([^\s=]{1,256})[ \t]*")
_COMMENTED = re.compile(r"[ \t]*#+[ \t]*(?:SwitchName|BlockName)[ \t]*=", re.I)
_NAME = re.compile(r"[^\s=,\[\]]{1,256}")
_KNOWN = {
    "switchname", "blockname", "switches", "nodes", "linkspeed", "level", "blocksizes", "blockindex",
    "blocksize",
}  # fmt: skip


def _recognise(text: str) -> bool:
    return _LINE.search(text) is not None


def read(text: str, source: str) -> Reading:
    """A file or an output → what it proves.

    Raises:
        InputFileError: no switch or block in it, one twice, differently, a list of names that is none, or
            too many of either.
    """
    faults = Faults()
    tree = FabricTree(source, faults)
    facts: dict[str, str | int | float | bool | None] = {}
    lines = lines_of(text, source)
    aliases = {match[1]: match[2] for match in map(_ALIAS.fullmatch, lines) if match is not None}
    for number, line in _logical_lines(lines, faults):
        words = {match[1].lower(): match[2] for match in _WORD.finditer(line)}
        if "blocksizes" in words and not {"switchname", "blockname"} & set(words):
            facts["slurm_block_sizes"] = words["blocksizes"][:200]
        kind = next((kind for kind in ("switchname", "blockname") if kind in words), None)
        if "aggregatedblock" in words:
            faults.add("left out, blocks of blocks", f"{words['aggregatedblock'][:60]} (line {number})")
        if kind is None:
            continue
        _add(tree, kind, words, number, aliases)
    return tree.reading(facts)


def _logical_lines(lines: Sequence[str], faults: Faults) -> Iterator[tuple[int, str]]:
    """Lines without comments, those that end in a backslash with the next; and the number of the first."""
    start = 1
    parts: list[str] = []
    for number, line in enumerate(lines, start=1):
        if _COMMENTED.match(line):
            faults.add("left out, switches or blocks that are commented out", f"line {number}")
        body = line.partition("#")[0].rstrip()
        if not parts:
            start = number
        if body.endswith("\\"):
            parts.append(body[:-1])
            continue
        yield start, " ".join((*parts, body)).strip()
        parts = []


def _add(tree: FabricTree, kind: str, words: dict[str, str], number: int, aliases: dict[str, str]) -> None:
    place = f"line {number}"
    name = words[kind]
    if not _NAME.fullmatch(name):
        tree.faults.add("left out, lines that name several switches or blocks at once", place)
        return
    level = whole(words.get("level", ""), 100)
    attributes = {} if kind == "switchname" else {KIND: "block"}
    if "linkspeed" in words:
        attributes["slurm.link_speed"] = words["linkspeed"][:100]
    if name in aliases:
        attributes["slurm.alias"] = aliases[name]
    for word in words:
        if word not in _KNOWN:
            tree.faults.add("left out, words that are none of topology.conf's", f"{word[:40]} ({place})")
    children = tree.expand(words["switches"], place) if "switches" in words else ()
    hosts: tuple[str, ...] = ()
    if "nodes" in words and not (level and children):
        if words["nodes"].upper() == "ALL":
            tree.faults.add("left out, Nodes=ALL: which these are the file does not say", place)
        elif words["nodes"] != "(null)":
            hosts = tree.expand(words["nodes"], place)
    tree.add(name, place=place, children=children, hosts=hosts, attributes=attributes)


READER = Reader("slurm-topology", "Slurm topology.conf, scontrol show topology", _recognise, read)
