"""Result files of every kind, read within bounds as the values that they hold.

What has a reader of its own (topologies, measurements, plans, schedules) is read by that. This room adds
readers for what so far was only written: comparisons, predictions, checks, optima, and the journal of a
tuning run as typed trials.
"""

from typing import TYPE_CHECKING

from topotune.lazy import lazy_attributes

if TYPE_CHECKING:
    from topotune.results.comparison import ComparedSize, ComparedStep, ComparedTable, Comparison
    from topotune.results.decisions import Decision, decisions_of
    from topotune.results.optimum import LeastTime, OptimumResult
    from topotune.results.reading import KINDS, Result, ResultFile, read_result
    from topotune.results.tuning import Arm, Told, Trial, TunedTable, TuningRun

__all__ = [
    "KINDS",
    "Arm",
    "ComparedSize",
    "ComparedStep",
    "ComparedTable",
    "Comparison",
    "Decision",
    "LeastTime",
    "OptimumResult",
    "Result",
    "ResultFile",
    "Told",
    "Trial",
    "TunedTable",
    "TuningRun",
    "decisions_of",
    "read_result",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "KINDS": "topotune.results.reading",
        "Arm": "topotune.results.tuning",
        "ComparedSize": "topotune.results.comparison",
        "ComparedStep": "topotune.results.comparison",
        "ComparedTable": "topotune.results.comparison",
        "Comparison": "topotune.results.comparison",
        "Decision": "topotune.results.decisions",
        "decisions_of": "topotune.results.decisions",
        "LeastTime": "topotune.results.optimum",
        "OptimumResult": "topotune.results.optimum",
        "Result": "topotune.results.reading",
        "ResultFile": "topotune.results.reading",
        "Told": "topotune.results.tuning",
        "Trial": "topotune.results.tuning",
        "TunedTable": "topotune.results.tuning",
        "TuningRun": "topotune.results.tuning",
        "read_result": "topotune.results.reading",
    },
)
