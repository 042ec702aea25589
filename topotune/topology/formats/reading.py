"""What a format's reader gives: the part of a topology that one file proves.

Theory of operation. A reader turns one text into a `Reading`: vertices, links and pairs under ids of its own,
with what it left out as warnings. `join` puts the readings of one machine, and of many, together; it alone
knows that two readings may speak of the same device. A reader therefore says only what its text says.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeVar

from topotune.documents import MAX_TEXT
from topotune.topology.model import Link, Pair, Vertex

THIS_NODE: Final = ""
"""As `Vertex.node`: the machine that the file is of, where the file does not name it."""

_Part = TypeVar("_Part", Vertex, Link)
_MAX_WARNING = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What one file proves.

    Attributes:
        vertices: with ids that are unique in this reading; ``node`` is `THIS_NODE`, a host's name, or None
            for what stands between hosts.
        links, pairs: between those ids.
        ranks: rank → vertex id, where the file says so; else empty.
        servers: vertices that add for the ranks, where the file says so.
        facts: of `Source.facts`, for the machine that the file is of.
        warnings: what was left out, and why, one line each.
        num_gpus: how many GPUs the machine has, where the file lists them all.
    """

    vertices: tuple[Vertex, ...] = ()
    links: tuple[Link, ...] = ()
    pairs: tuple[Pair, ...] = ()
    ranks: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    facts: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    num_gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """One format.

    Attributes:
        name: as ``--format`` takes it.
        what: the format in a few words.
        recognise: whether a text (its first megabytes) holds such a thing; takes time in proportion to its
            length.
        read: text, and the name by which errors call it → what it proves.
            Raises `InputFileError`, and nothing else.
        whole: the format takes up the whole file, so that no other is looked for in it.
    """

    name: str
    what: str
    recognise: Callable[[str], bool]
    read: Callable[[str, str], Reading]
    whole: bool = False


def fitting(reading: Reading) -> Reading:
    """A reading whose texts a topology document can hold: on one line, and not too long.

    What is too long is left out, and told.
    """
    dropped: dict[str, None] = {}
    vertices = tuple(_fitting(vertex, dropped) for vertex in reading.vertices)
    links = tuple(_fitting(link, dropped) for link in reading.links)
    facts = {
        key: " ".join(value.split()) if isinstance(value, str) else value
        for key, value in reading.facts.items()
        if not (isinstance(value, str) and len(value) > MAX_TEXT)
    }
    dropped |= {key: None for key in reading.facts if key not in facts}
    warnings = [
        warning if len(warning) <= _MAX_WARNING else f"{warning[:_MAX_WARNING]}…"
        for warning in (" ".join(line.split()) for line in reading.warnings)
    ]
    if dropped:
        warnings.append(f"left out, texts of more than {MAX_TEXT} characters: {', '.join(list(dropped)[:3])}")
    return replace(reading, vertices=vertices, links=links, facts=facts, warnings=tuple(warnings))


_IDS = ("id", "src", "dst")
"""By these the parts of a reading find each other; no document gets to see them as they are."""


def _fitting(part: _Part, dropped: dict[str, None]) -> _Part:
    changes: dict[str, Any] = {}
    for each in fields(part):
        if each.name in _IDS:
            continue
        value = getattr(part, each.name)
        if isinstance(value, str) and ("\t" in value or len(value) > MAX_TEXT):
            if len(value) > MAX_TEXT:
                dropped[each.name] = None
            changes[each.name] = None if len(value) > MAX_TEXT else " ".join(value.split())
        elif isinstance(value, dict) and any(len(text) > MAX_TEXT or "\t" in text for text in value.values()):
            dropped |= {key[:60]: None for key, text in value.items() if len(text) > MAX_TEXT}
            changes[each.name] = {
                key: " ".join(text.split()) for key, text in value.items() if len(text) <= MAX_TEXT
            }
    return replace(part, **changes) if changes else part
