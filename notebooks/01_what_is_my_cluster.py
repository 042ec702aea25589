# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # What is my cluster?
#
# Four nodes of two ranks, one node with a quarter of the others' rate: the lab cluster `4x2-degraded`, measured by
# `topotune lab 4x2-degraded -- topotune measure -o links.json`. Put a file of your own into `TOPOTUNE_LINKS`.

# %%
import os
from pathlib import Path

import plotly.graph_objects as go

from topotune import frames
from topotune.links import fit_links, infer_structure, inferred_topology
from topotune.links.check import check_measurement
from topotune.report.pictures.matrices import matrix_chart, outliers_in_words, pair_matrices
from topotune.results import read_result

data = Path(__file__).parent / "data" if "__file__" in globals() else Path("data")
measurement = read_result(os.environ.get("TOPOTUNE_LINKS", data / "links-4x2-degraded.json")).value

# %% [markdown]
# Links that cost the same, with the 95 % intervals of the fit.

# %%
classes = frames.link_classes(measurement)
classes

# %% [markdown]
# Who reaches whom how fast. Crosses mark the pairs that are worse than the better half of their kind.

# %%
bandwidth, latency = pair_matrices(measurement)
go.Figure(matrix_chart(bandwidth).figure)

# %%
go.Figure(matrix_chart(latency).figure)

# %%
outliers_in_words(bandwidth)

# %% [markdown]
# What lies behind the pairs: racks and their uplinks where concurrent flows showed any, and slow nodes.

# %%
structure = infer_structure(measurement)
structure.faults

# %%
topology = inferred_topology(measurement, structure, fit_links(measurement))
frames.links(topology)

# %% [markdown]
# What is wrong, what it costs, and where to look.

# %%
findings = frames.findings(check_measurement(measurement))
findings
