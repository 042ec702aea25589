"""``amd-smi topology``: access, weights, hops and link types of AMD GPUs, by their PCI addresses.

As tables, or with ``--json`` as a list of GPUs, each with its links; before ROCm 6.2 each with a map for each
table instead, without addresses. Tables do not number the GPUs.

Source: ROCm, amdsmi_cli/amdsmi_commands.py, topology; CHANGELOG.md of amdsmi, ROCm 6.0 to 6.4.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from topotune.documents import Value, parse_json
from topotune.errors import InputFileError
from topotune.probe.faults import Faults
from topotune.topology.formats.amd_tables import HOPS, TYPES, WEIGHTS, cell, pairs_and_links
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.matrix import MAX_DEVICES, Matrix
from topotune.topology.formats.reading import THIS_NODE, Reader, Reading
from topotune.topology.formats.spelling import pci_address
from topotune.topology.model import Pair, Vertex

_ACCESS: Final = "access"
_TABLE_OF: Final = {
    "ACCESS": _ACCESS,
    "WEIGHT": WEIGHTS,
    "HOPS": HOPS,
    "LINK TYPE": TYPES,
}
"""Titles of the tables that are read; what the others say changes nothing in a topology."""

_TITLE = re.compile(r"^[ \t>|]{0,40}([A-Z][A-Z-]{1,20}(?: [A-Z]{2,12}){0,2}) TABLE:?[ \t]*$", re.MULTILINE)
_ADDRESS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_COLUMNS = re.compile(rf"[ \t>|]{{0,40}}({_ADDRESS}(?:[ \t|]+{_ADDRESS}){{0,300}})[ \t|]*")
_ROW = re.compile(rf"[ \t>|]{{0,40}}({_ADDRESS})[ \t|]+(\S.{{0,8000}})")
_TABLES = re.compile(
    rf"^[ \t>|]{{0,40}}(?:ACCESS|WEIGHT|HOPS|LINK TYPE) TABLE:?[ \t]*\n[ \t>|]{{0,40}}{_ADDRESS}",
    re.MULTILINE,
)
_JSON = re.compile(r'"(?:link_accessibility|link_status|link_type|num_hops)"[ \t]*:')
_START = re.compile(r"^[ \t]{0,40}[\[{]", re.MULTILINE)
_KEY_OF: Final = {"link_status": _ACCESS, "weight": WEIGHTS, "num_hops": HOPS, "link_type": TYPES}
_MAP_OF: Final = {"link_accessibility": _ACCESS, "weight": WEIGHTS, "hops": HOPS, "link_type": TYPES}
_NUMBERED = re.compile(r"gpu_([0-9]{1,4})")
_P2P: Final = {"ENABLED": "OK", "DISABLED": "NS"}
"""Access to the other GPU's memory → status in nvidia-smi's words."""


@dataclass(slots=True)
class _Gpus:
    """What was read: each GPU's address and number, as far as they are said, and a word for each two.

    Attributes:
        order: names, which stand for GPUs: addresses, or numbers where there are none.
        numbers, names: name → number, and back.
        words: table → row's name and column's name → word.
    """

    order: dict[str, None] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    words: dict[str, dict[tuple[str, str], str]] = field(default_factory=lambda: defaultdict(dict))


def _recognise(text: str) -> bool:
    if _TABLES.search(text) is not None:
        return True
    return _JSON.search(text) is not None and ('"bdf"' in text or "link_accessibility" in text)


def read(text: str, source: str) -> Reading:
    """The output of the command, or of some of its tables → what it proves.

    Raises:
        InputFileError: none of its tables, no JSON, or more than 256 GPUs.
    """
    faults = Faults()
    gpus = _from_tables(lines_of(text, source), faults)
    if not gpus.order:
        gpus = _from_json(text, source, faults)
    names = list(gpus.order)
    if not names or len(names) > MAX_DEVICES:
        said = faults.warnings()
        problem = f"has {len(names)} GPUs, more than {MAX_DEVICES}" if names else None
        raise InputFileError(source, problem or (said[0] if said else "holds no table of amd-smi topology"))
    tables = {table: _matrix(names, words) for table, words in gpus.words.items()}
    for table in (TYPES, HOPS):
        if table not in tables:
            faults.add("parts that are missing, or ended early", table)
    pairs, links = pairs_and_links(tables, names, "amd-smi", faults)
    return Reading(
        vertices=tuple(
            Vertex(
                id=name,
                kind="gpu",
                node=THIS_NODE,
                index=gpus.numbers.get(name),
                pci_address=pci_address(name),
            )
            for name in names
        ),
        links=tuple(links),
        pairs=tuple(_with_access(pairs, tables.get(_ACCESS), names, faults)),
        warnings=faults.warnings(),
        num_gpus=len(names),
    )


def _with_access(
    pairs: list[Pair], access: Matrix | None, names: list[str], faults: Faults
) -> Iterator[Pair]:
    known = {(pair.a, pair.b): pair for pair in pairs}
    for a, b in combinations(names, 2):
        pair = known.get((a, b))
        there, back = cell(access, a, b), cell(access, b, a)
        status = _P2P.get(there or "")
        if status is not None and back not in (there, None, "N/A"):
            faults.add("left out, the two directions differ", f"{a} and {b}: {there}, {back}")
            status = None
        p2p = {} if status is None else {"any": status}
        if pair is not None:
            yield Pair(a=a, b=b, path=pair.path, nvlinks=pair.nvlinks, p2p=p2p)
        elif p2p:
            yield Pair(a=a, b=b, p2p=p2p)


def _from_tables(lines: Sequence[str], faults: Faults) -> _Gpus:
    """Each table's rows, as long as they have a word for each of its columns."""
    gpus = _Gpus()
    table: str | None = None
    columns: list[str] = []
    for number, line in enumerate(lines, start=1):
        if title := _TITLE.fullmatch(line):
            table, columns = _TABLE_OF.get(title[1]), []
        elif heading := _COLUMNS.fullmatch(line):
            columns = [address.lower() for address in re.findall(_ADDRESS, heading[1])]
            if len(set(columns)) < len(columns):
                faults.add("left out, tables that name a GPU twice", f"line {number}")
                columns = []
            gpus.order |= dict.fromkeys(columns) if table is not None else {}
        elif table is not None and columns and (row := _ROW.fullmatch(line)):
            words = row[2].replace("|", " ").split()
            if row[1].lower() not in columns or len(words) != len(columns):
                faults.add(f"left out, rows that have not {len(columns)} cells", f"line {number}")
                continue
            name = row[1].lower()
            gpus.words[table] |= {(name, column): word for column, word in zip(columns, words, strict=True)}
    return gpus


def _from_json(text: str, source: str, faults: Faults) -> _Gpus:
    """Both kinds of JSON."""
    start = _START.search(text)
    if start is None:
        return _Gpus()
    body = text[start.start() : max(text.rfind("}"), text.rfind("]")) + 1]
    document = parse_json(body.encode("utf-8", "replace"), source)
    if isinstance(document.raw, dict):  # a list inside an object, as other verbs of the tool have it
        lists = [name for name, value in document.raw.items() if isinstance(value, list)]
        if len(lists) != 1:
            document.fail("holds no list of GPUs", hint="amd-smi topology --json writes one")
        document = document.member(lists[0])
    gpus = _Gpus()
    entries = document.items(MAX_DEVICES, what="GPUs")
    for entry in entries:
        if not isinstance(entry.raw, dict) or "gpu" not in entry.raw:
            faults.add("left out, what is no GPU", entry.place)
            continue
        name = _named(entry, gpus)
        for key, table in _MAP_OF.items():
            if isinstance(entry.raw.get(key), dict):
                for other, value in entry.member(key).mapping(MAX_DEVICES).items():
                    numbered = _NUMBERED.fullmatch(other)
                    if numbered is not None:
                        gpus.words[table][name, numbered[1]] = str(value.raw)[:20]
        if isinstance(entry.raw.get("links"), list):
            for link in entry.member("links").items(MAX_DEVICES, what="links"):
                if not isinstance(link.raw, dict) or "gpu" not in link.raw:
                    faults.add("left out, what is no link", link.place)
                    continue
                far = _named(link, gpus)
                for key, table in _KEY_OF.items():
                    if key in link.raw:
                        gpus.words[table][name, far] = str(link.raw[key])[:20]
    return gpus


def _named(entry: Value, gpus: _Gpus) -> str:
    """By its address if it has one, and by its number else; both are kept.

    Raises:
        InputFileError: two numbers of one address, or two addresses of one number.
    """
    number = entry.member("gpu").integer(0, 9_999)
    text = entry.raw.get("bdf")
    address = pci_address(text) if isinstance(text, str) else None
    name = address or str(number)
    if gpus.numbers.setdefault(name, number) != number or gpus.names.setdefault(number, name) != name:
        entry.fail(f"is GPU {number} at {name}, and another entry has one of the two with another")
    gpus.order.setdefault(name)
    return name


def _matrix(names: Sequence[str], words: dict[tuple[str, str], str]) -> Matrix:
    matrix = Matrix(tuple(names), 0, "")
    for row in names:
        matrix.cells[row] = tuple(words.get((row, column), "N/A") for column in names)
    return matrix


READER = Reader("amd-smi-topology", "amd-smi topology, with or without --json", _recognise, read)
