"""Broken and hostile benchmark outputs: a measurement or a refusal, in bounded time."""

import json
import random
import time
from pathlib import Path

import jsonschema
import pytest
from mutations import mutated

from topotune.documents import json_schema
from topotune.errors import InputFileError
from topotune.links import fit_links, measurement_from_document, measurement_to_document
from topotune.links.foreign import benchmarks_among, read_measurement
from topotune.links.foreign.catalog import READERS
from topotune.report.text import describe_measurement

FOLDER = Path(__file__).parent / "fixtures"
ORIGINALS = [path.read_bytes() for path in sorted(FOLDER.glob("*/*.txt"))]
SCHEMA = jsonschema.Draft202012Validator(json_schema("measurement"))
MAX_SECONDS = 5.0
SCRAPS = (
    b"\x00", b"\xff\xfe", b"\xff", b"\x1b[31m", b"\t", b"  ", b"\r\n", b"# ", b"\n" * 5, b"N/A", b"-1",
    b"nan", b"0", b"1e999", b"1e299", b"9e99", b"1e-320", b"0.0", b"[1,0]<stdout>:", b"Rank 3 ", b'"', b"[",
    b"{", b"99999999999999999999", b"D\\D",
    "\u202e\U0001f600".encode(),
)  # fmt: skip


def is_read(path: Path, *, format_name: str | None = None) -> bool:
    """Whether a measurement came of it; it must then be one that can be written, read again and described."""
    started = time.process_time()
    try:
        measurement = read_measurement([str(path)], format_name=format_name)
    except InputFileError:
        return False
    finally:
        assert time.process_time() - started < MAX_SECONDS
    document = measurement_to_document(measurement)
    assert (
        measurement_from_document(json.loads(json.dumps(document, allow_nan=False)), "again") == measurement
    )
    assert describe_measurement(measurement, fit_links(measurement) if measurement.times_links else None)
    return True


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 250), *(pytest.param(seed, 2000, marks=pytest.mark.slow) for seed in (2, 3))]
)
def test_a_mutated_output_is_read_or_refused(tmp_path, seed, count):
    rng = random.Random(seed)
    path = tmp_path / "output.txt"
    num_read = 0
    for _ in range(count):
        path.write_bytes(mutated(rng, ORIGINALS, SCRAPS))
        num_read += is_read(path)
    assert 0.1 < num_read / count < 0.95


@pytest.mark.parametrize("reader", [reader.name for reader in READERS])
def test_a_reader_reads_or_refuses_what_is_not_its_own(tmp_path, reader):
    path = tmp_path / "output.txt"
    for original in ORIGINALS:
        path.write_bytes(original)
        is_read(path, format_name=reader)


def test_what_is_read_is_valid_by_the_schema_of_measurements():
    for path in sorted(FOLDER.glob("*/*.txt")):
        SCHEMA.validate(json.loads(json.dumps(measurement_to_document(read_measurement([str(path)])))))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"hello\n", "is no output of a benchmark"), (b"a\0b", "is no text")],
)
def test_what_is_no_benchmark_is_said_to_be_none(tmp_path, content, message):
    path = tmp_path / "output.txt"
    path.write_bytes(content)
    assert benchmarks_among([str(path)]) == ()
    with pytest.raises(InputFileError, match=message):
        read_measurement([str(path)])


OSU_WINDOWS = """# OSU MPI Multiple Bandwidth / Message Rate Test v7.3
# [ pairs: 2 ] [ window size: varied ]
# Uni-directional Bandwidth (MB/sec)
#        1        2
8     10.0     20.0
"""
BARE_RATE = '{"test_info": {"test": "RDMA_Write_BW_Test"}, "results": {"bw_avg": 380.0}}\n'
UNNAMED = """#       size         count      type   redop    root     time   algbw   busbw #wrong
     1048576         32768     float    none      -1    30.00   34.95   30.58      0
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (OSU_WINDOWS, "left out, rows below no heading that is known"),
        (OSU_WINDOWS.replace("2 ]", "99999 ]", 1), "rows below no heading that is known"),
        (BARE_RATE, "left out, rates whose unit messages per second × their size do not prove"),
        (BARE_RATE.replace("RDMA_Write", "Unheard_of"), "left out, tests that are not known"),
        (UNNAMED, "does not say which collective its times are of"),
    ],
    ids=["windows", "pairs", "unit", "test", "collective"],
)
def test_what_proves_nothing_is_refused_with_the_reason(tmp_path, text, message):
    path = tmp_path / "output.txt"
    path.write_text(text)
    with pytest.raises(InputFileError, match=message):
        read_measurement([str(path)])


@pytest.mark.parametrize(
    ("command", "num_ranks"),
    [
        ("$ mpirun --hostfile h -np 8 ./osu_allreduce", 8),
        ("srun -N 2 -n16 --mpi=pmix osu_allreduce", 16),
        ("/opt/mpi/bin/mpiexec -n 4 osu_allreduce", 4),
        ("srun --ntasks=2 osu_allreduce", 2),
        ("mpirun -np $N osu_allreduce", None),
        ("mpirun osu_allreduce", None),
        ("echo -n 4 osu_allreduce", None),
        ("mpirun -np 8 osu_bcast\nosu_allreduce", None),
    ],
)
def test_the_launcher_s_command_line_says_how_many_ranks_an_osu_benchmark_had(tmp_path, command, num_ranks):
    path = tmp_path / "output.txt"
    path.write_text(
        f"{command}\n# OSU MPI Allreduce Latency Test v7.3\n# Size  Avg Latency(us)\n1024  9.00\n"
    )
    (figure,) = read_measurement([str(path)]).collectives
    assert figure.num_ranks == num_ranks


def test_a_file_that_is_not_there_is_no_benchmark_and_is_refused_by_name(tmp_path):
    missing = str(tmp_path / "missing.txt")
    assert benchmarks_among([missing]) == ()
    with pytest.raises(InputFileError, match="no such file"):
        read_measurement([missing])


@pytest.mark.parametrize("number", ["1e-320", "9e299", "1e-101"])
@pytest.mark.parametrize(
    "output",
    [
        "# OSU MPI Latency Test v7.0\n# Size          Latency (us)\n8  {}\n16  1.5\n",
        "RDMA_Write Latency Test\n#bytes #iterations t_typical[usec] t_avg[usec]\n2 9 {0} {0}\n4 9 2 2\n",
        '{{"test_info": {{"test": "RDMA_Write_Latency_Test"}}, "results": ['
        '{{"MsgSize": 2, "t_typical": {0}}},'
        ' {{"MsgSize": 4, "t_typical": 2.5, "t_min": {0}, "t_max": {0}}}]}}',
    ],
)
def test_a_figure_that_nothing_can_measure_is_left_out(tmp_path, output, number):
    path = tmp_path / "out.txt"
    path.write_text(output.format(number))
    (figure,) = read_measurement([str(path)]).link_figures
    assert figure.message_bytes > 2
