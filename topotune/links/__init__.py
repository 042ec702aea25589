"""Timing the links between ranks, and fitting what they cost.

Types and rounds are imported at once; what needs torch (``measure_links``, ``SynchronizedClock``,
``same_node``) or SciPy (fitting, and what rests on it) when it is first asked for: a training job needs
``same_node`` alone.
"""

from typing import TYPE_CHECKING

from topotune.lazy import lazy_attributes
from topotune.links.flows import FlowTest, RoundTripTimes
from topotune.links.measurement import ExchangeTiming, Measurement, PairTiming, median_ci
from topotune.links.model import LinkCost, LinkModel, SharedCapacity
from topotune.links.rounds import rounds

if TYPE_CHECKING:
    from topotune.links.clock import SynchronizedClock
    from topotune.links.document import from_document as measurement_from_document
    from topotune.links.document import to_document as measurement_to_document
    from topotune.links.finding import Finding
    from topotune.links.findings import find
    from topotune.links.fit import fit_links, link_classes
    from topotune.links.inference import (
        Structure,
        confirming_tests,
        infer_structure,
        suspected_groups,
    )
    from topotune.links.inferred import inferred_topology
    from topotune.links.same_node import NodeVerdict, same_node
    from topotune.links.timing import measure_links

__all__ = [
    "ExchangeTiming",
    "Finding",
    "FlowTest",
    "LinkCost",
    "LinkModel",
    "Measurement",
    "NodeVerdict",
    "PairTiming",
    "RoundTripTimes",
    "SharedCapacity",
    "Structure",
    "SynchronizedClock",
    "confirming_tests",
    "find",
    "fit_links",
    "infer_structure",
    "inferred_topology",
    "link_classes",
    "measure_links",
    "measurement_from_document",
    "measurement_to_document",
    "median_ci",
    "rounds",
    "same_node",
    "suspected_groups",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "Finding": "topotune.links.finding",
        "NodeVerdict": "topotune.links.same_node",
        "Structure": "topotune.links.inference",
        "SynchronizedClock": "topotune.links.clock",
        "confirming_tests": "topotune.links.inference",
        "find": "topotune.links.findings",
        "fit_links": "topotune.links.fit",
        "infer_structure": "topotune.links.inference",
        "inferred_topology": "topotune.links.inferred",
        "link_classes": "topotune.links.fit",
        "measure_links": "topotune.links.timing",
        "measurement_from_document": "topotune.links.document:from_document",
        "measurement_to_document": "topotune.links.document:to_document",
        "same_node": "topotune.links.same_node",
        "suspected_groups": "topotune.links.inference",
    },
)
