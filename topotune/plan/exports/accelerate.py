"""Hugging Face Accelerate: arguments of DistributedDataParallelKwargs.

Accelerate hands on only what differs from its own defaults. An exact 25 would be dropped, and DDP would make
its first bucket 1 MiB, so 25 is written a little larger: DDP cuts caps to whole bytes, and the bytes are the
same. There is no list of sizes.
"""

from dataclasses import dataclass
from typing import Any, Final

from topotune.plan import Plan
from topotune.plan.exports.algorithms import lost_tables
from topotune.plan.exports.buckets import one_ddp_cap
from topotune.plan.exports.fragment_texts import read_json, write_json
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions

VERSIONS: Final = Versions(program="Accelerate", oldest=(0, 20), newest=(1, 15))
_OWN_CAP_MB: Final = 25
_SAME_BYTES_MB: Final = 25.0000001
"""int(25.0000001 × 2^20) is 25 × 2^20."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AccelerateSettings:
    """What goes into DistributedDataParallelKwargs.

    Attributes:
        bucket_cap_mb: MiB, never exactly 25; None keeps DDP's own.
    """

    bucket_cap_mb: float | None = None


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """The plan for Accelerate."""
    VERSIONS.chosen(options.version)
    cap, warnings = one_ddp_cap(plan, "Accelerate")
    if cap == _OWN_CAP_MB:
        cap = _SAME_BYTES_MB
    return Translated(
        document=AccelerateSettings(bucket_cap_mb=cap),
        warnings=(*warnings, *lost_tables(plan, "Accelerate")),
    )


def write(settings: AccelerateSettings) -> str:
    """A JSON object of keyword arguments; empty where nothing is set."""
    document: dict[str, Any] = {}
    if settings.bucket_cap_mb is not None:
        document = {"bucket_cap_mb": settings.bucket_cap_mb}
    return write_json(document)


def read(text: str, source: str) -> AccelerateSettings:
    """What `write` wrote."""
    members = read_json(text, source).members((), ("bucket_cap_mb",))
    if not members:
        return AccelerateSettings()
    cap = members["bucket_cap_mb"].number(0.0, 2**20, above=True)
    if cap == _OWN_CAP_MB:
        members["bucket_cap_mb"].fail("is 25, which Accelerate does not hand on to DDP")
    return AccelerateSettings(bucket_cap_mb=cap)


def how_to_use(path: str) -> str:
    """Lines of a training script."""
    return (
        "in the training script\n"
        "  import json\n"
        f"  kwargs = DistributedDataParallelKwargs(**json.load(open({path!r})))\n"
        "  accelerator = Accelerator(kwargs_handlers=[kwargs])"
    )


TARGET: Final = Target(
    name="accelerate",
    summary="arguments of Accelerate's DistributedDataParallelKwargs, JSON",
    versions=str(VERSIONS),
    from_plan=from_plan,
    write=write,
    read=read,
    how_to_use=how_to_use,
)
