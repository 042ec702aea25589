"""How ranks failed, which of them first, and the error that says so."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from topotune import errors
from topotune.errors import RankFailedError, TopotuneError

_REPORT_FIRST_S: Final = 0.5
"""By how much an exception's report must precede the end of a rank without one, to count as the cause: ends
are seen up to one poll late, and a killed rank's peers may fail before it is seen dead."""
_TAIL_BYTES: Final = 2**16


@dataclass(frozen=True, kw_only=True)
class RankFailure:
    """How one rank failed.

    Attributes:
        rank: its number in the world.
        happened_s: CLOCK_MONOTONIC of its node, comparable between ranks of one node.
        cause: in words.
        report: what the rank itself left, or None where it had no time to.
        last_output: the end of what it printed.
    """

    rank: int
    happened_s: float
    cause: str
    report: dict[str, Any] | None
    last_output: str

    def error(self) -> TopotuneError:
        """The error of topotune that the rank raised, with where as a note; else one that names the rank."""
        failed = RankFailedError(self.rank, self.cause, self.last_output)
        if self.report is None:
            return failed
        failed.add_note(f"on rank {self.rank}:\n{self.report['traceback']}")
        same = self.report["error"]
        if same is None:
            return failed
        error: TopotuneError = getattr(errors, same["class"])(*same["positional"], **same["keywords"])
        error.__cause__ = failed  # with its note: where on the rank it was raised
        return error


def find_failures(
    folder: Path, ranks: Iterable[int], ended: Mapping[int, tuple[float, str]]
) -> list[RankFailure]:
    """Failures of the ranks that ended or left a report, in the order in which they happened.

    Args:
        folder: of the job, where ranks leave reports and output.
        ranks: of this node.
        ended: rank → when its end was seen, and how it ended, of those that ended badly.
    """
    failures = []
    for rank in ranks:
        try:
            report = json.loads((folder / f"failure-{rank}.json").read_bytes())
        except FileNotFoundError:
            report = None
        if report is not None:
            happened_s, cause = report["time_s"] + _REPORT_FIRST_S, report["cause"]
        elif rank in ended:
            happened_s, cause = ended[rank]
        else:
            continue
        last_output = _last_output(folder / f"output-{rank}")
        failures.append(
            RankFailure(rank=rank, happened_s=happened_s, cause=cause, report=report, last_output=last_output)
        )
    return sorted(failures, key=lambda failure: failure.happened_s)


def _last_output(path: Path) -> str:
    """The end of what a rank printed; "" for rank 0, whose output stands on the terminal."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        return file.read().decode(errors="replace")
