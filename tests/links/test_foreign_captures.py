"""Real benchmark outputs, where a folder of captures lies beside the checkout: every fact of their index.

``TOPOTUNE_CAPTURES`` names the folder; without it, ``shared/captures`` beside the repository.
"""

import math
import os
import re
from pathlib import Path

import pytest

from topotune.links import Measurement
from topotune.links.figure_findings import figure_findings
from topotune.links.foreign import benchmarks_among, read_measurement

FOLDER = Path(os.environ.get("TOPOTUNE_CAPTURES") or Path(__file__).parents[3] / "shared" / "captures")


def read_index() -> dict[str, str]:
    """File → its facts, as they stand in the last column."""
    path = FOLDER / "INDEX.md"
    rows = (
        [line.strip().strip("|").split(" | ") for line in path.read_text().splitlines()]
        if path.is_file()
        else []
    )
    return {row[0].strip(" `"): " | ".join(row[3:]).strip() for row in rows if row[0].startswith(" `")}


INDEX = read_index()


def captures(marked: str) -> list[str]:
    return [file for file, facts in INDEX.items() if file.startswith("measurements/") and marked in facts]


def needs(files: list[str]) -> pytest.MarkDecorator:
    """Each file a case; one case that is skipped where there are none."""
    skip = pytest.mark.skip(reason=f"no captures in {FOLDER}")
    return pytest.mark.parametrize("file", files or [pytest.param("none", marks=skip)])


def number(pattern: str, text: str) -> float:
    match = re.search(pattern, text)
    assert match is not None, pattern
    return float(match[1])


def rates_of(measurement: Measurement, what: str) -> list[float]:
    return [
        (figure.bandwidth_bytes_per_s or 0) / 1e9 or (figure.latency_s or 0) * 1e6
        for figure in measurement.link_figures
        if figure.method.startswith(what) and figure.src != figure.dst
    ]


@needs(captures("table rows"))
def test_table_of_nccl_tests(file):
    stated = INDEX[file]
    measurement = read_measurement([str(FOLDER / file)])
    figures = measurement.collectives
    rows = [figure for figure in figures if figure.in_place is False]
    assert {figure.collective for figure in figures} == {"allreduce"}
    assert len(rows) == number(r"(\d+) table rows", stated)
    sizes = re.search(r"sizes (\d+) \.\. (\d+) B", stated)
    assert sizes is not None
    assert (rows[0].message_bytes, rows[-1].message_bytes) == tuple(map(int, sizes.groups()))
    assert len(figures) == len(rows) * (1 if "x 3;" in stated else 2)
    last = re.search(r"last row out-of-place time ([\d.]+) us, algbw ([\d.]+), busbw ([\d.]+) GB/s", stated)
    assert last is not None
    assert rows[-1].time_s * 1e6 == pytest.approx(float(last[1]), rel=1e-9)
    assert rows[-1].algbw_bytes_per_s == pytest.approx(float(last[2]) * 1e9, rel=1e-9)
    assert rows[-1].busbw_bytes_per_s == pytest.approx(float(last[3]) * 1e9, rel=1e-9)
    best = max(rows, key=lambda figure: figure.busbw_bytes_per_s or 0)
    most = re.search(r"max out-of-place busbw ([\d.]+) at (\d+) B", stated)
    assert most is not None
    assert (best.busbw_bytes_per_s, best.message_bytes) == (pytest.approx(float(most[1]) * 1e9), int(most[2]))
    check_ranks(stated, measurement)
    check_averages(stated, measurement)
    assert all(figure.root is None and figure.num_wrong in (0, None) for figure in figures)
    assert all(figure.num_wrong is None for figure in figures) == ("error" in stated or "x 3;" in stated)
    cut = any("as if it were cut" in warning for warning in measurement.warnings)
    assert cut == ("out of bounds absent" in stated and "avg bus bandwidth absent" in stated)
    if version := re.search(r"NCCL version (\S+?)(?:[;.]? |\.$|$)", stated):
        assert measurement.facts["nccl_version"] == version[1]


def check_ranks(stated: str, measurement: Measurement) -> None:
    n = number(r"\(allreduce on ([\d.]+) ranks\)", stated)
    assert measurement.num_ranks == round(n)
    assert {figure.num_ranks for figure in measurement.collectives} == {round(n)}
    listed = re.search(r"(\d+) rank lines \(highest rank (\d+)\) on (\d+) host names", stated)
    if listed is None:
        assert "0 rank lines" in stated
    if listed is not None and int(listed[1]) == round(n) and int(listed[3]):
        assert len(measurement.node_names) == int(listed[3])
        assert {figure.num_nodes for figure in measurement.collectives} == {int(listed[3])}
    else:  # the list has gaps, names no hosts, or is not there
        assert measurement.node_of_rank == ()


def check_averages(stated: str, measurement: Measurement) -> None:
    rates = [figure.busbw_bytes_per_s or 0 for figure in measurement.collectives]
    mean = math.fsum(rates) / len(rates) / 1e9
    if "mean of all shown busbw" in stated:
        assert mean == pytest.approx(number(r"mean of all shown busbw ([\d.]+)", stated), abs=6e-4)
    differs = any("average bus bandwidth" in warning for warning in measurement.warnings)
    if "avg bus bandwidth absent" in stated:
        assert not differs
    else:
        average = number(r"avg bus bandwidth ([\d.]+)", stated)
        assert differs == (abs(mean - average) > 0.006)


@needs(captures("flag as unreliable"))
def test_times_that_jump_are_found(file):
    assert "times-erratic" in [f.code for f in figure_findings(read_measurement([str(FOLDER / file)]))]


@needs(captures("2-node value") + captures("2-node busbw"))
def test_figures_of_two_nodes_are_told_apart(file):
    assert "two-nodes" in [f.code for f in figure_findings(read_measurement([str(FOLDER / file)]))]


@needs(captures("tests: "))
def test_matrices_of_nvbandwidth(file):
    stated = INDEX[file]
    measurement = read_measurement([str(FOLDER / file)])
    tests = re.search(r"tests: (.*?); sums: (.*?); matrices: (\d+)", stated)
    assert tests is not None
    assert measurement.facts["tests"] == tests[1]
    by_test: dict[str, float] = {}
    for figure in measurement.link_figures:
        name = figure.method.split(",")[0]
        value = (figure.bandwidth_bytes_per_s or 0) / 1e9 or (figure.latency_s or 0) * 1e9
        by_test[name] = by_test.get(name, 0) + value
    rates = {
        figure.method.split(",")[0] for figure in measurement.link_figures if figure.bandwidth_bytes_per_s
    }
    assert len(rates) == int(tests[3])
    for name, total in re.findall(r"(\w+)=([\d.]+)", tests[2]):
        assert by_test[name] == pytest.approx(float(total), abs=1e-6)
    if spread := re.search(
        r"(\d+)x\1 matrix, diagonal 0.00, off-diagonal ([\d.]+) \.\. ([\d.]+) GB/s", stated
    ):
        rates_of_pairs = rates_of(measurement, tests[1])
        assert (measurement.num_ranks, len(rates_of_pairs)) == (
            int(spread[1]),
            int(spread[1]) * (int(spread[1]) - 1),
        )
        assert [min(rates_of_pairs), max(rates_of_pairs)] == pytest.approx(
            [float(spread[2]), float(spread[3])]
        )
    if "more columns than GPUs" in stated:
        assert any("more GPUs than the" in warning for warning in measurement.warnings)


@needs(captures("P2P Connectivity Matrix"))
def test_matrices_of_p2p_bandwidth(file):
    stated = INDEX[file]
    measurement = read_measurement([str(FOLDER / file)])
    titles = re.findall(
        r'"([^"]+?) Matrix(?: \(GB/s\))?" (\d+)x\d+, off-diagonal ([\d.]+) \.\. ([\d.]+)', stated
    )
    assert len(titles) == 5
    for title, size, least, most in titles:
        assert measurement.num_ranks == int(size)
        if title == "P2P Connectivity":
            access = {
                int(figure.peer_access) for figure in measurement.link_figures if figure.src != figure.dst
            }
            assert access == {int(float(least)), int(float(most))}
            continue
        rates = [
            rate
            for rate, figure in zip(
                rates_of(measurement, ""),
                (each for each in measurement.link_figures if each.src != each.dst),
                strict=True,
            )
            if figure.method == title
        ]
        assert len(rates) == int(size) * (int(size) - 1)
        assert [min(rates), max(rates)] == pytest.approx([float(least), float(most)])
    latencies = re.findall(r"latency \(GPU\) (\d+) rows, off-diagonal ([\d.]+) \.\. ([\d.]+) us", stated)
    for (size, least, most), clock in zip(latencies, ("P2P=Disabled", "P2P=Enabled"), strict=False):
        times = [
            (figure.latency_s or 0) * 1e6
            for figure in measurement.link_figures
            if figure.method.startswith(clock)
            and figure.method.endswith(", GPU")
            and figure.src != figure.dst
        ]
        assert len(times) == int(size) * (int(size) - 1)
        assert [min(times), max(times)] == pytest.approx([float(least), float(most)])
    assert len(latencies) == len({f.method for f in measurement.link_figures if f.method.endswith(", GPU")})


@needs(captures("# OSU"))
def test_table_of_osu(file):
    stated = INDEX[file]
    measurement = read_measurement([str(FOLDER / file)])
    figures = measurement.collectives
    title = re.search(
        r"# OSU (\S+) (\w+) Latency Test v([\d.]+); (\d+) rows, sizes (\d+) \.\. (\d+) B", stated
    )
    assert title is not None
    assert (measurement.facts["library"], measurement.facts["tool_version"]) == (title[1], title[3])
    assert {figure.collective for figure in figures} == {title[2].lower()}
    assert len(figures) == int(title[4])
    assert (figures[0].message_bytes, figures[-1].message_bytes) == (int(title[5]), int(title[6]))
    times = [figures[0].time_s * 1e6, figures[-1].time_s * 1e6]
    assert times == pytest.approx([number(r"first ([\d.]+) us", stated), number(r"last ([\d.]+) us", stated)])
    full = "--full" in stated
    assert all((figure.min_s is not None and figure.num_iterations is not None) == full for figure in figures)
    assert measurement.num_ranks == 0  # the output does not say it


@needs(captures("link types"))
def test_table_of_perftest(file):
    stated = INDEX[file]
    measurement = read_measurement([str(FOLDER / file)])
    first = re.search(r"first \('(\d+)', '(\d+)', '([\d.]+)', '([\d.]+)', '([\d.]+)'\)", stated)
    assert first is not None
    assert len(measurement.link_figures) == number(r"(\d+) result rows", stated)
    figure = measurement.link_figures[0]
    assert (figure.message_bytes, figure.num_iterations) == (int(first[1]), int(first[2]))
    rates = [figure.peak_bytes_per_s * 8 / 1e9, figure.bandwidth_bytes_per_s * 8 / 1e9]
    assert rates == pytest.approx([float(first[3]), float(first[4])])
    messages = figure.bandwidth_bytes_per_s / figure.message_bytes / 1e6
    assert messages == pytest.approx(float(first[5]), rel=1e-3)
    assert not any("messages per second" in warning for warning in measurement.warnings)
    assert measurement.facts["link_type"] in stated
    assert measurement.facts["num_qps"] == str(int(number(r"number of QPs (\d+)", stated)))


def test_outputs_of_benchmarks_are_recognised_and_nothing_else_is():
    if not INDEX:
        pytest.skip(f"no captures in {FOLDER}")
    files = [str(FOLDER / file) for file in INDEX]
    expected = {file for file in files if "/measurements/" in file}
    assert set(benchmarks_among(files)) == expected
