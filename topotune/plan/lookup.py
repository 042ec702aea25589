"""Finding what a plan says: the row of a size, the tables of a group, whether it fits a cluster."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from topotune.plan.model import Fingerprint, Group, GroupShape, Plan, Row


def find_row(rows: Sequence[Row], message_bytes: int) -> Row:
    """The row whose range ``[min_bytes, max_bytes)`` holds the message; every size from 0 has exactly one."""
    assert message_bytes >= 0
    return rows[bisect_right(rows, message_bytes, key=_min_bytes) - 1]


def _min_bytes(row: Row) -> int:
    return row.min_bytes


def find_group(plan: Plan, shape: GroupShape) -> Group | None:
    """The tables of process groups of this shape; None where the plan has none."""
    return next((group for group in plan.groups if group.shape == shape), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class FingerprintVerdict:
    """How a plan's fingerprint and the cluster's differ.

    Attributes:
        hard: differences that forbid the plan, one sentence each, with both values.
        soft: differences under which it is used with one warning.
        same_hosts: False: what is bound to hosts (``rank_order``, unequal shards) must be dropped.
    """

    hard: tuple[str, ...]
    soft: tuple[str, ...]
    same_hosts: bool = True


_WORDS = {
    "backend": "backend",
    "device_kind": "kind of device",
    "device_count": "devices per node",
    "world_size": "world size",
    "ranks_per_node": "ranks per node",
    "collective_library": "collective library",
    "hosts": "hosts",
    "driver": "driver",
    "kernel": "kernel",
    "torch": "torch",
}


def compare_fingerprints(plan: Fingerprint, live: Fingerprint) -> FingerprintVerdict:
    """Compare the fingerprint in a plan with that of the cluster which stands before us."""
    return FingerprintVerdict(
        hard=_differences(plan.hard, live.hard),
        soft=_differences(plan.soft, live.soft),
        same_hosts=plan.soft.hosts == live.soft.hosts,
    )


def _differences(plan: Any, live: Any) -> tuple[str, ...]:
    pairs = ((field.name, getattr(plan, field.name), getattr(live, field.name)) for field in fields(plan))
    return tuple(
        f"{_WORDS[name]}: {_shown(wanted)} in the plan, {_shown(found)} here"
        for name, wanted, found in pairs
        if wanted != found
    )


def _shown(value: str | int | tuple[str | int, ...] | None) -> str:
    """A value as people read it; equal items are counted (``4 on each of 16 nodes``), long lists are cut."""
    if value is None:
        return "unknown"
    if not isinstance(value, tuple):
        return str(value)
    if len(value) > 1 and len(set(value)) == 1:
        return f"{value[0]} on each of {len(value)} nodes"
    shown = ", ".join(str(item) for item in value[:4])
    return f"{shown}, … ({len(value)} in all)" if len(value) > 4 else shown
