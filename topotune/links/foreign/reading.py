"""What a benchmark's reader gives, and what all readers need: clean lines, numbers as a tool prints them.

Theory of operation. A reader turns one text into a `FigureReading`: figures, and as much as the text proves
of who took part. `importing` makes a measurement of it, and joins the readings of several files. As with
readers of topologies, a reader says only what its text says, and tells what it left out.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from topotune.links.figures import CollectiveFigure, LinkFigure
from topotune.probe.faults import Faults
from topotune.topology.formats.capture import lines_of

MAX_FIGURES: Final = 200_000
MAX_RANKS: Final = 4_096
"""Bounds on what one file may hold: the ranks of a measurement, and figures that are read in seconds."""

_PREFIX = re.compile(r"[ \t]{0,20}(?:\[[^\]\n]{1,80}\]<std(?:out|err)>:[ \t]?|[0-9]{1,6}: )")
_OBJECT = re.compile(r"^[ \t]{0,40}\{", re.MULTILINE)
_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,12})?(?:[eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, kw_only=True, slots=True)
class FigureReading:
    """What one file proves.

    Attributes:
        num_ranks: of the group that took part; 0 where that is not known, or differs from run to run.
        node_of_rank, node_names: where the ranks were, as in `Measurement`; empty where the file does not
            say.
        link_figures, collectives: in the file's order.
        facts: tool, versions and what else describes the run.
        warnings: what was left out, and what does not fit together, one line each.
        single_node: all ranks are on one machine, whose name the file does not say.
    """

    num_ranks: int
    node_of_rank: tuple[int, ...] = ()
    node_names: tuple[str, ...] = ()
    link_figures: tuple[LinkFigure, ...] = ()
    collectives: tuple[CollectiveFigure, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    single_node: bool = False


@dataclass(frozen=True, slots=True)
class FigureReader:
    """One format.

    Attributes:
        name: as ``--format`` takes it.
        what: the format in a few words.
        recognise: whether a text (its first megabytes) holds such a thing.
        read: text, and the name by which errors call it → what it proves.
            Raises `InputFileError`, and nothing else.
    """

    name: str
    what: str
    recognise: Callable[[str], bool]
    read: Callable[[str, str], FigureReading]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as a tool printed it.

    Attributes:
        value: the number.
        error: at most so far from the one that was rounded: half a unit of its last digit.
    """

    value: float
    error: float

    def scaled(self, factor: float) -> "Figure":
        """The same in another unit."""
        return Figure(self.value * factor, self.error * factor)


def is_a_figure(value: float) -> bool:
    """Whether a tool can have measured it: of others, bytes and seconds would be 0 or infinite."""
    return value == 0 or 1e-100 < value < 1e100


def figure_of(text: str) -> Figure | None:
    """``12.34``, ``1.2e+05``, ``99`` → the number; None for anything else, ``N/A`` and ``1e300`` included."""
    if _NUMBER.fullmatch(text) is None:
        return None
    mantissa, _, exponent = text.lower().partition("e")
    value = float(text)
    if not is_a_figure(value):
        return None
    decimals = len(mantissa.partition(".")[2])
    return Figure(value, float(f"5e{int(exponent or 0) - decimals - 1}"))


def check_messages(rate: Figure, messages: Figure, message_bytes: int, place: str, faults: Faults) -> None:
    """Messages per second × their size are the rate, or one of the three is not what it seems.

    Args:
        rate: in bytes/s.
        messages: per second.
        message_bytes: size of each.
        place: of the row.
        faults: takes what does not fit.
    """
    product = messages.scaled(message_bytes)
    if abs(product.value - rate.value) > product.error + rate.error + 1e-3 * rate.value:
        faults.add(
            "the rate is not the messages per second × their size",
            f"{rate.value / 1e9:.4g} and {product.value / 1e9:.4g} GB/s ({place})",
        )


def json_from(text: str) -> str | None:
    """A JSON object in a text, without the lines that launchers print before it; None where there is none."""
    start = _OBJECT.search(text)
    return None if start is None else text[start.start() :]


def numbered_lines(text: str, source: str) -> Iterator[tuple[int, str]]:
    """Lines by their numbers from 1, without the tags that ``srun -l`` and ``mpirun`` put before them.

    Raises:
        InputFileError: as `lines_of`.
    """
    for number, line in enumerate(lines_of(text, source), start=1):
        tag = _PREFIX.match(line)
        yield number, line if tag is None else line[tag.end() :]
