"""Data frames as CSV that a spreadsheet may open.

Spreadsheets run a text that begins with ``=``, ``+``, ``-`` or ``@`` as a formula, also one from a file that
somebody sent. Such a text gets an apostrophe before it, which shows that it is text (OWASP, "CSV Injection");
numbers, negative ones included, stay as they are.
"""

from typing import Any, Final

import pandas as pd

_STARTS_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")


def csv_text(frame: pd.DataFrame, max_rows: int | None = None) -> str:
    """A frame as CSV: a header, then rows; UTF-8, LF, what is missing is empty.

    Args:
        frame: the table.
        max_rows: write so many of its first rows; None: all.
    """
    shown = frame if max_rows is None else frame.head(max_rows)
    texts = [column for column in shown.columns if shown[column].dtype.kind not in "iufb"]
    safe = shown.assign(**{column: shown[column].map(_safe) for column in texts})
    text: str = safe.to_csv(index=False, lineterminator="\n")
    return text


def _safe(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_STARTS_FORMULA) else cell
