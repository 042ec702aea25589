"""The tables of a report: a result's data frames with a title, and a name that no other table has."""

from collections.abc import Mapping
from typing import Final

import pandas as pd

from topotune import frames
from topotune.report.cells import in_words
from topotune.report.content import Table
from topotune.results.reading import ResultFile

TITLES: Final[Mapping[str, str]] = {
    "vertices": "What there is",
    "links": "Links",
    "device_pairs": "Pairs of devices",
    "ranks": "Ranks",
    "link_classes": "Classes of links",
    "pair_timings": "Times between ranks",
    "exchanges": "Exchanges",
    "flows": "Bulk flows",
    "round_trips": "Round trips",
    "link_figures": "Figures of other tools",
    "collectives": "Collectives of benchmarks",
    "plan_rows": "Rows of the plan",
    "plan_links": "Classes of links",
    "plan_step": "The training step",
    "plan_buckets": "DDP's buckets",
    "certificate": "Certificate",
    "decisions": "What was decided, and why",
    "trials": "Trials",
    "candidates": "Candidates",
    "verdicts": "Verdicts of the search",
    "transfers": "Transfers",
    "compared_sizes": "Compared sizes",
    "compared_tables": "Compared sizes of other collectives and groups",
    "compared_steps": "The compared training step",
    "step_buckets": "Buckets of the step, by the model",
    "gradients": "Gradients",
    "predictions": "Predictions",
    "nccl_choices": "What NCCL would run",
    "findings": "Findings",
    "optima": "The optimum of each collective",
    "least_times": "Shortest times",
}
"""Of each data frame of `topotune.frames`."""

_OPEN: Final = frozenset({"decisions"})
"""Tables that say in words what no picture does."""


class Names:
    """Names of tables, unique over the files of a report."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def of(self, file: ResultFile) -> str:
        """A prefix for a file's tables."""
        return self.take(file.name, file.kind)

    def take(self, text: str, otherwise: str = "table") -> str:
        """A name made of a text: letters, digits, ``-`` and ``_`` alone."""
        stem = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in text)
        stem = stem.removesuffix("-json").removesuffix("-jsonl").strip("-")[:60] or otherwise
        name, number = stem, 2
        while name in self._taken:
            name, number = f"{stem}-{number}", number + 1
        self._taken.add(name)
        return name


def tables_of(file: ResultFile, prefix: str) -> tuple[Table, ...]:
    """All data frames of a file that have rows, as tables.

    Args:
        file: what was read.
        prefix: of their names, from `Names`.
    """
    found = frames.frames_of(file.value)
    return tuple(
        Table(
            name=f"{prefix}.{name}".replace(".", "_"),
            title=TITLES[name],
            frame=frame,
            cells=in_words(frame),
            is_open=name in _OPEN,
        )
        for name, frame in found.items()
        if len(frame)
    )


def table_of(name: str, title: str, frame: pd.DataFrame, *, repeats: bool = False) -> Table:
    """A data frame as a table."""
    return Table(name=name, title=title, frame=frame, cells=in_words(frame), repeats=repeats)
