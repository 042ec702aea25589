"""Making ``topotune`` groups: the world first, whose agreement the groups inside it inherit."""

import atexit
import os
import warnings
from dataclasses import replace
from typing import Any

import torch.distributed as dist

from topotune.train.agreement import Agreement, agree, missing_table
from topotune.train.backends import fresh_prefix, make_backends
from topotune.train.drift_record import RECORD
from topotune.train.process_group import STANDING, ProcessGroupTopotune, kind_of_group
from topotune.train.source import given_source, set_in_use
from topotune.train.usage import REPORT


def create_process_group(options: Any, backend_options: Any) -> ProcessGroupTopotune:
    """What torch calls for ``topotune``. Collective over the group.

    Args:
        options: ``_DistributedBackendOptions``.
        backend_options: ``pg_options`` of the caller; nccl's are passed on to it.
    """
    rank, size = options.group_rank, options.group_size
    is_world = not options.global_ranks_in_group
    store = fresh_prefix(options.store, size)
    backends, gloo = make_backends(options, backend_options, store)
    group = ProcessGroupTopotune(
        options.store,
        store,
        rank,
        size,
        backends=backends,
        cpu_gloo=gloo,
        kind=_kind(size, is_world=is_world),
        is_world=is_world,
    )
    agreement = _agree(group, options, is_world)
    if agreement.warning is not None:
        warnings.warn(agreement.warning, stacklevel=2)
    group.set_agreement(agreement)
    if is_world:
        set_in_use(True)
    return group


def _agree(group: ProcessGroupTopotune, options: Any, is_world: bool) -> Agreement:
    global_ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    world = next((standing for standing in STANDING if standing.is_world), None)
    if world is not None and world.agreement is not None:
        inherited = world.agreement.among(global_ranks)
        return replace(inherited, warning=missing_table(inherited, world.private_store))
    agreement = agree(
        group.wrapped, group.private_store, given_source(), global_ranks=global_ranks, timeout=options.timeout
    )
    if (options.group_rank if is_world else dist.get_rank()) == 0:
        REPORT.speak_for_the_job()
        REPORT.set_outcome(agreement.outcome)
        RECORD.begin()
    return agreement


def _kind(size: int, *, is_world: bool) -> str:
    if not is_world:
        return kind_of_group(size)
    return "world of 1 rank" if size == 1 else f"world of {size} ranks"


os.register_at_fork(after_in_child=STANDING.clear)
"""Groups are their parent's alone: a child that ends must not end what the parent's threads run."""


@atexit.register
def _leave_standing() -> None:
    """A script that ends without ``destroy_process_group`` must not leave threads inside native calls."""
    for group in list(STANDING):
        group.leave()
