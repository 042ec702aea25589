"""Members of result documents: those that are needed must be there, others may stand beside them.

What only pictures are made of is read leniently in one way alone: a key that is not known is passed over, so
that a verb which says more tomorrow can still be shown. Every value that is taken is bounded.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from topotune.documents import Value

MAX_SECONDS: Final = 1e6
MAX_WORDS: Final = 20_000
MAX_WARNINGS: Final = 10_000
MAX_CUT: Final = 2**18

T = TypeVar("T")


def needed(value: Value, key: str) -> Value:
    """The member of an object that must have it."""
    if not isinstance(value.raw, dict) or key not in value.raw:
        value.members((key,), value.raw if isinstance(value.raw, dict) else ())
    return value.member(key)


def maybe(value: Value, key: str, take: Callable[[Value], T]) -> T | None:
    """What ``take`` makes of a member; None where it is absent or null."""
    if not isinstance(value.raw, dict) or value.raw.get(key) is None:
        return None
    return take(value.member(key))


def seconds(value: Value, *, above: bool = True) -> float:
    """A duration, above 0 unless said otherwise."""
    return float(value.number(0.0, MAX_SECONDS, above=above))


def words(value: Value) -> str:
    """A sentence or a few."""
    return value.text(max_length=MAX_WORDS)


def warnings_of(value: Value) -> tuple[str, ...]:
    """The document's warnings."""
    found = maybe(value, "warnings", lambda listed: tuple(words(one) for one in listed.items(MAX_WARNINGS)))
    return found or ()
