"""topotune: find out what a cluster is, and how its training jobs should exchange gradients.

The names below are what a training script uses; everything is imported when it is first asked for, so that
``import topotune`` costs next to nothing.
"""

from typing import TYPE_CHECKING

from topotune.lazy import lazy_attributes

if TYPE_CHECKING:
    from topotune.plan import Plan, load_plan
    from topotune.train import ddp_comm_hook, ddp_kwargs, record, use

__version__ = "0.1.0"

__all__ = ["Plan", "__version__", "ddp_comm_hook", "ddp_kwargs", "load_plan", "record", "use"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "Plan": "topotune.plan",
        "load_plan": "topotune.plan",
        "ddp_comm_hook": "topotune.train",
        "ddp_kwargs": "topotune.train",
        "record": "topotune.train",
        "use": "topotune.train",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
