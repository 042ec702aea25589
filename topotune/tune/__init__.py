"""Choosing by measurement: search, confirmation, the plan's rows, and comparing a plan with the default.

Names are imported when they are first asked for: the journal needs the standard library alone, the choosing
numpy and optuna, and only the ranks' side torch.
"""

from typing import TYPE_CHECKING

from topotune.lazy import lazy_attributes

if TYPE_CHECKING:
    from topotune.tune.journal import Journal, read_journal
    from topotune.tune.options import CompareOptions, TuneOptions
    from topotune.tune.pipeline import choose_rows
    from topotune.tune.progress import Progress
    from topotune.tune.session import compare_worker, tune_worker


__all__ = [
    "CompareOptions",
    "Journal",
    "Progress",
    "TuneOptions",
    "choose_rows",
    "compare_worker",
    "read_journal",
    "tune_worker",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "CompareOptions": "topotune.tune.options",
        "Journal": "topotune.tune.journal",
        "Progress": "topotune.tune.progress",
        "TuneOptions": "topotune.tune.options",
        "choose_rows": "topotune.tune.pipeline",
        "compare_worker": "topotune.tune.session",
        "read_journal": "topotune.tune.journal",
        "tune_worker": "topotune.tune.session",
    },
)
