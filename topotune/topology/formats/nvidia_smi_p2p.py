"""``nvidia-smi topo -p2p r|w|n|a``: which GPUs may reach each other's memory, and why not.

The output does not say which capability was asked for; where the command stands above it, that does.
"""

import re
from itertools import combinations
from typing import Final

from topotune.errors import InputFileError
from topotune.probe.faults import Faults
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.matrix import find_matrices
from topotune.topology.formats.reading import THIS_NODE, Reader, Reading
from topotune.topology.model import Pair, Vertex

STATUSES: Final = {
    "OK": "OK",
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by regkey",
    "U": "unknown",
}
_WORD = re.compile(r"X|OK|CNS|GNS|TNS|NS|DR|U\b")
_ROW = re.compile(
    r"^[ \t|>]{0,200}GPU[0-9]{1,4}[ \t|X]{1,200}(?:OK|CNS|GNS|TNS|NS|DR|U)(?=[ \t|]|$)", re.MULTILINE
)
_GPU = re.compile(r"GPU([0-9]{1,4})")
_COMMAND = re.compile(r"topo\s+-p2p\s+([rwnap])(?![\w])")
_CAPABILITIES = {"r": "read", "w": "write", "n": "nvlink", "a": "atomics", "p": "proprietary"}


def _recognise(text: str) -> bool:
    return _ROW.search(text) is not None


def read(text: str, source: str) -> Reading:
    """The output of the command, or of several in a row → what it proves.

    Raises:
        InputFileError: no such table, or two of one capability that contradict each other.
    """
    faults = Faults()
    lines = lines_of(text, source)
    matrices = find_matrices(lines, _WORD, faults)
    if not matrices:
        said = faults.warnings()
        raise InputFileError(source, said[0] if said else "holds no matrix of nvidia-smi topo -p2p")
    statuses: dict[tuple[str, str], dict[str, str]] = {}
    gpus: dict[str, Vertex] = {}
    before = 0
    for matrix in matrices:
        capability = "any"
        for line in lines[before : matrix.line]:
            command = _COMMAND.search(line)
            capability = _CAPABILITIES[command[1]] if command else capability
        before = matrix.line
        position = {name: at for at, name in enumerate(matrix.columns)}
        for name in matrix.columns:
            match = _GPU.fullmatch(name)
            if match is not None:
                gpus[name] = Vertex(id=name, kind="gpu", node=THIS_NODE, index=int(match[1]))
        missing = [name for name in matrix.columns if name not in matrix.cells]
        if missing:
            faults.add(f"the table of line {matrix.line} has no row for", missing[0])
        for a, b in combinations((name for name in matrix.columns if name in gpus), 2):
            words = [
                matrix.cells[row][position[column]] for row, column in ((a, b), (b, a)) if row in matrix.cells
            ]
            if not words:
                continue
            if len(set(words)) > 1:
                faults.add("left out, the two directions differ", f"{a} and {b}: {words[0]}, {words[1]}")
                continue
            known = statuses.setdefault((a, b), {})
            if known.setdefault(capability, words[0]) != words[0]:
                raise InputFileError(
                    source,
                    f"two tables contradict each other: {a} and {b} are {known[capability]}, {words[0]}",
                    place=f"line {matrix.line}",
                    hint="leave the command (nvidia-smi topo -p2p r) above each table: it says what it is",
                )
    return Reading(
        vertices=tuple(gpus.values()),
        pairs=tuple(Pair(a=a, b=b, p2p=known) for (a, b), known in statuses.items() if known),
        warnings=faults.warnings(),
        num_gpus=len(gpus),
    )


READER = Reader("nvidia-smi-p2p", "nvidia-smi topo -p2p", _recognise, read)
