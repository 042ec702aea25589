"""The plan's DDP buckets in the terms of programs that know one size for all.

DDP closes a bucket at a cap, and the plan may name one cap for each bucket: the last repeats. Other programs
fuse gradients into one buffer, of one size. A size that stands for several was not measured. So where DDP
itself does the work and takes one size only, nothing is written and its own sizes stay. Where the fusing is
the program's own, there is no measurement to lose: the cap that repeats is written, bounded by the largest
bucket that the plan's model has.
"""

from dataclasses import dataclass
from typing import Final

from topotune.plan import Plan

MIB: Final = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class OneSize:
    """One bucket size for all.

    Attributes:
        num_bytes: at least 1; None keeps the program's own.
        warnings: what is lost, or that nothing is set.
    """

    num_bytes: int | None
    warnings: tuple[str, ...] = ()


def shown_caps(plan: Plan) -> str:
    """``1, 25 MiB``; at most eight of them."""
    assert plan.ddp is not None
    assert plan.ddp.bucket_caps_mb is not None
    caps = plan.ddp.bucket_caps_mb
    return ", ".join(f"{cap:g}" for cap in caps[:8]) + (", …" if len(caps) > 8 else "") + " MiB"


def caps_of(plan: Plan) -> tuple[float, ...] | None:
    """The caps in MiB, without repetitions at the end (the last repeats anyway); None keeps DDP's own."""
    if plan.ddp is None or plan.ddp.bucket_caps_mb is None:
        return None
    caps = plan.ddp.bucket_caps_mb
    while len(caps) > 1 and caps[-1] == caps[-2]:
        caps = caps[:-1]
    return caps


def keeps_own(program: str) -> str:
    """What is said where the plan has no bucket sizes."""
    return f"the plan keeps DDP's own bucket sizes: there is none to set for {program}"


def one_ddp_cap(plan: Plan, program: str) -> tuple[float | None, tuple[str, ...]]:
    """The cap in MiB for a program that hands one to DDP, and warnings; None keeps DDP's own."""
    caps = caps_of(plan)
    if caps is None:
        return None, (keeps_own(program),)
    if len(caps) == 1:
        return caps[0], ()
    return None, (
        f"{program} takes one bucket size and the plan has {len(caps)} ({shown_caps(plan)}), which were "
        "measured together: DDP's own stay",
    )


def one_size(plan: Plan, program: str) -> OneSize:
    """The size for a program that fuses gradients by itself."""
    caps = caps_of(plan)
    if caps is None:
        return OneSize(num_bytes=None, warnings=(keeps_own(program),))
    assert plan.ddp is not None
    num_bytes = max(1, int(caps[-1] * MIB))
    if plan.ddp.layout_bytes is not None:
        num_bytes = max(1, min(num_bytes, max(plan.ddp.layout_bytes)))
    warnings = [f"the bucket size was measured under DDP, not under {program}"]
    if len(caps) > 1:
        warnings.append(
            f"{program} has one bucket size for all: of the plan's {len(caps)} ({shown_caps(plan)}) the last "
            "is written, which repeats"
        )
    return OneSize(num_bytes=num_bytes, warnings=tuple(warnings))
