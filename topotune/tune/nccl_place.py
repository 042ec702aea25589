"""What NCCL would run on here, gathered over all ranks, and what is worth trying there."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch

from topotune.execute import Communicator
from topotune.execute.nccl_communicator import NcclCommunicator
from topotune.links.placement import Placement
from topotune.probe.pci import read_pci
from topotune.probe.tree import Tree
from topotune.schedule.candidates import candidates
from topotune.tune.nccl_log import ll128_allowed, read_log
from topotune.tune.nccl_settings import NcclPlace, settings_for
from topotune.tune.trial import Candidate

_MADE_WITHIN: Final = timedelta(seconds=60)
_AMAZON: Final = 0x1D0F
_EFA_DEVICES: Final = range(0xEFA0, 0xEFB0)
_LEFT_OUT: Final = ("native_reduce_broadcast", "native_allgather_reduce", "native_allreduce")
"""Compositions that NCCL has no reason to be faster by: they move more, or the same."""

_MOST_RANKS_OF_SCHEDULES: Final = 64


def nccl_facts(communicator: Communicator, log: Path) -> dict[str, Any]:
    """What this rank sees, and what NCCL says when it is told nothing. Collective over all ranks.

    Args:
        communicator: of all ranks, in whose store NCCL's communicator is made and closed again.
        log: NCCL's log of this process (`topotune.tune.nccl_log.log_to`); that of rank 0 has the table.
    """
    ranks = communicator.store, communicator.rank, communicator.size
    with NcclCommunicator(*ranks, name="told nothing", timeout=_MADE_WITHIN):
        return local_nccl_facts() | {"ll128": list(ll128_allowed(read_log(log)))}


def local_nccl_facts(root: Path = Path("/")) -> dict[str, Any]:
    """What this rank sees; plain values, for `combined_place`."""
    tree = Tree(root)
    functions = list(read_pci(tree).values()) or None  # a machine that shows none hides them
    return {
        "version": list(torch.cuda.nccl.version()[:2]),  # type: ignore[no-untyped-call]
        "capability": list(torch.cuda.get_device_capability()),
        "has_nvswitch": functions is not None and any(each.is_nvswitch for each in functions),
        "is_efa": None
        if functions is None
        else any(each.vendor == _AMAZON and each.device in _EFA_DEVICES for each in functions),
    }


def combined_place(facts: Sequence[Mapping[str, Any]], node_of_rank: Sequence[int]) -> NcclPlace:
    """One place of what all ranks see: of versions and capabilities the least, of dangers any.

    Args:
        facts: rank → `nccl_facts`, or `local_nccl_facts`, which knows of no LL128.
        node_of_rank: verified node numbers.
    """
    efa = [fact["is_efa"] for fact in facts]
    nodes = sorted(set(node_of_rank))
    return NcclPlace(
        version=min((fact["version"][0], fact["version"][1]) for fact in facts),
        num_nodes=len(nodes),
        ranks_per_node=max(list(node_of_rank).count(node) for node in nodes),
        capability=min((fact["capability"][0], fact["capability"][1]) for fact in facts),
        has_nvswitch=all(fact["has_nvswitch"] for fact in facts),
        is_efa=True if True in efa else None if None in efa else False,
        ll128=tuple(facts[0].get("ll128", ())),
    )


def nccl_candidates(place: NcclPlace, node_of_rank: Sequence[int]) -> list[Candidate]:
    """All that is worth considering on NCCL, without the default: its settings, compositions, schedules."""
    found = [setting.candidate for setting in settings_for(place)]
    if len(node_of_rank) < 2:
        return found
    others = candidates(Placement(node_of_rank=tuple(node_of_rank)))
    has_schedules = len(node_of_rank) <= _MOST_RANKS_OF_SCHEDULES
    return found + [
        Candidate.of(algorithm, params)
        for algorithm, params in others
        if not algorithm.startswith("shm")
        and algorithm not in _LEFT_OUT
        and (has_schedules or algorithm.startswith("native_"))
    ]
