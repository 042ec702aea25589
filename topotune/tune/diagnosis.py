"""How samples look, told and never acted on: outliers, autocorrelation, two modes.

None of it moves an interval: the intervals hold whatever the samples look like (`topotune.tune.statistics`).
It tells a reader what the machine or the network was doing while it was measured. One line says it of every
run (`samples_in_words`); what is out of the usual is a warning, too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from topotune.tune.blocks import Block
from topotune.tune.judge import Confirmation
from topotune.tune.statistics import Samples, autocorrelation, effective_samples, outlier_share, two_modes
from topotune.tune.trial import PLANNED, TWIN, Candidate
from topotune.units import format_bytes, format_seconds

_UNSTABLE: Final = 0.15
"""Share of outliers from which a run says that the machine was unsteady."""

_MANY_DROPPED: Final = 0.1
"""Share of dropped samples from which it says so."""

_SLUGGISH: Final = 0.6
"""Correlation of neighbouring samples from which it says so: they count for a quarter of their number."""

_SHOWN: Final = 3
"""Sizes that are named of each kind; the others are counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """How the samples of one arm at one size look.

    Attributes:
        num_samples: how many there are.
        outlier_share: beyond Tukey's fences; none was removed.
        autocorrelation: of a sample with the one before it.
        num_effective: so many independent samples would tell as much.
        modes: lower and upper mode in seconds, and the share of the upper one; None where there is one.
    """

    num_samples: int
    outlier_share: float
    autocorrelation: float
    num_effective: float
    modes: tuple[float, float, float] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A look, and what it is of.

    Attributes:
        what: the message size, or what else was timed, in words.
        arm: ``default``, or what stood against it.
        look: at its samples.
    """

    what: str
    arm: str
    look: Look


def look_at(samples_s: Samples) -> Look:
    """How samples look, in the order in which they were taken; at least one."""
    return Look(
        num_samples=len(samples_s),
        outlier_share=outlier_share(samples_s),
        autocorrelation=autocorrelation(samples_s),
        num_effective=effective_samples(samples_s),
        modes=two_modes(samples_s),
    )


def seen_of(message_bytes: int, candidate: Candidate, blocks: Sequence[Block]) -> list[Seen]:
    """The default's samples and the other arm's; none where nothing was timed."""
    if not blocks:
        return []
    arm = {PLANNED: "plan", TWIN: "default again"}.get(candidate, candidate.label)
    sides = zip(("default", arm), zip(*blocks, strict=True), strict=True)
    return [
        Seen(what=format_bytes(message_bytes), arm=name, look=look_at(np.concatenate(parts)))
        for name, parts in sides
    ]


def seen_in(confirmations: Iterable[Confirmation]) -> list[Seen]:
    """All samples that confirmed or compared."""
    return [seen for one in confirmations for seen in seen_of(one.message_bytes, one.candidate, one.blocks)]


def samples_in_words(seen: Sequence[Seen], num_dropped: int) -> str | None:
    """One line on all samples, whatever they look like; None where there are none.

    Args:
        seen: what was timed.
        num_dropped: samples of the whole run that do not count, because a rank missed the common start.
    """
    if not seen:
        return None
    num_samples = sum(one.look.num_samples for one in seen)
    outliers = sum(one.look.outlier_share * one.look.num_samples for one in seen) / num_samples
    sluggish = max(seen, key=lambda one: one.look.autocorrelation)
    modes = list(dict.fromkeys(one.what for one in seen if one.look.modes is not None))
    return (
        f"samples: {outliers:.1%} of {num_samples} were outliers, none was removed, "
        f"neighbours correlate by up to {sluggish.look.autocorrelation:.2f} ({sluggish.what}), "
        + (f"two modes at {_some(modes)}" if modes else "none has two modes")
        + f", {num_dropped} dropped because a rank missed the common start"
    )


def dropped_warnings(num_dropped: int, num_taken: int) -> list[str]:
    """A line where many samples do not count because a rank missed the common start."""
    share = num_dropped / max(1, num_taken + num_dropped)
    if share <= _MANY_DROPPED:
        return []
    return [
        f"{share:.0%} of the samples were dropped because a rank missed the common start: "
        "the machine was busy"
    ]


def sample_warnings(seen: Sequence[Seen]) -> list[str]:
    """What a reader should know of the samples; one line of each kind at most."""
    if not seen:
        return []
    warnings = []
    outliers = float(np.mean([one.look.outlier_share for one in seen]))
    if outliers > _UNSTABLE:
        warnings.append(f"{outliers:.0%} of the samples were outliers; none was removed")
    sluggish = {
        one.what: f"{one.what} ({one.look.num_effective:.0f} independent ones)"
        for one in seen
        if one.arm == "default" and one.look.autocorrelation > _SLUGGISH
    }
    if sluggish:
        warnings.append(
            f"the default's samples follow one another at {_some(list(sluggish.values()))}: "
            "the machine's speed changed slowly while it was measured"
        )
    modes = [
        f"{one.what} ({one.arm}: {format_seconds(one.look.modes[0])}, and "
        f"{format_seconds(one.look.modes[1])} in {one.look.modes[2]:.0%})"
        for one in seen
        if one.look.modes is not None
    ]
    if modes:
        warnings.append(
            f"times have two modes at {_some(modes)}: two paths through the network, or other work on it"
        )
    return warnings


def _some(items: Sequence[str]) -> str:
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
