# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # Reading somebody's nccl-tests output
#
# A log as it was pasted, device list cut off; `topotune import log.txt -o benchmark.json` reads the same. Put a log of
# your own into `TOPOTUNE_BENCHMARK`.

# %%
import os
from pathlib import Path

import plotly.graph_objects as go

from topotune import frames
from topotune.links.check import check_measurement
from topotune.links.foreign import read_measurement
from topotune.report.pictures.curves import benchmark_curves, busbw_chart, time_chart

data = Path(__file__).parent / "data" if "__file__" in globals() else Path("data")
log = os.environ.get("TOPOTUNE_BENCHMARK", str(data / "nccl-tests.txt"))
measurement = read_measurement([log])
measurement.warnings

# %% [markdown]
# One row for each message size, with the buffer in and out of place.

# %%
table = frames.collectives(measurement)
table

# %% [markdown]
# Time and bus bandwidth. Where the line bends, latency ends and bandwidth begins; it should grow without falling back.

# %%
curves = benchmark_curves(measurement, "nccl-tests")
go.Figure(time_chart(curves).figure)

# %%
chart = busbw_chart(curves)
go.Figure(chart.figure) if chart else "the log does not say how many ranks there were"

# %% [markdown]
# What figures alone can show to be wrong: wrong results, sizes at which more bytes go slower, one host beside the others.

# %%
findings = frames.findings(check_measurement(measurement))
findings
