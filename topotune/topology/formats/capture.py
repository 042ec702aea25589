"""A captured file as clean text: whatever encoding, colours and line ends it came with, and within bounds.

Captures come off terminals, out of chats and Windows editors. What is undone here need not be thought of in
any reader: byte order marks, UTF-16, terminal colours, carriage returns, control characters. Bounds on bytes,
lines and the length of a line keep every reader, each linear in the text, within seconds.
"""

import codecs
import os
import re
from dataclasses import dataclass
from typing import Final

from topotune.documents import read_bytes
from topotune.errors import InputFileError

MAX_CAPTURE_BYTES: Final = 64 * 2**20
"""Decoded, such a text takes up to 256 MiB, and twice that when it is cut into lines."""
MAX_LINES: Final = 500_000
MAX_LINE: Final = 2**20
HEAD: Final = 4 * 2**20

_TERMINAL = re.compile(
    r"\x1b\[[0-?]{0,32}[ -/]{0,4}[@-~]|\x1b[()][0-2A-B]|\x1b\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)"
)
_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]"
)
_CONTROL_BYTES = bytes([*range(1, 9), 11, 12, *range(14, 32), 127])
_MAX_CONTROL_SHARE = 0.25
_LINE_END = re.compile(r"\r\n|[\r\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Capture:
    """A file's text.

    Attributes:
        source: names it in errors, as the user wrote it.
        text: lines that end in a newline alone, without control characters but tabs.
        warnings: what could not be read of it.
    """

    source: str
    text: str
    warnings: tuple[str, ...]

    @property
    def head(self) -> str:
        """As much as formats are recognised by."""
        return self.text[:HEAD]


def read_capture(path: str | os.PathLike[str]) -> Capture:
    """A file from outside.

    Raises:
        InputFileError: it cannot be read, is larger than 64 MiB, or holds no text.
    """
    return clean_capture(read_bytes(path, max_bytes=MAX_CAPTURE_BYTES), os.fspath(path))


def clean_capture(data: bytes, source: str) -> Capture:
    """Bytes from outside → text; refusals as in `read_capture`."""
    if len(data) > MAX_CAPTURE_BYTES:
        raise InputFileError(source, f"has {len(data)} bytes, more than the {MAX_CAPTURE_BYTES} of a capture")
    text, undecoded = _decoded(data, source)
    text = _LINE_END.sub("\n", _TERMINAL.sub("", text))
    text, num_control = _CONTROL.subn("?", text)
    warnings = []
    if undecoded:
        warnings.append(f"{source}: not UTF-8 from byte {undecoded}; what is not, stands as \ufffd")
    if num_control:
        warnings.append(f"{source}: {num_control} control characters stand as question marks")
    if not text.strip():
        raise InputFileError(source, "is empty", hint="give the tool's output, as text")
    return Capture(source, text, tuple(warnings))


def lines_of(text: str, source: str) -> list[str]:
    """The lines of a text, for readers that go line by line.

    Raises:
        InputFileError: more than 500,000 lines, or one of more than 1 MiB characters.
    """
    num_lines = text.count("\n") + 1
    if num_lines > MAX_LINES:
        raise InputFileError(source, f"has {num_lines} lines, more than the {MAX_LINES} of a capture")
    lines = text.split("\n")
    longest = max(lines, key=len)
    if len(longest) > MAX_LINE:
        place = f"line {lines.index(longest) + 1}"
        raise InputFileError(source, f"has {len(longest)} characters, more than {MAX_LINE}", place=place)
    return lines


def _decoded(data: bytes, source: str) -> tuple[str, int | None]:
    """The text, and the first byte that is none."""
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):
        if data.startswith(mark):
            try:
                return data.decode(encoding), None
            except UnicodeDecodeError as problem:
                place = f"byte {problem.start}"
                raise InputFileError(source, f"is no UTF-16 text: {problem.reason}", place=place) from problem
    data = data.removeprefix(codecs.BOM_UTF8)
    num_control = len(data) - len(data.translate(None, _CONTROL_BYTES))
    if num_control > _MAX_CONTROL_SHARE * len(data):
        raise InputFileError(source, f"is no text: {num_control} of {len(data)} bytes are control characters")
    nul = data.find(b"\0")
    if nul >= 0:
        raise InputFileError(
            source,
            "is no text: a byte of 0",
            place=f"byte {nul}",
            hint="give the tool's output as text, not an archive or picture of it",
        )
    try:
        return data.decode(), None
    except UnicodeDecodeError as problem:
        return data.decode(errors="replace"), problem.start
