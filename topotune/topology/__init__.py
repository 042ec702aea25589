"""The topology of a machine or cluster: the model, its JSON form, and what can be asked of it."""

from topotune.topology.document import topology_from_bytes, topology_from_document, topology_to_document
from topotune.topology.fingerprint import structure_hash
from topotune.topology.model import Link, NvlinkPort, Pair, PcieLink, Source, Topology, Vertex
from topotune.topology.overview import summary
from topotune.topology.paths import Paths
from topotune.topology.rates import nvlink_bandwidth_bytes_per_s, pcie_bandwidth_bytes_per_s
from topotune.topology.text import render

__all__ = [
    "Link",
    "NvlinkPort",
    "Pair",
    "Paths",
    "PcieLink",
    "Source",
    "Topology",
    "Vertex",
    "nvlink_bandwidth_bytes_per_s",
    "pcie_bandwidth_bytes_per_s",
    "render",
    "structure_hash",
    "summary",
    "topology_from_bytes",
    "topology_from_document",
    "topology_to_document",
]
