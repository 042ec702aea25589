# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # Why this plan?
#
# Two nodes of four ranks: the lab cluster `2x4`, tuned and then compared by `python benchmarks/lab.py 2x4`. The journal
# has every sample that the plan rests on. Put files of your own into `TOPOTUNE_PLAN`, `TOPOTUNE_JOURNAL` and
# `TOPOTUNE_COMPARISON`.

# %%
import os
from pathlib import Path

import plotly.graph_objects as go

import topotune
from topotune import frames
from topotune.report.pictures.curves import (
    busbw_chart,
    comparison_curves,
    crossovers,
    plan_curves,
    time_chart,
    tuning_curves,
)
from topotune.report.pictures.tuning import ratios_chart, trials_chart
from topotune.report.words import certificate_in_words, gains_in_words
from topotune.results import read_result

data = Path(__file__).parent / "data" if "__file__" in globals() else Path("data")
plan = topotune.load_plan(os.environ.get("TOPOTUNE_PLAN", data / "2x4.plan.json"))
run = read_result(os.environ.get("TOPOTUNE_JOURNAL", data / "2x4.plan.journal.jsonl")).value
comparison = read_result(os.environ.get("TOPOTUNE_COMPARISON", data / "2x4.comparison.json")).value
gains_in_words(plan)

# %% [markdown]
# The rows: which algorithm serves which message size, and the evidence of each. `ratio` is default / plan; the intervals
# hold for all rows together.

# %%
rows = frames.plan_rows(plan)
rows[["min_bytes", "max_bytes", "algorithm", "ratio", "ratio_low", "ratio_high", "of_optimum_percent"]]

# %% [markdown]
# All candidates that were timed, with 95 % intervals. The search times candidates in turn with the default and leaves
# those behind that have no chance, so most curves are short. Dotted lines are the crossovers: where the plan goes over
# to another algorithm.

# %%
candidates = frames.candidates(run)
candidates

# %%
marks = crossovers(plan)
go.Figure(time_chart(tuning_curves(run, "journal")[:12], marks).figure)

# %% [markdown]
# The plan beside the default, what was predicted of it, and the optimum: the bus bandwidth that no algorithm can pass
# on these links.

# %%
go.Figure(busbw_chart(plan_curves(plan, "plan"), marks).figure)

# %% [markdown]
# What was tried when, and how candidates stood against the default.

# %%
go.Figure(trials_chart(run).figure)

# %%
go.Figure(ratios_chart(run).figure)

# %% [markdown]
# What came of it at each size, and why.

# %%
decisions = frames.decisions(run)
decisions

# %% [markdown]
# What the default loses, measured again after the plan was written, on samples that had no part in choosing it:
# `ratio` - 1 is what a call takes too long without the plan.

# %%
compared = frames.compared_sizes(comparison)
compared[
    ["message_bytes", "default_median_s", "plan_median_s", "ratio", "ratio_low", "ratio_high", "verdict"]
]

# %%
go.Figure(time_chart(comparison_curves(comparison, "comparison")).figure)

# %% [markdown]
# How far the plan may be trusted.

# %%
certificate_in_words(plan)
