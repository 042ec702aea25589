"""How samples look, told and never acted on: outliers, autocorrelation, two modes.

None of it moves an interval: the intervals hold whatever the samples look like (`topotune.tune.statistics`).
It tells a reader what the machine or the network was doing while it was measured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from topotune.tune.judge import Confirmation
from topotune.tune.statistics import Samples, autocorrelation, effective_samples, outlier_share, two_modes
from topotune.units import format_bytes, format_seconds

_UNSTABLE: Final = 0.15
"""Share of outliers from which a run says that the machine was unsteady."""

_SLUGGISH: Final = 0.6
"""Correlation of neighbouring samples from which it says so: they count for a quarter of their number."""

_SHOWN: Final = 3
"""Sizes that are named of each kind; the others are counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """How the samples of one arm at one size look.

    Attributes:
        outlier_share: beyond Tukey's fences; none was removed.
        autocorrelation: of a sample with the one before it.
        num_effective: so many independent samples would tell as much.
        modes: lower and upper mode in seconds, and the share of the upper one; None where there is one.
    """

    outlier_share: float
    autocorrelation: float
    num_effective: float
    modes: tuple[float, float, float] | None


def look_at(samples_s: Samples) -> Look:
    """How samples look, in the order in which they were taken; at least one."""
    return Look(
        outlier_share=outlier_share(samples_s),
        autocorrelation=autocorrelation(samples_s),
        num_effective=effective_samples(samples_s),
        modes=two_modes(samples_s),
    )


def look_of_arms(found: Confirmation) -> tuple[Look, Look]:
    """The default's samples and the other arm's."""
    default_s = np.concatenate([default for default, _ in found.blocks])
    other_s = np.concatenate([other for _, other in found.blocks])
    return look_at(default_s), look_at(other_s)


def sample_warnings(confirmations: Sequence[Confirmation]) -> list[str]:
    """What a reader should know of the samples that confirmed or compared; one line of each kind at most."""
    looks = {one.message_bytes: look_of_arms(one) for one in confirmations if one.blocks}
    if not looks:
        return []
    warnings = []
    outliers = float(np.mean([look.outlier_share for both in looks.values() for look in both]))
    if outliers > _UNSTABLE:
        warnings.append(f"{outliers:.0%} of the samples were outliers; none was removed")
    sluggish = [
        f"{format_bytes(size)} ({default.num_effective:.0f} independent ones)"
        for size, (default, _) in looks.items()
        if default.autocorrelation > _SLUGGISH
    ]
    if sluggish:
        warnings.append(
            f"the default's samples follow one another at {_some(sluggish)}: "
            "the machine's speed changed slowly while it was measured"
        )
    modes = [
        f"{format_bytes(size)} ({name}: {format_seconds(look.modes[0])}, and {format_seconds(look.modes[1])} "
        f"in {look.modes[2]:.0%})"
        for size, both in looks.items()
        for name, look in zip(("default", "plan"), both, strict=True)
        if look.modes is not None
    ]
    if modes:
        warnings.append(
            f"times have two modes at {_some(modes)}: two paths through the network, or other work on it"
        )
    return warnings


def _some(items: Sequence[str]) -> str:
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
