"""Which launcher started this process, and what it says about ranks and nodes.

A function of the environment and of files below a root folder: nothing is asked of the network, of other
programs or of torch. Launchers are looked for in this order, the innermost first, since each leaves its
variables to what it starts (inside ``srun torchrun`` both sets are there, and Slurm's counts nodes):

    per rank   torchrun · Open MPI · Hydra (MPICH, Intel MPI) · srun step · RANK beside LOCAL_RANK
    per node   PET_* (Kubernetes) · SageMaker · Azure ML · TF_CONFIG · pods that WORLD_SIZE counts
    alone

RANK counts only beside LOCAL_RANK: batch systems and containers set it for their own ends, and for some
WORLD_SIZE counts pods. What is half set, contradictory or ambiguous is refused with what was seen.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from topotune.errors import UsageError
from topotune.probe import node_launchers, slurm
from topotune.probe.faults import shown
from topotune.probe.membership import DEFAULT_MASTER_PORT, TITLES, Alone, Membership, PerRank, RankLauncher
from topotune.probe.variables import MAX_NODES, MAX_RANKS, Variables, check_below

OVERRIDE: Final = "TOPOTUNE_LAUNCHER"
MAX_LOCAL_RANKS: Final = 1024
_MPIRUN_ADDRESSES: Final = ("OMPI_MCA_orte_hnp_uri", "PRTE_MCA_prte_hnp_uri")
_TCP: Final = re.compile(r"tcp[46]?://([0-9.,]+|\[[0-9A-Fa-f:.,\]\[]+\]):[0-9]+")
_MAX_URI: Final = 2**16
_AZURE_MPI_PORT: Final = 54965  # where Azure ML's own MPI examples meet


def read_launcher(
    environment: Mapping[str, str], root: Path = Path("/"), *, num_local_ranks: int | None = None
) -> Membership:
    """Which launcher started this process.

    Args:
        environment: all variables of this process.
        root: the folder that holds SageMaker's ``opt/ml/input/config/resourceconfig.json``.
        num_local_ranks: what the user asked for on each node, which tells some ambiguous environments apart.

    Raises:
        UsageError: half-set, contradictory or ambiguous variables; what was seen, and what to do.
    """
    override = environment.get(OVERRIDE)
    if override:
        if override != "alone":
            raise UsageError(
                f"{OVERRIDE}={shown(override)}: is not alone", hint=f"unset it, or {OVERRIDE}=alone"
            )
        return Alone()
    interface = node_launchers.read_interface(environment, root)
    ranks = _read_ranks(environment, num_local_ranks)
    if ranks is not None:
        return replace(ranks, interface=interface)
    node = node_launchers.read_node(environment, root, num_local_ranks)
    if node is not None:
        return replace(node, interface=interface)
    job = Variables(environment, "Slurm")
    return (
        slurm.read_allocation(job, num_local_ranks)
        if slurm.in_allocation(job)
        else Alone(interface=interface)
    )


def check_num_local_ranks(num_ranks: int) -> None:
    """Whether so many ranks can be started on a node.

    Raises:
        UsageError: they cannot.
    """
    if not 1 <= num_ranks <= MAX_LOCAL_RANKS:
        raise UsageError(
            f"--nproc-per-node {num_ranks}: a node has 1 to {MAX_LOCAL_RANKS} ranks",
            hint="--nproc-per-node 4 starts four ranks on this machine",
        )


def _read_ranks(environment: Mapping[str, str], num_local_ranks: int | None) -> PerRank | Alone | None:
    """The rank of a launcher that starts one process for each; None without one."""
    torchrun = Variables(environment, TITLES["torchrun"])
    given = Variables(environment, TITLES["environment"])
    if torchrun.has("TORCHELASTIC_RUN_ID"):
        return _read_torch(torchrun, "torchrun")
    if given.has("LOCAL_RANK", "RANK", "LOCAL_WORLD_SIZE"):
        return _read_torch(given, "environment")
    found = _read_mpi_or_slurm(environment)
    if not given.has("LOCAL_RANK"):
        return found
    if isinstance(found, PerRank) and given.has("RANK"):
        _check_agreement(given, found)
    if found is not None:
        return found
    if num_local_ranks is not None and node_launchers.azure_process_per_node(environment):
        return None
    return _read_torch(given, "environment")


def _read_mpi_or_slurm(environment: Mapping[str, str]) -> PerRank | Alone | None:
    hydra = Variables(environment, TITLES["hydra"])
    slurm_task = Variables(environment, TITLES["slurm"])
    if hydra.has("OMPI_COMM_WORLD_RANK"):
        return _read_open_mpi(Variables(environment, TITLES["openmpi"]))
    # Slurm itself sets PMI_RANK for programs of MPICH (srun --mpi=pmi2), but no local rank.
    if hydra.has("PMI_RANK") and (hydra.has("MPI_LOCALRANKID") or hydra.has("PMI_LOCAL_RANK")):
        return _read_hydra(hydra)
    if slurm.in_step(slurm_task):
        return slurm.read_step(slurm_task)
    if hydra.has("PMI_RANK"):
        hydra.refuse_half(["MPI_LOCALRANKID"])
    return None


def _read_torch(variables: Variables, launcher: RankLauncher) -> PerRank:
    missing = [
        name for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR") if not variables.has(name)
    ]
    if missing:
        variables.refuse_half(missing)
    rank = variables.need_whole("RANK", maximum=MAX_RANKS)
    world_size = variables.need_whole("WORLD_SIZE", maximum=MAX_RANKS)
    check_below(variables, "RANK", rank, "WORLD_SIZE", world_size)
    local_rank = variables.need_whole("LOCAL_RANK", maximum=MAX_RANKS)
    local_size = _check_local(
        variables, "LOCAL_RANK", local_rank, "LOCAL_WORLD_SIZE", "WORLD_SIZE", world_size
    )
    node_index = variables.whole("GROUP_RANK", maximum=MAX_NODES)
    num_nodes = variables.whole("GROUP_WORLD_SIZE", maximum=MAX_NODES)
    if node_index is not None and num_nodes is not None:
        check_below(variables, "GROUP_RANK", node_index, "GROUP_WORLD_SIZE", num_nodes, "a node's number")
    return PerRank(
        launcher=launcher,
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        local_size=local_size,
        node_index=node_index,
        num_nodes=num_nodes,
        master_address=variables.host("MASTER_ADDR"),
        master_port=variables.port("MASTER_PORT") or DEFAULT_MASTER_PORT,
        job=variables.text("TORCHELASTIC_RUN_ID"),
    )


def _read_open_mpi(variables: Variables) -> PerRank:
    prefix = "OMPI_COMM_WORLD_"
    rank = variables.need_whole(f"{prefix}RANK", maximum=MAX_RANKS)
    world_size = variables.need_whole(f"{prefix}SIZE", maximum=MAX_RANKS)
    check_below(variables, f"{prefix}RANK", rank, f"{prefix}SIZE", world_size)
    # OMPI_COMM_WORLD_NODE_RANK is the rank's number on its node among all jobs, not the node's number.
    local_rank = variables.need_whole(f"{prefix}LOCAL_RANK", maximum=MAX_RANKS)
    local_size = _check_local(
        variables, f"{prefix}LOCAL_RANK", local_rank, f"{prefix}LOCAL_SIZE", f"{prefix}SIZE", world_size
    )
    address, port = _mpi_master(variables)
    return PerRank(
        launcher="openmpi",
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        local_size=local_size,
        master_address=address,
        master_port=port,
        launcher_addresses=next(
            (_addresses(uri) for name in _MPIRUN_ADDRESSES if (uri := variables.text(name))), ()
        ),
        job=variables.text("PMIX_NAMESPACE") or variables.text("OMPI_MCA_ess_base_jobid"),
    )


def _read_hydra(variables: Variables) -> PerRank:
    rank = variables.need_whole("PMI_RANK", maximum=MAX_RANKS)
    world_size = variables.need_whole("PMI_SIZE", maximum=MAX_RANKS)
    check_below(variables, "PMI_RANK", rank, "PMI_SIZE", world_size)
    local_names = ("MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    if not variables.has(local_names[0]):
        local_names = ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE")
    local_rank = variables.need_whole(local_names[0], maximum=MAX_RANKS)
    local_size = _check_local(variables, local_names[0], local_rank, local_names[1], "PMI_SIZE", world_size)
    address, port = _mpi_master(variables)
    return PerRank(
        launcher="hydra",
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        local_size=local_size,
        master_address=address,
        master_port=port,
    )


def _mpi_master(variables: Variables) -> tuple[str, int] | tuple[None, None]:
    """Where the user, or Azure ML's MPI jobs, say that rank 0 is."""
    address = variables.host("MASTER_ADDR")
    port = variables.port("MASTER_PORT")
    if address is not None:
        return address, port or DEFAULT_MASTER_PORT
    several = variables.text("AZ_BATCH_MASTER_NODE")
    if several is not None:
        return variables.host_and_port(several, "AZ_BATCH_MASTER_NODE")[0], port or _AZURE_MPI_PORT
    single = variables.host("AZ_BATCHAI_MPI_MASTER_NODE")
    if single is not None:
        return single, port or _AZURE_MPI_PORT
    return None, None


def _check_local(
    variables: Variables, name: str, local_rank: int, size_name: str, world_name: str, world_size: int
) -> int | None:
    """The number of ranks on this node, where known, checked against what stands beside it."""
    local_size = variables.whole(size_name, maximum=MAX_RANKS)
    if local_size is None:
        check_below(variables, name, local_rank, world_name, world_size, "a local rank")
        return None
    check_below(variables, name, local_rank, size_name, local_size, "a local rank")
    if local_size > world_size:
        variables.refuse(f"{size_name}={local_size} is more than {world_name}={world_size}")
    return local_size


def _check_agreement(given: Variables, found: PerRank) -> None:
    """Refuse RANK beside LOCAL_RANK that differ from what a launcher says: one of them was left over."""
    rank = given.need_whole("RANK", maximum=MAX_RANKS)
    world_size = given.whole("WORLD_SIZE", maximum=MAX_RANKS)
    if (rank, world_size if world_size is not None else found.world_size) != (found.rank, found.world_size):
        given.refuse(
            f"RANK={rank} of WORLD_SIZE={world_size} is rank {found.rank} of {found.world_size} "
            f"by {TITLES[found.launcher]}",
            hint="unset RANK, LOCAL_RANK and WORLD_SIZE where they were left over from another launcher",
        )


def _addresses(uri: str) -> tuple[str, ...]:
    """Addresses in a contact URI of Open MPI: ``12.0;tcp://10.0.0.1,10.1.0.1:4711;tcp6://[fd00::2]:4712``."""
    found: dict[str, None] = {}
    for match in _TCP.finditer(uri[:_MAX_URI]):
        for text in match[1].strip("[]").split(","):
            try:
                address = ipaddress.ip_address(text.strip("[]"))
            except ValueError:
                continue
            if not address.is_loopback:
                found[str(address)] = None
    return tuple(found)
