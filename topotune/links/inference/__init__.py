"""From what was measured between nodes to a structure of the network. Pure.

``suspected_groups`` reads the first measurements, ``confirming_tests`` says which flows to run afresh, and
``infer_structure`` gives the verdict when they have run.
"""

from topotune.links.inference.confirm import confirming_tests
from topotune.links.inference.structure import (
    Fault,
    Group,
    Hypothesis,
    Structure,
    Suspect,
    SuspectedGroup,
    Uplink,
)
from topotune.links.inference.suspicion import suspected_groups
from topotune.links.inference.verdict import infer_structure

__all__ = [
    "Fault",
    "Group",
    "Hypothesis",
    "Structure",
    "Suspect",
    "SuspectedGroup",
    "Uplink",
    "confirming_tests",
    "infer_structure",
    "suspected_groups",
]
