"""The few forms in which the kernel writes numbers into /sys and /proc, parsed strictly.

Every parser returns None where the kernel says that it does not know (``Unknown``, ``N/A``, ``-1``), and
raises ValueError for anything else that it does not understand; it never guesses.
"""

import re
from collections.abc import Iterable

MAX_CPUS = 65_536

_NOT_KNOWN = {"", "-1", "unknown", "n/a", "[n/a]", "na", "none", "unspecified", "not specified", "(null)"}
_WHOLE = re.compile(r"[0-9]{1,18}")
_HEX = re.compile(r"0x([0-9a-fA-F]{1,8})")
_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_KILOBYTES = re.compile(r"^(?:Node +[0-9]+ +)?MemTotal: +([0-9]{1,15}) kB$", re.MULTILINE)


def says_unknown(text: str) -> bool:
    """The text is one of the ways of saying nothing."""
    return text.strip().lower() in _NOT_KNOWN


def parse_word(text: str) -> str | None:
    """A name on one line, white space folded.

    Raises:
        ValueError: longer than 200 characters.
    """
    if says_unknown(text):
        return None
    word = " ".join(text.split())
    if len(word) > 200:
        raise ValueError(f"{len(word)} characters are no name")
    return word


def parse_whole(text: str, *, maximum: int) -> int | None:
    """A whole number from 0 to ``maximum``.

    Raises:
        ValueError: no such number.
    """
    if says_unknown(text):
        return None
    if not _WHOLE.fullmatch(text) or int(text) > maximum:
        raise ValueError(f"{text!r} is no whole number from 0 to {maximum}")
    return int(text)


def parse_index(text: str) -> int | None:
    """The number of a NUMA node, socket or port (``-1``: not known).

    Raises:
        ValueError: no such number.
    """
    return parse_whole(text, maximum=MAX_CPUS)


def parse_hex(text: str) -> int | None:
    """``0x10de`` → 4318.

    Raises:
        ValueError: no hexadecimal number of up to 32 bits.
    """
    if says_unknown(text):
        return None
    match = _HEX.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no hexadecimal number")
    return int(match[1], 16)


def parse_cpulist(text: str) -> frozenset[int]:
    """``"0-3,8"`` → {0, 1, 2, 3, 8}; empty text is no CPU (a NUMA node of memory alone).

    Raises:
        ValueError: no such list, or a number of 65536 and more.
    """
    cpus: set[int] = set()
    for part in text.split(",") if text else []:
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no CPU number or range")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < MAX_CPUS:
            raise ValueError(f"{part!r} is no range of CPUs below {MAX_CPUS}")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def format_cpulist(cpus: Iterable[int]) -> str:
    """{0, 1, 2, 3, 8} → ``"0-3,8"``, as the kernel writes it."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)


def parse_mem_total(text: str) -> int | None:
    """Bytes from the ``MemTotal`` line of /proc/meminfo or of a NUMA node's meminfo, or None."""
    match = _KILOBYTES.search(text)
    return None if match is None else int(match[1]) * 1024
