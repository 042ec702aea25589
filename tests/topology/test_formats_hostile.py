"""Hostile and broken captures: a result or a refusal, in bounded time and memory, and never anything else."""

import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mutations import mutated

from topotune.errors import TopotuneError
from topotune.topology import render, summary, topology_from_document, topology_to_document
from topotune.topology.formats import export_topology, read_files
from topotune.topology.formats.capture import clean_capture
from topotune.topology.formats.catalog import READERS, recognised
from topotune.topology.formats.importing import read_capture_parts
from topotune.topology.formats.join import join

FIXTURES = Path(__file__).parent / "fixtures"
MAX_SECONDS = 5.0
MAX_BYTES = 10**9
SCRAPS = (
    b"\x00", b"\xff\xfe", b"\xff", b"\x1b[31m", b"\t", b"\t\t", b"  ", b"GPU0\t", b"\r\n", b"|", b"\n" * 5,
    "\u202e\U0001f600".encode(), b'"', b"<!--", b"-->", b'<pci busid="0000:00:00.0">', b"</pci>", b"&a;",
    b'<!DOCTYPE a [<!ENTITY a "b">]>', b"-1", b"nan", b"1e999", b"0x", b"NV999", b"=",
)  # fmt: skip


def seeds() -> list[bytes]:
    files = sorted(path for path in FIXTURES.glob("*/*") if path.suffix != ".json")
    own = topology_to_document(read_files([str(FIXTURES / "nccl-xml" / "odd-links.xml")]))
    return [*(path.read_bytes() for path in files), json.dumps(own).encode()]


def check(data: bytes, *, forced: str | None = None) -> bool:
    """Whether something was read; it must then be a topology that can be shown, written and read again."""
    started = time.process_time()
    try:
        capture = clean_capture(data, "capture")
        readers = recognised(capture) if forced is None else [r for r in READERS if r.name == forced]
        topology = join(read_capture_parts(capture, None, readers))
    except TopotuneError:
        return False
    finally:
        assert time.process_time() - started < MAX_SECONDS
    assert topology_from_document(topology_to_document(topology), "again") == topology
    render(topology)
    summary(topology)
    for node in {vertex.node for vertex in topology.vertices if vertex.node is not None}:
        try:
            export_topology(topology, "nccl-xml", node=node)
        except TopotuneError:
            continue
    return True


@pytest.mark.parametrize(
    ("seed", "count"),
    [(1, 1500), *(pytest.param(seed, 5000, marks=pytest.mark.slow) for seed in range(2, 6))],
)
def test_a_mutated_capture_is_read_or_refused(seed, count):
    rng = random.Random(seed)
    originals = seeds()
    read = sum(check(mutated(rng, originals, SCRAPS)) for _ in range(count))
    assert 0.1 < read / count < 0.9


def test_every_reader_reads_or_refuses_what_is_not_its_own():
    for data in seeds():
        for reader in READERS:
            check(data, forced=reader.name)


ENTITIES = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "boom" * 10}">' for n in range(10))
MIB = 2**20
HUGE = {
    "one line": lambda: b"x" * (60 * MIB),
    "one line of a GPU": lambda: b"\tGPU0\tCPU Affinity\nGPU0\t X" + b"\tGPU0" * (12 * MIB),
    "bars": lambda: b"GPU0" + b"|" * (60 * MIB),
    "blank lines": lambda: b" \n" * (20 * MIB) + b"x",
    "comments": lambda: b"<!--" * (15 * MIB),
    "elements": lambda: b'<system version="1">' + b'<cpu numaid="0"/>' * (3 * MIB),
    "deep": lambda: b'<system version="1">' + b"<cpu>" * (10 * MIB),
    "attributes": lambda: b'<system version="1"><cpu ' + b" ".join(b'a%d="1"' % n for n in range(2 * MIB)),
    "one value": lambda: b'<system version="1"><cpu numaid="' + b"9" * (60 * MIB),
    "ports": lambda: (
        b'<system version="1"><cpu><nic>' + b'<net name="a"/>' * 19_000 + b"</nic></cpu></system>"
    ),
    "entities": lambda: (
        f'<!DOCTYPE system [{ENTITIES}]>\n<system version="1"><cpu numaid="&e9;"/></system>'.encode()
    ),
    "tables": lambda: b"\tGPU0\tGPU1\nGPU0\tX\tSYS\n" * 249_000,
    "headings": lambda: b"\tGPU0\tGPU1\n" * 499_000,
    "terminal codes": lambda: b"\x1b[....." * (9 * MIB),
    "outline": lambda: (
        b"GPU 00000000:01:00.0\n  PCI\n" + b"".join(b" " * (n % 900) + b"a\n" for n in range(100_000))
    ),
    "graph": lambda: (
        b"=== System : maxBw 1.0 totalBw 1.0 ===\nCPU/0 (1/1/1)\n+ PCI[1.0] - NIC/1000\n"
        + b"".join(b" + NET[1.0] - NET/%x (1/1/1)\n" % n for n in range(490_000))
    ),
    "adapters": lambda: b"CA 'a'\n\tPort 1:\n\t\tState: Active\n" * 150_000,
    "lists of nodes": lambda: (
        b"".join(b"SwitchName=s Nodes=n[1-60000,%d]\n" % n for n in range(1, 60_000)) + b"\n"
    ),
    "lists of switches": lambda: b"".join(b"SwitchName=s%d Switches=s[1-9999]\n" % n for n in range(99_999)),
    "yaml": lambda: b"- topology: a\n  tree: " + b"[" * MIB,
    "yaml of values": lambda: b"- topology: a\n  tree: [" + b"a," * (2 * MIB - 50) + b"]",
    "yaml of aliases": lambda: (
        b"- topology: a\n  tree: &a [x, x]\n" + b"".join(b"  k%d: [*a, *a]\n" % n for n in range(99_999))
    ),
    "sets of cpus": lambda: (
        b'<topology version="2.0"><object type="Machine">'
        + b"".join(
            b'<object type="NUMANode" os_index="%d" cpuset="%s"/>' % (n, b",".join([b"0xffffffff"] * 100))
            for n in range(45_000)
        )
    ),
    "system devices": lambda: (
        b'<topology version="2.0"><object type="Machine">'
        + b"".join(
            b'<object type="OSDev" name="m%d" osdev_type="%d"/>' % (n, 2 + n % 2) for n in range(49_000)
        )
    ),
    "tree of devices": lambda: b"-[0000:00]-" + b"+-00.0-[01]-" * 80_000 + b"\n" + b" +-00.0  x\n" * 400_000,
    "listed devices": lambda: b"".join(
        b"%04x:%02x:%02x.0 PCI bridge: x\n\tBus: primary=00, secondary=01, subordinate=ff\n"
        % (n // 8192, n // 32 % 256, n % 32)
        for n in range(200_000)
    ),
    "fabric": lambda: b"".join(
        b'Switch\t9 "S-%x"\n[1] "H-%x"[1] # "n HCA-1" 4xNDR\n' % (n, n + 10**6) for n in range(1, 240_000)
    ),
    "lines of links": lambda: b"CA: a:\n" + b"  0x1 1 1[ ] ==( 4X 53.125 Gbps Active/ LinkUp)==> " * 900_000,
    "instances": lambda: (
        b'{"Instances": [' + b'{"InstanceId": "i", "NetworkNodes": ["a"]},' * 300_000 + b"0]}"
    ),
    "not so large as to be read": lambda: b"x" * (200 * MIB),
}
CHILD = """
import re, sys, time
from topotune.errors import TopotuneError
from topotune.topology.formats import read_files
before = time.process_time()
try:
    read_files([sys.argv[1]])
except TopotuneError as refusal:
    assert len(refusal.message) < 3000
most_kib = re.search("VmHWM:\\s+([0-9]+)", open("/proc/self/status").read())[1]
print(time.process_time() - before, int(most_kib) * 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", HUGE)
def test_a_huge_capture_takes_seconds_and_less_than_a_gigabyte(tmp_path, name):
    path = tmp_path / "huge"
    path.write_bytes(HUGE[name]())
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 * MAX_BYTES, 4 * MAX_BYTES)),
    )
    assert done.returncode == 0, done.stderr
    seconds, most_bytes = map(float, done.stdout.split())
    assert most_bytes < MAX_BYTES
    assert seconds < 60  # the processor's time on a slow machine; here it is below 5


def test_an_entity_is_refused_before_it_is_put_in(tmp_path):
    from topotune.topology.formats.xml_tree import parse_xml

    with pytest.raises(TopotuneError, match="line 1: declares the entity 'e0', which no topology needs"):
        parse_xml(HUGE["entities"]().decode(), "bomb.xml")
    outside = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'
    with pytest.raises(TopotuneError, match="declares the entity 'x'"):
        parse_xml(outside, "outside.xml")
