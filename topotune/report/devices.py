"""What GPUs' copies reached, as aligned text: alone by kind, and what sets of them share."""

from collections.abc import Sequence

from topotune.links.device_copy import ALONE, CopyTiming, shared_by
from topotune.units import format_rate

_WORDS = {
    "host-to-device": "host → GPU",
    "device-to-host": "GPU → host",
    "device-to-device": "GPU → GPU",
    "nccl": "NCCL, rank → rank",
}
_MAX_ROWS = 64


def describe_copies(timings: Sequence[CopyTiming]) -> list[str]:
    """Lines; none where nothing was timed."""
    from topotune.report.columns import align

    if not timings:
        return []
    alone = [timing for timing in timings if timing.purpose == ALONE]
    rows = [
        [
            timing.node,
            _WORDS[timing.copy.kind],
            f"{timing.copy.src} → {timing.copy.dst}",
            format_rate(timing.bytes_per_s),
            "" if timing.peer_access is None else "direct" if timing.peer_access else "through the host",
        ]
        for timing in alone
    ]
    parts = ["copies of GPUs, each alone"]
    parts.append(align(["node", "copy", "from → to", "median", ""], rows[:_MAX_ROWS], left=(0, 1, 2, 4)))
    if len(rows) > _MAX_ROWS:
        parts.append(f"  and {len(rows) - _MAX_ROWS} more")
    shared = shared_by(timings)
    if shared:
        parts.append("copies together, against the same copies alone")
        parts.append(
            align(
                ["node", "copies", "alone", "together", "of it"],
                [
                    [
                        one.node,
                        one.purpose,
                        format_rate(one.alone_bytes_per_s),
                        format_rate(one.together_bytes_per_s),
                        f"{100 * one.share:.0f} %",
                    ]
                    for one in shared[:_MAX_ROWS]
                ],
                left=(0, 1),
            )
        )
    return parts
