"""nccl-tests' own JSON (``-J FILE``, since 2.17): the same table, with samples where these were asked for.

The file also holds the whole environment of the job. Nothing of that is taken but the version of the library:
it may hold secrets.
"""

import os.path
import re
from typing import Any, Final

from topotune.documents import Value, parse_json
from topotune.links.foreign.nccl_runs import COLLECTIVE_OF_PROGRAM, Half, ListedRank, Row, Run, reading_of
from topotune.links.foreign.reading import (
    MAX_FIGURES,
    MAX_RANKS,
    Figure,
    FigureReader,
    FigureReading,
    figure_of,
    is_a_figure,
    json_from,
)
from topotune.probe.faults import Faults

MAX_BYTES: Final = 64 * 2**20
_MAX_SAMPLES = 10_000
_MARK = re.compile(r'"(?:out_of_place|average_bus_bandwidth)"\s{0,10}:')
_CONFIG = re.compile(r'"(?:nccl_version|nthreads|maximum_bytes)"\s{0,10}:')
_OPTIONS: Final = (
    "nthreads", "ngpus", "minimum_bytes", "maximum_bytes", "step_factor", "step_bytes", "warmup_iters",
    "iterations", "aggregated_iterations", "validation", "graph",
)  # fmt: skip


def _recognise(text: str) -> bool:
    return json_from(text) is not None and _MARK.search(text) is not None and _CONFIG.search(text) is not None


def read(text: str, source: str) -> FigureReading:
    """A JSON file of one run → what it proves.

    Raises:
        InputFileError: no JSON (the file is cut where the run died), no results, or a value out of bounds.
    """
    document = parse_json((json_from(text) or text).encode("utf-8", "replace"), source, max_bytes=MAX_BYTES)
    if not isinstance(document.raw, dict) or not isinstance(document.raw.get("results"), list):
        document.fail("holds no list of results", hint="nccl-tests -J FILE writes one")
    faults = Faults()
    run = Run(concluded="end_time" in document.raw or "out_of_bounds" in document.raw)
    run.program = _program(document)
    _config(document, run)
    _ranks(document, run, faults)
    for entry in document.member("results").items(MAX_FIGURES // 2, what="results"):
        row = _row(entry, faults)
        if row is not None:
            run.rows.append(row)
    average = _part(document, "average_bus_bandwidth", "bandwidth")
    stated = None if average is None else _number(average)
    run.average = None if stated is None else Figure(stated.value * 1e9, 1e-3 * stated.value * 1e9)
    wrong = _part(document, "out_of_bounds", "count")
    if wrong is not None and type(wrong.raw) is int and wrong.raw > 0:
        faults.add("WRONG RESULTS, values out of bounds", str(wrong.raw))
    facts = {"tool": "nccl-tests"}
    for name, key in (("tool_version", "version"), ("nccl_version", "nccl_version")):
        if isinstance(document.raw.get(key), str | int):
            facts[name] = _library_version(document.raw[key])
    models = sorted({rank.model for rank in run.ranks.values() if rank.model})
    if models:
        facts["devices"] = ", ".join(models)[:1000]
    if run.options:
        facts["options"] = run.options
    return reading_of([run], facts, source, faults)


def _library_version(raw: str | int) -> str:
    """23007 → ``2.30.7``, as NCCL numbers its versions since 2.9."""
    if isinstance(raw, int) and 20_000 <= raw < 100_000:
        return f"{raw // 10_000}.{raw // 100 % 100}.{raw % 100}"
    return str(raw)[:60]


def _program(document: Value) -> str | None:
    arguments = document.raw.get("args")
    if not isinstance(arguments, list):
        return None
    for argument in arguments[:20]:
        name = os.path.basename(argument[:4096]) if isinstance(argument, str) else ""
        if name.endswith("_perf") and name.removesuffix("_perf") in COLLECTIVE_OF_PROGRAM:
            return name.removesuffix("_perf")
    return None


def _config(document: Value, run: Run) -> None:
    config = document.raw.get("config")
    if not isinstance(config, dict):
        return
    if type(config.get("iterations")) is int and 0 <= config["iterations"] < 2**62:
        run.num_iterations = config["iterations"]
    shown = [f"{name} {config[name]}" for name in _OPTIONS if isinstance(config.get(name), str | int)]
    run.options = " ".join(shown)[:1000] or None


def _ranks(document: Value, run: Run, faults: Faults) -> None:
    if not isinstance(document.raw.get("ranks"), list):
        return
    for entry in document.member("ranks").items(MAX_RANKS, what="ranks"):
        if not isinstance(entry.raw, dict) or "rank" not in entry.raw:
            faults.add("left out, entries that are no ranks", entry.place)
            continue
        rank = entry.member("rank").integer(0, MAX_RANKS - 1)
        host, model = entry.raw.get("hostname"), entry.raw.get("device_info")
        listed = ListedRank(
            rank=rank,
            group=entry.member("group").integer(0, MAX_RANKS) if "group" in entry.raw else 0,
            host=entry.member("hostname").text(max_length=255) if isinstance(host, str) and host else None,
            model=entry.member("device_info").text(max_length=255) if isinstance(model, str) else None,
        )
        if run.ranks.setdefault(rank, listed).host != listed.host:
            entry.fail(f"lists rank {rank} on {listed.host} and on {run.ranks[rank].host}")


def _row(entry: Value, faults: Faults) -> Row | None:
    if not isinstance(entry.raw, dict) or type(entry.raw.get("size")) is not int:
        faults.add("left out, entries that are no results", entry.place)
        return None
    halves = []
    for key, in_place in (("out_of_place", False), ("in_place", True)):
        half = _half(entry, key, in_place=in_place)
        if half is not None:
            halves.append(half)
    if not halves:
        faults.add("left out, results without a time", entry.place)
        return None
    root = str(entry.raw.get("root", "")).strip()[:20]
    dtype, op = (
        entry.member(name).text(max_length=40) if isinstance(entry.raw.get(name), str) else None
        for name in ("type", "redop")
    )
    return Row(
        place=entry.place,
        message_bytes=entry.member("size").integer(),
        dtype=dtype,
        op=None if op in (None, "", "none") else op,
        root=int(root) if re.fullmatch(r"[0-9]{1,7}", root) else None,
        halves=halves,
    )


def _half(entry: Value, key: str, *, in_place: bool) -> Half | None:
    half = entry.raw.get(key)
    if not isinstance(half, dict):
        return None
    figures = {name: _number(entry.member(key).member(name)) for name in half}
    time = figures.get("time") or figures.get("cpu_time")
    if time is None or not time.value > 0:
        return None
    wrong = figures.get("nwrong")
    algbw, busbw = figures.get("alg_bw"), figures.get("bus_bw")
    samples_s: tuple[float, ...] = ()
    least = most = None
    if isinstance(entry.raw.get(f"{key}_per_iter"), dict):
        single = entry.member(f"{key}_per_iter")
        least, most = (_number(single.member(name)) for name in ("min_us", "max_us")) if {
            "min_us", "max_us"
        } <= single.raw.keys() else (None, None)  # fmt: skip
        if isinstance(single.raw.get("times_us"), list):
            items = single.member("times_us").items(_MAX_SAMPLES, what="samples")
            samples_s = tuple(1e-6 * item.number(0, 1e12, above=True) for item in items)
    return Half(
        in_place=in_place,
        time=time.scaled(1e-6),
        algbw=None if algbw is None else algbw.scaled(1e9),
        busbw=None if busbw is None else busbw.scaled(1e9),
        num_wrong=int(wrong.value) if wrong is not None and wrong.value.is_integer() else None,
        min_s=least.value * 1e-6 if least is not None and least.value > 0 else None,
        max_s=most.value * 1e-6 if most is not None and most.value > 0 else None,
        samples_s=samples_s,
    )


def _number(value: Value) -> Figure | None:
    """A number, or the text of one; None for ``nan``, ``N/A``, null and all else.

    JSON drops zeros at the end, so that the last digit is no sign of how it was rounded: two decimals are, as
    in the table.
    """
    raw: Any = value.raw
    if isinstance(raw, str):
        return figure_of(raw.strip()[:40])
    if type(raw) not in (int, float) or not is_a_figure(raw):
        return None
    return Figure(float(raw), max(5e-3, 1e-4 * float(raw)) if raw else 5e-3)


def _part(document: Value, *keys: str) -> Value | None:
    value = document
    for key in keys:
        if not isinstance(value.raw, dict) or key not in value.raw:
            return None
        value = value.member(key)
    return value


READER = FigureReader("nccl-tests-json", "nccl-tests' JSON (-J FILE)", _recognise, read)
