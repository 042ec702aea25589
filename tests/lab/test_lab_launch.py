"""`lab.run`: what the command finds, what comes through of it, and how it ends."""

import os
import subprocess
import sys
import time

import pytest

from topotune import lab
from topotune.errors import UsageError
from topotune.lab import LabNode, LabProfile
from topotune.lab.agent import exit_status

SHOW = "import os, socket; e = os.environ; print(socket.gethostname(), e['TOPOTUNE_LAB_NODE_INDEX'])"
RANKS = (
    "import os, socket; e = os.environ;"
    "print('RANK', e['RANK'], flush=True);"
    "keys = 'RANK', 'LOCAL_RANK', 'GROUP_RANK', 'WORLD_SIZE', 'GLOO_SOCKET_IFNAME';"
    # One write each, so that lines of ranks do not mix.
    "os.write(2, ' '.join(['PLACE', *[e[key] for key in keys], socket.gethostname() + chr(10)]).encode())"
)


def places(stderr: str) -> list[list[str]]:
    return sorted(
        (line.split()[1:] for line in stderr.splitlines() if line.startswith("PLACE ")),
        key=lambda p: int(p[0]),
    )


def test_once_runs_the_command_on_each_node_and_the_first_nodes_output_comes_through(start_lab):
    code = SHOW + "; os.write(2, f'seen {socket.gethostname()}\\n'.encode())"
    stdout, stderr = (process := start_lab("4x2", "once", sys.executable, "-c", code)).communicate(timeout=60)
    assert process.returncode == 0
    assert stdout == "a 0\n"
    assert sorted(stderr.splitlines()) == ["seen a", "seen b", "seen c", "seen d"]


@pytest.mark.parametrize(
    ("codes", "exit_code"),
    [("0 5", 5), ("3 0", 3), ("3 5", 3)],
    ids=["any node's", "the first's", "the first's first"],
)
def test_once_exit_code_comes_through(start_lab, codes, exit_code):
    command = ["sh", "-c", f"set -- {codes}; shift $TOPOTUNE_LAB_NODE_INDEX; exit $1"]
    process = start_lab("2x4", "once", *command)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == exit_code
    reports = [
        f"node {node} ended with exit code {code}\n" for node, code in zip("ab", codes.split(), strict=True)
    ]
    assert sorted(stderr.splitlines(keepends=True)) == [line for line in reports if " code 0" not in line]


def test_the_verb_runs_the_command_and_passes_on_what_it_prints_and_its_exit_code(namespaces, tmp_path):
    command = ["sh", "-c", "echo $(hostname) of $TOPOTUNE_LAB_NODES; exit 5"]
    done = subprocess.run(
        [sys.executable, "-m", "topotune", "lab", "2x4", "--once", "--", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (5, "a of a,b\n"), done.stderr


def test_a_node_that_fails_ends_the_others(start_lab):
    start = time.monotonic()
    process = start_lab(
        "2x4", "once", "sh", "-c", "[ $TOPOTUNE_LAB_NODE_INDEX = 1 ] && kill -9 $$; exec sleep 600"
    )
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + 9
    assert stderr == "node b was killed by SIGKILL\n"
    assert time.monotonic() - start < 15


@pytest.mark.slow
def test_ranks_run_where_the_profile_places_them_and_rank_0_prints(start_lab):
    process = start_lab("4x2", "", sys.executable, "-c", RANKS)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert stdout == "RANK 0\n"
    assert places(stderr) == [
        [str(r), str(r % 2), str(r // 2), "8", "eth0", "abcd"[r // 2]] for r in range(8)
    ]


@pytest.mark.slow
def test_round_robin_deals_ranks_to_the_nodes_in_turn(start_lab):
    process = start_lab("4x2-scattered", "", sys.executable, "-c", RANKS)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert stdout == "RANK 0\n"
    assert places(stderr) == [[str(r), str(r // 4), str(r % 4), "8", "eth0", "abcd"[r % 4]] for r in range(8)]


@pytest.mark.slow
def test_nodes_may_have_different_numbers_of_ranks(start_lab, tmp_path):
    path = tmp_path / "uneven.json"
    path.write_text(
        '{"schema": "topotune/lab", "schema_version": 1, "placement": "round-robin", "nodes": ['
        '{"name": "x", "ranks": 1, "bits_per_s": 100000000},'
        '{"name": "y", "ranks": 3, "bits_per_s": 100000000}]}'
    )
    process = start_lab(str(path), "", sys.executable, "-c", RANKS)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    where = [("0", "0", "x"), ("0", "1", "y"), ("1", "1", "y"), ("2", "1", "y")]
    assert places(stderr) == [
        [str(r), local, group, "4", "eth0", h] for r, (local, group, h) in enumerate(where)
    ]


@pytest.mark.slow
def test_exit_code_of_a_rank_and_its_name_come_through(start_lab):
    code = "import os, time; os.environ['RANK'] == '5' and os._exit(7); time.sleep(600)"
    process = start_lab("2x4", "", sys.executable, "-c", code)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 7
    assert "rank 5 on node b ended with exit code 7\n" in stderr


@pytest.mark.slow
def test_of_a_failing_first_node_one_line_is_said_and_ranks_log_as_they_would(start_lab):
    process = start_lab("2x4", "", "sh", "-c", "env | grep -E LOG_?LEVEL >&2; [ $RANK != 0 ]")
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 1
    assert stderr == "rank 0 on node a ended with exit code 1\n"


@pytest.mark.slow
def test_all_ranks_exit_code_is_the_labs(start_lab):
    process = start_lab("1x4", "", sys.executable, "-c", "import sys; sys.exit(3)")
    process.communicate(timeout=120)
    assert process.returncode == 3


@pytest.mark.slow
def test_the_command_line_arrives_word_for_word(start_lab):
    words = ["$", "$$", "${local_rank}", "a b", "--nnodes=9", "--", "é", ""]
    process = start_lab("1x4", "", sys.executable, "-c", "import sys; print(sys.argv[1:])", *words)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert stdout == f"{words}\n"


@pytest.mark.slow
def test_a_killed_rank_ends_the_lab_with_its_name(start_lab):
    process = start_lab("2x4", "", "sh", "-c", "[ $RANK = 1 ] && kill -9 $$; exec sleep 600")
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 128 + 9
    assert "rank 1 on node a was killed by SIGKILL\n" in stderr


ALL_REDUCE = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
gradient = torch.ones(2 * 2**20)  # 8 MiB
dist.all_reduce(gradient)
times = []
for _ in range(3):
    dist.barrier()
    time.sleep(0.1)
    start = time.monotonic()
    dist.all_reduce(gradient)
    times.append(time.monotonic() - start)
assert gradient[0] == 8**4
print(min(times))
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.gloo
def test_an_all_reduce_is_bound_by_the_links(start_lab):
    process = start_lab("2x4", "", sys.executable, "-c", ALL_REDUCE)
    stdout, stderr = process.communicate(timeout=150)
    assert process.returncode == 0, stderr
    assert 0.336 <= float(stdout) < 3.0, "8 MiB over links of 200 Mbit/s, in each direction once"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ((), "topotune lab has no command to run"),
        (("no-such-command",), "there is no command 'no-such-command' to run on the nodes"),
    ],
)
def test_a_command_that_cannot_run_is_refused_before_anything_is_built(root, command, message):
    with pytest.raises(UsageError) as caught:
        lab.run("1x4", command, root=root)
    assert caught.value.message == message


def test_without_root_one_sentence_says_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UsageError) as caught:
        lab.run("1x4", ["true"])
    assert caught.value.message == "topotune lab needs root, to make network namespaces"
    with pytest.raises(UsageError, match="needs root"):
        lab.down()


def test_a_latency_that_is_left_out_is_said(root):
    nodes = (LabNode(name="a", ranks=1, bits_per_s=10**8, latency_s=0.1),)
    said: list[str] = []
    profile = LabProfile(name="slow", nodes=nodes)
    assert lab.run(profile, ["true"], once=True, no_latency=True, report=said.append, root=root) == 0
    assert said == ["lab profile slow: its latency is left out (--no-latency)"]


@pytest.mark.parametrize(("exit_code", "status"), [(0, 0), (3, 3), (-9, 137)])
def test_exit_status_is_the_shells(exit_code, status):
    assert exit_status(exit_code) == status
