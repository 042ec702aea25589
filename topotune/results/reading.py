"""Any result file → what it is, and its value."""

import codecs
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from topotune.documents import Value, parse_json, read_bytes, read_bytes_from_start, schema_of
from topotune.errors import InputFileError
from topotune.links.check import Check
from topotune.links.document import from_document as measurement_from_document
from topotune.links.measurement import Measurement
from topotune.plan import Plan, plan_from_document
from topotune.results.checks import check_of
from topotune.results.comparison import Comparison, comparison_of
from topotune.results.optimum import OptimumResult, optimum_of
from topotune.results.prediction import prediction_of
from topotune.results.tuning import TuningRun, tuning_run_of
from topotune.schedule.document import MAX_SCHEDULE_BYTES, cut_long_columns
from topotune.schedule.document import from_document as schedule_from_value
from topotune.schedule.model import Schedule
from topotune.simulate.document import Prediction
from topotune.step.gradients import Gradients, gradients_from_document
from topotune.topology.document import topology_from_document
from topotune.topology.model import Topology
from topotune.tune.journal import read_journal

Result = (
    Topology
    | Measurement
    | Plan
    | TuningRun
    | Schedule
    | Comparison
    | Prediction
    | Check
    | OptimumResult
    | Gradients
)

_READERS: Final[dict[str, Callable[[Value], Any]]] = {
    "topology": lambda value: topology_from_document(value.raw, value.source),
    "measurement": lambda value: measurement_from_document(value.raw, value.source),
    "plan": lambda value: plan_from_document(value.raw, value.source),
    "comparison": comparison_of,
    "prediction": prediction_of,
    "check": check_of,
    "optimum": optimum_of,
    "gradients": lambda value: gradients_from_document(value.raw, value.source),
}
KINDS: Final = (*_READERS, "schedule", "journal")
"""Kinds of result files, as their ``schema`` has them behind ``topotune/``."""

_MAX_RESULT_BYTES: Final = 256 * 2**20
"""Of a file but for long columns of schedules, which are read by themselves."""

_JOURNAL_START: Final = b'{"crc32":'
_HINTS: Final = {
    "profile": "topotune show --profile NAME shows a known machine; topotune simulate and optimum take it",
    "lab": "topotune simulate and optimum take a lab profile; --json prints what can be shown",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultFile:
    """A file that was read.

    Attributes:
        path: as the user wrote it.
        kind: one of `KINDS`.
        value: what it holds.
    """

    path: str
    kind: str
    value: Result

    @property
    def name(self) -> str:
        """The file's own name, for headings."""
        return Path(self.path).name


def read_result(path: str | os.PathLike[str]) -> ResultFile:
    """Read a result file of any kind.

    Raises:
        InputFileError: it cannot be read, is no result of topotune, is of a newer version, or a value in it
            is missing or out of bounds.
    """
    name = os.fspath(path)
    if read_bytes_from_start(path, len(_JOURNAL_START)) == _JOURNAL_START:
        return ResultFile(path=name, kind="journal", value=tuning_run_of(read_journal(Path(path)), name))
    data = read_bytes(path, max_bytes=MAX_SCHEDULE_BYTES)
    if data.strip() and not data.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        raise InputFileError(
            name,
            "is no result file of topotune, which begins with {",
            hint=f"topotune import {name} -o result.json reads other tools' files",
        )
    rest, columns = cut_long_columns(data, name)
    value = parse_json(rest, name, max_bytes=_MAX_RESULT_BYTES)
    kind = schema_of(value).removeprefix("topotune/")
    if kind == "schedule":
        return ResultFile(path=name, kind=kind, value=schedule_from_value(value, columns))
    if columns:
        value = parse_json(data, name, max_bytes=_MAX_RESULT_BYTES)
    if kind not in _READERS:
        value.fail(
            f"is a topotune/{kind:.60}, of which there is no picture"
            if kind in _HINTS
            else f"is a {schema_of(value):.60}, which this topotune does not know",
            hint=_HINTS.get(kind, f"it knows: {', '.join(KINDS)}"),
        )
    try:
        return ResultFile(path=name, kind=kind, value=_READERS[kind](value))
    except InputFileError:
        raise
    except ValueError as problem:
        raise InputFileError(name, str(problem)) from problem
