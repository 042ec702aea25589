"""What torch loads at ``import torch`` (entry point ``torch.backends``): it registers the name, no more.

Everything behind the name is imported when the first group is made. Registering takes microseconds; torch is
imported already when torch calls this.
"""

from typing import Any

DEVICES = ("cpu", "cuda")


def register() -> None:
    """Make ``dist.init_process_group("topotune")`` known to torch, if it has distributed at all."""
    import torch.distributed as dist

    if dist.is_available() and not hasattr(dist.Backend, "TOPOTUNE"):
        dist.Backend.register_backend("topotune", _create, extended_api=True, devices=list(DEVICES))


def _create(options: Any, backend_options: Any) -> Any:
    from topotune.train.world import create_process_group

    return create_process_group(options, backend_options)
