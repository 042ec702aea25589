"""topotune's own topology documents, so that other tools' files can be joined to them."""

import re

from topotune.topology.document import topology_from_bytes
from topotune.topology.formats.reading import Reader, Reading
from topotune.topology.model import Topology

_SCHEMA = re.compile(r'"schema"\s{0,10}:\s{0,10}"topotune/topology"')
_FIRST_LINK = re.compile(r'\s{0,10}\{\s{0,10}"links"\s{0,10}:\s{0,10}\[\s{0,10}\{[^{}]{0,2000}"src"')


def _recognise(text: str) -> bool:
    """By its schema; of a large document, whose keys we sort, by its first link, long before that."""
    if text.lstrip()[:1] != "{":
        return False
    return _SCHEMA.search(text) is not None or _FIRST_LINK.match(text) is not None


def topology_of(text: str, source: str) -> Topology:
    """The topology that a document is.

    Raises:
        InputFileError: as `topology_from_bytes`.
    """
    return topology_from_bytes(text.encode("utf-8", "replace"), source)


def read(text: str, source: str) -> Reading:
    """A document → all that it says.

    Raises:
        InputFileError: as `topology_of`.
    """
    topology = topology_of(text, source)
    return Reading(
        vertices=topology.vertices,
        links=topology.links,
        pairs=topology.pairs,
        ranks=topology.ranks,
        servers=topology.servers,
        facts=topology.source.facts,
        warnings=topology.warnings,
    )


READER = Reader("topotune", "topotune's own JSON", _recognise, read, whole=True)
