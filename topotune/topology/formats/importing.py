"""Files from outside → one topology."""

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import replace

from topotune.errors import InputFileError, UsageError
from topotune.topology.formats import own_json
from topotune.topology.formats.capture import Capture, read_capture
from topotune.topology.formats.catalog import known_in, reader_named, recognised
from topotune.topology.formats.devices import Part
from topotune.topology.formats.fabric_adapters import with_own_adapters, with_templates
from topotune.topology.formats.join import join
from topotune.topology.formats.reading import THIS_NODE, Reader, fitting
from topotune.topology.formats.tagged_lines import untagged
from topotune.topology.model import Topology

_LOG = logging.getLogger(__name__)
MAX_FILES = 10_000

_NAMED = re.compile(r"([\w.*?-]{1,64})=(.+)", re.DOTALL)
_WILD = re.compile(r"[*?]")


def read_files(files: Sequence[str], *, format_name: str | None = None) -> Topology:
    """Read files and join what they prove.

    Args:
        files: paths; ``NODE=PATH`` says which node a file is of. A ``NODE`` with ``*`` or ``?`` stands for
            all hosts of the other files' fabric with such names that have no file of their own.
        format_name: what all of them are, instead of recognising it.

    Raises:
        InputFileError: a file that cannot be read, is in no known format, or contradicts another.
        UsageError: no file, too many, no such format, or it cannot be told which node a file is of.
    """
    if not files:
        raise UsageError("no file was given", hint="topotune import topo.xml topo-m.txt -o machine.json")
    if len(files) > MAX_FILES:
        raise UsageError(f"{len(files)} files were given, more than {MAX_FILES}")
    forced = None if format_name is None else reader_named(format_name)
    parts: list[Part] = []
    templates: dict[str, list[Part]] = {}
    for file in files:
        node, path = node_and_path(file)
        is_template = node is not None and _WILD.search(node) is not None
        capture = read_capture(path)
        if len(files) == 1 and not is_template and _is_own(capture, forced):
            return own_json.topology_of(capture.text, capture.source)  # as it is, with its ids and source
        found = _parts_of(capture, None if is_template else node, forced)
        if is_template:
            assert node is not None
            templates.setdefault(node, []).extend(found)
        else:
            parts += found
    if templates and not parts:
        raise UsageError(
            f"{next(iter(templates))}=…: there is no file that names hosts",
            hint="give a fabric's file as well: topotune import topology.conf '*=node.xml'",
        )
    topology = with_own_adapters(join(parts))
    if not templates:
        return topology
    return with_templates(topology, {pattern: join(group) for pattern, group in templates.items()})


def _is_own(capture: Capture, forced: Reader | None) -> bool:
    readers = known_in(capture) if forced is None else (forced,)
    return readers == (own_json.READER,)


def _parts_of(capture: Capture, node: str | None, forced: Reader | None) -> list[Part]:
    """What a text proves as it is; if it cannot be read, what its writers wrote, without their tags.

    Raises:
        InputFileError: as `recognised`, `read_capture_parts` and `untagged`, or tags name another node.
    """

    def readers_of(text: Capture) -> tuple[Reader, ...]:
        readers = recognised(text) if forced is None else (forced,)
        _LOG.info("took %s for %s", text.source, ", ".join(reader.name for reader in readers))
        return readers

    def fits(text: Capture) -> bool:
        return bool(known_in(text)) if forced is None else forced.recognise(text.head)

    try:
        return read_capture_parts(capture, node, readers_of(capture))
    except InputFileError:
        texts = untagged(capture, fits)
        if not texts:
            raise
    parts = []
    for host, text in texts:
        if None not in (node, host) and host != node:
            raise InputFileError(
                capture.source, f"is said to be of {node}, and its lines are tagged with {host}"
            )
        found = read_capture_parts(text, node, readers_of(text))
        parts += found if node is not None else [_on(part, host) for part in found]
    return parts


def _on(part: Part, host: str | None) -> Part:
    """A part of the host that its lines were tagged with, unless it names the hosts that it is of itself."""
    is_of_one = any(vertex.node == THIS_NODE for vertex in part.reading.vertices)
    return replace(part, node=host) if is_of_one else part


def is_capture(file: str) -> bool:
    """Whether a file is another tool's, in a format that is known; one that cannot be read is none."""
    try:
        capture = read_capture(node_and_path(file)[1])
        known = known_in(capture)
        return (
            own_json.READER not in known
            if known
            else bool(untagged(capture, lambda text: bool(known_in(text))))
        )
    except InputFileError:
        return False


def read_capture_parts(capture: Capture, node: str | None, readers: Sequence[Reader]) -> list[Part]:
    """What each reader finds in one text; the text's own faults stand with the first.

    Where several outputs were recognised in one text, one that cannot be taken is left out with its reason.

    Raises:
        InputFileError: none can be taken.
    """
    parts: list[Part] = []
    refusals: list[InputFileError] = []
    for reader in readers:
        try:
            reading = fitting(reader.read(capture.text, capture.source))
        except InputFileError as refusal:
            refusal.hint = refusal.hint or how_it_was_read(reader.name, reader.what)
            refusals.append(refusal)
        else:
            parts.append(Part(capture.source, node, reader.name, reading))
    if not parts:
        raise refusals[0]
    more = (*capture.warnings, *(f"left out: {refusal.message}" for refusal in refusals))
    first = parts[0]
    parts[0] = replace(first, reading=replace(first.reading, warnings=(*more, *first.reading.warnings)))
    return parts


def how_it_was_read(name: str, what: str) -> str:
    """For a hint: what a text was taken for, and what to do where it is none, or none that is whole.

    Args:
        name: of the format.
        what: it is, in a few words.
    """
    return f"it was read as {name} ({what}); capture it anew and whole, or say what it is by --format"


def node_and_path(file: str) -> tuple[str | None, str]:
    """``NODE=PATH``, unless a file has that very name."""
    named = _NAMED.fullmatch(file)
    if named is None or os.path.lexists(file):
        return None, file
    return named[1], named[2]
