"""``nvidia-smi topo -m`` and ``-mp``: how near GPUs and adapters are, and whose CPUs they are near.

What such a table proves: the words between devices, the number of NVLinks, the adapters' names where the
legend or the heading gives them. What it does not: ``-mp``, and a table without ``NV#`` in its legend, hides
NVLink; the columns of CPUs and NUMA nodes describe what the process may use, so inside a job's allocation
they say nothing of the GPU where they name several nodes or contradict the matrix; ``GPU NUMA ID`` numbers
the GPU's own memory.

Source: NVIDIA, nvidia-smi manual, "topo"; its legends since driver 352 (``SOC`` became ``SYS`` with 384).
"""

import re
from dataclasses import replace
from itertools import combinations

from topotune.errors import InputFileError
from topotune.probe.faults import Faults, shown
from topotune.probe.kernel_text import parse_cpulist
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.matrix import Matrix, find_matrices
from topotune.topology.formats.reading import THIS_NODE, Reader, Reading
from topotune.topology.formats.spelling import whole
from topotune.topology.model import Pair, PairPath, Vertex

_WORD = re.compile(r"NV[0-9]{1,3}|X|SYS|SOC|NODE|PHB|PXB|PIX|N/A")
_ROW = re.compile(
    r"^[ \t|>]{0,200}GPU[0-9]{1,4}[ \t|]{1,200}(?:[^\n|]{0,60}\|[ \t]{0,60}){0,3}"
    r"(?:NV[0-9]{1,3}|X|SYS|SOC|NODE|PHB|PXB|PIX)"
    r"[ \t|X]{0,200}(?=$|[0-9]|N/A|NV[0-9]|SYS|SOC|NODE|PHB|PXB|PIX)",
    re.MULTILINE,
)
_PLACES: dict[str, PairPath] = {
    "SYS": "SYS", "SOC": "SYS", "NODE": "NODE", "PHB": "PHB", "PXB": "PXB", "PIX": "PIX",
}  # fmt: skip
_GPU = re.compile(r"GPU([0-9]{1,4})")
_NIC = re.compile(r"NIC[0-9]{1,4}")
_LEGEND = re.compile(r"^[ \t|>]*(NIC[0-9]{1,4})[ \t]*[:=][ \t]*([\w.:+-]{1,64})[ \t|]*$", re.MULTILINE)
_NVLINK_LEGEND = re.compile(r"[ \t|>]*NV#[ \t]*=")
_SAME_NODE = ("PIX", "PXB", "PHB", "NODE")


def _recognise(text: str) -> bool:
    return _ROW.search(text) is not None


def read(text: str, source: str) -> Reading:
    """The output of the command, and whatever else stands in the text → what it proves.

    Raises:
        InputFileError: no such table, a row that does not fit it where none does, or two tables that
            contradict each other.
    """
    faults = Faults()
    lines = lines_of(text, source)
    matrices = find_matrices(lines, _WORD, faults)
    if not matrices:
        said = faults.warnings()
        raise InputFileError(
            source,
            said[0] if said else "holds no matrix of nvidia-smi topo",
            hint="the table needs its heading (GPU0 GPU1 …) and whole rows",
        )
    names = dict(_LEGEND.findall(text))
    vertices: dict[str, Vertex] = {}
    pairs: dict[frozenset[str], Pair] = {}
    ends = [matrix.line - 1 for matrix in matrices[1:]] + [len(lines)]
    for matrix, end in zip(matrices, ends, strict=True):
        _note_missing_rows(matrix, faults)
        shows_nvlink = any(_NVLINK_LEGEND.match(line) for line in lines[matrix.line : end])
        shows_nvlink |= any(cell.startswith("NV") for row in matrix.cells.values() for cell in row)
        found = _pairs(matrix, shows_nvlink, faults)
        for pair in found:
            _merge(pairs, pair, source)
        _vertices(vertices, matrix, names, pairs, faults)
    if not any(pair.nvlinks is not None for pair in pairs.values()) and len(_gpus(matrices)) > 1:
        faults.add("NVLink is not shown (the table of -mp, or one without its legend)")
    return Reading(
        vertices=tuple(vertices.values()),
        pairs=tuple(pairs.values()),
        warnings=faults.warnings(),
        num_gpus=len(_gpus(matrices)),
    )


def _gpus(matrices: list[Matrix]) -> set[str]:
    return {name for matrix in matrices for name in matrix.columns if _GPU.fullmatch(name)}


def _note_missing_rows(matrix: Matrix, faults: Faults) -> None:
    missing = [name for name in matrix.columns if name not in matrix.cells]
    if missing:
        faults.add(
            f"the table of line {matrix.line} ends early, or its rows could not be read: "
            f"{len(matrix.cells)} of {len(matrix.columns)} rows; {missing[0]} is the first without one"
        )


def _pairs(matrix: Matrix, shows_nvlink: bool, faults: Faults) -> list[Pair]:
    found = []
    position = {name: at for at, name in enumerate(matrix.columns)}
    for a, b in combinations(matrix.columns, 2):
        words = [
            matrix.cells[row][position[column]] for row, column in ((a, b), (b, a)) if row in matrix.cells
        ]
        if not words or words == ["N/A"] * len(words):
            continue
        word = _agreed(words)
        if word is None:
            faults.add(
                "left out, two halves of the table do not agree", f"{a} and {b}: {words[0]}, {words[1]}"
            )
            continue
        if len(set(words)) > 1:
            faults.add("NVLinks that the two ends count differently", f"{a} and {b}: {words[0]}, {words[1]}")
        nvlinks = int(word[2:]) if word.startswith("NV") else 0 if shows_nvlink else None
        if not (_GPU.fullmatch(a) and _GPU.fullmatch(b)):
            nvlinks = None
        found.append(Pair(a=a, b=b, path=_PLACES.get(word), nvlinks=nvlinks))
    return found


def _agreed(words: list[str]) -> str | None:
    """The one word; of two counts of NVLinks the smaller, which both ends have."""
    places = {_PLACES.get(word, word) for word in words}
    if len(places) == 1:
        return words[0]
    if all(word.startswith("NV") for word in words):
        return min(words, key=lambda word: int(word[2:]))
    return None


def _merge(pairs: dict[frozenset[str], Pair], pair: Pair, source: str) -> None:
    """Two tables of one file (``-m`` and ``-mp``) fill each other in."""
    key = frozenset((pair.a, pair.b))
    before = pairs.setdefault(key, pair)
    for what, there, here in (
        ("the way", before.path, pair.path),
        ("the number of NVLinks", before.nvlinks, pair.nvlinks),
    ):
        if None not in (there, here) and there != here:
            raise InputFileError(
                source,
                f"two tables contradict each other: {what} between {pair.a} and {pair.b} is {there}, {here}",
            )
    pairs[key] = replace(
        before,
        path=before.path or pair.path,
        nvlinks=pair.nvlinks if before.nvlinks is None else before.nvlinks,
    )


def _vertices(
    vertices: dict[str, Vertex],
    matrix: Matrix,
    names: dict[str, str],
    pairs: dict[frozenset[str], Pair],
    faults: Faults,
) -> None:
    numa_of = _numa_nodes(matrix, pairs, faults)
    for column in matrix.columns:
        gpu = _GPU.fullmatch(column)
        tails = matrix.tails.get(column, {})
        if gpu is not None:
            cpus = _stated(tails.get("CPU Affinity"))
            if cpus is not None and not _is_cpulist(cpus):
                faults.add("left out, no list of CPUs", f"{column}: {shown(cpus)}")
                cpus = None
            vertices[column] = Vertex(
                id=column,
                kind="gpu",
                node=THIS_NODE,
                index=int(gpu[1]),
                numa=numa_of.get(column),
                cpu_affinity=cpus,
                numa_affinity=_stated(tails.get("NUMA Affinity")),
                attributes=_gpu_memory_node(tails),
            )
        else:
            name = names.get(column) if _NIC.fullmatch(column) else column
            if name is None:
                faults.add("names of adapters are not known (the NIC legend is missing)", column)
            vertices[column] = Vertex(id=column, kind="nic", node=THIS_NODE, name=name, rdma_device=name)
    for numa in sorted(set(numa_of.values())):
        vertices.setdefault(f"numa{numa}", Vertex(id=f"numa{numa}", kind="numa", node=THIS_NODE, index=numa))


def _gpu_memory_node(tails: dict[str, str]) -> dict[str, str]:
    own = _stated(tails.get("GPU NUMA ID"))
    return {"nvidia-smi.gpu_numa_id": own} if own is not None else {}


def _numa_nodes(matrix: Matrix, pairs: dict[frozenset[str], Pair], faults: Faults) -> dict[str, int]:
    """GPU → its NUMA node, where the column names one and the matrix does not contradict it."""
    stated: dict[str, int] = {}
    for name, tails in matrix.tails.items():
        if not _GPU.fullmatch(name):
            continue
        text = _stated(tails.get("NUMA Affinity"))
        node = None if text is None else whole(text, 65_535)
        if node is not None:
            stated[name] = node
        elif text is not None:
            faults.add("NUMA node not known, the column names several (or the job's)", f"{name}: {text[:40]}")
    for a, b in combinations(stated, 2):
        pair = pairs.get(frozenset((a, b)))
        path = pair.path if pair else None
        same = stated[a] == stated[b]
        if (path == "SYS" and same) or (path in _SAME_NODE and not same):
            faults.add(
                "NUMA nodes not known, the matrix contradicts their column (it may be a job's)",
                f"{a} and {b} are {path}, on {stated[a]} and {stated[b]}",
            )
            return {}
    return stated


def _stated(text: str | None) -> str | None:
    return None if text is None or text.upper() in ("", "N/A") else text


def _is_cpulist(text: str) -> bool:
    try:
        parse_cpulist(text)
    except ValueError:
        return False
    return True


READER = Reader("nvidia-smi-topo", "nvidia-smi topo -m, -mp", _recognise, read)
