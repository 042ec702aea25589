"""Rows for NCCL's stock example tuner plugin (``plugins/tuner/example``, once ``ext-tuner/example``).

Theory of operation. The plugin takes the first row that holds the call and whose algorithm NCCL has
available. It cannot leave a call alone: one that no row holds, or whose row names no channels, runs on one
channel. So every row here names its channels, and rows for all sizes of all five collectives close the file:
ring with simple, which NCCL has everywhere, on all of the communicator's channels. Where the plan leaves a
size to NCCL, that is not what NCCL would choose, and a warning says so; a plan that leaves everything to NCCL
is refused. A file that breaks these rules can neither be written nor read here.

The plugin itself reads what it does not know as allreduce, ring or simple, and drops short lines, without a
word; `read` refuses them. Facts as in NCCL 2.27.5 to 2.30.7, whose plugins read the same lines.
"""

import os
import shlex
from dataclasses import dataclass
from typing import Final

from topotune.errors import InputFileError, UsageError
from topotune.plan.exports.nccl_rows import NcclRow, nccl_tables, version_of, version_warnings
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.model import Plan
from topotune.plan.nccl import MAX_NCCL_CHANNELS, NCCL_ALGOS, NCCL_PROTOS

OLDEST: Final = (2, 24)
HEAD: Final = "# collective,min,max (included),algorithm,protocol,channels,nodes,ranks,pipeops,regbuff"
COLLECTIVES: Final = ("allreduce", "allgather", "reducescatter", "broadcast", "reduce")
ANY: Final = -1
LAST_BYTE: Final = 2**64 - 1
MAX_INT: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class CsvRow:
    """One row.

    Attributes:
        collective: in NCCL's spelling (``reducescatter``).
        min_bytes: the smallest message.
        max_bytes: the largest message, included.
        algo: as in plans.
        proto: as in plans.
        channels: at most; NCCL clips them to those of the communicator.
        num_nodes: that the communicator lies on, or `ANY`.
        num_ranks: of the communicator, or `ANY`.
        pipe_ops: grouped calls for each channel, or `ANY`.
        registered: whether buffers are, 0 or 1, or `ANY`.
    """

    collective: str
    min_bytes: int
    max_bytes: int
    algo: str
    proto: str
    channels: int
    num_nodes: int = ANY
    num_ranks: int = ANY
    pipe_ops: int = ANY
    registered: int = ANY


@dataclass(frozen=True, kw_only=True, slots=True)
class TunerCsv:
    """A file of the stock plugin that leaves no call to one channel.

    Attributes:
        rows: the first that holds a call counts.
    """

    rows: tuple[CsvRow, ...]

    def __post_init__(self) -> None:
        problem = _problem(self.rows)
        if problem:
            raise ValueError(problem)


def _problem(rows: tuple[CsvRow, ...]) -> str | None:
    """Which calls the stock plugin would run on one channel, in words."""
    for row in rows:
        if not 1 <= row.channels <= MAX_NCCL_CHANNELS:
            return f"{row.collective} from {row.min_bytes} names {row.channels} channels: it would run on one"
    for collective in COLLECTIVES:
        if not any(_holds_all(row, collective) for row in rows):
            return f"no last row holds {collective} of all sizes: what no row holds would run on one channel"
    return None


def _holds_all(row: CsvRow, collective: str) -> bool:
    """Whether a row holds every call of a collective, with what NCCL has available everywhere."""
    filters = (row.num_nodes, row.num_ranks, row.pipe_ops, row.registered)
    return (
        (row.collective, row.algo, row.proto) == (collective, "ring", "simple")
        and (row.min_bytes, row.max_bytes) == (0, LAST_BYTE)
        and set(filters) == {ANY}
    )


CATCH_ALL: Final = tuple(
    CsvRow(
        collective=collective,
        min_bytes=0,
        max_bytes=LAST_BYTE,
        algo="ring",
        proto="simple",
        channels=MAX_NCCL_CHANNELS,
    )
    for collective in COLLECTIVES
)


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """The plan's rows, then rows for all else.

    Raises:
        UsageError: the plan leaves everything to NCCL, which no file of the stock plugin can.
    """
    version = version_of(plan, options, oldest=OLDEST)
    tables = nccl_tables(plan)
    if not tables.rows:
        raise UsageError(
            f"nccl-tuner-csv: {tables.warnings[-1]}; but with the stock plugin loaded it cannot, "
            "whatever the file says: what no row holds runs on one channel",
            hint="run without the stock plugin; --to nccl-tuner writes one that leaves NCCL alone",
        )
    warnings = [*tables.warnings, *version_warnings(plan, version)]
    left = _left_to_nccl(tables.rows, tables.complete)
    warnings.append(
        f"the stock plugin cannot leave calls to NCCL: {left} run as ring with simple, whatever NCCL "
        "would choose; --to nccl-tuner leaves them alone"
    )
    if any(row.channels is None for row in tables.rows):
        warnings.append(
            "rows without channels get all channels of the communicator, since the stock plugin would "
            "run them on one"
        )
    rows = (*map(_csv_row, tables.rows), *CATCH_ALL)
    return Translated(document=TunerCsv(rows=rows), warnings=tuple(warnings))


def _left_to_nccl(rows: tuple[NcclRow, ...], complete: frozenset[tuple[str, int, int]]) -> str:
    """What the plan leaves to NCCL, in words; broadcast and reduce always."""
    named = {(row.collective, row.num_ranks, row.num_nodes) for row in rows}
    some = {collective for collective, *_ in named - complete}
    none = [
        name for name in ("allreduce", "allgather", "reduce_scatter") if name not in {key[0] for key in named}
    ]
    parts = [f"sizes of {name} that the plan does not name" for name in sorted(some)]
    parts += [f"all of {name}" for name in (*none, "broadcast", "reduce")]
    return ", ".join([*parts, "and other communicators"])


def _csv_row(row: NcclRow) -> CsvRow:
    return CsvRow(
        collective=row.collective.replace("_", ""),
        min_bytes=row.min_bytes,
        max_bytes=LAST_BYTE if row.end_bytes is None else row.end_bytes - 1,
        algo=row.algo,
        proto=row.proto,
        channels=MAX_NCCL_CHANNELS if row.channels is None else row.channels,
        num_nodes=row.num_nodes,
        num_ranks=row.num_ranks,
    )


def write(csv: TunerCsv) -> str:
    """The file's text."""
    lines = (
        f"{row.collective},{row.min_bytes},{row.max_bytes},{row.algo},{row.proto},{row.channels},"
        f"{row.num_nodes},{row.num_ranks},{row.pipe_ops},{row.registered}"
        for row in csv.rows
    )
    return "\n".join([HEAD, *lines]) + "\n"


class _Broken(ValueError):
    """What is wrong with a line."""


def read(text: str, source: str) -> TunerCsv:
    """The rows of a file; comments are not kept.

    Raises:
        InputFileError: a line that the stock plugin would drop or misread, or calls that it would run on one
            channel.
    """
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#") or not line:
            continue
        try:
            rows.append(_row(line))
        except _Broken as problem:
            raise InputFileError(source, str(problem), place=f"line {number}") from None
    try:
        return TunerCsv(rows=tuple(rows))
    except ValueError as problem:
        raise InputFileError(
            source,
            str(problem),
            hint="name channels in every row, and end with:\n" + write(TunerCsv(rows=CATCH_ALL)),
        ) from None


def _row(line: str) -> CsvRow:
    if len(line.encode()) > 254:
        raise _Broken("it has more than 254 bytes, which the stock plugin cuts")
    fields = [field.strip(" \t") for field in line.split(",")]
    if not 8 <= len(fields) <= 10:
        raise _Broken(f"it has {len(fields)} fields, not 8 to 10")
    if "" in fields:
        raise _Broken("it has an empty field, which the stock plugin skips")
    pipe_ops, registered = [*fields[8:], "-1", "-1"][:2]
    row = CsvRow(
        collective=_one_of(fields[0], COLLECTIVES, "collective"),
        min_bytes=_whole(fields[1], 0, LAST_BYTE),
        max_bytes=_whole(fields[2], 0, LAST_BYTE),
        algo=_one_of(fields[3], NCCL_ALGOS, "algorithm"),
        proto=_one_of(fields[4], NCCL_PROTOS, "protocol"),
        channels=_whole(fields[5], ANY, MAX_NCCL_CHANNELS),
        num_nodes=_whole(fields[6], ANY, MAX_INT),
        num_ranks=_whole(fields[7], ANY, MAX_INT),
        pipe_ops=_whole(pipe_ops, ANY, MAX_INT),
        registered=_whole(registered, ANY, 1),
    )
    if row.max_bytes < row.min_bytes:
        raise _Broken(f"it runs from {row.min_bytes} down to {row.max_bytes}")
    return row


def _one_of(text: str, names: tuple[str, ...], what: str) -> str:
    if text not in names:
        raise _Broken(f"{text!r} is no {what}: {', '.join(names)}")
    return text


def _whole(text: str, least: int, most: int) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and least <= int(text) <= most):
        raise _Broken(f"{text!r} is no whole number from {least} to {most}")
    return int(text)


def how_to_use(place: str) -> str:
    """What the job's environment must say."""
    path = shlex.quote(os.path.abspath(place))
    return (
        f"export NCCL_TUNER_PLUGIN=libnccl-tuner-example.so NCCL_TUNER_CONFIG_FILE={path}  # on all nodes\n"
        "# the plugin is built from NCCL's own source, 2.27.5 or later: make -C plugins/tuner/example"
    )


TARGET: Final = Target(
    name="nccl-tuner-csv",
    summary="configuration of NCCL's example tuner plugin; it cannot leave any call to NCCL, nccl-tuner can",
    versions="NCCL 2.24 to 2.30, plugin source of 2.27.5 or later",
    from_plan=from_plan,
    write=write,
    read=read,
    how_to_use=how_to_use,
)
