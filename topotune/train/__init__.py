"""The job's side: the ``topotune`` torch backend, DDP's settings and hook, the plan that all ranks agree on.

Names are imported when they are first asked for: `use` must not import torch's distributed parts before a
script has said what it wants.
"""

from typing import TYPE_CHECKING

from topotune.lazy import lazy_attributes

if TYPE_CHECKING:
    from topotune.train.ddp import ddp_comm_hook, ddp_kwargs
    from topotune.train.process_group import ProcessGroupTopotune
    from topotune.train.recording import record
    from topotune.train.source import use

__all__ = ["ProcessGroupTopotune", "ddp_comm_hook", "ddp_kwargs", "record", "use"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "ProcessGroupTopotune": "topotune.train.process_group",
        "ddp_comm_hook": "topotune.train.ddp",
        "ddp_kwargs": "topotune.train.ddp",
        "record": "topotune.train.recording",
        "use": "topotune.train.source",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
