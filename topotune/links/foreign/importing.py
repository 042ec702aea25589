"""Benchmark outputs from outside → one measurement."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from topotune.documents import MAX_TEXT, read_bytes_from_start
from topotune.errors import InputFileError, UsageError
from topotune.links.figure_fit import num_unknown_pairs
from topotune.links.foreign.catalog import READERS, reader_named, recognised
from topotune.links.foreign.reading import FigureReader, FigureReading
from topotune.links.measurement import Measurement, is_of_a_link
from topotune.topology.formats.capture import HEAD, Capture, clean_capture, read_capture
from topotune.topology.formats.importing import how_it_was_read, node_and_path
from topotune.topology.formats.tagged_lines import untagged

MAX_FILES: Final = 1_000
_MAX_WARNING = 1_000
_MAX_FACTS = 60
_UNNAMED = "node0"


@dataclass(frozen=True, slots=True)
class _Part:
    """What one file proves, and which node it is said to be of."""

    source: str
    node: str | None
    reading: FigureReading


def benchmarks_among(files: Sequence[str], *, format_name: str | None = None) -> tuple[str, ...]:
    """Which of these files hold a benchmark's output; files that cannot be read are none.

    Args:
        files: paths, or ``NODE=PATH``, as ``import`` takes them.
        format_name: what all of them are, instead of recognising it.
    """
    if format_name is not None:
        return tuple(files) if reader_named(format_name) is not None else ()
    return tuple(file for file in files if _holds_benchmark(node_and_path(file)[1]))


def read_measurement(files: Sequence[str], *, format_name: str | None = None) -> Measurement:
    """Read benchmark outputs and join what they prove.

    Args:
        files: paths; ``NODE=PATH`` says that all ranks of a file were on that node.
        format_name: what all of them are, instead of recognising it.

    Raises:
        InputFileError: a file that cannot be read, is no output of a known benchmark, or contradicts another.
        UsageError: no file, too many, or no such format.
    """
    if not 0 < len(files) <= MAX_FILES:
        raise UsageError(f"{len(files)} files were given: must be 1 to {MAX_FILES}")
    parts = []
    for file in files:
        node, path = node_and_path(file)
        if node is not None and ("*" in node or "?" in node):
            raise UsageError(f"{file}: a benchmark's output is of one node or says itself which it is of")
        for host, reading in _of_writers(read_capture(path), format_name):
            # A tag names the host that printed a table, which is that of the ranks where there is but one.
            parts.append(_Part(path, node or (host if reading.single_node else None), reading))
    parts = [_placed(part) for part in parts]
    return _measurement(_joined(parts), ", ".join(dict.fromkeys(part.source for part in parts)))


def _holds_benchmark(path: str) -> bool:
    try:
        start = clean_capture(read_bytes_from_start(path, HEAD), path)
        return _is_known(start) or bool(untagged(start, _is_known))
    except InputFileError:
        return False  # whoever reads it says why it cannot be read


def _is_known(capture: Capture) -> bool:
    return bool(recognised(capture.head))


def _of_writers(capture: Capture, format_name: str | None) -> Iterator[tuple[str | None, FigureReading]]:
    """Of each output in one text; if none can be read, of what its writers wrote, without their tags.

    With each the host that its tags name.
    """
    try:
        readings = _readings(capture, format_name)
    except InputFileError:
        texts = untagged(capture, _is_known)
        if not texts:
            raise
        for host, text in texts:
            for reading in _readings(text, format_name):
                yield host, reading
    else:
        for reading in readings:
            yield None, reading


def _readings(capture: Capture, format_name: str | None) -> list[FigureReading]:
    """Of each output in one text; what cannot be taken is left out with its reason, if anything can."""
    readers: Sequence[FigureReader] = recognised(capture.head)
    if format_name is not None:
        forced = reader_named(format_name)
        if forced is None:
            raise UsageError(f"--format {format_name}: no such format", hint=f"there are: {_names()}")
        readers = (forced,)
    if not readers:
        raise InputFileError(
            capture.source,
            "is no output of a benchmark that topotune reads",
            hint=f"--format forces one of: {_names()}",
        )
    found: list[FigureReading] = []
    refusals: list[InputFileError] = []
    for reader in readers:
        try:
            found.append(reader.read(capture.text, capture.source))
        except InputFileError as refusal:
            refusal.hint = refusal.hint or how_it_was_read(reader.name, reader.what)
            refusals.append(refusal)
    if not found:
        raise refusals[0]
    more = (*capture.warnings, *(f"left out: {refusal.message}" for refusal in refusals))
    found[0] = replace(found[0], warnings=(*more, *found[0].warnings))
    return found


def _placed(part: _Part) -> _Part:
    """With the node that the user names, or that all ranks share though it has no name."""
    reading, node = part.reading, part.node
    if node is not None and reading.node_names and reading.node_names != (node,):
        raise InputFileError(
            part.source,
            f"is said to be of node {node}, and its ranks were on {', '.join(reading.node_names[:4])}",
        )
    if reading.node_names or not (node or reading.single_node) or not reading.num_ranks:
        return part
    placed = replace(
        reading, node_of_rank=(0,) * reading.num_ranks, node_names=(node or _UNNAMED,), single_node=False
    )
    return replace(part, reading=placed)


def _joined(parts: Sequence[_Part]) -> FigureReading:
    """All readings as one.

    Figures of links name ranks, which must be the same in all files that have such; figures of collectives
    say themselves of how many ranks they are.

    Raises:
        InputFileError: figures of links between ranks that differ.
    """
    linked = [part for part in parts if part.reading.link_figures]
    first = (linked or list(parts))[0]
    for part in linked:
        for what, here, there in (
            ("ranks", part.reading.num_ranks, first.reading.num_ranks),
            ("nodes", " ".join(part.reading.node_names), " ".join(first.reading.node_names)),
        ):
            if here != there:
                raise InputFileError(
                    part.source,
                    f"has links between {what} that are not those of {first.source}: {here} and {there}",
                    hint="import each by itself",
                )
    if len(parts) == 1:
        return first.reading
    alike = all(
        (part.reading.num_ranks, part.reading.node_of_rank, part.reading.node_names)
        == (first.reading.num_ranks, first.reading.node_of_rank, first.reading.node_names)
        for part in parts
    )
    same_number = len({part.reading.num_ranks for part in parts}) == 1
    warnings = [f"{part.source}: {warning}" for part in parts for warning in part.reading.warnings]
    if not alike:
        what = "ranks on other nodes" if same_number else "other numbers of ranks"
        warnings.append(f"the files are of {what}; each figure of a collective says its own number")
    keep = first.reading if alike or linked else None
    run = 0
    collectives = []
    for part in parts:
        collectives += [replace(figure, run=run + figure.run) for figure in part.reading.collectives]
        run += max((figure.run + 1 for figure in part.reading.collectives), default=0)
    return FigureReading(
        num_ranks=keep.num_ranks if keep is not None else first.reading.num_ranks if same_number else 0,
        node_of_rank=() if keep is None else keep.node_of_rank,
        node_names=() if keep is None else keep.node_names,
        link_figures=tuple(figure for part in parts for figure in part.reading.link_figures),
        collectives=tuple(collectives),
        facts=_facts(parts),
        warnings=tuple(warnings),
    )


def _facts(parts: Sequence[_Part]) -> dict[str, str]:
    """What all files say alike under its own name, the rest with the number of the file."""
    facts: dict[str, str] = {}
    for number, part in enumerate(parts, start=1):
        for key, value in part.reading.facts.items():
            if all(other.reading.facts.get(key, value) == value for other in parts):
                facts[key] = value
            else:
                facts[f"{key}, file {number}"] = value
    return dict(list(facts.items())[:_MAX_FACTS])


def _measurement(reading: FigureReading, source: str) -> Measurement:
    warnings = [_one_line(warning) for warning in reading.warnings]
    facts = {key: _one_line(value)[:MAX_TEXT] for key, value in reading.facts.items()}
    measurement = Measurement(
        num_ranks=reading.num_ranks,
        node_of_rank=reading.node_of_rank,
        node_names=reading.node_names,
        pairs=(),
        link_figures=reading.link_figures,
        collectives=reading.collectives,
        facts={**facts, "file": _one_line(source)[:MAX_TEXT]},
    )
    if reading.link_figures and not measurement.node_of_rank:
        warnings.append(
            "does not say which nodes the ranks were on, without which no costs are predicted from it; "
            "import NODE=FILE says that they were on one"
        )
    elif measurement.times_links:
        if not any(each.latency_s is not None and is_of_a_link(each) for each in reading.link_figures):
            warnings.append("no latency of a link is stated: predictions from this count it as 0")
        if unknown := num_unknown_pairs(measurement):
            warnings.append(
                f"{unknown} pairs of ranks have no bandwidth: predictions take them for the fastest there are"
            )
    return replace(measurement, warnings=tuple(warnings))


def _one_line(text: str) -> str:
    line = re.sub(r"\s+", " ", text).strip()
    return line if len(line) <= _MAX_WARNING else f"{line[:_MAX_WARNING]}…"


def _names() -> str:
    return ", ".join(reader.name for reader in READERS)
