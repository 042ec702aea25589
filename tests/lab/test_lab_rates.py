"""Every end of every link carries its configured rate within 10 % over 4 MiB.

A transfer crosses several shaped ends, and the slowest decides. Each case makes one end (named in its id) the
slowest: two flows that share only that end, or a profile where it is slower than the others.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from topotune.lab import Cluster, LabNode, LabProfile, LabRack, read_profile
from topotune.lab.network import address_of

BULK = str(Path(__file__).with_name("bulk.py"))
NUM_BYTES = 4 * 2**20
M = 10**6
# A machine that is busy with other things can make a transfer slower, never faster than its link.
ATTEMPTS = 5

SLOW_UPLINK = LabProfile(
    name="slow-uplink",
    nodes=(
        LabNode(name="a", ranks=1, bits_per_s=200 * M, rack="slow"),
        LabNode(name="b", ranks=1, bits_per_s=200 * M, rack="fast"),
    ),
    racks=(LabRack(name="slow", uplink_bits_per_s=60 * M), LabRack(name="fast", uplink_bits_per_s=200 * M)),
)


def total_bits_per_s(cluster: Cluster, flows: list[str], first_port: int) -> float:
    """Rate of all flows (``"ab"``: from node a to node b) together, 4 MiB in all, started at one moment."""
    indices = {node.name: index for index, node in enumerate(cluster.profile.nodes)}
    each = NUM_BYTES // len(flows)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    receivers, senders = [], []
    for port, (_, dst) in enumerate(flows, first_port):
        receive = [sys.executable, "-I", "-S", BULK, "receive", str(port), str(each)]
        receivers.append(cluster.popen(indices[dst], receive, **pipes))
    for receiver in receivers:
        assert receiver.stdout.readline() == "ready\n"
    for port, (src, dst) in enumerate(flows, first_port):
        send = [sys.executable, "-I", "-S", BULK, "send", address_of(indices[dst]), str(port), str(each)]
        senders.append(cluster.popen(indices[src], send, **pipes))
    for sender in senders:
        assert sender.stdout.readline() == "connected\n"
    at = time.monotonic() + 0.1  # by then every bucket is full again
    for sender in senders:
        sender.stdin.write(f"{at}\n")
        sender.stdin.flush()
    start = min(float(sender.communicate(timeout=60)[0]) for sender in senders)
    end = max(float(receiver.communicate(timeout=60)[0]) for receiver in receivers)
    return len(flows) * each * 8 / (end - start)


@pytest.mark.parametrize(
    ("profile", "flows", "mbit_per_s"),
    [
        pytest.param("4x2", ["ab", "ac"], 200, id="a node's sending end"),
        pytest.param("4x2", ["ba", "ca"], 200, id="a node's receiving end"),
        pytest.param("4x2-degraded", ["ca", "ac"], 100, id="the degraded node's both directions at once"),
        pytest.param("4x2-degraded", ["ca"], 50, id="the degraded node's sending end"),
        pytest.param("4x2-degraded", ["ac"], 50, id="the degraded node's receiving end"),
        pytest.param(SLOW_UPLINK, ["ab"], 60, id="a rack's sending end"),
        pytest.param(SLOW_UPLINK, ["ba"], 60, id="a rack's receiving end"),
        pytest.param("racks-2x2x2", ["ab"], 200, id="no uplink inside a rack"),
        pytest.param("racks-2x2x2", ["ac", "bd"], 100, id="one uplink for all nodes of a rack"),
        pytest.param("racks-2x4x1", ["ae"], 200, id="an uplink as fast as a node: alone it does not show"),
        pytest.param("racks-2x4x1", ["ae", "bf"], 200, id="an uplink as fast as a node: two flows share it"),
    ],
)
def test_a_link_carries_its_rate(root, profile, flows, mbit_per_s):
    rates = []
    with Cluster(profile if isinstance(profile, LabProfile) else read_profile(profile), root=root) as cluster:
        for attempt in range(ATTEMPTS):
            rates.append(total_bits_per_s(cluster, flows, 5000 + 10 * attempt) / M)
            assert rates[-1] < 1.1 * mbit_per_s
            if rates[-1] > 0.9 * mbit_per_s:
                return
    pytest.fail(f"{rates} Mbit/s, of {mbit_per_s}")
