"""A terminal that a test can look at: a program on a pty, its output drawn by a terminal emulator."""

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pexpect
import pyte
from command_line import environment


class Screen:
    """``topotune`` on a terminal.

    Args:
        arguments: of topotune.
        cwd: where it runs.
        columns: of the terminal.
        rows: of it.
        variables: set in its environment.
    """

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        columns: int = 80,
        rows: int = 24,
        variables: dict[str, str] | None = None,
    ) -> None:
        self._emulated = pyte.HistoryScreen(columns, rows, history=1000)
        self._stream = pyte.ByteStream(self._emulated)
        self._pending: list[bytes] = []
        self.raw = b""
        self.process = pexpect.spawn(
            sys.executable,
            ["-m", "topotune", *arguments],
            cwd=str(cwd),
            env={**environment(), "TERM": "xterm-256color", **(variables or {})},
            dimensions=(rows, columns),
            timeout=120,
        )

    @property
    def lines(self) -> list[str]:
        """What is to be seen."""
        return [line.rstrip() for line in self._emulated.display]

    @property
    def all_lines(self) -> list[str]:
        """The same, with what has been scrolled out of sight."""
        gone = [
            "".join(row[x].data for x in range(self._emulated.columns)) for row in self._emulated.history.top
        ]
        return [line.rstrip() for line in gone] + self.lines

    def until(self, holds: Callable[[list[str]], object], *, within_s: float = 120) -> list[str]:
        """Look until the screen is as it should be; the lines then."""
        deadline_s = time.monotonic() + within_s
        while not holds(self.lines):
            assert self._read(), f"it ended, and showed:\n{self}"
            assert time.monotonic() < deadline_s, f"in {within_s} s it showed:\n{self}"
        return self.lines

    def until_end(self) -> int:
        """Look until the program has ended; its exit code."""
        while self._read():
            pass
        self.process.close()
        return self.process.exitstatus if self.process.exitstatus is not None else -self.process.signalstatus

    def __str__(self) -> str:
        return "\n".join(self.all_lines).rstrip()

    def _read(self) -> bool:
        """Take in what came, one drawing at a time; False once the program has ended."""
        if not self._pending:
            try:
                chunk = self.process.read_nonblocking(65536, timeout=1)
            except pexpect.TIMEOUT:
                return True
            except pexpect.EOF:
                return False
            self.raw += chunk
            self._pending = re.split(rb"(?<=\x1b\[J)", chunk)
        self._stream.feed(self._pending.pop(0))
        return True


def shown(pattern: str) -> Callable[[list[str]], object]:
    """Whether a line of a screen matches."""
    return lambda lines: any(re.search(pattern, line) for line in lines)
