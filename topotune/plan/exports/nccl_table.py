"""The table that topotune's own tuner plugin for NCCL reads: its value, its text, and back.

The form is told at the top of ``nccl_tuner.c``, whose reader takes no less and no more than `read` here.
Beside a plan's rows a table can hold constants of NCCL's own model, which NCCL then chooses by at all sizes
that no row names (ABI v5 and later, NCCL 2.28); exports of plans have none, those who measured some add them
to the file.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from topotune.errors import InputFileError
from topotune.plan.exports.nccl_rows import NcclRow
from topotune.plan.nccl import MAX_NCCL_CHANNELS, NCCL_ALGOS, NCCL_PROTOS

HEAD: Final = "topotune-nccl-table 1"
MAX_LINE_BYTES: Final = 255
MAX_RANKS: Final = 2**20
MAX_BYTES: Final = 2**64 - 2
MAX_CONSTANT: Final = 1e6

COLLECTIVES: Final = ("broadcast", "reduce", "allgather", "reduce_scatter", "allreduce")
LINKS: Final = ("nvlink", "pci", "net")
GENERATIONS: Final = ("volta", "ampere", "hopper", "blackwell")
SCALES: Final = ("1", "2", "more")
CONSTANTS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "base_latency_us": (NCCL_ALGOS, NCCL_PROTOS),
    "hw_latency_us": (LINKS, NCCL_ALGOS, NCCL_PROTOS),
    "ll_max_gb_per_s": (GENERATIONS, SCALES),
    "ring_ll128_gb_per_s": (GENERATIONS, SCALES),
    "tree_ll128_gb_per_s": (GENERATIONS, SCALES),
    "tree_gb_per_s": (GENERATIONS, SCALES),
    "nvls_tree_gb_per_s": (GENERATIONS, SCALES),
}
"""Each constant of NCCL's model, with what its indices may be; the scales are nodes, GB/s are per channel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NcclConstant:
    """One number of NCCL's model.

    Attributes:
        name: of `CONSTANTS`.
        index: one name of each of its indices.
        value: µs or GB/s, as digits, perhaps with a point between them (``14.5``).
    """

    name: str
    index: tuple[str, ...]
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class NcclTable:
    """What the plugin reads.

    Attributes:
        plan: what was measured, for NCCL's log; printable ASCII.
        rows: ascending within each collective, number of ranks and number of nodes.
        constants: of NCCL's model.
    """

    plan: str
    rows: tuple[NcclRow, ...]
    constants: tuple[NcclConstant, ...] = ()


def write(table: NcclTable) -> str:
    """The table's text."""
    lines = [HEAD, f"plan {table.plan}"] if table.plan else [HEAD]
    for row in table.rows:
        end = "inf" if row.end_bytes is None else row.end_bytes
        lines.append(
            f"row {row.collective} {row.num_ranks} {row.num_nodes} {row.min_bytes} {end} "
            f"{row.algo} {row.proto} {row.channels or 0}"
        )
    lines += [f"constant {one.name} {' '.join(one.index)} {one.value}" for one in table.constants]
    lines.append(f"end {len(table.rows) + len(table.constants)}")
    return "\n".join(lines) + "\n"


class _Broken(ValueError):
    """What is wrong with a line."""


def read(text: str, source: str) -> NcclTable:
    """The table of a text; comments are not kept.

    Raises:
        InputFileError: no such table, or a broken one; it names the line.
    """
    lines = text.split("\n")
    number = 0
    state = _Reading()
    try:
        for number, line in enumerate(lines[:-1], 1):
            state.take(number, line)
        if lines[-1]:
            number += 1
            raise _Broken("the last line has no end")
        if not state.ended:
            raise _Broken("the end is missing")
    except _Broken as problem:
        raise InputFileError(
            source,
            str(problem),
            place=f"line {number}",
            hint="topotune export PLAN --to nccl-tuner writes one",
        ) from None
    return NcclTable(plan=state.plan, rows=tuple(state.rows), constants=tuple(state.constants))


class _Reading:
    """What has been read so far."""

    def __init__(self) -> None:
        self.plan = ""
        self.rows: list[NcclRow] = []
        self.constants: list[NcclConstant] = []
        self.ended = False
        self._ends: dict[tuple[str, int, int], int | None] = {}

    def take(self, number: int, line: str) -> None:
        if len(line.encode()) > MAX_LINE_BYTES:
            raise _Broken(f"it has more than {MAX_LINE_BYTES} bytes")
        if "\0" in line:
            raise _Broken("it has a zero byte")
        if number == 1:
            if line != HEAD:
                raise _Broken(f"it is no {HEAD}")
            return
        if line.startswith("#"):
            return
        if self.ended:
            raise _Broken("there is more after the end")
        if line.startswith("plan "):
            self.plan = line.removeprefix("plan ")
            return
        item, *fields = line.split(" ")
        if item == "row":
            self._row(fields)
        elif item == "constant":
            self._constant(fields)
        elif item == "end":
            count = len(self.rows) + len(self.constants)
            if len(fields) != 1 or _whole(fields[0], MAX_BYTES, "count") != count:
                raise _Broken(f"it has {count} rows and constants, not what it says: {line!r}")
            self.ended = True
        else:
            raise _Broken(f"{item!r} is no item of a table")

    def _row(self, fields: list[str]) -> None:
        if len(fields) != 8:
            raise _Broken(f"a row has {len(fields) + 1} fields, not 9")
        collective, ranks, nodes, start, end, algo, proto, channels = fields
        row = NcclRow(
            collective=_one_of(collective, COLLECTIVES, "collective"),
            num_ranks=_whole(ranks, MAX_RANKS, "number of ranks"),
            num_nodes=_whole(nodes, MAX_RANKS, "number of nodes"),
            min_bytes=_whole(start, MAX_BYTES, "size"),
            end_bytes=None if end == "inf" else _whole(end, MAX_BYTES, "size"),
            algo=_one_of(algo, NCCL_ALGOS, "algorithm"),
            proto=_one_of(proto, NCCL_PROTOS, "protocol"),
            channels=_whole(channels, MAX_NCCL_CHANNELS, "number of channels") or None,
        )
        if row.end_bytes is not None and row.end_bytes <= row.min_bytes:
            raise _Broken(f"a row from {start} to {end} holds no size")
        key = (row.collective, row.num_ranks, row.num_nodes)
        before = self._ends.get(key, 0)
        if before is None or row.min_bytes < before:
            raise _Broken(f"a row from {start} does not come after those before")
        self._ends[key] = row.end_bytes
        self.rows.append(row)

    def _constant(self, fields: list[str]) -> None:
        name = fields[0] if fields else ""
        indices = CONSTANTS.get(name)
        if indices is None:
            raise _Broken(f"{name!r} is no constant")
        if len(fields) != len(indices) + 2:
            raise _Broken(f"{name} has {len(fields) + 1} fields, not {len(indices) + 3}")
        index = tuple(
            _one_of(field, names, f"index of {name}")
            for field, names in zip(fields[1:-1], indices, strict=True)
        )
        value = fields[-1]
        is_number = re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) and len(value.replace(".", "")) <= 15
        if not is_number or float(value) > MAX_CONSTANT:
            raise _Broken(f"{value!r} is no number from 0 to {MAX_CONSTANT:.0f}")
        self.constants.append(NcclConstant(name=name, index=index, value=value))


def _whole(text: str, most: int, what: str) -> int:
    # A number of many leading zeros is short of any bound, but not of Python's on digits.
    if not re.fullmatch("[0-9]{1,255}", text) or int(text) > most:
        raise _Broken(f"{text!r} is no {what} from 0 to {most}")
    return int(text)


def _one_of(text: str, names: tuple[str, ...], what: str) -> str:
    if text not in names:
        raise _Broken(f"{text!r} is no {what}")
    return text
