"""perftest's JSON (``--out_json``): the settings and the one row of a test.

It does not say in which unit the rate is, Gb/sec or MB/sec of 2**20 bytes, as the option ``--report_gbits``
had it; messages per second × their size prove it. The first versions wrote names and words without quotation
marks; several such files may stand one behind the other.

Source: perftest, src/perftest_parameters.c, write_test_info_to_file and write_bw_report_to_file.
"""

import re
from typing import Final

from topotune.documents import Value, parse_json
from topotune.errors import InputFileError
from topotune.links.figures import LinkFigure
from topotune.links.foreign.perftest import SETTINGS, UNITS, Test, between_two_nodes
from topotune.links.foreign.reading import MAX_FIGURES, FigureReader, FigureReading, is_a_figure
from topotune.probe.faults import Faults, shown

_MAX_BYTES: Final = 16 * 2**20
_RECOGNISED = re.compile(r'"?\btest_info"?[ \t]*:[ \t]*\{')
_START = re.compile(r"^[ \t]{0,40}[\[{]", re.MULTILINE)
_TEST = re.compile(
    r"(RDMA_Write(?:_[A-Za-z]{1,12}?)??|RDMA_Read|Send|Atomic(?:_[A-Za-z_]{1,30}?)??)"
    r"(_Bidirectional)?(?:_Post_List)?_(BW|Latency)(?:_forwarding|_Multicast){0,2}_Test"
)
# A string is taken closed or not: text full of quotes cannot make this quadratic.
_WORD = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|(?<![\w.+-])[A-Za-z_](?:[\w .%/+-]*[\w%])?')
_BEFORE_END = re.compile(r",(\s{0,1000}[}\]])")
_BETWEEN = re.compile(r"\}\s{0,1000}\{")
_TOLERANCE: Final = 1.05  # both are rounded; the units differ by a factor of 119


def _recognise(text: str) -> bool:
    return _RECOGNISED.search(text) is not None


def read(text: str, source: str) -> FigureReading:
    """One or more such files → what they prove.

    Raises:
        InputFileError: no JSON, also without its quotation marks, or no result that can be taken.
    """
    faults = Faults()
    facts = {"tool": "perftest"}
    figures = []
    for entry in _documents(text, source):
        parts = entry.raw if isinstance(entry.raw, dict) else {}
        if not isinstance(parts.get("test_info"), dict) or "results" not in parts:
            faults.add("left out, what is no test_info with results", entry.place)
            continue
        info, results = entry.member("test_info"), entry.member("results")
        test = _test(info, faults)
        for name, fact in SETTINGS.items():
            value = info.raw.get(name.replace(" ", "_"))
            if isinstance(value, str | int) and value != "":
                facts.setdefault(fact, str(value)[:60])
        rows = results.items(MAX_FIGURES) if isinstance(results.raw, list) else [results]
        found = [None if test is None else _figure(row, test, faults) for row in rows]
        figures += [figure for figure in found if figure is not None]
    if not figures:
        raise InputFileError(
            source,
            "holds no result of perftest that can be taken: "
            + ("; ".join(faults.warnings()) or "none at all"),
            hint="ib_write_bw --report_gbits --out_json --out_json_file=FILE writes one",
        )
    return between_two_nodes(figures, facts, faults)


def _documents(text: str, source: str) -> list[Value]:
    """Each file's document; of a text that is no JSON, with the quotation marks that it lacks."""
    start = _START.search(text)
    body = text[start.start() : max(text.rfind("}"), text.rfind("]")) + 1] if start is not None else text
    try:
        document = parse_json(body.encode("utf-8", "replace"), source, max_bytes=_MAX_BYTES)
    except InputFileError as refusal:
        quoted = _BEFORE_END.sub(r"\1", _WORD.sub(_quoted, body))
        several = "[" + _BETWEEN.sub("},{", quoted) + "]"
        try:
            document = parse_json(several.encode("utf-8", "replace"), source, max_bytes=_MAX_BYTES)
        except InputFileError:
            raise refusal from None
    return document.items(MAX_FIGURES) if isinstance(document.raw, list) else [document]


def _quoted(word: re.Match[str]) -> str:
    return word[0] if word[0].startswith('"') or word[0] in ("true", "false", "null") else f'"{word[0]}"'


def _test(info: Value, faults: Faults) -> Test | None:
    name = info.raw.get("test")
    match = _TEST.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        faults.add("left out, tests that are not known", f"{info.place}: {shown(str(name))}")
        return None
    both_ways = match[2] is not None
    return Test(f"{match[1]}{' Bidirectional' * both_ways} {match[3]} Test", match[1], both_ways)


def _figure(row: Value, test: Test, faults: Faults) -> LinkFigure | None:
    """The one figure of a test: a rate whose unit is proven, or a time in microseconds."""
    rate = _number(row, "BW_average", "bw_avg")
    time = _number(row, "t_typical") or _number(row, "t_avg", "avg_lat")
    size, iterations = _count(row, "MsgSize"), _count(row, "n_iterations")
    src, dst = test.ends
    if rate is not None:
        unit = _unit(rate, _number(row, "MsgRate", "msgRate_avg"), size)
        if unit is None:
            faults.add("left out, rates whose unit messages per second × their size do not prove", row.place)
            return None
        peak = _number(row, "BW_peak")
        return LinkFigure(
            src=src,
            dst=dst,
            method=test.text,
            bandwidth_bytes_per_s=rate * unit,
            duplex="sum" if test.both_ways else None,
            message_bytes=size,
            num_iterations=iterations,
            peak_bytes_per_s=None if peak is None else peak * unit,
        )
    if time is not None:
        least, most = _number(row, "t_min"), _number(row, "t_max")
        return LinkFigure(
            src=src,
            dst=dst,
            method=test.text,
            latency_s=time * 1e-6,
            message_bytes=size,
            num_iterations=iterations,
            min_s=None if least is None else least * 1e-6,
            max_s=None if most is None else most * 1e-6,
        )
    faults.add("left out, results without a rate or time above 0", row.place)
    return None


def _unit(rate: float, messages: float | None, size: int | None) -> float | None:
    """Bytes/s of the unit in which a rate is that of so many million messages a second."""
    if messages is None or not size:
        return None
    product = messages * 1e6 * size
    fitting = {unit for unit in UNITS.values() if 1 / _TOLERANCE < rate * unit / product < _TOLERANCE}
    return fitting.pop() if len(fitting) == 1 else None


def _number(row: Value, *names: str) -> float | None:
    """The first of these members that is a number above 0, as perftest prints 0 for what was not measured."""
    members = row.raw if isinstance(row.raw, dict) else {}
    for name in names:
        value = members.get(name)
        if isinstance(value, int | float) and value is not True and value > 0 and is_a_figure(value):
            return float(value)
    return None


def _count(row: Value, name: str) -> int | None:
    value = row.raw.get(name) if isinstance(row.raw, dict) else None
    return value if type(value) is int and 0 <= value < 2**62 else None


READER = FigureReader("perftest-json", "perftest --out_json", _recognise, read)
