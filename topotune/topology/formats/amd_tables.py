"""What AMD's tools say of pairs of GPUs, as links: ``rocm-smi --showtopo`` and ``amd-smi topology`` alike.

A link of type XGMI over one hop joins two GPUs directly; how many such links run side by side, and how fast
they are, neither tool says: the bandwidths that amd-smi prints are one figure of the driver for all.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final

from topotune.probe.faults import Faults
from topotune.topology.formats.matrix import Matrix
from topotune.topology.model import Link, Pair

TYPES: Final = "link types"
HOPS: Final = "hops"
WEIGHTS: Final = "weights"


def pairs_and_links(
    tables: Mapping[str, Matrix], names: Sequence[str], tool: str, faults: Faults
) -> tuple[list[Pair], list[Link]]:
    """Pairs that xGMI joins, and the links between those that it joins directly.

    Args:
        tables: `TYPES`, `HOPS`, `WEIGHTS`, as far as they are known; rows and columns are ``names``.
        names: of the GPUs, which are their ids as well.
        tool: in front of the attribute that keeps the weight.
        faults: takes what had to be left out.
    """
    pairs: list[Pair] = []
    links: list[Link] = []
    for a, b in combinations(names, 2):
        kind = cell(tables.get(TYPES), a, b)
        if kind is not None and kind != (cell(tables.get(TYPES), b, a) or kind):
            faults.add("left out, the two directions differ", f"{a} and {b}")
        elif kind == "XGMI":
            pairs.append(Pair(a=a, b=b, path="XGMI"))
            if cell(tables.get(HOPS), a, b) == "1":
                weight = cell(tables.get(WEIGHTS), a, b)
                said = {} if weight is None else {f"{tool}.weight": weight}
                links += (
                    Link(src=src, dst=dst, kind="nvlink", attributes=said) for src, dst in ((a, b), (b, a))
                )
    return pairs, links


def cell(matrix: Matrix | None, row: str, column: str) -> str | None:
    """The word of a table; None where it has none."""
    if matrix is None or row not in matrix.cells or column not in matrix.columns:
        return None
    return matrix.cells[row][matrix.columns.index(column)]
