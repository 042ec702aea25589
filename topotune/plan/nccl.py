"""NCCL's own algorithms and protocols, as plans name them. Standard library only.

A row of algorithm ``nccl`` says which of its kernels NCCL itself is to run; the order of the names is that of
NCCL's own numbers, so that a name's index is what NCCL calls it. Source of what serves what: NCCL 2.30,
``src/graph/tuning.cc`` and ``src/include/plugin/nccl_tuner.h``.
"""

from collections.abc import Mapping
from typing import Final

NCCL: Final = "nccl"
NCCL_ALGOS: Final = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
NCCL_PROTOS: Final = ("ll", "ll128", "simple")
MAX_NCCL_CHANNELS: Final = 64

_ONE_PASS: Final = ("ring", "collnet_direct", "nvls", "pat")
NCCL_ALGOS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "allreduce": tuple(algo for algo in NCCL_ALGOS if algo != "pat"),
    "reduce_scatter": _ONE_PASS,
    "allgather": _ONE_PASS,
}
"""Which algorithms NCCL has for the collective of a table."""

ALGOS_WITH_ALL_PROTOS: Final = ("tree", "ring")
"""The others move data by ``simple`` alone."""


def nccl_pair_problem(algo: str, proto: str) -> str | None:
    """Why NCCL has no kernel of this algorithm and protocol, in words; both names are known."""
    if algo in ALGOS_WITH_ALL_PROTOS or proto == "simple":
        return None
    return f"proto is {proto!r}, but NCCL's {algo} knows 'simple' alone"


def nccl_collective_problem(collective: str, algo: str) -> str | None:
    """Why NCCL cannot run this collective by this algorithm, in words; both names are known."""
    served = NCCL_ALGOS_OF[collective]
    if algo in served:
        return None
    return f"algo is {algo!r}, by which NCCL has no {collective}: {', '.join(served)}"
