"""A topology → the files that other programs read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from topotune.documents import document_text
from topotune.errors import UsageError
from topotune.topology.document import topology_to_document
from topotune.topology.formats.graph_files import write_dot, write_graphml
from topotune.topology.formats.nccl_xml_writing import write_nccl_xml
from topotune.topology.model import Topology

SUMMARIES: Final[Mapping[str, str]] = {
    "nccl-topo-xml": "NCCL's topology file, of one node (NCCL_TOPO_FILE)",
    "json": "topotune's own form",
    "dot": "Graphviz",
    "graphml": "yEd, Gephi, networkx",
}
FORMATS: Final = tuple(SUMMARIES)


@dataclass(frozen=True, slots=True)
class Exported:
    """A file to be.

    Attributes:
        text: what goes into it.
        warnings: what the format could not take, or the topology did not know.
    """

    text: str
    warnings: tuple[str, ...] = ()


def export_topology(topology: Topology, to: str, *, node: str | None = None) -> Exported:
    """Write a topology in a format.

    Args:
        topology: what to write.
        to: one of `FORMATS`.
        node: the one to write, for ``nccl-topo-xml``, which describes one.

    Raises:
        UsageError: no such format, or a topology that does not know enough for it.
    """
    if node is not None and to not in ("nccl-topo-xml", "nccl-xml"):
        raise UsageError(f"--node {node}: {to} holds the whole topology", hint="leave --node out")
    match to:
        case "nccl-topo-xml" | "nccl-xml":  # the latter is what the reader is called
            return Exported(*write_nccl_xml(topology, node))
        case "json":
            return Exported(document_text(topology_to_document(topology)))
        case "dot":
            return Exported(write_dot(topology))
        case "graphml":
            return Exported(write_graphml(topology))
        case _:
            raise UsageError(f"--to {to}: no such format", hint=f"there are: {', '.join(FORMATS)}")
