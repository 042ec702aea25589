"""What an odd machine may throw at a probe: a partial answer, and one warning for each kind of fault."""

import os
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sysfs_trees import Capture, small

from topotune.errors import UsageError
from topotune.probe import probe
from topotune.probe.tree import Tree
from topotune.topology import render, structure_hash, summary, topology_from_document, topology_to_document

GPU = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"
NIC = "sys/devices/pci0000:00/0000:00:02.0/0000:02:00.0"


@pytest.mark.parametrize("missing", ["absent", "file", "empty", "unrelated", "empty sys"])
def test_a_root_that_is_no_machine_is_refused(tmp_path, missing):
    root = tmp_path / "root"
    said = {
        "absent": "does not exist",
        "file": "is no folder",
        "empty": "is empty",
        "unrelated": "holds neither a sys nor a proc folder with anything in it",
        "empty sys": "holds neither a sys nor a proc folder with anything in it",
    }[missing]
    if missing == "file":
        root.write_text("no folder")
    elif missing != "absent":
        root.mkdir()
        if missing == "unrelated":
            (root / "home").mkdir()
        if missing == "empty sys":
            (root / "sys").mkdir()
    with pytest.raises(UsageError, match=said) as refused:
        probe(root)
    assert refused.value.hint is not None
    assert str(root)[:40] in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_a_root_that_cannot_be_a_path_is_refused(path):
    with pytest.raises(UsageError):
        probe(Path(path))


FAULTS = {
    "garbage": ("wombat", "left out, not understood: /{path} says 'wombat'"),
    "negative": ("-7", "left out, not understood: /{path} says '-7'"),
    "binary": (b"\xff\xfe\x00\x01", "left out, holds no text: /{path}"),
    "escape codes": ("\x1b[2J16", "left out, holds no text: /{path}"),
    "page too large": ("1" * 5000, "left out, larger than 4096 bytes: /{path}"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("path", "shown_as"),
    [
        (f"{GPU}/numa_node", "sys/bus/pci/devices/0000:01:00.0/numa_node"),
        (f"{GPU}/current_link_speed", "sys/bus/pci/devices/0000:01:00.0/current_link_speed"),
        (f"{GPU}/current_link_width", "sys/bus/pci/devices/0000:01:00.0/current_link_width"),
        (f"{GPU}/class", "sys/bus/pci/devices/0000:01:00.0/class"),
        (f"{NIC}/net/eth0/speed", "sys/class/net/eth0/speed"),
        (f"{NIC}/infiniband/mlx5_0/ports/1/rate", "sys/class/infiniband/mlx5_0/ports/1/rate"),
        (f"{NIC}/infiniband/mlx5_0/ports/1/state", "sys/class/infiniband/mlx5_0/ports/1/state"),
        ("sys/devices/system/node/node0/distance", "sys/devices/system/node/node0/distance"),
        ("sys/devices/system/node/node0/cpulist", "sys/devices/system/node/node0/cpulist"),
        ("sys/devices/system/cpu/online", "sys/devices/system/cpu/online"),
    ],
    ids=lambda value: value.rpartition("/")[2],
)
def test_rubbish_in_a_file_costs_that_fact_and_one_warning(tmp_path, path, shown_as, fault):
    content, warning = FAULTS[fault]
    capture = small(tmp_path / "root")
    capture.file(path, content)
    told = probe(capture.root).warnings
    assert warning.format(path=shown_as) in told
    assert len(told) == len(set(told)) <= 4


@pytest.mark.parametrize("text", ["Unknown", "N/A", "-1", "", "unknown"])
def test_what_says_unknown_is_not_known(tmp_path, text):
    capture = small(tmp_path / "root")
    for name in ("current_link_speed", "current_link_width", "numa_node", "max_link_speed"):
        capture.file(f"{GPU}/{name}", text)
    topology = probe(capture.root)
    gpu = next(each for each in topology.vertices if each.kind == "gpu")
    assert (gpu.numa, gpu.pcie.speed_gt_per_s, gpu.pcie.width) == (None, None, None)
    assert topology.warnings == ("NUMA node not known (numa_node is -1 or absent): 0000:01:00.0",)


@pytest.mark.parametrize("speed", ["-1", "4294967295", "65535", "0"])
def test_an_interface_without_a_speed_that_is_up_is_told(tmp_path, speed):
    capture = Capture(tmp_path / "root")
    capture.host()
    capture.interface("eth0", capture.pci("pci0000:00/0000:00:03.0", kind="nic"), speed=speed)
    capture.interface(
        "eth1", capture.pci("pci0000:00/0000:00:04.0", kind="nic"), speed=speed, state="down", index=3
    )
    topology = probe(capture.root)
    assert [each.speed for each in topology.vertices if each.kind == "nic"] == [None, None]
    assert "network speed not known: eth0" in topology.warnings


def test_a_speed_slipped_by_a_thousand_is_not_believed(tmp_path):
    capture = small(tmp_path / "root")
    capture.file(f"{NIC}/infiniband/mlx5_0/ports/1/rate", "99999 Gb/sec")
    capture.file(f"{NIC}/net/eth0/speed", "100000000")
    nic = next(each for each in probe(capture.root).vertices if each.kind == "nic")
    assert nic.speed is None


@pytest.mark.parametrize(
    "path", [f"{GPU}/numa_node", "proc/cpuinfo", "proc/meminfo", f"{NIC}/net/eth0/speed"]
)
@pytest.mark.parametrize("kind", ["folder", "pipe", "link to a device"])
def test_what_is_no_file_is_neither_read_nor_waited_for(tmp_path, path, kind):
    capture = small(tmp_path / "root")
    place = capture.root / path
    place.unlink()
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")
    told = probe(capture.root).warnings
    if kind != "link to a device":  # below the root there is no /dev/zero
        assert any("where a file belongs" in each for each in told)


def test_a_file_of_200_megabytes_is_not_swallowed(tmp_path):
    capture = small(tmp_path / "root")
    for path in (f"{GPU}/vendor", "proc/meminfo", "proc/cpuinfo"):
        with (capture.root / path).open("wb") as file:
            file.truncate(200 * 2**20)
    tracemalloc.start()
    try:
        told = probe(capture.root).warnings
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert any(each.startswith("left out, larger than") for each in told)
    assert peak < 32 * 2**20


@pytest.mark.parametrize(
    "target", ["../../../../../../../../../../etc/hostname", "../../../../../../outside"]
)
def test_a_link_out_of_the_root_is_refused(tmp_path, target):
    (tmp_path / "outside").write_text("stolen")
    capture = small(tmp_path / "root")
    place = capture.root / "proc/sys/kernel/hostname"
    place.unlink()
    place.symlink_to(target)
    topology = probe(capture.root)
    assert {each.node for each in topology.vertices} == {"localhost"}
    assert (
        "left out, a link that leads outside the root folder: /proc/sys/kernel/hostname" in topology.warnings
    )


def test_an_absolute_link_starts_at_the_root(tmp_path):
    capture = small(tmp_path / "root")
    place = capture.root / "proc/sys/kernel/hostname"
    place.unlink()
    place.symlink_to("/etc/elsewhere")
    capture.file("etc/elsewhere", "inside")
    assert {each.node for each in probe(capture.root).vertices} == {"inside"}


def test_a_folder_link_out_of_the_root_hides_what_lies_behind(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host()
    (tmp_path / "net/eth9").mkdir(parents=True)
    (tmp_path / "net/eth9/operstate").write_text("up\n")
    (capture.root / "sys/class").mkdir()
    (capture.root / "sys/class/net").symlink_to("../../../net")
    topology = probe(capture.root)
    assert not [each for each in topology.vertices if each.kind == "nic"]
    assert any("leads outside the root folder" in each for each in topology.warnings)


def test_links_in_circles_end(tmp_path):
    capture = small(tmp_path / "root")
    (capture.root / "sys/class/dmi").mkdir(parents=True)
    (capture.root / "sys/class/dmi/id").symlink_to("id")
    assert any("leads in circles" in each for each in probe(capture.root).warnings)


def test_one_problem_of_many_devices_is_one_warning(tmp_path):
    capture = Capture(tmp_path / "root")
    capture.host()
    for slot in range(8):
        capture.pci(f"pci0000:00/0000:00:0{slot}.0", kind="gpu", numa=-1)
    told = [each for each in probe(capture.root).warnings if "NUMA node not known" in each]
    assert told == [
        "NUMA node not known (numa_node is -1 or absent): 0000:00:00.0, 0000:00:01.0, 0000:00:02.0 and 5 more"
    ]


def test_files_that_may_not_be_read_are_told_once():
    # The tests may run as root, whom no mode stops: a child gives that up before it looks.
    script = (
        "import os, sys, pathlib\n"
        "from topotune.probe import probe\n"
        "import topotune.topology\n"
        "if os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "print('\\n'.join(probe(pathlib.Path(sys.argv[1])).warnings))\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        capture = small(Path(folder) / "root")
        for path in (f"{GPU}/numa_node", f"{NIC}/numa_node", "proc/meminfo", "sys/class/infiniband"):
            (capture.root / path).chmod(0)
        done = subprocess.run(
            [sys.executable, "-c", script, str(capture.root)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        (capture.root / "sys/class/infiniband").chmod(0o755)
    assert done.stderr == ""
    told = [line for line in done.stdout.splitlines() if "Permission denied" in line]
    assert told == [
        "cannot be read (Permission denied): /sys/class/infiniband, "
        "/sys/bus/pci/devices/0000:01:00.0/numa_node, /sys/bus/pci/devices/0000:02:00.0/numa_node and 1 more"
    ]


def test_another_root_asks_nothing_of_this_machine(tmp_path, monkeypatch):
    capture = small(tmp_path / "root")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "psutil", None)
    topology = probe(capture.root)
    assert topology.source.facts["nvml"] == "not asked: this is a captured tree"
    assert "num_usable_cpus" not in topology.source.facts
    assert {each.node for each in topology.vertices} == {"box"}


def test_names_that_are_no_names_are_passed_over(tmp_path):
    capture = small(tmp_path / "root")
    os.makedirs(os.fsencode(capture.root) + b"/sys/class/net/\xff\xfe")
    (capture.root / "sys/bus/pci/devices/not-an-address").mkdir()
    (capture.root / "sys/class/infiniband/bad name").mkdir()
    (capture.root / "sys/devices/system/node/nodeX").mkdir()
    topology = probe(capture.root)
    assert [each.name for each in topology.vertices if each.kind == "nic"] == ["eth0"]
    assert "left out, names that are no text: /sys/class/net" in topology.warnings


def all_files(root: Path) -> list[str]:
    return sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and not path.is_symlink()
    )


with tempfile.TemporaryDirectory() as _folder:
    FILES = all_files(small(Path(_folder) / "root").root)

WORDS = st.sampled_from(
    [
        *(b"Unknown", b"-1", b"N/A", b"0x", b"4: ", b"1 GT/s", b"Infinity", b"\n\n"),
        *(b"99999999999999999999", b"0-99999", b"0-3,,5"),
    ]
)


@settings(max_examples=40, deadline=None)
@given(contents=st.dictionaries(st.sampled_from(FILES), st.binary(max_size=200) | WORDS, max_size=12))
def test_no_bytes_in_any_file_make_a_probe_fail(contents):
    with tempfile.TemporaryDirectory() as folder:
        capture = small(Path(folder) / "root")
        for path, content in contents.items():
            (capture.root / path).write_bytes(content)
        topology = probe(capture.root)
    assert topology_from_document(topology_to_document(topology), "again") == topology
    assert all(len(line) <= 80 for line in render(topology).splitlines())
    assert len(structure_hash(topology)) == 16
    assert summary(topology)["num_nodes"] == 1


def test_the_live_root_is_known_by_what_it_is(tmp_path):
    (tmp_path / "slash").symlink_to("/")
    assert Tree(tmp_path / "slash").live
    assert not Tree(small(tmp_path / "root").root).live
