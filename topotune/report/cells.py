"""Data frames as people read them: each column in its unit, told by the end of its name."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import pandas as pd

from topotune.units import format_bytes, format_line_rate, format_rate, format_seconds

MAX_ROWS: Final = 40
"""So many rows are made for people; the file with all rows is for programs."""

_UNITS: Final[Mapping[str, Callable[[float], str]]] = {
    "_bytes_per_s": format_rate,
    "_bits_per_s": format_line_rate,
    "_bytes": format_bytes,
    "_gt_per_s": lambda value: f"{value:g} GT/s",
    "_percent": lambda value: f"{value:.3g} %",
    "_s": format_seconds,
}


def in_words(frame: pd.DataFrame) -> pd.DataFrame:
    """The first rows as texts; names of columns without units, which stand in the cells; nothing is ``–``."""
    head = frame.head(MAX_ROWS)
    return pd.DataFrame(
        {_heading(column): [_cell(column, value) for value in head[column]] for column in head.columns}
    )


def _unit(column: str) -> str | None:
    stem = column.removesuffix("_low").removesuffix("_high")
    return next((unit for unit in _UNITS if stem.endswith(unit)), None)


def _heading(column: str) -> str:
    end = next((end for end in ("_low", "_high") if column.endswith(end)), "")
    stem = column.removesuffix(end)
    unit = _unit(column)
    words = stem.removesuffix(unit) if unit else stem
    return f"{words} {end[1:]}".replace("_", " ").strip()


def _cell(column: str, value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)) or value is pd.NA:
        return "–"
    unit = _unit(column)
    if unit is not None:
        return _UNITS[unit](float(value))
    if isinstance(value, float):
        return (
            f"{value:.0f}"
            if value == int(value) and abs(value) < 1e15 and "ratio" not in column
            else f"{value:.3g}"
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
