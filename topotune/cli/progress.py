"""What a run shows while it works: a table drawn in place on a terminal, a line a phase in a log.

Rank 0 draws between the calls that it times, never beside them.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from topotune.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from topotune.cli.live import LiveLines
    from topotune.tune.progress import BestSoFar, Phase, Progress

_PHASES: Final[dict["Phase", str]] = {
    "links": "timing the links",
    "pilot": "timing the default",
    "search": "searching",
    "conditions": "trying the best beside a backward",
    "confirm": "confirming on fresh samples",
    "null trials": "the default against itself, as a control",
    "dispatch": "timing the backend's dispatch",
    "step": "timing training steps",
    "compare": "comparing",
    "done": "done",
}
_BETWEEN_S: Final = 0.4
"""Least time between two drawings: one takes some 5 ms, in which no rank is timed."""

_MINUTES_FROM_S: Final = 180
_BAR_COLUMNS: Final = 20
_FIXED_ROWS: Final = 5
"""Rows around the sizes: what is done, what is timed, a blank, the header, the note below."""

_WITHOUT_SHARE, _WITHOUT_ALGORITHM, _WITHOUT_BAR = 60, 44, 60
"""Below so many columns the share of the optimum, the algorithm, the bar are left out."""


@contextmanager
def progress(payload: dict[str, Any], verb: str) -> "Iterator[Callable[[Progress], None]]":
    """What shows reports on rank 0's standard error.

    Args:
        payload: of the ranks' work, with ``shows_lines``, which is taken out: whether phases are said where
            no terminal is.
        verb: begins those lines.
    """
    from topotune.cli.live import LiveLines, is_live
    from topotune.cli.narration import narrate_if_told, notes_go_to
    from topotune.cli.ranks import find_launcher

    says_lines = payload.pop("shows_lines")
    if not find_launcher().speaks:
        yield lambda now: None
        return
    narrate_if_told()
    if is_live(sys.stderr):
        lines = LiveLines()
        with notes_go_to(lines.note):
            try:
                yield _Drawn(lines).show
            finally:
                lines.clear()
    elif says_lines:
        yield _Said(verb).show
    else:
        yield lambda now: None


def left_in_words(seconds: float) -> str:
    """``37 s left``; in minutes where there are many."""
    if seconds >= _MINUTES_FROM_S:
        return f"{seconds / 60:.0f} min left"
    return f"{seconds:.0f} s left"


class _Said:
    """Phases in a log, a line each."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._phase: Phase = "done"

    def show(self, now: "Progress") -> None:
        if now.phase not in (self._phase, "done"):
            print(f"{self._verb}: {_PHASES[now.phase]}, {left_in_words(now.seconds_left)}", file=sys.stderr)
            self._phase = now.phase


class _Drawn:
    """Reports on a terminal."""

    def __init__(self, lines: "LiveLines") -> None:
        self._lines = lines
        self._drawn_s = -_BETWEEN_S
        self._shown: tuple[Phase, tuple[int, int]] | None = None

    def show(self, now: "Progress") -> None:
        size = self._lines.size
        now_s = time.monotonic()
        if self._shown == (now.phase, size) and now_s - self._drawn_s < _BETWEEN_S:
            return
        self._lines.draw(drawing(now, *size))
        self._drawn_s, self._shown = now_s, (now.phase, size)


def drawing(now: "Progress", columns: int, rows: int) -> list[str]:
    """A report as lines of a terminal, styled as it can and as the user wants (NO_COLOR).

    Args:
        now: the report.
        columns: width of the longest line at most.
        rows: number of lines at most.
    """
    from io import StringIO

    from rich.console import Console, Group
    from rich.text import Text

    parts: list[RenderableType] = [_bar(now, columns)]
    if now.measuring is not None:
        arms = ", ".join(now.measuring.arms)
        parts.append(Text(f"now  {format_bytes(now.measuring.message_bytes)}: {arms}", style="dim"))
    if now.best and rows > _FIXED_ROWS:
        parts += [Text(), _table(now, columns, rows - _FIXED_ROWS)]
        if now.phase in ("pilot", "search"):
            parts.append(Text("not confirmed yet: a plan takes what fresh samples prove", style="dim"))
    console = Console(
        file=StringIO(),
        width=columns,
        height=rows,
        force_terminal=True,
        legacy_windows=False,
        highlight=False,
    )
    with console.capture() as capture:
        console.print(Group(*parts), no_wrap=True, overflow="ellipsis", crop=True)
    return [line.rstrip() for line in capture.get().splitlines()][:rows]


def _bar(now: "Progress", columns: int) -> "RenderableType":
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    words = Text(_PHASES[now.phase], style="bold", no_wrap=True, overflow="ellipsis")
    left = Text(f"{left_in_words(now.seconds_left):>11}", no_wrap=True)
    if columns < _WITHOUT_BAR:
        return Text.assemble(left, "  ", words, no_wrap=True, overflow="ellipsis")
    line = Table.grid(padding=(0, 2), pad_edge=False)
    line.add_row(ProgressBar(total=1.0, completed=now.done, width=_BAR_COLUMNS), left, words)
    return line


def _table(now: "Progress", columns: int, rows: int) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    current = None if now.measuring is None else now.measuring.message_bytes
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    headers = ["message", "default", "best so far", "ratio"]
    has_share = columns >= _WITHOUT_SHARE and any(best.optimum_s is not None for best in now.best.values())
    headers += ["of optimum"] if has_share else []
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    if columns >= _WITHOUT_ALGORITHM:
        table.add_column("algorithm", no_wrap=True, overflow="ellipsis")
    shown, num_more = _around(now.best, current, rows)
    for size in shown:
        best = now.best[size]
        gains = best.ratio > 1
        cells = [
            Text(format_bytes(size), style="bold" if size == current else ""),
            Text(format_seconds(best.default_s)),
            Text(format_seconds(best.time_s)),
            Text(f"{best.ratio:.2f}", style="green" if gains else "dim"),
        ]
        if has_share:
            cells.append(Text(_share(best)))
        if columns >= _WITHOUT_ALGORITHM:
            cells.append(Text(best.algorithm, style="" if gains else "dim"))
        table.add_row(*cells)
    if num_more:
        table.add_row(Text(f"{num_more} more", style="dim"))
    return table


def _share(best: "BestSoFar") -> str:
    return "–" if best.optimum_s is None else f"{100 * best.optimum_s / best.time_s:.0f} %"


def _around(best: "Mapping[int, BestSoFar]", current: int | None, rows: int) -> tuple[list[int], int]:
    """Sizes that are shown, ascending, the one that is timed among them; and how many are not."""
    sizes = sorted(best)
    if len(sizes) <= rows:
        return sizes, 0
    room = max(1, rows - 1)  # a row says how many more there are
    at = sum(size < current for size in sizes) if current is not None else 0
    first = min(max(0, at - room // 2), len(sizes) - room)
    return sizes[first : first + room], len(sizes) - room
