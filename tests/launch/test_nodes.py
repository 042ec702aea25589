"""One run over several nodes of a per-node launcher: here two processes of this machine, each for a node."""

import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from launched import DRIVER, TOPOTUNE, free_port

pytestmark = pytest.mark.gloo


@pytest.fixture
def start_nodes(started):
    """``start_nodes(command, command)`` starts one process per command, as nodes 0, 1, … of one run."""

    def start(*commands, **more):
        port = free_port()
        for index, command in enumerate(commands):
            pet = {
                "PET_NNODES": str(len(commands)),
                "PET_NODE_RANK": str(index),
                "PET_NPROC_PER_NODE": "2",
                "PET_MASTER_ADDR": "127.0.0.1",
                "PET_MASTER_PORT": str(port),
            }
            started.start(command, pet | more)
        return started.processes

    return start


def drive(function, payload, *flags):
    return [*DRIVER, function, json.dumps(payload), *flags]


def wait_for_ranks(folder, num_ranks):
    """Pids of ranks by number, once all are at work."""
    deadline_s = time.monotonic() + 120
    while len(paths := list(folder.glob("[0-9]"))) < num_ranks:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    return {int(path.name): int(path.read_text()) for path in paths}


def assert_gone(pids):
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=30)
    assert alive == []


def test_the_ranks_of_all_nodes_form_one_world_and_node_0_prints(start_nodes, started):
    command = [*TOPOTUNE, "measure", "--budget", "1s", "--json", "--nproc-per-node"]
    start_nodes([*command, "1"], [*command, "2"])
    ended = started.end()
    assert [code for code, _, _ in ended] == [0, 0], ended
    assert json.loads(ended[0][1])["num_ranks"] == 3
    assert ended[1][1] == ""


def test_every_node_gets_node_0s_payload_and_a_result_that_is_shared(start_nodes, started):
    start_nodes(drive("environment", {"of": 0}, "share"), drive("environment", {"of": 1}, "share", "3"))
    for index, (code, out, err) in enumerate(started.end()):
        assert code == 0, err
        found = json.loads(out)
        assert found["speaks"] is (index == 0)
        expected = {"payload": {"of": 0}, "RANK": "0", "WORLD_SIZE": "5", "LOCAL_WORLD_SIZE": "2"}
        assert found["result"] | expected == found["result"]


@pytest.mark.slow
def test_a_result_that_is_not_shared_is_node_0s_alone(start_nodes, started):
    start_nodes(drive("allreduce", {}), drive("allreduce", {}))
    assert [json.loads(out)["result"] for _, out, _ in started.end()] == [6.0, None]


@pytest.mark.parametrize(
    ("rank", "how"),
    [
        (3, "kill"),
        *(
            pytest.param(rank, how, marks=pytest.mark.slow)
            for rank, how in [(1, "kill"), (1, "exception"), (3, "exception"), (3, "exit")]
        ),
    ],
)
def test_a_rank_that_fails_ends_all_nodes_with_its_name(start_nodes, started, rank, how):
    causes = {"kill": "killed by SIGKILL", "exception": "ValueError: no", "exit": "exit code 7"}
    start_nodes(*[drive("fail", {"rank": rank, "how": how, "peers_fail_after_s": 0.6})] * 2)
    said = f"RankFailedError: rank {rank} failed: {causes[how]}; it printed last: the last words\n"
    assert [(code, err) for code, _, err in started.end()] == [(1, said)] * 2


@pytest.mark.slow
def test_an_error_of_topotune_arrives_on_all_nodes_as_it_was_raised(start_nodes, started):
    payload = {"class": "InputFileError", "arguments": ["a.json", "is cut off"], "keywords": {}}
    start_nodes(*[drive("raise_error", payload)] * 2)
    assert [(code, err) for code, _, err in started.end()] == [
        (2, "InputFileError: a.json: is cut off\n")
    ] * 2


@pytest.mark.parametrize(
    ("node", "number", "code"),
    [
        (1, signal.SIGINT, 130),
        pytest.param(0, signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param(0, signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(1, signal.SIGTERM, 143, marks=pytest.mark.slow),
    ],
)
def test_a_signal_on_one_node_ends_all_with_its_code(start_nodes, started, tmp_path, node, number, code):
    processes = start_nodes(*[drive("wait_for_the_end", {"folder": str(tmp_path)})] * 2)
    pids = wait_for_ranks(tmp_path, 4)
    processes[node].send_signal(number)
    assert [(found, err) for found, _, err in started.end()] == [(code, "")] * 2
    assert_gone(pids.values())


@pytest.mark.slow
@pytest.mark.parametrize("node", [0, 1])
def test_a_node_whose_process_is_killed_ends_the_other_with_its_name(start_nodes, started, tmp_path, node):
    processes = start_nodes(*[drive("wait_for_the_end", {"folder": str(tmp_path)})] * 2)
    pids = wait_for_ranks(tmp_path, 4)
    processes[node].kill()
    code, _, err = started.end()[1 - node]
    host = os.uname().nodename
    silence = ": nothing was heard for 8 s" if node == 1 else ""
    assert (code, err) == (1, f"RunError: node {node} ({host}) is gone{silence}\n")
    assert_gone(pids.values())


@pytest.mark.slow
def test_a_node_that_is_stopped_is_missed(start_nodes, started, tmp_path):
    processes = start_nodes(*[drive("wait_for_the_end", {"folder": str(tmp_path)})] * 2)
    pids = wait_for_ranks(tmp_path, 4)
    processes[0].send_signal(signal.SIGSTOP)
    processes[1].wait(60)
    assert processes[1].returncode == 1
    processes[0].kill()
    assert started.end()[1][2] == f"RunError: node 0 ({os.uname().nodename}) is gone\n"
    assert_gone(pids.values())


@pytest.mark.slow
def test_nodes_that_run_different_things_are_refused_by_name(start_nodes, started):
    start_nodes(drive("nothing", {}), drive("environment", {}))
    host = os.uname().nodename
    said = (
        f"UsageError: node 0 ({host}) runs entry launch_entries:nothing, "
        f"node 1 ({host}) launch_entries:environment\n"
    )
    assert [(code, err) for code, _, err in started.end()] == [(2, said)] * 2


@pytest.mark.slow
def test_a_node_that_waits_for_another_says_so_and_can_be_interrupted(started):
    pet = {"PET_NNODES": "2", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port())}
    lonely = started.start(drive("nothing", {}), pet | {"PET_NODE_RANK": "0"})
    assert lonely.stderr.readline() == "waiting for node 1 of 2\n"
    lonely.send_signal(signal.SIGINT)
    late = started.start(
        drive("nothing", {}), pet | {"PET_NODE_RANK": "1", "PET_MASTER_PORT": str(free_port())}
    )
    assert late.stderr.readline().startswith("waiting for node 0 (PET_* (Kubernetes)): 127.0.0.1:")
    late.send_signal(signal.SIGTERM)
    assert [code for code, _, _ in started.end()] == [130, 143]


@pytest.mark.slow
def test_one_node_needs_no_other(started):
    started.start(drive("environment", {}), {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "3"})
    ((code, out, err),) = started.end()
    assert code == 0, err
    assert json.loads(out)["result"]["WORLD_SIZE"] == "3"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ("gpu", "UsageError: PET_* (Kubernetes): gpu ranks on a node: Cuda is not available.\n"),
        ("5000", "UsageError: --nproc-per-node 5000: a node has 1 to 1024 ranks\n"),
    ],
)
def test_a_platform_that_asks_for_ranks_that_cannot_be_is_refused(started, ranks, said):
    if ranks == "gpu" and Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    started.start(drive("nothing", {}), {"PET_NNODES": "1", "PET_NPROC_PER_NODE": ranks})
    assert [(code, err) for code, _, err in started.end()] == [(2, said)]
