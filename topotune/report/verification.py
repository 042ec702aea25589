"""What was seen when another program ran with an export, as text."""

from typing import Final

from topotune.export_check.verification import Observation, Verification
from topotune.report.columns import align
from topotune.units import format_seconds

_IN_WORDS: Final = {
    "chosen": "as the plan says",
    "same": "as the plan says, which is also its own decision",
    "own": "its own decision, as the plan says",
    "other": "NOT what the plan says",
    "not shown": "not shown",
}


def describe_verification(verification: Verification) -> str:
    """One line a size: what the plan says there, and what was seen; then where the export was slower."""
    seen = verification.observations
    lines = [
        f"{verification.program}, {verification.num_ranks} ranks: what ran, and its median time with the "
        "export and without",
        align(
            ["message size", "of the plan", "with", "without", "what ran"],
            [_cells(observation) for observation in seen],
            left=(1, 4),
        ),
    ]
    slower = [f"{observation.message_bytes} B" for observation in seen if observation.is_slower]
    if slower:
        lines.append(f"slower here with the export than without it: {', '.join(slower)}")
    elif any(observation.median_s is not None for observation in seen):
        lines.append("at no size slower here with the export than without it")
    return "\n".join(lines)


def _cells(observation: Observation) -> list[str]:
    verdict = _IN_WORDS[observation.verdict]
    return [
        f"{observation.message_bytes} B",
        observation.expected or "own decision",
        _time(observation.median_s),
        _time(observation.own_median_s),
        f"{verdict}: {observation.reason}" if observation.reason else verdict,
    ]


def _time(time_s: float | None) -> str:
    return "–" if time_s is None else format_seconds(time_s)
