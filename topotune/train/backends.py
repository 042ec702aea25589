"""The wrapped backends, made as torch itself makes them (``_new_process_group_helper`` of torch 2.13)."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import DebugLevel, PrefixStore, Store, get_debug_level

Typed = tuple[Any, Any]
"""(``ProcessGroup.BackendType``, backend)."""


def fresh_prefix(store: Store, size: int) -> PrefixStore:
    """A part of a group's store that nobody wrote to before; each rank calls it once for each group.

    A job that destroys its world and makes it anew meets in the same store under the same names, where the
    addresses of the first world still stand: torch's own gloo groups sometimes hang on them. Here each time
    has its number, which needs no waiting: nobody joins a second time before all have joined the first.
    """
    joined = store.add(f"topotune joined {size}", 1)
    return PrefixStore(f"topotune {(joined - 1) // size}", store)


def make_backends(
    options: Any, backend_options: Any, store: Store
) -> tuple[dict[str, Typed], dist.ProcessGroupGloo]:
    """The wrapped backend of each device type. Collective over the group.

    Args:
        options: ``_DistributedBackendOptions`` of the group.
        backend_options: ``pg_options`` of the caller, for nccl; or None.
        store: where the ranks meet.

    Returns:
        device type → typed backend, with ``cpu`` and ``cuda``; and the gloo backend under ``cpu``, which
        TORCH_DISTRIBUTED_DEBUG=DETAIL wraps once more.
    """
    gloo = dist.ProcessGroupGloo(
        PrefixStore("gloo", store),
        options.group_rank,
        options.group_size,
        timeout=options.timeout,
    )
    gloo.options.global_ranks_in_group = options.global_ranks_in_group
    gloo.options.group_name = options.group_id
    gloo._set_sequence_number_for_group()
    on_cpu = (dist.ProcessGroup.BackendType.GLOO, _checked(gloo, options, store))
    if torch.cuda.is_available() and dist.is_nccl_available():
        on_cuda = (
            dist.ProcessGroup.BackendType.NCCL,
            _checked(_nccl(options, backend_options, store), options, store),
        )
    else:
        on_cuda = on_cpu  # torch's own gloo groups serve both
    return {"cpu": on_cpu, "cuda": on_cuda}, gloo


def typed(backend: Any) -> Typed:
    """A backend that stands already, with its type."""
    types = dist.ProcessGroup.BackendType
    return {"gloo": types.GLOO, "nccl": types.NCCL}.get(backend.name(), types.CUSTOM), backend


def plain_group(store: Store, rank: int, size: int, backends: Mapping[str, Typed]) -> dist.ProcessGroup:
    """Torch's own process group on these backends, in no table of torch's."""
    group = dist.ProcessGroup(store, rank, size)
    register_backends(group, backends)
    return group


def register_backends(group: dist.ProcessGroup, backends: Mapping[str, Typed]) -> None:
    """Register the backends; the default one is that of CUDA where it differs, as in torch's own groups."""
    for device, (backend_type, backend) in backends.items():
        group._register_backend(torch.device(device), backend_type, backend)
    group._set_default_backend(backends.get("cuda", backends["cpu"])[0])


def _nccl(options: Any, backend_options: Any, store: Store) -> Any:
    nccl_options = backend_options or dist.ProcessGroupNCCL.Options()
    nccl_options._timeout = options.timeout
    nccl_options.global_ranks_in_group = options.global_ranks_in_group
    nccl_options.group_name = options.group_id
    nccl = dist.ProcessGroupNCCL(
        PrefixStore("nccl", store), options.group_rank, options.group_size, nccl_options
    )
    nccl._set_sequence_number_for_group()
    return nccl


def _checked(backend: Any, options: Any, store: Store) -> Any:
    """With TORCH_DISTRIBUTED_DEBUG=DETAIL, torch's wrapper that compares what the ranks call."""
    if get_debug_level() != DebugLevel.DETAIL:
        return backend
    return dist.distributed_c10d._create_process_group_wrapper(
        wrapped_pg=backend,
        store_prefix=options.group_id,
        store=PrefixStore(backend.name(), store),
        rank=options.group_rank,
        world_size=options.group_size,
        timeout=options.timeout,
    )
