"""Outputs whose every line carries a tag: by whom it was written, when, or that it is quoted or indented.

Launchers of many processes tag their output (``srun -l``, ``mpirun --tag-output``, ``pdsh``, ``kubectl logs
--prefix``), and so do loggers and mails. A tag is none of the tool's words, so a text of which no format is
recognised is read again without, the lines of each writer apart. Tags that are names of hosts name nodes.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from topotune.errors import InputFileError
from topotune.topology.formats.capture import Capture, lines_of

_TAG = re.compile(
    r"(?P<quote>>)"
    r"|(?P<time>\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}[0-9.,:+Z-]{0,16}\]?)"
    r"|(?P<rank>\[[^\]\n]{1,120}\](?:<std(?:out|err|diag)>:)?|[0-9]{1,6}:(?= |$))"
    r"|(?P<host>[A-Za-z][\w.-]{0,62}:(?= |$))"
)
_MOST = 0.9  # of the lines; a login message or two stand without
_MAX_LEVELS = 3
_MAX_CHARACTERS = 16 * 2**20  # each is looked at several times over
_MAX_LINES = 150_000
_MAX_WRITERS = 4_096

_Writer = tuple[str | None, str]
"""A host, where a tag names one, and all other tags of its lines that do not change from line to line."""


def untagged(capture: Capture, fits: Callable[[Capture], bool]) -> list[tuple[str | None, Capture]]:
    """What each of several writers wrote without its tags, and the host that these name.

    A blank that all lines begin with counts as a tag. Writers that wrote the same are taken once.

    Args:
        capture: the text with its tags.
        fits: whether a text is one that is looked for; others are left out.

    Returns:
        at most one text of each host; none where lines have no tags, no text fits, or there are more than
        16 Mi characters or 150,000 lines.

    Raises:
        InputFileError: processes wrote what differs, and no host says whose it is; or too many lines or
            writers.
    """
    lines = lines_of(capture.text, capture.source)
    if len(lines) > _MAX_LINES or len(capture.text) > _MAX_CHARACTERS:
        return []
    indent = _common_indent(lines)
    writers: dict[_Writer, list[str]] = {(None, ""): [line[indent:] for line in lines]}
    tagged = indent > 0
    for _ in range(_MAX_LEVELS):
        apart = _apart(writers)
        if apart is None:
            break
        writers, tagged = apart, True
        if len(writers) > _MAX_WRITERS:
            raise InputFileError(capture.source, f"has lines of more than {_MAX_WRITERS} writers")
    if not tagged:
        return []
    texts = {(host, "\n".join(of_writer)): None for (host, _), of_writer in writers.items()}
    found = [(host, replace(capture, text=text)) for host, text in texts if text.strip()]
    found = [(host, each) for host, each in found if fits(each)]
    hosts = [host for host, _ in found]
    if len(set(hosts)) < len(hosts):
        raise InputFileError(
            capture.source,
            "has lines of several processes, which wrote different things",
            hint="give what each wrote in a file of its own: topotune import NODE=FILE NODE=FILE",
        )
    return found


def _common_indent(lines: Sequence[str]) -> int:
    """How many blanks all lines begin with, the same in each; lines without a word do not count."""
    filled = [line for line in lines if line.strip()]
    ends = zip(min(filled), max(filled), strict=False)  # what these two share, all between them do
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1] and pair[0] in " \t", ends))


def _apart(writers: dict[_Writer, list[str]]) -> dict[_Writer, list[str]] | None:
    """One level of tags taken off, by writer; None where most lines have none."""
    num_lines = num_tagged = 0
    found: dict[_Writer, list[str]] = defaultdict(list)
    for (host, rank), lines in writers.items():
        for line in lines:
            num_lines += bool(line.strip())
            match = _TAG.match(line)
            if match is None:
                continue
            num_tagged += bool(line.strip())
            tag = match[0].strip().rstrip(":")
            if match.lastgroup == "host" and host is None:
                key: _Writer = tag, rank
            else:
                key = host, f"{rank} {tag}" if match.lastgroup == "rank" else rank
            found[key].append(line[match.end() :])
    if not num_tagged or num_tagged < _MOST * num_lines:
        return None
    return {key: _without_blank(of_writer) for key, of_writer in found.items()}


def _without_blank(lines: list[str]) -> list[str]:
    """Lines without the blank that stands behind a tag, if one stands behind each."""
    if all(line.startswith(" ") for line in lines if line):
        return [line[1:] for line in lines]
    return lines
