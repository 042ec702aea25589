"""What was seen when another program ran with an export, as data and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any, Literal

from topotune.export_check.jobs import Watched

Verdict = Literal["chosen", "same", "own", "other", "not shown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """One size.

    Attributes:
        message_bytes: of the allreduce.
        expected: the program's word for what the plan says; None for its own decision.
        verdict: what was seen: ``chosen``: the plan's algorithm, and not what runs without the export;
            ``same``: the plan's, and it runs without the export as well; ``own``: its own decision;
            ``other``: something else than the plan says; ``not shown``: this size could not be watched.
        reason: why it was not shown, else "".
        median_s: with the export; None where it was not run.
        own_median_s: without it.
        is_slower: with the export even the faster quarter of the calls took longer than three quarters
            without it. The two are separate jobs, so it tells of this run alone.
    """

    message_bytes: int
    expected: str | None
    verdict: Verdict
    reason: str = ""
    median_s: float | None = None
    own_median_s: float | None = None
    is_slower: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """One run of the self-test.

    Attributes:
        program: with its version.
        num_ranks: that were started.
        observations: by size, ascending.
    """

    program: str
    num_ranks: int
    observations: tuple[Observation, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing else than what the plan says was seen."""
        return all(observation.verdict != "other" for observation in self.observations)


def verification_to_json(verification: Verification) -> dict[str, Any]:
    """As part of a JSON document."""
    return asdict(verification) | {"holds": verification.holds}


def observed(
    sizes: Sequence[tuple[int, str | None]], seen: Watched, own: Watched, forced: Mapping[str, Watched]
) -> tuple[Observation, ...]:
    """What each size shows, and how long it took.

    Args:
        sizes: with the word that the plan says there, None for the program's own decision.
        seen: the job with the export.
        own: the job without it.
        forced: word → a job with this algorithm alone.
    """
    digests = {word: watched.digests for word, watched in forced.items()}
    return tuple(
        Observation(
            message_bytes=size,
            expected=word,
            verdict=verdict,
            median_s=median(seen.times_s[size]),
            own_median_s=median(own.times_s[size]),
            is_slower=is_slower(seen.times_s[size], own.times_s[size]),
        )
        for size, word, verdict in judge(sizes, seen.digests, own.digests, digests)
    )


def is_slower(times_s: Sequence[float], own_times_s: Sequence[float]) -> bool:
    """Whether the middle halves of two samples lie apart, the first above the second.

    Args:
        times_s: at least two.
        own_times_s: likewise.
    """
    return quantiles(times_s, n=4)[0] > quantiles(own_times_s, n=4)[2]


def judge(
    sizes: Sequence[tuple[int, str | None]],
    seen: dict[int, str],
    own: dict[int, str],
    forced: dict[str, dict[int, str]],
) -> tuple[tuple[int, str | None, Verdict], ...]:
    """What each size shows.

    Args:
        sizes: with the word that the plan says there, None for the program's own decision.
        seen: size → the calls' digest with the export.
        own: likewise without it.
        forced: word → likewise with this algorithm alone.
    """
    judged: list[tuple[int, str | None, Verdict]] = []
    for size, word in sizes:
        expected = own[size] if word is None else forced[word][size]
        verdict: Verdict
        if seen[size] != expected:
            verdict = "other"
        elif word is None:
            verdict = "own"
        else:
            verdict = "same" if own[size] == expected else "chosen"
        judged.append((size, word, verdict))
    return tuple(judged)
