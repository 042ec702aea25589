"""Nodes with several interfaces: what is chosen is what really carries data between them."""

import json
import os
import subprocess
import sys

import pytest
import wires

from topotune.lab import Cluster, LabNode, LabProfile

pytestmark = [pytest.mark.slow, pytest.mark.gloo, pytest.mark.timeout(600)]

M = 10**6
JOIN = """
import json, sys
import psutil
import torch
import torch.distributed as dist
from topotune.errors import TopotuneError
from topotune.interfaces.agreement import join_network

def sent():
    return {name: count.bytes_sent for name, count in psutil.net_io_counters(pernic=True).items()}

try:
    network = join_network()
except TopotuneError as problem:
    print(json.dumps({"error": problem.message, "exit_code": problem.exit_code}))
    sys.exit(1)
before = sent()
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(2**18))  # 1 MiB
sent_bytes = {name: count - before[name] for name, count in sent().items()}
dist.destroy_process_group()
print(json.dumps({"interfaces": network.interfaces, "lines": network.lines, "sent": sent_bytes,
                  "differs": network.differs, "common": network.common}))
"""


def two_nodes(bits_per_s: int) -> LabProfile:
    return LabProfile(
        name="two", nodes=tuple(LabNode(name=name, ranks=1, bits_per_s=bits_per_s) for name in "ab")
    )


def lay(cluster: Cluster, node: int, *words: str) -> None:
    command = [sys.executable, wires.__file__, *words]
    process = cluster.popen(node, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output


def lay_wire(cluster: Cluster, name: str, addresses: tuple[str, str], bits_per_s: int) -> None:
    lay(cluster, 0, "wire", name, str(cluster.record.holders["b"]))
    for node, address in enumerate(addresses):
        lay(cluster, node, "address", name, address, str(bits_per_s))


def join_on_both(cluster: Cluster, environment: dict[str, str]) -> list[dict]:
    """What `JOIN` prints on a rank of each node, started by torchrun."""
    arguments = ["--nnodes=2", "--nproc-per-node=1", "--master-addr=10.18.0.1", "--master-port=29500"]
    processes = [
        cluster.popen(
            node,
            [sys.executable, "-m", "torch.distributed.run", *arguments, f"--node-rank={node}", "--no-python",
             sys.executable, "-c", JOIN],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for node in range(2)
    ]  # fmt: skip
    results = [process.communicate(timeout=120) for process in processes]
    assert all(stdout for stdout, _ in results), results
    return [json.loads(stdout) for stdout, _ in results]


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """Without what would force an interface; torchrun's logs in a folder of the test."""
    for name in ("GLOO_SOCKET_IFNAME", "TOPOTUNE_INTERFACE", "SM_NETWORK_INTERFACE_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def with_(**more: str) -> dict[str, str]:
        return {**os.environ, **more}

    return with_


def test_the_fast_network_is_chosen_where_host_names_and_routes_lead_to_the_slow_one(root, environment):
    with Cluster(two_nodes(20 * M), root=root) as cluster:
        lay_wire(cluster, "ens9", ("10.77.0.1", "10.77.0.2"), 400 * M)
        lay(cluster, 0, "docker")
        lay(cluster, 1, "docker")
        results = join_on_both(cluster, environment())
    for result in results:
        assert result["interfaces"] == ["ens9"]
        assert result["sent"]["ens9"] >= 2**20
        assert result["sent"]["eth0"] < 2**19
        assert result["differs"] is True, "gloo by itself takes the host name's address"
    (line,) = results[0]["lines"]
    assert line.startswith("ens9 on a and b (the fastest; eth0 ")
    assert line.endswith(" Mbit/s; docker0 not reached)")
    assert results[1]["lines"] == []


def test_a_slow_management_network_loses_and_the_default_stays(root, environment):
    with Cluster(two_nodes(400 * M), root=root) as cluster:
        lay_wire(cluster, "bmc0", ("10.77.0.1", "10.77.0.2"), 20 * M)
        results = join_on_both(cluster, environment())
    assert [result["interfaces"] for result in results] == [["eth0"], ["eth0"]]
    assert [result["differs"] for result in results] == [False, False]
    assert results[0]["lines"][0].startswith("eth0 on a and b (the fastest; eth0 ")


def test_a_node_that_is_not_reached_is_named_with_its_addresses(root, environment):
    with Cluster(two_nodes(400 * M), root=root) as cluster:
        lay_wire(cluster, "ens9", ("10.77.0.1", "10.78.0.2"), 400 * M)
        lay(cluster, 1, "route", "10.77.0.1", "ens9")  # so that b reaches a, and a does not know where b is
        results = join_on_both(cluster, environment(TOPOTUNE_INTERFACE="ens9"))
    message = "ens9 of b at 10.78.0.2, forced by --interface or TOPOTUNE_INTERFACE (network is unreachable)"
    for result in results:
        assert message in result["error"]
        assert result["exit_code"] == 1


@pytest.fixture
def pair(tmp_path) -> str:
    """A profile of few processes: the starts of Python are what takes time here."""
    path = tmp_path / "pair.json"
    nodes = [{"name": name, "ranks": 2, "bits_per_s": 200 * M} for name in "ab"]
    profile = {"schema": "topotune/lab", "schema_version": 1, "placement": "round-robin", "nodes": nodes}
    path.write_text(json.dumps(profile))
    return str(path)


def own_lines(stderr):
    """What topotune says. torch's launcher of a node may warn that the one with the store has left."""
    said = ("written to ", "network: ", "error: ", "hint: ", "warning: ")
    return [line for line in stderr.splitlines() if line.startswith(said)]


def test_probe_under_a_launcher_is_one_topology_of_all_nodes_and_ranks(start_lab, pair, tmp_path):
    path = tmp_path / "cluster.json"
    process = start_lab(pair, "", sys.executable, "-m", "topotune", "probe", "-o", str(path))
    stdout, stderr = process.communicate(timeout=150)
    assert process.returncode == 0, stderr
    assert stdout.startswith("2 nodes like this: a, b\n")
    assert "\nranks: 4, 2 on each of 2 nodes\n" in stdout
    assert own_lines(stderr) == [f"written to {path}"]
    document = json.loads(path.read_text())
    assert list(dict.fromkeys(vertex["node"] for vertex in document["vertices"])) == ["a", "b"]
    assert document["source"]["kind"] == "probe, 2 nodes"
    assert [vertex.split("/")[0] for vertex in document["ranks"]] == list("abab")


def test_probe_under_a_launcher_prints_one_document(start_lab):
    process = start_lab("2x4", "", sys.executable, "-m", "topotune", "probe", "--json")
    stdout, stderr = process.communicate(timeout=150)
    assert process.returncode == 0, stderr
    assert {vertex["node"] for vertex in json.loads(stdout)["vertices"]} == {"a", "b"}
    assert own_lines(stderr) == []


def test_the_choice_is_printed_once_and_kept_in_the_result_and_can_be_forced(start_lab, pair, tmp_path):
    path = tmp_path / "links.json"
    command = [
        sys.executable,
        "-m",
        "topotune",
        "measure",
        "--budget",
        "1s",
        "--interface",
        "eth0",
        "-o",
        str(path),
    ]
    process = start_lab("2x4", "", *command)
    _, stderr = process.communicate(timeout=150)
    assert process.returncode == 0, stderr
    line = "eth0 on a and b (forced by --interface or TOPOTUNE_INTERFACE)"
    assert own_lines(stderr) == [f"network: {line}", f"written to {path}"]
    assert json.loads(path.read_text())["facts"]["interface"] == line


def test_a_forced_interface_that_no_node_has_is_wrong_use(start_lab, pair):
    process = start_lab(pair, "", sys.executable, "-m", "topotune", "measure", "--interface", "ib9")
    _, stderr = process.communicate(timeout=150)
    assert process.returncode == 2
    forced = "forced by --interface or TOPOTUNE_INTERFACE"
    assert (
        f"error: network interface 'ib9' of node a, {forced}, does not exist\nhint: it has lo, eth0\n"
        in stderr
    )
