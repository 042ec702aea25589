"""Which data frames there are of each kind of result."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pandas as pd

from topotune.frames import chosen, compared, described, timed, tried
from topotune.links.check import Check
from topotune.links.measurement import Measurement
from topotune.plan.model import Plan
from topotune.results.comparison import Comparison
from topotune.results.optimum import OptimumResult
from topotune.results.reading import Result
from topotune.results.tuning import TuningRun
from topotune.schedule.model import Schedule
from topotune.simulate.document import Prediction
from topotune.step.gradients import Gradients
from topotune.topology.model import Topology

_FRAMES: Final[Mapping[type, Mapping[str, Callable[[Any], pd.DataFrame]]]] = {
    Topology: {
        "vertices": described.vertices,
        "links": described.links,
        "device_pairs": described.device_pairs,
        "ranks": described.ranks,
    },
    Measurement: {
        "link_classes": timed.link_classes,
        "pair_timings": timed.pair_timings,
        "exchanges": timed.exchanges,
        "flows": timed.flows,
        "round_trips": timed.round_trips,
        "link_figures": timed.link_figures,
        "collectives": timed.collectives,
    },
    Plan: {
        "plan_rows": chosen.plan_rows,
        "plan_links": chosen.plan_links,
        "plan_step": chosen.plan_step,
        "plan_buckets": chosen.plan_buckets,
        "certificate": chosen.certificate,
    },
    TuningRun: {
        "decisions": tried.decisions,
        "candidates": tried.candidates,
        "verdicts": tried.verdicts,
        "trials": tried.trials,
    },
    Schedule: {"transfers": compared.transfers},
    Comparison: {
        "compared_sizes": compared.compared_sizes,
        "compared_tables": compared.compared_tables,
        "compared_steps": compared.compared_steps,
        "step_buckets": compared.step_buckets,
    },
    Prediction: {"predictions": compared.predictions, "nccl_choices": compared.nccl_choices},
    Check: {"findings": compared.findings},
    OptimumResult: {"optima": compared.optima, "least_times": compared.least_times},
    Gradients: {"gradients": described.gradients},
}


def frames_of(result: Result) -> dict[str, pd.DataFrame]:
    """All data frames of a result, by the name of the function that makes each; those without rows too."""
    return {name: make(result) for name, make in _FRAMES[type(result)].items()}
