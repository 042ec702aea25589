"""The plan: its model, reading and writing it, finding in it what a group needs. Standard library only."""

from topotune.plan.algorithms import ALGORITHMS, check_params
from topotune.plan.document import canonical_bytes, file_bytes, plan_to_document
from topotune.plan.load import load_plan, plan_from_bytes, plan_from_document
from topotune.plan.lookup import FingerprintVerdict, compare_fingerprints, find_group, find_row
from topotune.plan.model import (
    COLLECTIVES,
    SCHEMA,
    SCHEMA_VERSION,
    Bottleneck,
    Certificate,
    Context,
    Ddp,
    Evidence,
    Fingerprint,
    Group,
    GroupShape,
    HardFingerprint,
    LinkClass,
    Plan,
    Row,
    SoftFingerprint,
)

__all__ = [
    "ALGORITHMS",
    "COLLECTIVES",
    "SCHEMA",
    "SCHEMA_VERSION",
    "Bottleneck",
    "Certificate",
    "Context",
    "Ddp",
    "Evidence",
    "Fingerprint",
    "FingerprintVerdict",
    "Group",
    "GroupShape",
    "HardFingerprint",
    "LinkClass",
    "Plan",
    "Row",
    "SoftFingerprint",
    "canonical_bytes",
    "check_params",
    "compare_fingerprints",
    "file_bytes",
    "find_group",
    "find_row",
    "load_plan",
    "plan_from_bytes",
    "plan_from_document",
    "plan_to_document",
]
