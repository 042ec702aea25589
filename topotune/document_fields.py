"""Objects that stand in a document by the hundred thousand: what their members may be, told once.

`Value` says of every value where it stands, which takes an object for each of them. Nearly all values of
nearly all documents are as they should be, and for those a `Field` knows a check of the bare value. Only what
does not pass it is looked at as a `Value`, by the rule that makes the error.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from topotune.documents import MAX_INTEGER, MAX_RATE, MAX_TEXT, MIN_RATE, Value


@dataclass(frozen=True, slots=True)
class Field:
    """What a member may be.

    Attributes:
        take: its value → what is made of it. Raises `InputFileError`.
        fits: whether a bare value is one that ``take`` gives back as it is; None: it makes another of all.
    """

    take: Callable[[Value], Any]
    fits: Callable[[Any], bool] | None = None


def members_of(value: Value, fields: Mapping[str, Field], required: frozenset[str]) -> dict[str, Any]:
    """The members of an object, taken by their fields.

    Args:
        value: the object.
        fields: by key; there may be no other keys.
        required: those that must be there.

    Raises:
        InputFileError: no object, an unknown key, a missing one, or as ``take``.
    """
    raw = value.raw
    if type(raw) is not dict or not required <= raw.keys() <= fields.keys():
        value.members(
            tuple(key for key in fields if key in required),
            tuple(key for key in fields if key not in required),
        )
    taken: dict[str, Any] = {}
    for key, item in raw.items():
        field = fields[key]
        fits = field.fits is not None and field.fits(item)
        taken[key] = item if fits else field.take(value.member(key))
    return taken


def _is_text(raw: Any) -> bool:
    # What is printable has no control character; texts with others that are none are for `Value.text`.
    return type(raw) is str and len(raw) <= MAX_TEXT and raw.isprintable()


def _is_text_or_null(raw: Any) -> bool:
    return raw is None or _is_text(raw)


def _texts(value: Value, max_items: int) -> dict[str, str]:
    return {key: item.text() for key, item in value.mapping(max_items).items()}


def _are_texts(raw: Any, max_items: int) -> bool:
    if type(raw) is not dict or len(raw) > max_items:
        return False
    return all(map(_is_text, raw)) and all(map(_is_text, raw.values()))


def texts(max_items: int) -> Field:
    """An object of texts under keys of any name, so many at most."""
    return Field(lambda value: _texts(value, max_items), lambda raw: _are_texts(raw, max_items))


TEXT: Final = Field(Value.text, _is_text)
TEXT_OR_NULL: Final = Field(lambda value: value.optional(Value.text), _is_text_or_null)
RATE_OR_NULL: Final = Field(
    lambda value: value.optional(lambda known: known.number(MIN_RATE, MAX_RATE)),
    lambda raw: raw is None or (type(raw) in (int, float) and MIN_RATE <= raw <= MAX_RATE),
)


def one_of(words: tuple[str, ...]) -> Field:
    """One of these words."""
    known = frozenset(words)
    # Lists and objects are in no set: asking would raise.
    return Field(lambda value: value.text(one_of=words), lambda raw: type(raw) is str and raw in known)


def integer_or_null(minimum: int = 0, maximum: int = MAX_INTEGER) -> Field:
    """A whole number in a closed range, or null."""
    return Field(
        lambda value: value.optional(lambda known: known.integer(minimum, maximum)),
        lambda raw: raw is None or (type(raw) is int and minimum <= raw <= maximum),
    )


def or_null(take: Callable[[Value], Any]) -> Field:
    """What ``take`` makes of a value, or null."""
    return Field(lambda value: value.optional(take))
