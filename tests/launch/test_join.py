"""Ranks of launchers that start one process for each join each other, by what the launcher says."""

import json
import os
import socket
import threading

import pytest
from launched import DRIVER, HYDRA, OPEN_MPIRUN, TOPOTUNE, free_port

from topotune.errors import RunError
from topotune.launch import meeting, pmi

pytestmark = pytest.mark.gloo

MEASURE = (*TOPOTUNE, "measure", "--budget", "1s", "--json")
needs_mpirun = pytest.mark.skipif(OPEN_MPIRUN is None, reason="no mpirun here (Debian: openmpi-bin)")
needs_hydra = pytest.mark.skipif(HYDRA is None, reason="no mpiexec.hydra here (MPICH)")
MPIRUN = (OPEN_MPIRUN, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none")


def step(rank, size, **more):
    return {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_STEP_TASKS_PER_NODE": str(size),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NODEID": "0",
        **more,
    }


def test_tasks_of_an_srun_step_are_ranks_and_one_of_them_prints(started):
    for rank in range(2):
        started.start(MEASURE, step(rank, 2))
    ended = started.end()
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert json.loads(ended[0][1])["num_ranks"] == 2
    assert ended[1][1] == ""


@pytest.mark.slow
def test_the_environment_of_a_joined_rank_is_torchruns(started):
    port = free_port()
    for rank in range(2):
        started.start(
            [*DRIVER, "environment", "{}"], step(rank, 2, MASTER_ADDR="localhost", MASTER_PORT=str(port))
        )
    for rank, (code, out, err) in enumerate(started.end()):
        assert code == 0, err
        found = json.loads(out)
        assert found["speaks"] is (rank == 0)
        expected = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        assert found["result"] | expected == found["result"]
        assert found["result"]["MASTER_ADDR"] == "localhost"


def test_another_runs_store_is_not_taken_for_the_own(started):
    stranger = meeting.serve(0, "stranger", interface="127.0.0.1")
    with pytest.raises(RunError, match="there is the store of another run") as caught:
        meeting.find([("127.0.0.1", stranger.port)], "mine", what="rank 0", timeout_s=0)
    assert caught.value.message.startswith("rank 0 was not found within 0 s: 127.0.0.1:")


def test_a_port_that_is_taken_is_named_with_how_to_choose_another(started):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        started.start([*DRIVER, "nothing", "{}"], step(0, 2, MASTER_ADDR="localhost", MASTER_PORT=str(port)))
        ((code, _, err),) = started.end()
    assert code == 1
    assert err == f"RunError: port {port} of this machine cannot be listened on: Address already in use\n"


class Manager(threading.Thread):
    """The process manager of one mpiexec, as far as PMI-1's simple wire form goes; answers all ranks."""

    def __init__(self, num_ranks):
        super().__init__(daemon=True)
        pairs = [socket.socketpair() for _ in range(num_ranks)]
        self.ranks = [theirs for _, theirs in pairs]
        self.connections = [ours.makefile("rw", newline="\n") for ours, _ in pairs]
        self.said = [[] for _ in pairs]
        self.kept = {}
        self.barrier = threading.Barrier(num_ranks)
        self.start()

    def run(self):
        threads = [
            threading.Thread(target=self.serve, args=(rank,), daemon=True) for rank in range(len(self.ranks))
        ]
        for thread in threads:
            thread.start()

    def serve(self, rank):
        for line in self.connections[rank]:
            words = dict(word.split("=", 1) for word in line.split())
            self.said[rank].append(words["cmd"])
            match words["cmd"]:
                case "init":
                    answer = "response_to_init pmi_version=1 pmi_subversion=1 rc=0"
                case "get_my_kvsname":
                    answer = "my_kvsname kvsname=kvs_12_0"
                case "put":
                    self.kept[words["kvsname"], words["key"]] = words["value"]
                    answer = "put_result rc=0 msg=success"
                case "barrier_in":
                    self.barrier.wait(60)
                    answer = "barrier_out"
                case "get":
                    answer = f"get_result rc=0 value={self.kept[words['kvsname'], words['key']]}"
                case "finalize":
                    answer = "finalize_ack"
            self.connections[rank].write(f"cmd={answer}\n")
            self.connections[rank].flush()


def test_ranks_of_hydra_meet_through_its_process_manager(started):
    manager = Manager(2)
    for rank, connection in enumerate(manager.ranks):
        descriptor = connection.fileno()
        started.start(
            MEASURE,
            {"PMI_RANK": str(rank), "PMI_SIZE": "2", "PMI_FD": str(descriptor)}
            | {"MPI_LOCALRANKID": str(rank), "MPI_LOCALNRANKS": "2"},
            pass_fds=(descriptor,),
        )
    ended = started.end()
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert json.loads(ended[0][1])["num_ranks"] == 2
    assert manager.said[0] == ["init", "get_my_kvsname", "put", "barrier_in", "get", "finalize"]
    assert manager.said[1] == ["init", "get_my_kvsname", "barrier_in", "get", "finalize"]


@needs_hydra
def test_ranks_of_mpichs_mpiexec_are_joined_and_one_of_them_prints(started):
    started.start([HYDRA, "-n", "2", *MEASURE], {})
    ((code, out, err),) = started.end()
    assert code == 0, err
    assert json.loads(out)["num_ranks"] == 2


@pytest.mark.slow
@needs_hydra
def test_a_rank_of_mpichs_mpiexec_that_dies_ends_all(started):
    started.start([HYDRA, "-n", "2", *DRIVER, "fail", '{"rank": 1, "how": "kill"}'], {})
    ((code, out, _),) = started.end()
    assert code != 0
    assert "speaks" not in out


@pytest.mark.parametrize("answer", [b"", b"cmd=response_to_init rc=-1\n", b"hello\n", b"x" * 10_000])
def test_a_process_manager_that_speaks_otherwise_is_refused(answer):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(answer)
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(RunError, match="mpiexec"):
            pmi.tell_all({"PMI_FD": str(theirs.fileno())}, 1, None)


@pytest.mark.slow
def test_hydra_without_a_connection_to_its_manager_says_what_to_set(started):
    started.start(
        [*DRIVER, "nothing", "{}"],
        {"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"},
    )
    ((code, _, err),) = started.end()
    assert (code, err) == (2, "UsageError: started by mpiexec (Hydra), but it does not say where rank 0 is\n")


@needs_mpirun
def test_ranks_of_mpirun_are_joined_and_one_of_them_prints(started):
    started.start([*MPIRUN, "-np", "3", *MEASURE], {})
    ((code, out, err),) = started.end()
    assert code == 0, err
    assert json.loads(out)["num_ranks"] == 3


@pytest.mark.slow
@needs_mpirun
def test_ranks_of_mpirun_meet_on_one_node_without_pmix(started):
    started.start([*MPIRUN, "-np", "2", *DRIVER, "allreduce", "{}", "no-pmix"], {})
    ((code, out, err),) = started.end()
    assert code == 0, err
    assert sorted(line for line in out.splitlines()) == [
        '{"speaks": false, "result": 1.0}',
        '{"speaks": true, "result": 1.0}',
    ]


@pytest.mark.slow
@needs_mpirun
def test_one_rank_of_mpirun_is_a_world_too(started):
    started.start([*MPIRUN, "-np", "1", *DRIVER, "allreduce", "{}"], {})
    assert started.end()[0][:2] == (0, '{"speaks": true, "result": 0.0}\n')


@pytest.mark.slow
@needs_mpirun
def test_local_ranks_cannot_be_asked_for_under_mpirun(started):
    started.start([*MPIRUN, "-np", "2", *TOPOTUNE, "measure", "--nproc-per-node", "4"], {})
    ((code, out, err),) = started.end()
    assert code == 2
    assert out == ""
    assert "error: --nproc-per-node 4 under a launcher with 2 ranks (Open MPI's mpirun)" in err


@needs_mpirun
@pytest.mark.slow
def test_a_rank_of_mpirun_that_dies_ends_all(started):
    started.start([*MPIRUN, "-np", "2", *DRIVER, "fail", '{"rank": 1, "how": "kill"}'], {})
    ((code, _, err),) = started.end()
    assert code == 137
    assert "exited on signal 9" in err
