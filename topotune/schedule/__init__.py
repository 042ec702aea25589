"""Schedules: allreduces written down as data, a generator per algorithm, a proof of each."""

from topotune.schedule.candidates import (
    candidates,
    groupings,
    native_candidates,
    schedule_candidates,
    shared_memory_candidates,
)
from topotune.schedule.catalog import build
from topotune.schedule.document import document_blocks, from_document, read_schedule, to_document
from topotune.schedule.doubling import halving_doubling, recursive_doubling
from topotune.schedule.hierarchical import hierarchical
from topotune.schedule.interpret import interpret
from topotune.schedule.model import COPY, REDUCE, SCHEMA, SCHEMA_VERSION, Params, ParamValue, Schedule
from topotune.schedule.ring import ring
from topotune.schedule.tree import double_binary_tree
from topotune.schedule.verify import Violation, verify

__all__ = [
    "COPY",
    "REDUCE",
    "SCHEMA",
    "SCHEMA_VERSION",
    "ParamValue",
    "Params",
    "Schedule",
    "Violation",
    "build",
    "candidates",
    "document_blocks",
    "double_binary_tree",
    "from_document",
    "groupings",
    "halving_doubling",
    "hierarchical",
    "interpret",
    "native_candidates",
    "read_schedule",
    "recursive_doubling",
    "ring",
    "schedule_candidates",
    "shared_memory_candidates",
    "to_document",
    "verify",
]
