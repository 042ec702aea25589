"""Which copies of GPUs are worth timing, what sets of them share, and how that is kept and told."""

import json
from dataclasses import replace

import pytest
import torch

from topotune.errors import InputFileError
from topotune.links import measurement_from_document, measurement_to_document
from topotune.links.device_copy import Copy, CopyTiming, copy_tests, shared_by
from topotune.links.device_timing import node_tests, why_no_devices
from topotune.links.measurement import Measurement, PairTiming
from topotune.links.nccl_pairs import pairs_between
from topotune.report.devices import describe_copies
from topotune.topology import Link, Source, Topology, Vertex

INTO = Copy(kind="host-to-device", src="numa 0", dst="gpu 0")
INTO_1 = Copy(kind="host-to-device", src="numa 0", dst="gpu 1")


def timing(copy, rate, purpose="alone", num_concurrent=1, **more):
    return CopyTiming(
        node="n0",
        kind=copy.kind,
        src=copy.src,
        dst=copy.dst,
        message_bytes=1000,
        samples_s=(1000 / rate,) * 3,
        purpose=purpose,
        num_concurrent=num_concurrent,
        **more,
    )


def test_one_gpu_is_timed_with_each_memory_both_ways_alone_and_at_once():
    tests = copy_tests(1, {0: 1}, [0, 1], {})
    alone = [test.copies[0] for test in tests if test.purpose == "alone"]
    assert {(copy.kind, copy.src, copy.dst) for copy in alone} == {
        ("host-to-device", "numa 0", "gpu 0"),
        ("device-to-host", "gpu 0", "numa 0"),
        ("host-to-device", "numa 1", "gpu 0"),
        ("device-to-host", "gpu 0", "numa 1"),
    }
    (both,) = [test for test in tests if test.purpose != "alone"]
    assert [(copy.src, copy.dst) for copy in both.copies] == [("numa 1", "gpu 0"), ("gpu 0", "numa 1")]


def test_many_gpus_are_timed_in_pairs_in_sets_below_switches_and_in_disjoint_pairs():
    tests = copy_tests(4, {0: 0, 1: 0, 2: 1, 3: 1}, [0, 1], {"a switch": (0, 1)})
    pairs = [test.copies[0] for test in tests if test.copies[0].kind == "device-to-device"]
    assert len({(copy.src, copy.dst) for copy in pairs}) == 12
    purposes = {test.purpose: test.copies for test in tests if len(test.copies) > 1}
    assert len(purposes["all GPUs, from the host"]) == 4
    assert {copy.dst for copy in purposes["below a switch, from the host"]} == {"gpu 0", "gpu 1"}
    assert [(copy.src, copy.dst) for copy in purposes["disjoint pairs across"]] == [
        ("gpu 0", "gpu 2"),
        ("gpu 1", "gpu 3"),
    ]
    assert purposes["all GPUs, to the host"][2].dst == "numa 1"


@pytest.mark.parametrize(("num_gpus", "num_pairs"), [(2, 2), (8, 56), (16, 240), (17, 32), (64, 126)])
def test_the_number_of_pairs_is_bounded(num_gpus, num_pairs):
    tests = copy_tests(num_gpus, {}, [], {})
    assert sum(len(t.copies) == 1 and t.copies[0].kind == "device-to-device" for t in tests) == num_pairs
    assert not copy_tests(0, {}, [0], {})


def test_gpus_below_one_switch_are_found_by_the_topology():
    gpus = [
        Vertex(id=f"n/gpu/{at}", kind="gpu", node="n", index=at, uuid=f"GPU-{at}", numa=0) for at in range(3)
    ]
    numa = Vertex(id="n/numa/0", kind="numa", node="n", index=0, cpus="0-3", memory_bytes=2**30)
    switch = Vertex(id="n/switch", kind="pcie-switch", node="n")
    root = Vertex(id="n/root", kind="pcie-root", node="n")
    links = [Link(src=gpu.id, dst=switch.id, kind="pcie") for gpu in gpus[:2]]
    links += [Link(src=switch.id, dst=root.id, kind="pcie"), Link(src=gpus[2].id, dst=root.id, kind="pcie")]
    source = Source(kind="test")
    topology = Topology(vertices=(*gpus, numa, switch, root), links=tuple(links), source=source)
    tests = node_tests(topology, ["GPU-1", "GPU-0", "GPU-2"])
    below = [test for test in tests if test.purpose == "below n/switch, from the host"]
    assert [copy.dst for copy in below[0].copies] == ["gpu 0", "gpu 1"]
    assert [copy.src for copy in below[0].copies] == ["numa 0", "numa 0"]
    assert not any("n/root" in test.purpose for test in tests)  # below it are all of them


def test_what_copies_share_is_told_against_the_same_copies_alone():
    timings = [
        timing(INTO, 20e9),
        timing(INTO_1, 20e9),
        timing(INTO, 10e9, "all GPUs", 2),
        timing(INTO_1, 12e9, "all GPUs", 2),
        timing(Copy(kind="device-to-host", src="gpu 9", dst="host"), 1e9, "never alone", 2),
    ]
    (shared,) = shared_by(timings)
    assert (shared.purpose, round(shared.share, 3)) == ("all GPUs", 0.55)
    text = "\n".join(describe_copies(timings))
    assert "numa 0 → gpu 0" in text
    assert "55 %" in text
    assert describe_copies([]) == []


MEASUREMENT = Measurement(
    num_ranks=2,
    node_of_rank=(0, 0),
    node_names=("n0",),
    pairs=tuple(
        PairTiming(
            src=src,
            dst=1 - src,
            message_bytes=size,
            one_way_s=(size * 1e-9 + 1e-5,) * 3,
            half_round_trip_s=(size * 1e-9 + 1e-5,) * 3,
        )
        for src in (0, 1)
        for size in (64, 65536)
    ),
    device_copies=(
        timing(INTO, 20e9),
        timing(Copy(kind="device-to-device", src="gpu 0", dst="gpu 1"), 100e9, peer_access=True),
    ),
)


def test_copies_are_read_back_as_they_were_and_files_without_any_are_read():
    document = json.loads(json.dumps(measurement_to_document(MEASUREMENT)))
    assert measurement_from_document(document, "file") == MEASUREMENT
    del document["device_copies"]
    assert measurement_from_document(document, "file") == replace(MEASUREMENT, device_copies=())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": "teleport"}, "kind"),
        ({"src": "gpu 0"}, "from gpu 0 to itself"),
        ({"samples_s": []}, "needs samples"),
        ({"samples_s": [-1.0]}, "above 0 s"),
        ({"message_bytes": 0}, "message_bytes"),
        ({"command": "reboot"}, "command"),
    ],
)
def test_broken_copies_are_refused_by_place(change, problem):
    document = json.loads(json.dumps(measurement_to_document(MEASUREMENT)))
    document["device_copies"][0] |= change
    with pytest.raises(InputFileError, match=problem) as caught:
        measurement_from_document(document, "file")
    assert "device_copies[0]" in str(caught.value)


def test_nccl_is_timed_between_the_first_ranks_of_nodes_both_ways():
    assert pairs_between((0, 0, 1, 1, 2)) == [(0, 2), (2, 0), (0, 4), (4, 0), (2, 4), (4, 2)]
    assert pairs_between((0, 0)) == []
    assert len(pairs_between(range(4096))) == 128


def test_a_machine_without_gpus_says_why_nothing_is_timed():
    if torch.cuda.is_available():
        assert why_no_devices() is None
    else:
        assert why_no_devices() in (
            f"torch {torch.__version__} is built without CUDA",
            "torch sees no GPU on this machine",
        )
