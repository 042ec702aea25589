"""Every result as pandas data frames, with units in the names of their columns.

    from topotune import frames
    from topotune.results import read_result

    frames.plan_rows(topotune.load_plan("plan.json"))
    frames.frames_of(read_result("plan.journal.jsonl").value)["trials"]

Names end in their unit (``_s``, ``_bytes``, ``_bytes_per_s``, ``_percent``); intervals are two columns,
``…_low`` and ``…_high``. What is not known is missing (None, NaN). A frame has its columns also where it has
no rows. Texts are as the files have them: whoever puts them into a page or a spreadsheet must escape them.
"""

from typing import TYPE_CHECKING

from topotune.lazy import lazy_attributes

if TYPE_CHECKING:
    from topotune.frames.catalog import frames_of
    from topotune.frames.chosen import certificate, plan_buckets, plan_links, plan_rows, plan_step
    from topotune.frames.compared import (
        compared_sizes,
        compared_steps,
        compared_tables,
        findings,
        least_times,
        nccl_choices,
        optima,
        predictions,
        step_buckets,
        timeline_buckets,
        transfers,
    )
    from topotune.frames.described import device_pairs, gradients, links, ranks, vertices
    from topotune.frames.timed import (
        collectives,
        exchanges,
        flows,
        link_classes,
        link_figures,
        pair_timings,
        round_trips,
    )
    from topotune.frames.tried import candidates, decisions, trials, verdicts

__all__ = [
    "candidates",
    "certificate",
    "collectives",
    "compared_sizes",
    "compared_steps",
    "compared_tables",
    "decisions",
    "device_pairs",
    "exchanges",
    "findings",
    "flows",
    "frames_of",
    "gradients",
    "least_times",
    "link_classes",
    "link_figures",
    "links",
    "nccl_choices",
    "optima",
    "pair_timings",
    "plan_buckets",
    "plan_links",
    "plan_rows",
    "plan_step",
    "predictions",
    "ranks",
    "round_trips",
    "step_buckets",
    "timeline_buckets",
    "transfers",
    "trials",
    "verdicts",
    "vertices",
]

_HOMES = {
    "catalog": ("frames_of",),
    "chosen": ("certificate", "plan_buckets", "plan_links", "plan_rows", "plan_step"),
    "compared": (
        "compared_sizes",
        "compared_steps",
        "compared_tables",
        "findings",
        "least_times",
        "nccl_choices",
        "optima",
        "predictions",
        "step_buckets",
        "timeline_buckets",
        "transfers",
    ),
    "described": ("device_pairs", "gradients", "links", "ranks", "vertices"),
    "timed": (
        "collectives",
        "exchanges",
        "flows",
        "link_classes",
        "link_figures",
        "pair_timings",
        "round_trips",
    ),
    "tried": ("candidates", "decisions", "trials", "verdicts"),
}

__getattr__ = lazy_attributes(
    __name__, {name: f"topotune.frames.{module}" for module, names in _HOMES.items() for name in names}
)
