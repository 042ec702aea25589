"""What one node of a lab sees of another, and what it shares with it."""

import subprocess
import sys

import pytest

from topotune.errors import UsageError
from topotune.lab import Cluster, LabNode, LabProfile, read_profile

M = 10**6


def output(cluster: Cluster, node_index: int, code: str) -> str:
    """What a Python program prints inside a node."""
    process = cluster.popen(
        node_index,
        [sys.executable, "-I", "-S", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    return stdout.strip()


@pytest.fixture(scope="module")
def cluster(namespaces, tmp_path_factory):
    with Cluster(read_profile("2x4"), root=tmp_path_factory.mktemp("lab") / "topotune" / "labs") as cluster:
        yield cluster


def test_host_names_are_the_nodes_and_the_machine_keeps_its_own(cluster):
    own = output(cluster, 0, "import socket; print(socket.gethostname())")
    other = output(cluster, 1, "import socket; print(socket.gethostname())")
    assert (own, other) == ("a", "b")
    assert subprocess.run(["hostname"], capture_output=True, text=True, check=True).stdout.strip() not in (
        "a",
        "b",
    )


def test_a_shared_memory_file_is_seen_on_its_own_node_alone(cluster):
    output(cluster, 0, "open('/dev/shm/topotune-test', 'w').write('a')")
    assert output(cluster, 0, "import os; print(os.listdir('/dev/shm'))") == "['topotune-test']"
    assert output(cluster, 1, "import os; print(os.listdir('/dev/shm'))") == "[]"
    assert (
        subprocess.run(["ls", "/dev/shm"], capture_output=True, text=True, check=True).stdout.count(
            "topotune-test"
        )
        == 0
    )


def test_a_system_v_segment_is_seen_on_its_own_node_alone(cluster):
    make = "import ctypes; print(ctypes.CDLL(None).shmget(0x70707, 4096, 0o1600))"  # IPC_CREAT | 0600
    find = "import ctypes; print(ctypes.CDLL(None).shmget(0x70707, 4096, 0))"
    made = output(cluster, 0, make)
    assert int(made) >= 0
    assert output(cluster, 0, find) == made
    assert output(cluster, 1, find) == "-1"


def test_an_abstract_socket_is_reached_on_its_own_node_alone(cluster):
    serve = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind('\\0topotune-test'); s.listen();"
        "print('ready', flush=True); sys.stdin.read()"
    )
    reach = (
        "import socket\ns = socket.socket(socket.AF_UNIX)\n"
        "try: s.connect('\\0topotune-test'); print('reached')\n"
        "except ConnectionRefusedError: print('refused')"
    )
    server = cluster.popen(
        0, [sys.executable, "-I", "-S", "-c", serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout.readline() == "ready\n"
    assert output(cluster, 0, reach) == "reached"
    assert output(cluster, 1, reach) == "refused"
    server.communicate()


def test_a_node_has_its_own_interfaces_also_in_sysfs(cluster):
    assert output(cluster, 1, "import os; print(sorted(os.listdir('/sys/class/net')))") == "['eth0', 'lo']"
    assert output(cluster, 1, "import socket; print(socket.if_nameindex()[1][1])") == "eth0"
    assert output(cluster, 1, "print(open('/sys/class/net/eth0/mtu').read())") == "9000"


def test_node_names_resolve_and_nothing_outside_is_reached(cluster):
    assert output(cluster, 0, "import socket; print(socket.gethostbyname('b'))") == "10.18.0.2"
    code = (
        "import socket\n"
        "try: socket.create_connection(('192.0.2.1', 9), timeout=5)\n"
        "except OSError as error: print(error.strerror)"
    )
    assert output(cluster, 0, code) == "Network is unreachable"


def test_other_files_the_working_directory_and_its_mounts_are_shared(cluster, tmp_path):
    (tmp_path / "note").write_text("shared")
    assert output(cluster, 1, f"print(open({str(tmp_path / 'note')!r}).read())") == "shared"
    here = subprocess.run(["pwd", "-P"], capture_output=True, text=True, check=True).stdout.strip()
    assert output(cluster, 1, "import os; print(os.getcwd())") == here


def has_netem(root) -> bool:
    profile = LabProfile(name="slow", nodes=(LabNode(name="a", ranks=1, bits_per_s=M, latency_s=0.001),))
    try:
        with Cluster(profile, root=root):
            return True
    except UsageError:
        return False


def test_a_latency_is_refused_by_name_where_the_kernel_has_no_netem(root):
    if has_netem(root):
        pytest.skip("this kernel has netem")
    nodes = (
        LabNode(name="a", ranks=1, bits_per_s=M),
        LabNode(name="b", ranks=1, bits_per_s=M, latency_s=0.25),
    )
    profile = LabProfile(name="slow", nodes=nodes)
    with pytest.raises(UsageError) as caught, Cluster(profile, root=root):
        pass
    assert caught.value.message == (
        "lab profile slow: node 'b' has latency_s 0.25, and this kernel has no netem (CONFIG_NET_SCH_NETEM)"
        " to add a delay"
    )
    assert caught.value.hint == "--no-latency leaves the delays out"
    with Cluster(profile, latency=False, root=root) as cluster:
        assert output(cluster, 1, "print(1)") == "1"


def test_a_latency_delays_both_directions_of_a_link(root):
    if not has_netem(root):
        pytest.skip("this kernel has no netem")
    nodes = (
        LabNode(name="a", ranks=1, bits_per_s=200 * M),
        LabNode(name="b", ranks=1, bits_per_s=200 * M, latency_s=0.1),
    )
    serve = (
        "import socket; s = socket.create_server(('', 5000)); print('ready', flush=True);"
        "c = s.accept()[0]; c.sendall(c.recv(1)); c.recv(1)"
    )
    ask = (
        "import socket, time; s = socket.create_connection(('10.18.0.2', 5000)); t = time.monotonic();"
        "s.sendall(b'x'); s.recv(1); print(time.monotonic() - t)"
    )
    with Cluster(LabProfile(name="slow", nodes=nodes), root=root) as cluster:
        server = cluster.popen(
            1, [sys.executable, "-I", "-S", "-c", serve], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout.readline() == "ready\n"
        assert 0.2 <= float(output(cluster, 0, ask)) < 0.3
        server.communicate()
