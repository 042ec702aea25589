"""Files of words separated by white space, with ``#`` to the end of the line: Open MPI's rule files."""

import re
from typing import Final, NoReturn

from topotune.errors import InputFileError

MAX_TEXT: Final = 2**22
_INTEGER = re.compile(r"0|[1-9][0-9]{0,18}")


class RuleWords:
    """A text taken word by word.

    Args:
        text: of the file.
        source: names it in errors.

    Raises:
        InputFileError: the text is longer than 4 MiB.
    """

    def __init__(self, text: str, source: str) -> None:
        if len(text) > MAX_TEXT:
            raise InputFileError(source, f"has {len(text)} characters, more than {MAX_TEXT}")
        self._source = source
        self._words = [
            (word, number)
            for number, line in enumerate(text.splitlines(), start=1)
            for word in line.split("#", 1)[0].split()
        ]
        self._next = 0

    def word(self, what: str) -> str:
        """The next word.

        Raises:
            InputFileError: there is none.
        """
        if self._next == len(self._words):
            raise InputFileError(self._source, f"ends where {what} should stand")
        self._next += 1
        return self._words[self._next - 1][0]

    def integer(self, what: str, minimum: int, maximum: int) -> int:
        """The next word as a whole number in a closed range.

        Open MPI takes a leading zero as octal, so there may be none.

        Raises:
            InputFileError: there is none, or another.
        """
        word = self.word(what)
        if not _INTEGER.fullmatch(word) or not minimum <= int(word) <= maximum:
            self.fail(f"{what} is {word[:40]!r}, not a whole number from {minimum} to {maximum}")
        return int(word)

    def end(self) -> None:
        """Nothing may follow.

        Raises:
            InputFileError: something does.
        """
        if self._next < len(self._words):
            self._next += 1
            self.fail(f"goes on with {self._words[self._next - 1][0][:40]!r} where it should end")

    def fail(self, problem: str) -> NoReturn:
        """Refuse the file because of the word that was taken last.

        Raises:
            InputFileError: always.
        """
        raise InputFileError(self._source, problem, place=f"line {self._words[self._next - 1][1]}")
