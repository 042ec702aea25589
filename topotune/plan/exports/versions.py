"""Versions as ``--for`` takes them: which of a program's versions an exporter has been checked for."""

import re
from dataclasses import dataclass

from topotune.errors import UsageError

_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\.\d{1,6})*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """The versions of a program that an exporter is for, as major.minor, both ends inclusive.

    Attributes:
        program: its name (``Horovod``).
        oldest: first version.
        newest: last version that was looked at.
    """

    program: str
    oldest: tuple[int, int]
    newest: tuple[int, int]

    def __str__(self) -> str:
        """``Horovod 0.20 to 0.28``."""
        return f"{self.program} {_shown(self.oldest)} to {_shown(self.newest)}"

    def chosen(self, version: str | None) -> tuple[int, int]:
        """What ``--for`` says, or the newest.

        Raises:
            UsageError: it is no version, or none of these.
        """
        if version is None:
            return self.newest
        match = _VERSION.fullmatch(version)
        if match is None:
            raise UsageError(
                f"--for {version[:40]}: is no version of {self.program}", hint=f"--for {_shown(self.newest)}"
            )
        found = (int(match[1]), int(match[2]))
        if not self.oldest <= found <= self.newest:
            raise UsageError(
                f"--for {version[:40]}: this export is for {self}",
                hint="leave --for out to have the newest of them",
            )
        return found


def _shown(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
