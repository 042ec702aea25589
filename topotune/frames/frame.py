"""Rows to a data frame that has its columns, and their kinds, also without rows."""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd


def frame(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> pd.DataFrame:
    """A data frame; each row has as many items as there are columns."""
    return pd.DataFrame([tuple(row) for row in rows], columns=list(columns))


def ends(interval: tuple[float, float] | None) -> tuple[float | None, float | None]:
    """Both ends of an interval, or twice nothing."""
    return (None, None) if interval is None else interval
