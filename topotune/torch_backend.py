"""What torch loads at ``import torch`` (entry point ``torch.backends``): it registers the name, no more.

Everything behind the name is imported when the first group is made. Registering takes microseconds; torch is
imported already when torch calls this.
"""

import os
from typing import Any

DEVICES = ("cpu", "cuda")


def register() -> None:
    """Make ``dist.init_process_group("topotune")`` known to torch, if it has distributed at all.

    Under ``topotune record`` the process's first model is watched, too.
    """
    import torch.distributed as dist

    if dist.is_available() and not hasattr(dist.Backend, "TOPOTUNE"):
        dist.Backend.register_backend("topotune", _create, extended_api=True, devices=list(DEVICES))
    if os.environ.get("TOPOTUNE_RECORD"):
        from topotune.train.recording import record_by_environment

        record_by_environment(os.environ)


def _create(options: Any, backend_options: Any) -> Any:
    from topotune.train.world import create_process_group

    return create_process_group(options, backend_options)
