"""topotune: find out what a cluster is, and how its training jobs should exchange gradients.

The names below are what scripts and notebooks use: `tune` makes a plan, `load_plan` reads one, `use`,
`ddp_kwargs` and `ddp_comm_hook` bring it into a training job, `record` notes what a job exchanges, and
`Topology.from_file` reads a description of a machine. Everything is imported when it is first asked for, so
that ``import topotune`` costs next to nothing.

    >>> import topotune
    >>> sorted(set(topotune.__all__) - {"__version__"})
    ['Plan', 'Topology', 'ddp_comm_hook', 'ddp_kwargs', 'load_plan', 'record', 'tune', 'use']
"""

from typing import TYPE_CHECKING

from topotune.lazy import lazy_attributes

if TYPE_CHECKING:
    from topotune.plan import Plan, load_plan
    from topotune.topology import Topology
    from topotune.train import ddp_comm_hook, ddp_kwargs, record, use
    from topotune.tune.from_python import tune

__version__ = "0.1.0"

__all__ = [
    "Plan",
    "Topology",
    "__version__",
    "ddp_comm_hook",
    "ddp_kwargs",
    "load_plan",
    "record",
    "tune",
    "use",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "Plan": "topotune.plan",
        "Topology": "topotune.topology",
        "load_plan": "topotune.plan",
        "ddp_comm_hook": "topotune.train",
        "ddp_kwargs": "topotune.train",
        "record": "topotune.train",
        "tune": "topotune.tune:",  # the room, which is the function, too
        "use": "topotune.train",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
