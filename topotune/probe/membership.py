"""What a launcher says about a process: that it is alone, one rank of a world, or one node of a cluster."""

from dataclasses import dataclass
from typing import Final, Literal

RankLauncher = Literal["torchrun", "environment", "openmpi", "hydra", "slurm"]
NodeLauncher = Literal["kubernetes", "sagemaker", "azureml", "tensorflow", "pods"]

TITLES: Final[dict[str, str]] = {
    "torchrun": "torchrun",
    "environment": "RANK and LOCAL_RANK in the environment",
    "openmpi": "Open MPI's mpirun",
    "hydra": "mpiexec (Hydra)",
    "slurm": "an srun step",
    "kubernetes": "PET_* (Kubernetes)",
    "sagemaker": "SageMaker",
    "azureml": "Azure ML",
    "tensorflow": "TF_CONFIG",
    "pods": "MASTER_ADDR, WORLD_SIZE and RANK of pods",
}
"""What people call the launchers."""

DEFAULT_MASTER_PORT: Final = 29500
"""Where a master address comes without a port: the one that torchrun takes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alone:
    """No launcher: local ranks are started on this machine.

    Attributes:
        interface: the network interface that the platform names, or None.
    """

    interface: str | None = None

    @property
    def speaks(self) -> bool:
        """This process is the one that talks to people and writes files."""
        return True


@dataclass(frozen=True, kw_only=True, slots=True)
class PerRank:
    """A launcher started this process as one rank.

    Attributes:
        launcher: which.
        rank: 0 to ``world_size - 1``.
        world_size: ranks of all nodes.
        local_rank: number on its node.
        local_size: ranks on its node, where known.
        node_index: number of its node, where known.
        num_nodes: where known.
        master_address: host name or address of rank 0's node; None where the launcher says nothing, so that
            rank 0 must be found through it.
        master_port: of rank 0's store; None with ``master_address``.
        launcher_addresses: where mpirun itself can be reached, which is rank 0's node as a rule.
        job: what the ranks of this start have in common and those of another do not, where known.
        interface: the network interface that the platform names, or None.
    """

    launcher: RankLauncher
    rank: int
    world_size: int
    local_rank: int
    local_size: int | None = None
    node_index: int | None = None
    num_nodes: int | None = None
    master_address: str | None = None
    master_port: int | None = None
    launcher_addresses: tuple[str, ...] = ()
    job: str | None = None
    interface: str | None = None

    @property
    def speaks(self) -> bool:
        """This process is the one that talks to people and writes files."""
        return self.rank == 0


@dataclass(frozen=True, kw_only=True, slots=True)
class PerNode:
    """A launcher started this process once on this node; it starts the node's ranks itself.

    Attributes:
        launcher: which.
        node_index: 0 to ``num_nodes - 1``; node 0 has rank 0, and serves the rendezvous.
        num_nodes: 1 or more.
        master_address: host name or address of node 0.
        master_port: of the rendezvous there.
        ranks_per_node: what the platform would start on a node; ``auto``, ``gpu`` and ``cpu`` are torchrun's
            words, None: it does not say.
        interface: the network interface that the platform names, or None.
    """

    launcher: NodeLauncher
    node_index: int
    num_nodes: int
    master_address: str
    master_port: int
    ranks_per_node: int | str | None = None
    interface: str | None = None

    @property
    def speaks(self) -> bool:
        """This process is the one that talks to people and writes files."""
        return self.node_index == 0


Membership = Alone | PerRank | PerNode
