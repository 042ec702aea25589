"""From rankings to one finalist per size, with few switches between sizes, and fit for training.

This says what is worth confirming; which switches a table may have is decided on fresh samples
(`topotune.tune.smoothing`). Neighbouring sizes that rank two candidates in turn are noise more often than
truth, and each switch takes more points and comparisons to confirm. So sizes are decided
together: each size pays what its finalist loses against the size's fastest (in log-time), each change of
algorithm between neighbours pays a fixed price, and the cheapest assignment is found by dynamic programming.
A loss that the intervals do not establish counts half, so that two neighbouring sizes must agree before
an unclear advantage moves the table.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from topotune.tune.resume import Past
from topotune.tune.sampling import Sampling, num_warmups
from topotune.tune.search import Standing
from topotune.tune.statistics import Comparison, compare_arms, screen_arms
from topotune.tune.trial import DEFAULT, Candidate, Condition

_SWITCH_PRICE: Final = 0.05
"""What a change of algorithm between neighbouring sizes must gain at least, in log-time (5 %).

A single size at an end of the table then gains more than the margin of 2 % twice over, without which it could
not stand alone, and leaves something for its interval. Found by trial, too (`benchmarks/regret.py`, recorded
2x4 and 4x2, 12 seeds, December 2026): with 0, 0.02, 0.04, 0.05, 0.1 and 0.3 the regret is 4.7, 3.7, 3.0, 3.2,
3.9 and 5.9 % at 15 % of the exhaustive time; with 0, 0.04, 0.05 and 0.1 it is 1.1, 1.1, 1.1 and 1.4 % at 60 %
of it.
"""

_LONG_S: Final = 0.05
"""A call of the default that takes longer is timed in fewer rounds, just enough for the question."""

_BACKWARD_ROUNDS, _FEWER_BACKWARD_ROUNDS = 8, 6
_BUSY_ROUNDS, _FEWER_BUSY_ROUNDS = 5, 3
_BUSY_LIMIT: Final = 0.5
"""Default / candidate with the main thread busy in Python: below it, more than twice as slow."""

_BUSY_S: Final = 0.15
"""What Python in the main thread adds to a call, as a first guess: threads take turns of 5 ms."""

_BACKWARD_STRETCH: Final = 1.5
"""A call beside a backward, which is calibrated to last about as long as the default's, over one alone."""

_ROUND_OVERHEAD: Final = 1.3
"""Wall time of a round in a condition over its calls: barriers, agreement."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conditions:
    """How a candidate does at one size beside work of the main thread.

    Attributes:
        backward: default against candidate, time until both the backward and the collective are done.
        busy_ratio: default / candidate while the main thread runs Python, of medians; None where that was
            taken at a smaller size, where what it costs per call weighs more.
    """

    backward: Comparison
    busy_ratio: float | None

    @property
    def problem(self) -> str | None:
        """Why the candidate is unfit for training, or None."""
        if self.busy_ratio is not None and self.busy_ratio < _BUSY_LIMIT:
            return f"{1 / self.busy_ratio:.1f} times as slow as the default while the main thread runs Python"
        if self.backward.high < 1.0:
            return f"slower than the default in a backward (ratio at most {self.backward.high:.2f})"
        return None


def choose_finalists(
    standings: Mapping[int, Sequence[Standing]],
    *,
    min_gain: float,
    unfit: frozenset[tuple[int, Candidate]] = frozenset(),
    beyond: Mapping[Candidate, float] = MappingProxyType({}),
) -> dict[int, Candidate]:
    """One finalist per size: a candidate worth confirming, or the default.

    Args:
        standings: of each size searched.
        min_gain: a candidate that is not faster than the default by this much is no finalist.
        unfit: (size, candidate) pairs that may not be chosen.
        beyond: by candidate of the largest size, what it loses at larger ones that inherit from it.

    Returns:
        size → finalist, ascending. O(sizes × candidates²).
    """
    sizes = sorted(standings)
    losses = [_losses(standings[size], size, min_gain, unfit) for size in sizes]
    if losses:
        losses[-1] = {one: own + beyond.get(one, 0.0) for one, own in losses[-1].items()}
    best: list[dict[Candidate, tuple[float, Candidate | None]]] = []
    for loss in losses:
        if not best:
            best.append({candidate: (own, None) for candidate, own in loss.items()})
            continue
        column: dict[Candidate, tuple[float, Candidate | None]] = {}
        for candidate, own in loss.items():
            cost, source = min(
                (
                    (total + _SWITCH_PRICE * (previous != candidate), previous)
                    for previous, (total, _) in best[-1].items()
                ),
                key=lambda item: item[0],
            )
            column[candidate] = (cost + own, source)
        best.append(column)
    if not best:
        return {}
    chosen = min(best[-1], key=lambda candidate: best[-1][candidate][0])
    path = [chosen]
    for column in reversed(best[1:]):
        before = column[path[-1]][1]
        assert before is not None, "every column after the first remembers where it came from"
        path.append(before)
    return dict(zip(sizes, reversed(path), strict=True))


def measure_conditions(
    sampling: Sampling,
    message_bytes: int,
    candidate: Candidate,
    *,
    default_s: float,
    busy: bool,
    seed: int,
    deadline_s: float,
) -> Conditions | None:
    """Time a candidate against the default in a real backward, and while the main thread runs Python.

    Args:
        sampling: where samples come from.
        message_bytes: the size.
        candidate: which.
        default_s: what the default takes with the main thread idle.
        busy: whether to time beside Python too.
        seed: of the bootstrap.
        deadline_s: on the clock of ``now_s``.

    Returns:
        None where time ran out.

    Raises:
        CandidateFailedError: a call had to be cut off.
    """
    arms = (DEFAULT, candidate)
    backward_rounds, busy_rounds = _num_rounds(default_s)
    busy_ratio = None
    if busy:
        busy_s = sampling.rounds(
            "condition",
            message_bytes,
            arms,
            busy_rounds,
            first_guess_s=_BUSY_S + default_s,
            condition="busy",
            until_s=deadline_s,
        )
        if len(busy_s) < busy_rounds:
            return None
        busy_ratio = screen_arms(busy_s[:, 0], busy_s[:, 1], confidence=0.5).ratio
    backward_s = sampling.rounds(
        "condition",
        message_bytes,
        arms,
        backward_rounds,
        first_guess_s=3 * default_s,
        condition="backward",
        until_s=deadline_s,
    )
    if len(backward_s) < backward_rounds:
        return None
    backward = compare_arms(backward_s[:, 0], backward_s[:, 1], confidence=0.95, seed=seed)
    return Conditions(backward=backward, busy_ratio=busy_ratio)


def condition_cost_s(default_s: float, candidate_s: float, *, busy: bool) -> float:
    """Expected wall time of ``measure_conditions``, from what calls take with the main thread idle."""
    backward_rounds, busy_rounds = _num_rounds(default_s)
    arms_s, warmups = default_s + candidate_s, num_warmups(default_s)
    calls_s = (backward_rounds + warmups) * _BACKWARD_STRETCH * arms_s
    if busy:
        calls_s += (busy_rounds + warmups) * (2 * _BUSY_S + arms_s)
    return _ROUND_OVERHEAD * calls_s


def conditions_recorded(
    past: Past, message_bytes: int, candidate: Candidate, *, default_s: float, busy: bool
) -> bool:
    """Whether an earlier launch of the run has taken all that ``measure_conditions`` needs."""
    backward_rounds, busy_rounds = _num_rounds(default_s)
    wanted: dict[Condition, int] = {"backward": backward_rounds}
    if busy:
        wanted["busy"] = busy_rounds
    return all(
        past.num_recorded(("condition", message_bytes, (DEFAULT, candidate), condition)) >= num_rounds
        for condition, num_rounds in wanted.items()
    )


def _num_rounds(default_s: float) -> tuple[int, int]:
    """Rounds beside a backward, and beside Python."""
    if default_s > _LONG_S:
        return _FEWER_BACKWARD_ROUNDS, _FEWER_BUSY_ROUNDS
    return _BACKWARD_ROUNDS, _BUSY_ROUNDS


def _losses(
    standings: Sequence[Standing], size: int, min_gain: float, unfit: frozenset[tuple[int, Candidate]]
) -> dict[Candidate, float]:
    """Log-time that each possible finalist loses against the fastest of them; the default is always one."""
    able = [
        standing
        for standing in standings
        if standing.comparison.ratio > 1 + min_gain and (size, standing.candidate) not in unfit
    ]
    # Those that the search left behind are for when all others are unfit.
    able = [standing for standing in able if not standing.dropped] or able
    if not able:
        return {DEFAULT: 0.0}
    fastest = max(able, key=lambda standing: standing.comparison.ratio).comparison
    losses = {
        standing.candidate: _loss(fastest, standing.comparison.ratio, standing.comparison.high)
        for standing in able
    }
    losses[DEFAULT] = _loss(fastest, 1.0, 1.0)
    return losses


def _loss(fastest: Comparison, ratio: float, high: float) -> float:
    loss = math.log(fastest.ratio / ratio)
    return loss if high < fastest.low else loss / 2
