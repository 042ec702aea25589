"""What was seen when another program ran with an export, as data and JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

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
    """

    message_bytes: int
    expected: str | None
    verdict: Verdict
    reason: str = ""
    median_s: float | None = None
    own_median_s: float | None = None


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
