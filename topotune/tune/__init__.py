"""Choosing by measurement: search, confirmation, the plan's rows, and comparing a plan with the default.

The room is a function, too: ``topotune.tune("plan.json", num_ranks=4)`` is `topotune.tune.from_python.tune`,
whether or not somebody has imported the room before; a module and a function of one name cannot both stand in
a package.

Names are imported when they are first asked for: the journal needs the standard library alone, the choosing
numpy and optuna, and only the ranks' side torch.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

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


class _Room(ModuleType):
    """A module that can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Tune: see `topotune.tune.from_python.tune`."""
        from topotune.tune.from_python import tune

        return tune(*args, **kwargs)

    @property
    def __signature__(self) -> Any:
        """What ``help`` and editors show."""
        import inspect

        from topotune.tune.from_python import tune

        return inspect.signature(tune)


sys.modules[__name__].__class__ = _Room
