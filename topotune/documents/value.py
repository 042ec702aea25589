"""A value of a JSON document with its place: what takes it says what is wrong with it, and where."""

import difflib
import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn, TypeVar

from topotune.documents.words import kind, shown
from topotune.errors import InputFileError

MAX_INTEGER: Final = 2**63 - 1
MAX_TEXT: Final = 4096
MIN_RATE: Final = 1e-6
MAX_RATE: Final = 1e18
"""Of a link, in bytes per second or another unit: beyond, times and their sums leave what numbers hold."""

T = TypeVar("T")

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Value:
    """A JSON value with the place where it stands, so that whoever takes it can say what is wrong with it.

    A document of a thousand nodes has a million of them, and places are for the one that is refused: each
    keeps the value that it is in, and works its place out when somebody asks.

    Attributes:
        raw: dict, list, str, int, float, bool or None.
        source: the file.
        error: what `fail` raises.
    """

    __slots__ = ("_above", "_step", "error", "raw", "source")

    def __init__(
        self,
        raw: Any,
        place: str | int,
        source: str,
        error: type[InputFileError],
        above: "Value | None" = None,
    ) -> None:
        """A value.

        Args:
            raw: as the parser left it.
            place: where it stands, "" for a whole document; with ``above``, its key or index there.
            source: names the file in errors.
            error: what `fail` raises.
            above: the object or list that it is in.
        """
        self.raw = raw
        self.source = source
        self.error = error
        self._step = place
        self._above = above

    @property
    def place(self) -> str:
        """``groups[0].shape``; "" for the whole document."""
        if self._above is None:
            return str(self._step)
        above = self._above.place
        if isinstance(self._step, int):
            return f"{above}[{self._step}]"
        if not self._step.isidentifier():
            return f"{above}[{shown(self._step)}]"
        return f"{above}.{self._step}" if above else self._step

    def fail(self, problem: str, *, inside: str = "", hint: str | None = None) -> NoReturn:
        """Refuse the document because of this value, or of the place ``inside`` it (``[3].min_bytes``)."""
        joint = "." if self.place and inside and not inside.startswith("[") else ""
        raise self.error(self.source, problem, place=f"{self.place}{joint}{inside}" or None, hint=hint)

    def member(self, key: str) -> "Value":
        """The value under a key of this object."""
        return Value(self.raw[key], key, self.source, self.error, self)

    def item(self, index: int) -> "Value":
        """The value at an index of this list."""
        return Value(self.raw[index], index, self.source, self.error, self)

    def members(self, required: Iterable[str], optional: Iterable[str] = ()) -> "dict[str, Value]":
        """Members by key, which must be known ones."""
        if not isinstance(self.raw, dict):
            self.fail(f"is {kind(self.raw)}, not an object")
        required, known = _keys(tuple(required), tuple(optional))
        if not self.raw.keys() <= known.keys():
            key = next(key for key in self.raw if key not in known)
            near = difflib.get_close_matches(key[:100], known, n=1)
            self.fail(
                f"has the unknown key {shown(key)}",
                hint=f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}",
            )
        if not required <= self.raw.keys():
            key = next(key for key in known if key in required and key not in self.raw)
            self.fail(f"lacks the key {key!r}")
        return {key: Value(raw, key, self.source, self.error, self) for key, raw in self.raw.items()}

    def mapping(self, max_items: int) -> "dict[str, Value]":
        """Members of an object with keys of any name (printable, at most 4096 characters)."""
        if not isinstance(self.raw, dict):
            self.fail(f"is {kind(self.raw)}, not an object")
        if len(self.raw) > max_items:
            self.fail(f"has {len(self.raw)} members, more than {max_items}")
        for key in self.raw:
            Value(key, self.place, self.source, self.error).text()
        return {key: self.member(key) for key in self.raw}

    def items(self, max_items: int, *, min_items: int = 0, what: str = "items") -> "list[Value]":
        """Items of a list of bounded length."""
        if not isinstance(self.raw, list):
            self.fail(f"is {kind(self.raw)}, not a list")
        if len(self.raw) > max_items:
            self.fail(f"has {len(self.raw)} {what}, more than {max_items}")
        if len(self.raw) < min_items:
            self.fail(f"has {len(self.raw)} {what}, fewer than {min_items}")
        return [self.item(index) for index in range(len(self.raw))]

    def text(self, *, max_length: int = MAX_TEXT, one_of: Sequence[str] | None = None) -> str:
        """A text without control characters (they could write over a reader's terminal)."""
        if not isinstance(self.raw, str):
            self.fail(f"is {kind(self.raw)}, not a text")
        if len(self.raw) > max_length:
            self.fail(f"has {len(self.raw)} characters, more than {max_length}")
        # No control character is printable, and to ask for that takes a tenth of the time.
        if not self.raw.isprintable() and (control := _CONTROL.search(self.raw)):
            self.fail(f"has the control character U+{ord(control[0]):04X}")
        if one_of is not None and self.raw not in one_of:
            self.fail(f"is {shown(self.raw)}, not one of {', '.join(one_of)}")
        return self.raw

    def integer(self, minimum: int = 0, maximum: int = MAX_INTEGER) -> int:
        """A whole number in a closed range."""
        if type(self.raw) is not int:
            self.fail(f"is {kind(self.raw)}, not a whole number")
        if not minimum <= self.raw <= maximum:
            self.fail(f"is {self.raw}, not a whole number from {minimum} to {maximum}")
        return self.raw

    def number(self, minimum: float = 0.0, maximum: float = math.inf, *, above: bool = False) -> float:
        """A finite number in a closed range; ``above`` leaves out the minimum itself."""
        if type(self.raw) not in (int, float):
            self.fail(f"is {kind(self.raw)}, not a number")
        number: float = self.raw
        if not minimum <= number <= maximum or (above and number == minimum):
            low = f"above {minimum:g}" if above else f"of at least {minimum:g}"
            high = f" and at most {maximum:g}" if maximum < math.inf else ""
            self.fail(f"is {self.raw}, not a number {low}{high}")
        return number  # an int stays one, so that what is written again is the same text

    def interval(self, minimum: float = 0.0, maximum: float = math.inf) -> tuple[float, float]:
        """``[low, high]`` with low <= high."""
        low, high = (end.number(minimum, maximum) for end in self.items(2, min_items=2, what="ends"))
        if low > high:
            self.fail(f"runs from {low:g} down to {high:g}")
        return low, high

    def boolean(self) -> bool:
        """True or false."""
        if not isinstance(self.raw, bool):
            self.fail(f"is {kind(self.raw)}, not true or false")
        return self.raw

    def optional(self, take: "Callable[[Value], T]") -> T | None:
        """None for null, else what ``take`` makes of it."""
        return None if self.raw is None else take(self)


@functools.lru_cache(maxsize=256)
def _keys(required: tuple[str, ...], optional: tuple[str, ...]) -> tuple[frozenset[str], dict[str, None]]:
    """The keys that must be there, and all that may, in order."""
    return frozenset(required), dict.fromkeys((*required, *optional))
