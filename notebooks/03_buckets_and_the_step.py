# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # Buckets and the step
#
# DDP sends gradients in buckets while the backward still computes; what is exchanged after the backward's end is what a
# step pays for the network. Here: the gradients of a small model, recorded by `topotune record -- python train.py`, on
# the lab cluster `2x4`, and a step under the plan against one without, measured by
# `topotune compare plan.json --step --gradients gradients.json`. Put files of your own into `TOPOTUNE_GRADIENTS`,
# `TOPOTUNE_PLAN` and `TOPOTUNE_COMPARISON`.

# %%
import os
from pathlib import Path

import plotly.graph_objects as go

import topotune
from topotune import frames
from topotune.report.pictures.steps import Way, in_words, ready_chart, step_chart
from topotune.results import read_result
from topotune.step.buckets import assign_buckets, limits_of
from topotune.step.curve import curves_of_rows
from topotune.step.projection import project
from topotune.step.timeline import timeline_of

data = Path(__file__).parent / "data" if "__file__" in globals() else Path("data")
recorded = read_result(os.environ.get("TOPOTUNE_GRADIENTS", data / "gradients.json")).value
plan = topotune.load_plan(os.environ.get("TOPOTUNE_PLAN", data / "2x4.plan.json"))
comparison = read_result(os.environ.get("TOPOTUNE_COMPARISON", data / "2x4.step.json")).value
recorded.in_words()

# %% [markdown]
# What the backward makes, and when.

# %%
gradients = frames.gradients(recorded)
gradients

# %%
go.Figure(ready_chart(recorded).figure)

# %% [markdown]
# The measured step: emulated backward, real DDP, real buckets, on all ranks.

# %%
step = frames.compared_steps(comparison)
step[["default_median_s", "plan_median_s", "ratio", "ratio_low", "ratio_high", "verdict", "bound"]]

# %% [markdown]
# Where its time goes, by the model: a bucket is sent when it is complete and the one ahead of it has ended. What lies
# behind the end of the backward is exposed. Grey marks are the measured steps.

# %%
ways = [
    Way(
        name="default", timeline=comparison.step.default_timeline, measured_s=comparison.step.default_median_s
    ),
    Way(name="plan", timeline=comparison.step.plan_timeline, measured_s=comparison.step.plan_median_s),
]
go.Figure(step_chart(ways).figure)

# %%
frames.step_buckets(comparison)

# %% [markdown]
# Other buckets, by the model alone. The plan's rows say what an allreduce of each size takes; of all ways to cut the
# gradients into buckets the exact best follows. With a backward as long as the measured one:

# %%
backward_s = comparison.step.default_timeline.backward_s
model = recorded.with_backward(backward_s)
curve, default_curve = curves_of_rows(plan.groups[0].allreduce)
best = project(model, curve, takes_list=True)
own = assign_buckets(model.gradients, limits_of(None))
whatever = [
    Way(name="default", timeline=timeline_of(model, own, default_curve.time_s)),
    Way(name="plan, torch's buckets", timeline=timeline_of(model, own, curve.time_s)),
    Way(name="plan, one cap", timeline=timeline_of(model, best.single.buckets, curve.time_s)),
    Way(name="plan, best buckets", timeline=timeline_of(model, best.best.buckets, curve.time_s)),
]
go.Figure(step_chart(whatever).figure)

# %%
[in_words(way) for way in whatever]

# %% [markdown]
# A model knows nothing of the cores that backward and exchange take from each other. That is why `tune --gradients` runs
# what the model proposes in real steps, and keeps torch's own buckets where no gain is confirmed.

# %%
best.optimum_s, best.loss
