"""What all charts share: escaped texts, colours, and axes in the units of topotune.

Plotly reads a little HTML in every text (``<b>``, ``<a href>``), so that a name from a file must be escaped
before it becomes a label. Colours are chosen to stand out (3:1) from white and from the page's dark ground.
"""

import html
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from topotune.units import format_bytes, format_rate, format_seconds

COLOURS: Final = (
    "#2b7bd3", "#d4570a", "#15895c", "#b4499f", "#8b7209", "#6b6fd8", "#c2405a", "#2a8798", "#7f8790",
)  # fmt: skip
NEUTRAL: Final = "#7f8790"
SCALE: Final = (
    (0.0, "#3b1f6b"),
    (0.25, "#35618f"),
    (0.5, "#24908b"),
    (0.75, "#59bf68"),
    (1.0, "#f3e55c"),
)
"""Dark to light in even steps, also in grey and to the colour-blind; after viridis (Smith, van der Walt)."""

LEGEND_PX: Final = 300
"""A legend that needs more scrolls."""
_MAX_TICKS: Final = 12
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def plain(text: str, most: int = 80) -> str:
    """Text of unknown origin as a label of a chart: cut, no control characters, nothing read as markup."""
    shown = _CONTROL.sub("\ufffd", text)
    return html.escape(shown if len(shown) <= most else f"{shown[: most - 2]} …")


def size_axis(message_bytes: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis of message sizes, ticks at powers of two."""
    sizes = [size for size in message_bytes if size > 0]
    low = math.floor(math.log2(min(sizes, default=1)))
    high = math.ceil(math.log2(max(sizes, default=2)))
    step = max(1, math.ceil((high - low) / _MAX_TICKS))
    ticks = [2**power for power in range(low, high + 1, step)]
    return _axis("message size", ticks, format_bytes)


def seconds_axis(times_s: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis of times."""
    return _axis("time", _decades(times_s), format_seconds)


def rate_axis(bytes_per_s: Iterable[float], title: str = "bus bandwidth") -> dict[str, Any]:
    """A logarithmic axis of rates."""
    return _axis(title, _decades(bytes_per_s), format_rate)


def _axis(title: str, ticks: Sequence[float], form: Callable[[float], str]) -> dict[str, Any]:
    return {
        "type": "log",
        "title": {"text": title, "standoff": 12},
        "tickvals": list(ticks),
        "ticktext": [form(tick) for tick in ticks],
        "zeroline": False,
        "automargin": True,
    }


def _decades(values: Iterable[float]) -> list[float]:
    """1, 2, 5 of each power of ten over few decades, the powers alone over many."""
    found = [value for value in values if 0 < value < math.inf]
    low = math.floor(math.log10(min(found, default=1.0)))
    high = math.ceil(math.log10(max(found, default=10.0)))
    within = (1, 2, 5) if high - low <= 3 else (1,)
    return [digit * 10.0**power for power in range(low, high + 1) for digit in within]


def layout(**given: Any) -> dict[str, Any]:
    """A chart's layout: room for labels, the legend below, hovering over all curves at once off."""
    common: dict[str, Any] = {
        "margin": {"l": 60, "r": 20, "t": 34, "b": 50},
        "legend": {
            "orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0,
            "maxheight": LEGEND_PX,
        },
        "hovermode": "closest",
        "hoverlabel": {"namelength": -1},
    }  # fmt: skip
    return common | given
