"""`read_launcher`: the environments of all launchers, and those that say too little or too much."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topotune.errors import InputFileError, UsageError
from topotune.probe.launcher import check_num_local_ranks, read_launcher
from topotune.probe.membership import Alone, PerNode, PerRank
from topotune.probe.slurm import expand_node_list

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "a",
    "MASTER_PORT": "41000",
    "TORCHELASTIC_RESTART_COUNT": "1",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
    "OMPI_MCA_orte_hnp_uri": "1735589888.0;tcp://10.18.0.1,127.0.0.1:35625;tcp6://[fd00::2]:37671",
    "PMIX_NAMESPACE": "1735589889",
    "PMIX_RANK": "3",
}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "PMI_FD": "9"}
JOB = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NTASKS": "5",
    "SLURM_JOB_NODELIST": "n[08-11]",
}
STEP = JOB | {
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "n[09-10]",
    "SLURM_STEP_TASKS_PER_NODE": "3,2",
    "SLURM_PROCID": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURMD_NODENAME": "n10",
}
BATCH = JOB | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURMD_NODENAME": "n08"}
PET = {
    "PET_NNODES": "4",
    "PET_NODE_RANK": "2",
    "PET_NPROC_PER_NODE": "8",
    "PET_MASTER_ADDR": "job-node-0-0.job",
    "PET_MASTER_PORT": "29400",
}
SAGEMAKER = {
    "SM_HOSTS": '["algo-1", "algo-2"]',
    "SM_CURRENT_HOST": "algo-2",
    "SM_NUM_GPUS": "8",
    "SM_NETWORK_INTERFACE_NAME": "eth0",
}
AZURE = {
    "AZUREML_RUN_ID": "run",
    "AZUREML_NODE_COUNT": "2",
    "NODE_RANK": "1",
    "MASTER_ADDR": "10.0.0.4",
    "MASTER_PORT": "6105",
}
AZURE_RANK = AZURE | {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
PODS = {"MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456", "WORLD_SIZE": "4", "RANK": "3"}


def tf_config(kind="worker", index=1, **cluster):
    workers = {"worker": ["w0:2222", "w1:2222"]} | cluster
    return {"TF_CONFIG": json.dumps({"cluster": workers, "task": {"type": kind, "index": index}})}


def rank_of_step(**changes):
    expected = {
        "launcher": "slurm",
        "rank": 4,
        "world_size": 5,
        "local_rank": 1,
        "local_size": 2,
        "node_index": 1,
        "num_nodes": 2,
        "master_address": "n09",
        "master_port": 19713,
        "job": "4711.2",
    }
    return PerRank(**expected | changes)


def rank_of_torchrun(**changes):
    expected = {
        "launcher": "torchrun",
        "rank": 5,
        "world_size": 8,
        "local_rank": 1,
        "local_size": 4,
        "node_index": 1,
        "num_nodes": 2,
        "master_address": "a",
        "master_port": 41000,
        "job": "none",
    }
    return PerRank(**expected | changes)


def rank_of_mpi(**changes):
    expected = {
        "launcher": "openmpi",
        "rank": 3,
        "world_size": 4,
        "local_rank": 1,
        "local_size": 2,
        "launcher_addresses": ("10.18.0.1", "fd00::2"),
        "job": "1735589889",
    }
    return PerRank(**expected | changes)


def without(environment, *names):
    return {name: value for name, value in environment.items() if name not in names}


RANKS = {
    "torchrun": (TORCHRUN, rank_of_torchrun()),
    "torchrun with ranks renumbered": (TORCHRUN | {"RANK": "3"}, rank_of_torchrun(rank=3)),
    "torchrun inside srun": (STEP | TORCHRUN, rank_of_torchrun()),
    "torchrun inside mpirun": (OPEN_MPI | TORCHRUN, rank_of_torchrun()),
    "torchrun on SageMaker": (SAGEMAKER | TORCHRUN, rank_of_torchrun(interface="eth0")),
    "torchrun on Azure ML": (AZURE | TORCHRUN, rank_of_torchrun()),
    "torchrun under PET_*": (PET | TORCHRUN, rank_of_torchrun()),
    "RANK beside LOCAL_RANK": (
        {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"},
        PerRank(
            launcher="environment",
            rank=1,
            world_size=2,
            local_rank=1,
            master_address="127.0.0.1",
            master_port=29500,
        ),
    ),
    "Azure ML, a process for each rank": (
        AZURE_RANK,
        PerRank(
            launcher="environment",
            rank=1,
            world_size=2,
            local_rank=0,
            master_address="10.0.0.4",
            master_port=6105,
        ),
    ),
    "Open MPI": (OPEN_MPI, rank_of_mpi()),
    "Open MPI 5, whose mpirun leaves no address": (
        without(OPEN_MPI, "OMPI_MCA_orte_hnp_uri") | {"PMIX_NAMESPACE": "prterun-a-12@1"},
        rank_of_mpi(launcher_addresses=(), job="prterun-a-12@1"),
    ),
    "PRRTE's form of the address": (
        without(OPEN_MPI, "OMPI_MCA_orte_hnp_uri")
        | {"PRTE_MCA_prte_hnp_uri": "prterun-a-12@0.0;tcp4://10.18.0.1,172.17.0.1:35625:24,16"},
        rank_of_mpi(launcher_addresses=("10.18.0.1", "172.17.0.1")),
    ),
    "Open MPI with a master": (
        OPEN_MPI | {"MASTER_ADDR": "a", "MASTER_PORT": "41000"},
        rank_of_mpi(master_address="a", master_port=41000),
    ),
    "Open MPI inside a Slurm job": (BATCH | OPEN_MPI, rank_of_mpi()),
    "Open MPI with ranks exported by a wrapper": (
        OPEN_MPI | {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"},
        rank_of_mpi(),
    ),
    "Open MPI of Azure ML": (
        OPEN_MPI | {"AZ_BATCH_MASTER_NODE": "10.0.0.4:6000"},
        rank_of_mpi(master_address="10.0.0.4", master_port=54965),
    ),
    "Open MPI of Azure ML on one node": (
        OPEN_MPI | {"AZ_BATCHAI_MPI_MASTER_NODE": "localhost"},
        rank_of_mpi(master_address="localhost", master_port=54965),
    ),
    "Open MPI of SageMaker": (SAGEMAKER | OPEN_MPI, rank_of_mpi(interface="eth0")),
    "Hydra": (HYDRA, PerRank(launcher="hydra", rank=3, world_size=4, local_rank=1, local_size=2)),
    "Hydra's proxies started by srun": (
        STEP | HYDRA,
        PerRank(launcher="hydra", rank=3, world_size=4, local_rank=1, local_size=2),
    ),
    "PALS": (
        {"PMI_RANK": "3", "PMI_SIZE": "4", "PMI_LOCAL_RANK": "1", "PMI_LOCAL_SIZE": "2"},
        PerRank(launcher="hydra", rank=3, world_size=4, local_rank=1, local_size=2),
    ),
    "srun step": (STEP, rank_of_step()),
    "srun --mpi=pmi2": (STEP | {"PMI_RANK": "4", "PMI_SIZE": "5"}, rank_of_step()),
    "srun with a master": (
        without(STEP, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
        | {"MASTER_ADDR": "n09", "MASTER_PORT": "41000"},
        rank_of_step(master_port=41000),
    ),
    "srun on one node": (
        STEP
        | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "n10", "SLURM_NODEID": "0"}
        | {"SLURM_STEP_TASKS_PER_NODE": "5"},
        rank_of_step(local_size=5, node_index=0, num_nodes=1, master_address="127.0.0.1"),
    ),
    "srun without the numbers of tasks per node": (
        without(STEP, "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS"),
        rank_of_step(local_size=None),
    ),
}


@pytest.mark.parametrize(("environment", "expected"), RANKS.values(), ids=RANKS)
def test_a_rank_of_a_per_rank_launcher(tmp_path, environment, expected):
    assert read_launcher(environment, tmp_path) == expected


NODES = {
    "PET_*": (
        PET,
        PerNode(
            launcher="kubernetes",
            node_index=2,
            num_nodes=4,
            master_address="job-node-0-0.job",
            master_port=29400,
            ranks_per_node=8,
        ),
    ),
    "PET_* beside the variables of PyTorchJob": (
        PET | PODS | {"PET_NPROC_PER_NODE": "auto", "WORLD_SIZE": "32"},
        PerNode(
            launcher="kubernetes",
            node_index=2,
            num_nodes=4,
            master_address="job-node-0-0.job",
            master_port=29400,
            ranks_per_node="auto",
        ),
    ),
    "PET_* of one node": (
        {"PET_NNODES": "1:1"},
        PerNode(
            launcher="kubernetes", node_index=0, num_nodes=1, master_address="127.0.0.1", master_port=29500
        ),
    ),
    "SageMaker": (
        SAGEMAKER,
        PerNode(
            launcher="sagemaker",
            node_index=1,
            num_nodes=2,
            master_address="algo-1",
            master_port=7777,
            ranks_per_node=8,
            interface="eth0",
        ),
    ),
    "SageMaker without GPUs": (
        SAGEMAKER | {"SM_NUM_GPUS": "0"},
        PerNode(
            launcher="sagemaker",
            node_index=1,
            num_nodes=2,
            master_address="algo-1",
            master_port=7777,
            interface="eth0",
        ),
    ),
    "Azure ML": (
        AZURE,
        PerNode(launcher="azureml", node_index=1, num_nodes=2, master_address="10.0.0.4", master_port=6105),
    ),
    "Azure ML by its list of hosts": (
        without(AZURE, "AZUREML_NODE_COUNT") | {"AZ_BATCH_HOST_LIST": "10.0.0.4,10.0.0.5,10.0.0.6"},
        PerNode(launcher="azureml", node_index=1, num_nodes=3, master_address="10.0.0.4", master_port=6105),
    ),
    "Azure ML by WORLD_SIZE": (
        without(AZURE, "AZUREML_NODE_COUNT") | {"WORLD_SIZE": "2", "RANK": "1"},
        PerNode(launcher="azureml", node_index=1, num_nodes=2, master_address="10.0.0.4", master_port=6105),
    ),
    "TF_CONFIG": (
        tf_config(),
        PerNode(launcher="tensorflow", node_index=1, num_nodes=2, master_address="w0", master_port=2222),
    ),
    "TF_CONFIG with a chief and what takes no part": (
        tf_config(chief=["c:2200"], ps=["p:2222"], evaluator=["e:2222"]),
        PerNode(launcher="tensorflow", node_index=2, num_nodes=3, master_address="c", master_port=2200),
    ),
}


@pytest.mark.parametrize(("environment", "expected"), NODES.values(), ids=NODES)
def test_a_node_of_a_per_node_launcher(tmp_path, environment, expected):
    assert read_launcher(environment, tmp_path) == expected


def test_ranks_that_are_asked_for_tell_that_world_size_counts_pods(tmp_path):
    assert read_launcher(PODS, tmp_path, num_local_ranks=8) == PerNode(
        launcher="pods", node_index=3, num_nodes=4, master_address="job-master-0", master_port=23456
    )


def test_ranks_that_are_asked_for_tell_that_azure_started_one_process_on_each_node(tmp_path):
    assert read_launcher(AZURE_RANK, tmp_path, num_local_ranks=8) == read_launcher(AZURE, tmp_path)
    eight_ranks = AZURE_RANK | {"LOCAL_RANK": "1", "RANK": "9", "WORLD_SIZE": "16"}
    assert isinstance(read_launcher(eight_ranks, tmp_path, num_local_ranks=8), PerRank)


ALONE = {
    "nothing": {},
    "a batch system's own RANK": {"RANK": "3"},
    "RANK and WORLD_SIZE without a master": {"RANK": "3", "WORLD_SIZE": "4"},
    "a master alone": {"MASTER_ADDR": "a", "MASTER_PORT": "29500"},
    "a world of one pod": PODS | {"WORLD_SIZE": "1", "RANK": "0"},
    "options of torchrun": {"PET_NPROC_PER_NODE": "8"},
    "an interactive shell by srun --pty": STEP
    | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_STEP_TASKS_PER_NODE": "1"},
    "a batch script of one task": BATCH | {"SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "1"},
    "an override": TORCHRUN | OPEN_MPI | {"TOPOTUNE_LAUNCHER": "alone", "SM_HOSTS": "["},
    "empty variables": dict.fromkeys(
        [*TORCHRUN, *OPEN_MPI, *HYDRA, *STEP, *PET, *SAGEMAKER, "TF_CONFIG"], ""
    ),
}


@pytest.mark.parametrize("environment", ALONE.values(), ids=ALONE)
def test_no_launcher(tmp_path, environment):
    assert read_launcher(environment, tmp_path) == Alone()


def test_a_batch_script_of_one_node_is_alone_when_its_ranks_are_asked_for(tmp_path):
    assert read_launcher(BATCH | {"SLURM_JOB_NUM_NODES": "1"}, tmp_path, num_local_ranks=4) == Alone()


REFUSED = {
    "RANK and WORLD_SIZE that may count pods": (
        PODS,
        "started by MASTER_ADDR, WORLD_SIZE and RANK of pods, but LOCAL_RANK is not set, so that RANK=3 and "
        "WORLD_SIZE=4 may number ranks or pods",
    ),
    "NODE_RANK and WORLD_SIZE": (
        without(PODS, "RANK") | {"NODE_RANK": "1"},
        "LOCAL_RANK is not set, so that NODE_RANK=1 and WORLD_SIZE=4 may number ranks or pods",
    ),
    "RANK and NODE_RANK that differ": (
        PODS | {"NODE_RANK": "1"},
        "RANK=3 and NODE_RANK=1 without LOCAL_RANK",
    ),
    "a batch script without srun": (
        BATCH,
        "started by Slurm, but not by srun: this is the script or a shell of job '4711', 2 nodes, 5 tasks",
    ),
    "the interactive step of salloc": (STEP | {"SLURM_STEP_ID": "4294967290"}, "not by srun"),
    "a batch script that does not say how many tasks": (
        without(BATCH, "SLURM_NTASKS") | {"SLURM_JOB_NUM_NODES": "1"},
        "not by srun: this is the script or a shell of job '4711', 1 node",
    ),
    "torchrun without LOCAL_RANK": (without(TORCHRUN, "LOCAL_RANK"), "torchrun, but LOCAL_RANK is not set"),
    "torchrun without much": (
        {"TORCHELASTIC_RUN_ID": "none"},
        "RANK and LOCAL_RANK and WORLD_SIZE and MASTER_ADDR are not set",
    ),
    "LOCAL_RANK alone": ({"LOCAL_RANK": "0"}, "RANK and WORLD_SIZE and MASTER_ADDR are not set"),
    "a rank beyond the world": (
        TORCHRUN | {"RANK": "8"},
        "RANK=8 and WORLD_SIZE=8: a rank lies between 0 and 7",
    ),
    "a negative rank": (TORCHRUN | {"RANK": "-1"}, "RANK='-1' is no whole number from 0 to 1048576"),
    "a rank that is no number": (TORCHRUN | {"RANK": "one"}, "RANK='one' is no whole number"),
    "a world of none": (TORCHRUN | {"WORLD_SIZE": "0"}, "WORLD_SIZE=0"),
    "a world beyond all bounds": (TORCHRUN | {"WORLD_SIZE": "9" * 5000}, "is no whole number"),
    "a local rank beyond the node": (TORCHRUN | {"LOCAL_RANK": "4"}, "LOCAL_RANK=4 and LOCAL_WORLD_SIZE=4"),
    "a node larger than the world": (TORCHRUN | {"LOCAL_WORLD_SIZE": "9"}, "is more than WORLD_SIZE=8"),
    "a node beyond the nodes": (TORCHRUN | {"GROUP_RANK": "2"}, "GROUP_RANK=2 and GROUP_WORLD_SIZE=2"),
    "a port beyond all ports": (
        TORCHRUN | {"MASTER_PORT": "65536"},
        "MASTER_PORT='65536' is no whole number",
    ),
    "port 0": (TORCHRUN | {"MASTER_PORT": "0"}, "MASTER_PORT=0: a port lies between 1 and 65535"),
    "a master that is no host": (
        TORCHRUN | {"MASTER_ADDR": "a b;c"},
        "MASTER_ADDR has 'a b;c', which is no host",
    ),
    "Open MPI without a size": (without(OPEN_MPI, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE is not set"),
    "Open MPI's rank beyond its size": (
        OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "4"},
        "started by Open MPI's mpirun, but OMPI_COMM_WORLD_RANK=4 and OMPI_COMM_WORLD_SIZE=4: a rank lies "
        "between 0 and 3",
    ),
    "ranks left over from another launcher": (
        OPEN_MPI | {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"},
        "RANK=0 of WORLD_SIZE=1 is rank 3 of 4 by Open MPI's mpirun",
    ),
    "PMI_RANK without a local rank": ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "MPI_LOCALRANKID is not set"),
    "Hydra without a size": (without(HYDRA, "PMI_SIZE"), "PMI_SIZE is not set"),
    "a step's rank beyond its tasks": (
        STEP | {"SLURM_PROCID": "5"},
        "SLURM_PROCID=5 and SLURM_STEP_NUM_TASKS=5: a rank lies between 0 and 4",
    ),
    "a step without a local rank": (without(STEP, "SLURM_LOCALID"), "SLURM_LOCALID is not set"),
    "a step's node beyond its nodes": (
        STEP | {"SLURM_NODEID": "2"},
        "SLURM_NODEID=2 and SLURM_STEP_NUM_NODES=2",
    ),
    "a step's local rank beyond its node": (
        STEP | {"SLURM_LOCALID": "2"},
        "SLURM_LOCALID=2 and tasks on this node=2",
    ),
    "a step without nodes": (
        without(STEP, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"),
        "SLURM_STEP_NODELIST is not set",
    ),
    "a step of other nodes than it says": (
        STEP | {"SLURM_STEP_NODELIST": "n[09-11]"},
        "SLURM_STEP_NODELIST has 3 nodes and SLURM_STEP_NUM_NODES=2",
    ),
    "a step that this host is not in": (
        STEP | {"SLURMD_NODENAME": "n12"},
        "SLURMD_NODENAME='n12' is not in SLURM_STEP_NODELIST, and SLURM_NODEID=1",
    ),
    "a step that this host is elsewhere in": (
        STEP | {"SLURMD_NODENAME": "n09"},
        "SLURMD_NODENAME='n09' is node 0 in SLURM_STEP_NODELIST, and SLURM_NODEID=1",
    ),
    "a list of nodes that is none": (STEP | {"SLURM_STEP_NODELIST": "n[9-"}, "is no list of nodes"),
    "a list of nodes without end": (
        STEP | {"SLURM_STEP_NODELIST": "n[0-999999999]"},
        "is no list of nodes: it has more than 65536 nodes",
    ),
    "a node that is no host name": (STEP | {"SLURM_STEP_NODELIST": "$(rm),n10"}, "which is no host name"),
    "tasks per node that do not add up": (
        STEP | {"SLURM_STEP_TASKS_PER_NODE": "3(x2)"},
        "'3(x2)' has 6 tasks on 2 nodes, and the step 5 on 2",
    ),
    "tasks per node that are no numbers": (
        STEP | {"SLURM_STEP_TASKS_PER_NODE": "many"},
        "SLURM_STEP_TASKS_PER_NODE='many' is no list of numbers of tasks",
    ),
    "elastic PET_*": (PET | {"PET_NNODES": "1:4"}, "PET_NNODES=1:4: the number of nodes is not fixed"),
    "PET_* without a node": (without(PET, "PET_NODE_RANK"), "PET_NODE_RANK is not set"),
    "PET_* without a master": (without(PET, "PET_MASTER_ADDR"), "PET_MASTER_ADDR is not set"),
    "PET_* without a number of nodes": (without(PET, "PET_NNODES"), "PET_NNODES is not set"),
    "PET_*'s node beyond its nodes": (PET | {"PET_NODE_RANK": "4"}, "PET_NODE_RANK=4 and PET_NNODES=4"),
    "PET_* with ranks in words": (
        PET | {"PET_NPROC_PER_NODE": "all"},
        "PET_NPROC_PER_NODE='all' is no whole",
    ),
    "SageMaker without this host": (without(SAGEMAKER, "SM_CURRENT_HOST"), "SM_CURRENT_HOST is not set"),
    "SageMaker without hosts": (without(SAGEMAKER, "SM_HOSTS"), "SM_HOSTS is not set"),
    "SageMaker's host not in its list": (
        SAGEMAKER | {"SM_CURRENT_HOST": "algo-3"},
        "SM_CURRENT_HOST='algo-3' is not among the hosts of SM_HOSTS",
    ),
    "SageMaker's hosts are no JSON": (
        SAGEMAKER | {"SM_HOSTS": '["algo-1"'},
        "started by SageMaker, but SM_HOSTS: ",
    ),
    "SageMaker's hosts are no list": (SAGEMAKER | {"SM_HOSTS": '{"a": 1}'}, "which is no list of hosts"),
    "SageMaker's host is no name": (
        SAGEMAKER | {"SM_HOSTS": "[1, 2]"},
        "SM_HOSTS has '1', which is no host name",
    ),
    "SageMaker's host twice": (
        SAGEMAKER | {"SM_HOSTS": '["algo-2", "algo-2"]'},
        "SM_HOSTS has 'algo-2' twice",
    ),
    "SageMaker's hosts nested without end": (
        SAGEMAKER | {"SM_HOSTS": "[" * 100_000},
        "nested more than 64 deep",
    ),
    "SageMaker's interface is none": (
        SAGEMAKER | {"SM_NETWORK_INTERFACE_NAME": "eth0 x"},
        "is no network interface",
    ),
    "Azure ML without a number of nodes": (without(AZURE, "AZUREML_NODE_COUNT"), "WORLD_SIZE is not set"),
    "Azure ML's numbers of nodes differ": (
        AZURE | {"AZ_BATCH_HOST_LIST": "a,b,c"},
        "AZUREML_NODE_COUNT=2 and AZ_BATCH_HOST_LIST has 3 hosts",
    ),
    "Azure ML's WORLD_SIZE may count ranks": (
        without(AZURE, "AZUREML_NODE_COUNT") | {"WORLD_SIZE": "16", "RANK": "8"},
        "RANK=8 and NODE_RANK=1, and neither LOCAL_RANK nor AZUREML_NODE_COUNT",
    ),
    "Azure ML's node beyond its nodes": (AZURE | {"NODE_RANK": "2"}, "NODE_RANK=2 and the number of nodes=2"),
    "TF_CONFIG is no JSON": ({"TF_CONFIG": "{"}, "started by TF_CONFIG, but TF_CONFIG: "),
    "TF_CONFIG is no object": ({"TF_CONFIG": "[]"}, "TF_CONFIG has no objects cluster and task"),
    "TF_CONFIG of a parameter server": (tf_config("ps", 0, ps=["p:1"]), "this is a task of type 'ps'"),
    "TF_CONFIG's task beyond its workers": (tf_config(index=2), "worker '2' is not among the workers"),
    "TF_CONFIG's task is no number": (tf_config(index=True), "worker 'True' is not among the workers"),
    "TF_CONFIG's workers are no list": (tf_config(worker="w0:1"), "cluster.worker is no list"),
    "TF_CONFIG's worker without a port": (
        tf_config(worker=["w0", "w1"]),
        "cluster.worker[0] has 'w0', which is no host:port",
    ),
    "TF_CONFIG's worker is no text": (
        tf_config(worker=[{}, 1]),
        "cluster.worker[0] has '{}', which is no host:port",
    ),
    "TF_CONFIG's worker twice": (tf_config(worker=["w:1", "w:1"]), "cluster has an address twice"),
    "an override that is none": ({"TOPOTUNE_LAUNCHER": "slurm"}, "TOPOTUNE_LAUNCHER='slurm': is not alone"),
}


@pytest.mark.parametrize(("environment", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_half_set_or_ambiguous_is_refused_with_what_was_seen(tmp_path, environment, said):
    with pytest.raises(UsageError) as caught:
        read_launcher(environment, tmp_path)
    assert said in caught.value.message
    assert caught.value.hint
    assert len(caught.value.message) < 300
    assert caught.value.exit_code == 2


def resource_config(root: Path, text: str) -> None:
    folder = root / "opt/ml/input/config"
    folder.mkdir(parents=True)
    (folder / "resourceconfig.json").write_text(text)


CONFIG = {"current_host": "algo-1", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth1"}


def test_sagemakers_file_says_what_its_variables_would(tmp_path):
    resource_config(tmp_path, json.dumps(CONFIG))
    assert read_launcher({}, tmp_path) == PerNode(
        launcher="sagemaker",
        node_index=0,
        num_nodes=2,
        master_address="algo-1",
        master_port=7777,
        interface="eth1",
    )


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (SAGEMAKER, "SM_CURRENT_HOST='algo-2' and {path} has 'algo-1'"),
        ({"SM_HOSTS": '["algo-1", "algo-3"]'}, "SM_HOSTS has 'algo-1, algo-3' and {path} 'algo-1, algo-2'"),
    ],
)
def test_sagemakers_variables_must_not_contradict_its_file(tmp_path, environment, said):
    resource_config(tmp_path, json.dumps(CONFIG))
    path = tmp_path / "opt/ml/input/config/resourceconfig.json"
    with pytest.raises(UsageError) as caught:
        read_launcher(environment, tmp_path)
    assert said.format(path=path) in caught.value.message


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[" * 100_000, '{"hosts": NaN}', '{"hosts": [], "hosts": []}']
)
def test_a_broken_file_of_sagemaker_is_refused_by_its_name(tmp_path, text):
    resource_config(tmp_path, text)
    with pytest.raises(InputFileError) as caught:
        read_launcher({}, tmp_path)
    assert caught.value.path.endswith("resourceconfig.json")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("a[01-04,7],b2", ["a01", "a02", "a03", "a04", "a7", "b2"]),
        ("a[9-11]", ["a9", "a10", "a11"]),
        ("a[098-101]", ["a098", "a099", "a100", "a101"]),
        ("r[1-2]n[08,10]-ib", ["r1n08-ib", "r1n10-ib", "r2n08-ib", "r2n10-ib"]),
        ("[1-2].cluster.local,login-3", ["1.cluster.local", "2.cluster.local", "login-3"]),
        ("a[5]", ["a5"]),
    ],
)
def test_a_compressed_list_of_nodes_is_expanded_in_order(text, names):
    assert expand_node_list(text) == tuple(names)


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "a,", ",a", "a,,b", "a[", "a]", "a[]", "a[1", "a[1-]", "a[-1]", "a[2-1]", "a[x]", "a[1,]"),
        *("a[[1]]", "a[1-2-3]", "a[0-99999]", "a[0-300][0-300]", "[1]" * 17),
        *("a[0-40000],b[0-40000]", "a[1-9999999999]"),
        "a" * 2**21,
    ],
)
def test_what_is_no_list_of_nodes_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        expand_node_list(text)


NUMBERS = st.integers(0, 120).flatmap(
    lambda low: st.tuples(st.just(low), st.integers(low, low + 30), st.integers(0, 4))
)


@given(
    st.lists(
        st.tuples(st.from_regex(r"[a-z][a-z.-]{0,4}", fullmatch=True), st.lists(NUMBERS, max_size=3)),
        min_size=1,
    )
)
def test_what_is_compressed_comes_back(items):
    text, names = [], []
    for prefix, ranges in items:
        brackets = [
            f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}"
            for low, high, width in ranges
        ]
        text.append(prefix + (f"[{','.join(brackets)}]" if brackets else ""))
        for low, high, width in ranges:
            names += [f"{prefix}{number:0{max(width, len(str(low)))}d}" for number in range(low, high + 1)]
        if not ranges:
            names.append(prefix)
    assert expand_node_list(",".join(text)) == tuple(names)


@given(st.text(alphabet="ab[]-,019", max_size=30))
def test_any_text_is_expanded_within_bounds_or_refused(text):
    try:
        names = expand_node_list(text)
    except ValueError:
        return
    assert 1 <= len(names) <= 2**16
    assert all("[" not in name and "," not in name for name in names)


VARIABLES = sorted({*TORCHRUN, *OPEN_MPI, *HYDRA, *STEP, *PET, *SAGEMAKER, *AZURE_RANK, "TF_CONFIG"})


@given(
    st.dictionaries(st.sampled_from(VARIABLES), st.text(max_size=12) | st.sampled_from(["0", "1", "2", "a"]))
)
def test_any_environment_is_a_membership_or_a_refusal(environment):
    with contextlib.suppress(UsageError):
        assert isinstance(read_launcher(environment, Path("/nowhere")), Alone | PerRank | PerNode)


@pytest.mark.parametrize("num_ranks", [0, -1, 1025])
def test_a_number_of_local_ranks_that_cannot_be_is_refused(num_ranks):
    with pytest.raises(UsageError, match=f"--nproc-per-node {num_ranks}: a node has 1 to 1024 ranks"):
        check_num_local_ranks(num_ranks)
