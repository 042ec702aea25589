# ---
# jupyter:
#   jupytext:
#     text_representation:
#       format_name: percent
# ---

# %% [markdown]
# # What if?
#
# The provable best allreduce on a cluster that need not exist: more nodes, a slower NIC, one NIC more. The same on the
# command line: `topotune optimum --profile aws-p4d.24xlarge --nodes 4 --set n3/nic0=half`.

# %%
import pandas as pd
import plotly.graph_objects as go

from topotune import frames
from topotune.bounds import graph_from_topology, optima
from topotune.report.pictures.curves import optimum_curves, time_chart
from topotune.results import OptimumResult
from topotune.topology import what_if
from topotune.topology.catalog import load_profile
from topotune.topology.profile_topology import machine_network

machine = load_profile("aws-p4d.24xlarge")
two, four = machine_network(machine, 2), machine_network(machine, 4)
clusters = {
    "2 nodes": two,
    "4 nodes": four,
    "4 nodes, a NIC at half its rate": what_if.with_rate(four, "n3/nic0=half"),
    "4 nodes, a NIC less": what_if.without(four, "n3/nic0"),
}

# %% [markdown]
# The best rates, and what holds them back.

# %%
results = {
    name: OptimumResult(optima=optima(graph_from_topology(topology)), latency_s=0.0, sizes=())
    for name, topology in clusters.items()
}
table = pd.concat({name: frames.optima(result) for name, result in results.items()}, names=["cluster"])
table

# %% [markdown]
# The shortest times by message size; between them lies what a defect costs.

# %%
curves = [optimum_curves(result, name)[0] for name, result in results.items()]
go.Figure(time_chart(curves).figure)
