# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # What does my plan say?
#
# Make a plan first (`make plan`, or `topotune tune --nproc-per-node 4 -o plan.json`); this notebook reads it.

# %%
import os

import pandas as pd

import topotune

plan = topotune.load_plan(os.environ.get("TOPOTUNE_PLAN", "plan.json"))
plan.fingerprint.hard

# %% [markdown]
# The links as they were measured, with the 95 % intervals of the fit.

# %%
pd.DataFrame(
    {
        "link": link.name,
        "latency_s": link.latency_s,
        "latency_ci_s": link.latency_ci_s,
        "bandwidth_bytes_per_s": link.bandwidth_bytes_per_s,
        "bandwidth_ci_bytes_per_s": link.bandwidth_ci_bytes_per_s,
    }
    for link in plan.links
)

# %% [markdown]
# The table of the world group: which algorithm serves which message size, and what proved it.
# `ratio` is the time of the default divided by the time of the plan; the intervals hold for all rows together.

# %%
rows = pd.DataFrame(
    {
        "min_bytes": row.min_bytes,
        "max_bytes": row.max_bytes,
        "algorithm": row.algorithm,
        "default_median_s": row.evidence and row.evidence.default_median_s,
        "plan_median_s": row.evidence and row.evidence.median_s,
        "ratio": row.evidence and row.evidence.ratio,
        "ratio_low": row.evidence and row.evidence.ratio_ci[0],
        "ratio_high": row.evidence and row.evidence.ratio_ci[1],
        "percent_of_optimum": row.percent_of_optimum,
    }
    for row in plan.groups[0].allreduce or ()
)
rows

# %% [markdown]
# How sure the plan is of itself: the default, tried against itself under the same rule, should never win.

# %%
plan.certificate
