"""``topotune measure`` on one rank: join the others, time the links, hand rank 0 the document."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist

from topotune.execute import Communicator
from topotune.links.document import to_document
from topotune.links.timing import Progress, measure_links

_TIMEOUT: Final = timedelta(seconds=120)


def measure_worker(payload: Mapping[str, Any], on_progress: Progress | None = None) -> dict[str, Any] | None:
    """Measure on this rank, together with all others of the environment that torchrun gives.

    Args:
        payload: ``budget_s`` in seconds.
        on_progress: called with the share that is done, 0 to 1.

    Returns:
        the measurement's document on rank 0, None elsewhere.

    Raises:
        RunError: a rank did not answer.
    """
    dist.init_process_group("gloo", timeout=_TIMEOUT)
    try:
        rank, size = dist.get_rank(), dist.get_world_size()
        store = dist.distributed_c10d._get_default_store()
        with Communicator(store, rank, size, name="topotune/measure", timeout=_TIMEOUT) as private:
            measurement = measure_links(private.group, budget_s=payload["budget_s"], progress=on_progress)
        return to_document(measurement) if rank == 0 else None
    finally:
        dist.destroy_process_group()
