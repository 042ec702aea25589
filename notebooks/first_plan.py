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

import topotune
from topotune import frames

plan = topotune.load_plan(os.environ.get("TOPOTUNE_PLAN", "plan.json"))
plan.fingerprint.hard

# %% [markdown]
# The links as they were measured, with the 95 % intervals of the fit.

# %%
frames.plan_links(plan)

# %% [markdown]
# The tables of the plan: which algorithm serves which message size, and what proved it.
# `ratio` is the time of the default divided by the time of the plan; the intervals hold for all rows together.

# %%
rows = frames.plan_rows(plan)
rows

# %% [markdown]
# How sure the plan is of itself: the default, tried against itself under the same rule, should never win.

# %%
plan.certificate
