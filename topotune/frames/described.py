"""What a machine and a job are, as data frames: topologies, and gradients of a model."""

import pandas as pd

from topotune.frames.frame import ends, frame
from topotune.step.gradients import Gradients
from topotune.topology.model import Topology


def vertices(topology: Topology) -> pd.DataFrame:
    """One row a vertex: ``id kind node index name pci_address model speed_bits_per_s state numa …``."""
    return frame(
        (
            "id", "kind", "node", "index", "name", "pci_address", "model", "speed_bits_per_s", "state",
            "link_layer", "numa", "cpus", "memory_bytes", "pcie_speed_gt_per_s", "pcie_width",
            "pcie_max_speed_gt_per_s", "pcie_max_width",
        ),
        (
            (
                vertex.id, vertex.kind, vertex.node, vertex.index, vertex.name, vertex.pci_address,
                vertex.model, vertex.speed, vertex.state, vertex.link_layer, vertex.numa, vertex.cpus,
                vertex.memory_bytes,
                *(
                    (None,) * 4
                    if (pcie := vertex.pcie) is None
                    else (pcie.speed_gt_per_s, pcie.width, pcie.max_speed_gt_per_s, pcie.max_width)
                ),
            )
            for vertex in topology.vertices
        ),
    )  # fmt: skip


def links(topology: Topology) -> pd.DataFrame:
    """One row a directed link: ``src dst kind lanes bandwidth_bytes_per_s … latency_s origin``."""
    return frame(
        (
            "src", "dst", "kind", "lanes", "bandwidth_bytes_per_s", "bandwidth_bytes_per_s_low",
            "bandwidth_bytes_per_s_high", "latency_s", "distance", "origin",
        ),
        (
            (
                link.src, link.dst, link.kind, link.lanes, link.bandwidth_bytes_per_s,
                *ends(link.bandwidth_ci_bytes_per_s), link.latency_s, link.distance, link.origin,
            )
            for link in topology.links
        ),
    )  # fmt: skip


def ranks(topology: Topology) -> pd.DataFrame:
    """One row a rank, where the topology says where they are: ``rank vertex node``."""
    node_of = {vertex.id: vertex.node for vertex in topology.vertices}
    return frame(
        ("rank", "vertex", "node"),
        ((rank, vertex, node_of[vertex]) for rank, vertex in enumerate(topology.ranks)),
    )


def device_pairs(topology: Topology) -> pd.DataFrame:
    """One row for each two devices of which a tool said how near they are: ``a b path nvlinks``."""
    return frame(
        ("a", "b", "path", "nvlinks"),
        ((pair.a, pair.b, pair.path, pair.nvlinks) for pair in topology.pairs),
    )


def gradients(recorded: Gradients) -> pd.DataFrame:
    """One row a gradient, in the order in which the backward makes them; times are from its start.

    ``ready_s`` is missing where nothing was timed: ``of_backward_percent`` says it in proportion.
    """
    return frame(
        ("number", "gradient_bytes", "dtype", "ready_s", "of_backward_percent"),
        (
            (
                number, one.num_bytes, one.dtype, one.ready_s if recorded.timed else None,
                100 * one.ready_s / recorded.backward_s,
            )
            for number, one in enumerate(recorded.gradients)
        ),
    )  # fmt: skip
