"""Timing the links between ranks, and fitting what they cost.

Types and rounds are imported at once; what needs torch (``measure_links``, ``SynchronizedClock``,
``same_node``) or SciPy (fitting, and what rests on it) when it is first asked for: a training job needs
``same_node`` alone.
"""

from typing import TYPE_CHECKING

from topotune.lazy import lazy_attributes
from topotune.links.measurement import ExchangeTiming, Measurement, PairTiming, median_ci
from topotune.links.model import LinkCost, LinkModel, SharedCapacity
from topotune.links.rounds import rounds

if TYPE_CHECKING:
    from topotune.links.clock import SynchronizedClock
    from topotune.links.document import from_document as measurement_from_document
    from topotune.links.document import to_document as measurement_to_document
    from topotune.links.findings import Finding, find
    from topotune.links.fit import fit_links, link_classes
    from topotune.links.same_node import NodeVerdict, same_node
    from topotune.links.timing import measure_links

__all__ = [
    "ExchangeTiming",
    "Finding",
    "LinkCost",
    "LinkModel",
    "Measurement",
    "NodeVerdict",
    "PairTiming",
    "SharedCapacity",
    "SynchronizedClock",
    "find",
    "fit_links",
    "link_classes",
    "measure_links",
    "measurement_from_document",
    "measurement_to_document",
    "median_ci",
    "rounds",
    "same_node",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "Finding": "topotune.links.findings",
        "NodeVerdict": "topotune.links.same_node",
        "SynchronizedClock": "topotune.links.clock",
        "find": "topotune.links.findings",
        "fit_links": "topotune.links.fit",
        "link_classes": "topotune.links.fit",
        "measure_links": "topotune.links.timing",
        "measurement_from_document": "topotune.links.document:from_document",
        "measurement_to_document": "topotune.links.document:to_document",
        "same_node": "topotune.links.same_node",
    },
)
