"""Choosing by measurement: search, confirmation, the plan's rows, and comparing a plan with the default.

Names are imported when they are first asked for: the journal needs the standard library alone, the choosing
numpy and optuna, and only the ranks' side torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topotune.tune.journal import Journal, read_journal
    from topotune.tune.options import CompareOptions, TuneOptions
    from topotune.tune.pipeline import choose_rows
    from topotune.tune.progress import Progress
    from topotune.tune.session import compare_worker, tune_worker

_MODULE_OF_NAME = {
    "CompareOptions": "options",
    "Journal": "journal",
    "Progress": "progress",
    "TuneOptions": "options",
    "choose_rows": "pipeline",
    "compare_worker": "session",
    "read_journal": "journal",
    "tune_worker": "session",
}

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


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF_NAME[name]}"), name)
