"""``rocm-smi --showtopo``: weights, hops, link types and NUMA nodes of AMD GPUs.

As tables, or with ``--json`` as one statement for each pair.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from topotune.documents import parse_json
from topotune.errors import InputFileError
from topotune.probe.faults import Faults, shown
from topotune.topology.formats.amd_tables import HOPS, TYPES, WEIGHTS, pairs_and_links
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.matrix import MAX_DEVICES, Matrix, find_matrices
from topotune.topology.formats.reading import THIS_NODE, Reader, Reading
from topotune.topology.formats.spelling import whole
from topotune.topology.model import Vertex

_TITLE = re.compile(
    r"^[= \t]{0,200}(Weight between two GPUs|Hops between two GPUs|Link Type between two GPUs|Numa Nodes)"
    r"[= \t]{0,200}$",
    re.MULTILINE,
)
_WORD = re.compile(r"[0-9]{1,9}|XGMI|PCIE|N/A|X|True|False")
_NUMA = re.compile(
    r"[ \t>]*GPU\[([0-9]{1,4})\][ \t]*: \(Topology\) Numa (Node|Affinity): (-?[0-9]{1,5})[ \t]*"
)
_GPU = re.compile(r"GPU([0-9]{1,4})")


_STATEMENT = re.compile(
    r"\(Topology\) (Weight|Hops|Link type) between DRM devices ([0-9]{1,3}) and ([0-9]{1,3})", re.I
)
_CARD = re.compile(r"card([0-9]{1,3})")
_TITLE_OF: Final = {
    "weight": "Weight between two GPUs",
    "hops": "Hops between two GPUs",
    "link type": "Link Type between two GPUs",
}
_TABLES: Final = dict(zip(_TITLE_OF.values(), (WEIGHTS, HOPS, TYPES), strict=True))


def _recognise(text: str) -> bool:
    return _TITLE.search(text) is not None or _STATEMENT.search(text) is not None


def read(text: str, source: str) -> Reading:
    """The output of the command, or of one of its parts → what it proves.

    Raises:
        InputFileError: none of its tables and no NUMA node in it, or no JSON.
    """
    faults = Faults()
    if _TITLE.search(text) is None:
        tables, nodes, affinities = _statements(text, source, faults)
    else:
        lines = lines_of(text, source)
        tables = _tables(lines, faults)
        nodes, affinities = _numa_nodes(lines)
    names = {name for matrix in tables.values() for name in matrix.columns if _GPU.fullmatch(name)}
    indices = sorted({int(name[3:]) for name in names} | set(nodes) | set(affinities))
    if not indices:
        said = faults.warnings()
        raise InputFileError(source, said[0] if said else "holds no table of rocm-smi --showtopo")
    for part in _TABLES:
        if part not in tables:
            faults.add("parts that are missing, or ended early", part)
    vertices = [
        Vertex(
            id=f"GPU{index}",
            kind="gpu",
            node=THIS_NODE,
            index=index,
            numa=nodes.get(index),
            numa_affinity=affinities.get(index),
        )
        for index in indices
    ]
    vertices += [
        Vertex(id=f"numa{node}", kind="numa", node=THIS_NODE, index=node)
        for node in sorted({node for node in nodes.values() if node is not None})
    ]
    pairs, links = pairs_and_links(
        {name: tables[title] for title, name in _TABLES.items() if title in tables},
        [f"GPU{index}" for index in indices],
        "rocm-smi",
        faults,
    )
    return Reading(
        vertices=tuple(vertices),
        links=tuple(links),
        pairs=tuple(pairs),
        warnings=faults.warnings(),
        num_gpus=len(names) or None,
    )


def _tables(lines: Sequence[str], faults: Faults) -> dict[str, Matrix]:
    titles: dict[int, str] = {}
    for number, line in enumerate(lines, start=1):
        title = _TITLE.fullmatch(line)
        if title is not None:
            titles[number] = title[1]
    tables: dict[str, Matrix] = {}
    for matrix in find_matrices(lines, _WORD, faults):
        above = max((number for number in titles if number < matrix.line), default=None)
        if above is not None:
            tables.setdefault(titles[above], matrix)
    return tables


def _statements(
    text: str, source: str, faults: Faults
) -> tuple[dict[str, Matrix], dict[int, int | None], dict[int, str]]:
    """What ``--json`` says, as the same tables: a cell for each pair, and one back."""
    body = text[max(text.find("{"), 0) : text.rfind("}") + 1]
    document = parse_json(body.encode("utf-8", "replace"), source)
    said: dict[str, dict[tuple[int, int], str]] = defaultdict(dict)
    nodes: dict[int, int | None] = {}
    affinities: dict[int, str] = {}
    for name, part in document.mapping(MAX_DEVICES + 16).items():
        card = _CARD.fullmatch(name)
        members = part.mapping(MAX_DEVICES**2) if isinstance(part.raw, dict) else {}
        for key, value in members.items():
            statement = _STATEMENT.fullmatch(key)
            word = str(value.raw)[:40].strip()
            if statement is not None and _WORD.fullmatch(word):
                a, b = int(statement[2]), int(statement[3])
                said[_TITLE_OF[statement[1].lower()]] |= {(a, b): word, (b, a): word}
            elif statement is not None:
                faults.add("left out, statements that are no word of a table", f"{name}: {shown(word)}")
            elif card is not None and key == "(Topology) Numa Node":
                nodes[int(card[1])] = whole(word)
            elif card is not None and key == "(Topology) Numa Affinity" and whole(word) is not None:
                affinities[int(card[1])] = word
    return {title: _matrix(cells) for title, cells in said.items()}, nodes, affinities


def _matrix(cells: dict[tuple[int, int], str]) -> Matrix:
    devices = sorted({device for pair in cells for device in pair})
    matrix = Matrix(tuple(f"GPU{device}" for device in devices), 0, "")
    for row in devices:
        matrix.cells[f"GPU{row}"] = tuple(cells.get((row, column), "N/A") for column in devices)
    return matrix


def _numa_nodes(lines: Sequence[str]) -> tuple[dict[int, int | None], dict[int, str]]:
    nodes: dict[int, int | None] = {}
    affinities: dict[int, str] = {}
    for line in lines:
        match = _NUMA.fullmatch(line)
        if match is None:
            continue
        if match[2] == "Node":
            nodes[int(match[1])] = None if match[3].startswith("-") else int(match[3])
        elif not match[3].startswith("-"):
            affinities[int(match[1])] = match[3]
    return nodes, affinities


READER = Reader("rocm-smi-topo", "rocm-smi --showtopo", _recognise, read)
