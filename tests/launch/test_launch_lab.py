"""Launchers on nodes that share no network interface, no shared memory and no host name: those of a lab."""

import json
import os
import shlex
import shutil
import signal
import sys

import pytest
from launched import DRIVER, HERE, HYDRA, OPEN_MPIRUN, TOPOTUNE, bare_environment

from topotune.errors import TopotuneError
from topotune.lab import Cluster, LabNode, LabProfile

pytestmark = [pytest.mark.gloo, pytest.mark.slow, pytest.mark.timeout(600)]

MEASURE = (*TOPOTUNE, "measure", "--budget", "1s", "--json")
HOSTS = ("a", "b")
PROFILE = LabProfile(
    name="three", nodes=tuple(LabNode(name=name, ranks=2, bits_per_s=10**9) for name in (*HOSTS, "c"))
)
needs_mpirun = pytest.mark.skipif(OPEN_MPIRUN is None, reason="no mpirun here (Debian: openmpi-bin)")
needs_hydra = pytest.mark.skipif(HYDRA is None, reason="no mpiexec.hydra here (MPICH)")
needs_nsenter = pytest.mark.skipif(shutil.which("nsenter") is None, reason="no nsenter here (util-linux)")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    try:
        with Cluster(PROFILE, root=tmp_path_factory.mktemp("run") / "topotune" / "labs") as cluster:
            yield cluster
    except TopotuneError as problem:
        pytest.skip(f"no lab here: {problem.message}")


@pytest.fixture
def start_on(cluster, tmp_path):
    """``start_on(node, command, environment)`` starts a command on a node; output goes to files."""
    processes = []

    def start(node, command, environment):
        out, err = tmp_path / f"out{len(processes)}", tmp_path / f"err{len(processes)}"
        variables = bare_environment() | {"PYTHONPATH": str(HERE), "GLOO_SOCKET_IFNAME": "eth0"} | environment
        with out.open("w") as stdout, err.open("w") as stderr:
            process = cluster.popen(node, command, env=variables, stdout=stdout, stderr=stderr)
        processes.append((process, out, err))

    def end():
        return [(process.wait(150), out.read_text(), err.read_text()) for process, out, err in processes]

    start.end = end
    yield start
    for process, _, _ in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def assert_measured(ended, num_ranks):
    """All ended well, and one process printed the measurement of all ranks on two nodes."""
    assert [code for code, _, _ in ended] == [0] * len(ended), ended
    assert [out for _, out, _ in ended[1:]] == [""] * (len(ended) - 1)
    document = json.loads(ended[0][1])
    assert document["num_ranks"] == num_ranks
    assert len(set(document["node_of_rank"])) == len(HOSTS)


@pytest.mark.parametrize(
    "environments",
    [
        [
            {"SM_HOSTS": '["a", "b"]', "SM_CURRENT_HOST": host, "SM_NETWORK_INTERFACE_NAME": "eth0"}
            for host in HOSTS
        ],
        [
            {
                "PET_NNODES": "2",
                "PET_NODE_RANK": str(index),
                "PET_NPROC_PER_NODE": str(2 - index),
                "PET_MASTER_ADDR": "a",
            }
            for index in range(2)
        ],
        [
            {
                "TF_CONFIG": json.dumps(
                    {
                        "cluster": {"worker": [f"{host}:2222" for host in HOSTS]},
                        "task": {"type": "worker", "index": index},
                    }
                )
            }
            for index in range(2)
        ],
        [
            {"AZUREML_RUN_ID": "r", "AZ_BATCH_HOST_LIST": "a,b", "NODE_RANK": str(index), "MASTER_ADDR": "a"}
            for index in range(2)
        ],
    ],
    ids=["SageMaker", "PET_*", "TF_CONFIG", "Azure ML"],
)
def test_per_node_launchers_start_ranks_on_each_node(start_on, environments):
    for node, environment in enumerate(environments):
        says = "PET_NPROC_PER_NODE" in environment
        start_on(node, MEASURE if says else [*MEASURE, "--nproc-per-node", "1"], environment)
    assert_measured(start_on.end(), num_ranks=3 if says else 2)


def test_pods_are_nodes_when_their_ranks_are_asked_for(start_on):
    for node in range(2):
        pod = {"MASTER_ADDR": "a", "MASTER_PORT": "23456", "WORLD_SIZE": "2", "RANK": str(node)}
        start_on(node, [*MEASURE, "--nproc-per-node", "1"], pod)
    assert_measured(start_on.end(), num_ranks=2)


def test_tasks_of_an_srun_step_find_rank_0_by_the_list_of_nodes(start_on):
    for rank in range(3):
        node = rank // 2
        start_on(
            node,
            MEASURE,
            {
                "SLURM_JOB_ID": "4711",
                "SLURM_STEP_ID": "0",
                "SLURM_STEP_NUM_TASKS": "3",
                "SLURM_STEP_NUM_NODES": "2",
                "SLURM_STEP_NODELIST": "a,b",
                "SLURM_STEP_TASKS_PER_NODE": "2,1",
                "SLURM_PROCID": str(rank),
                "SLURM_LOCALID": str(rank % 2),
                "SLURM_NODEID": str(node),
                "SLURMD_NODENAME": HOSTS[node],
            },
        )
    assert_measured(start_on.end(), num_ranks=3)


@pytest.fixture
def agent(cluster, tmp_path):
    """In place of ssh: called with a node's name and the shell command that starts a daemon there."""
    agent = tmp_path / "enter-node"
    entries = "\n".join(f"{node}) pid={pid} ;;" for node, pid in cluster.record.holders.items())
    agent.write_text(
        f"#!/bin/sh\nnode=$1; shift\ncase $node in\n{entries}\nesac\n"
        'exec nsenter --target "$pid" --net --uts --ipc --mount sh -c "$*"\n'
    )
    agent.chmod(0o755)
    return str(agent)


@pytest.fixture
def mpirun(agent):
    """``mpirun(hosts, command)``: the command line of a real mpirun that enters the lab's nodes."""

    def command_line(hosts, command):
        options = ["--allow-run-as-root", "--bind-to", "none", "--mca", "plm_rsh_agent", agent]
        forwarded = ["-x", "PYTHONPATH", "-x", "GLOO_SOCKET_IFNAME"]
        return [OPEN_MPIRUN, *options, *forwarded, "-H", hosts, *command]

    return command_line


@needs_mpirun
@needs_nsenter
@pytest.mark.parametrize("hosts", ["a:2,b:1", "b:1,c:1"], ids=["rank 0 beside mpirun", "rank 0 elsewhere"])
def test_ranks_of_mpirun_on_several_nodes_find_rank_0_without_being_told(start_on, mpirun, hosts):
    start_on(0, mpirun(hosts, MEASURE), {})
    assert_measured(start_on.end(), num_ranks=3 if "2" in hosts else 2)


@needs_mpirun
@needs_nsenter
def test_without_pmix_rank_0_is_taken_to_be_beside_mpirun(start_on, mpirun):
    start_on(0, mpirun("a:1,b:1", [*DRIVER, "allreduce", "{}", "no-pmix"]), {})
    ((code, out, err),) = start_on.end()
    assert code == 0, err
    assert sorted(out.splitlines()) == ['{"speaks": false, "result": 1.0}', '{"speaks": true, "result": 1.0}']


@needs_mpirun
@needs_nsenter
def test_without_pmix_a_rank_0_elsewhere_is_refused_with_what_to_set(start_on, mpirun):
    start_on(0, mpirun("b:1,c:1", [*DRIVER, "allreduce", "{}", "no-pmix"]), {})
    ((code, _, err),) = start_on.end()
    assert code == 2
    assert "UsageError: started by Open MPI's mpirun, but rank 0 does not run on its node (10.18.0.1)" in err


@needs_mpirun
@needs_nsenter
def test_a_master_that_the_user_names_is_taken_under_mpirun(start_on, mpirun):
    line = mpirun("b:1,c:1", [*DRIVER, "allreduce", "{}", "no-pmix"])
    start_on(0, ["env", "MASTER_ADDR=b", *line[:1], "-x", "MASTER_ADDR", *line[1:]], {})
    ((code, out, err),) = start_on.end()
    assert code == 0, err
    assert len(out.splitlines()) == 2


@needs_hydra
@needs_nsenter
@pytest.mark.parametrize("hosts", ["a,b", "b,c"], ids=["rank 0 beside mpiexec", "rank 0 elsewhere"])
def test_ranks_of_mpichs_mpiexec_on_several_nodes_find_rank_0_without_being_told(start_on, agent, hosts):
    entering = [HYDRA, "-launcher", "rsh", "-launcher-exec", agent, "-hosts", hosts, "-ppn", "1", "-n", "2"]
    start_on(0, [*entering, *MEASURE], {})
    assert_measured(start_on.end(), num_ranks=2)


def test_torchrun_that_starts_its_ranks_anew_is_joined(start_on):
    # The first time, all ranks fail before topotune starts.
    once = f'[ "$TORCHELASTIC_RESTART_COUNT" = 0 ] && exit 1; exec {shlex.join(MEASURE)}'
    for node in range(2):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--max-restarts", "1"]
        where = ["--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "1"]
        meet = ["--master-addr", "a", "--master-port", "29501", "--log-dir", os.devnull]
        start_on(node, [*torchrun, *where, *meet, "sh", "-c", once.replace("$", "$$")], {})
    assert_measured(start_on.end(), num_ranks=2)
