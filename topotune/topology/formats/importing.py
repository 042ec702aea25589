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
from topotune.topology.formats.reading import Reader, fitting
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
        for host, capture in _captures(read_capture(path), forced):
            readers = recognised(capture) if forced is None else (forced,)
            if len(files) == 1 and readers == (own_json.READER,) and not is_template:
                return own_json.topology_of(capture.text, capture.source)  # with its own ids and source
            if node is not None and host is not None and host != node:
                raise InputFileError(path, f"is said to be of {node}, and its lines are tagged with {host}")
            _LOG.info("took %s for %s", path, ", ".join(reader.name for reader in readers))
            found = read_capture_parts(capture, None if is_template else node or host, readers)
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


def _captures(capture: Capture, forced: Reader | None) -> list[tuple[str | None, Capture]]:
    """The text as it is, or what each of several writers wrote, by host, where every line is tagged.

    Raises:
        InputFileError: as `untagged`.
    """

    def fits(text: Capture) -> bool:
        return forced.recognise(text.head) if forced is not None else bool(known_in(text))

    return [(None, capture)] if fits(capture) else untagged(capture, fits) or [(None, capture)]


def is_capture(file: str) -> bool:
    """Whether a file is another tool's, in a format that is known; one that cannot be read is none."""
    try:
        captures = _captures(read_capture(node_and_path(file)[1]), None)
        return own_json.READER not in recognised(captures[0][1])
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
            refusals.append(refusal)
        else:
            parts.append(Part(capture.source, node, reader.name, reading))
    if not parts:
        raise refusals[0]
    more = (*capture.warnings, *(f"left out: {refusal.message}" for refusal in refusals))
    first = parts[0]
    parts[0] = replace(first, reading=replace(first.reading, warnings=(*more, *first.reading.warnings)))
    return parts


def node_and_path(file: str) -> tuple[str | None, str]:
    """``NODE=PATH``, unless a file has that very name."""
    named = _NAMED.fullmatch(file)
    if named is None or os.path.lexists(file):
        return None, file
    return named[1], named[2]
