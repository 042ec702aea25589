"""A few lines at the end of a terminal that are drawn anew in place.

Theory of operation. The cursor always rests in the first column below the lines and is never hidden, and no
mode of the terminal is changed: so whatever ends this process at whatever moment (Ctrl-C ends ranks by
SIGTERM, a node may fall) leaves a terminal that needs no repair. A drawing is one write: the cursor goes up
over the lines, each is written over the former one and its rest erased, and what was longer below is erased
at last. Nothing is blanked before it is written, so nothing flickers. Nor is there a thread that draws: a
process that measures is not to be woken up. Lines are one column short of the terminal's width, as a
character in the last column wraps on some terminals and not on others.
"""

import os
import sys
from collections.abc import Sequence
from typing import IO, Final

from rich.text import Text

_NO_TERMINAL: Final = (80, 24)


def is_live(stream: IO[str]) -> bool:
    """Whether lines can be drawn in place there: a terminal that understands cursor movements."""
    return stream.isatty() and os.environ.get("TERM", "dumb").lower() not in ("dumb", "unknown")


class LiveLines:
    """Lines at the end of a terminal.

    Args:
        stream: of the terminal; standard error.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._widths: list[int] = []
        self._gone = False

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows that lines may take: one less than the terminal has of either."""
        try:
            found = os.get_terminal_size(self._stream.fileno())
        except OSError:
            found = os.terminal_size(_NO_TERMINAL)
        # A terminal that does not know its size says 0.
        columns, rows = found.columns or _NO_TERMINAL[0], found.lines or _NO_TERMINAL[1]
        return max(1, columns - 1), max(1, rows - 1)

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines, which may be styled, in place of the former ones; what does not fit is cut."""
        columns, rows = self.size
        fitting = [Text.from_ansi(line) for line in lines[:rows]]
        drawn = [
            line if text.cell_len <= columns else text.plain[:columns]
            for line, text in zip(lines, fitting, strict=False)
        ]
        text = self._up(columns) + "".join(f"{line}\x1b[K\n" for line in drawn) + "\x1b[J"
        self._widths = [min(one.cell_len, columns) for one in fitting]
        self._write(text)

    def note(self, line: str) -> None:
        """Have a line stand above, for good."""
        self._write(f"{self._up(self.size[0])}\x1b[J{line}\n")
        self._widths = []

    def clear(self) -> None:
        """Take the lines away."""
        if self._widths:
            self._write(self._up(self.size[0]) + "\x1b[J")
            self._widths = []

    def _up(self, columns: int) -> str:
        """To the first of the lines; on a terminal that was made narrower they take more rows than before."""
        num_rows = sum(max(1, -(-width // (columns + 1))) for width in self._widths)
        return f"\x1b[{num_rows}A\r" if num_rows else ""

    def _write(self, text: str) -> None:
        """A terminal that is gone (its window was closed under ``nohup``) is no reason to stop working."""
        if self._gone:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            self._gone = True
