"""Taking samples: rounds of arms in random order, cut into short blocks, each trial in the journal.

What stands between the choosing and the bench: it warms each arm up once per size, spaces the starts by what
calls took so far, runs a round again where a rank missed its start, and writes every trial down before and
after. In a run that was resumed it gives out what earlier launches recorded before it measures anew.

It also keeps count of candidates whose calls had to be cut off, and of those that were running when the run
died: after two, a candidate is left out.
"""

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

import numpy as np

from topotune.tune.journal import Journal, TableJournal
from topotune.tune.resume import DEATHS, Past
from topotune.tune.statistics import Samples
from topotune.tune.trial import (
    DEFAULTS,
    PLANNED,
    Bench,
    Block,
    BlockTimes,
    Candidate,
    CandidateFailedError,
    Check,
    Condition,
)
from topotune.units import format_bytes, format_seconds

Purpose = Literal["pilot", "search", "condition", "confirm", "null", "dispatch"]
OnTrial = Callable[[Purpose | Literal["check"], int, Sequence[Candidate]], None]

_LOG: Final = logging.getLogger(__name__)
_BLOCK_S: Final = 0.25
"""Longest block: clocks stay fresh, spacing adapts, and one sleepy rank spoils little."""

_WARMUPS: Final = 2
_LONG_S: Final = 0.05
"""Calls that take longer are warmed up once: what a first call costs more is small beside them."""

_ON_CLOCK: Final = 2
"""So many times the rounds that are wanted are asked for at common starts. What is missing then runs behind a
barrier, where no rank can miss a start: so every size can be timed."""

_GUESS_STRETCH: Final = 1.5
"""Starts are this much further apart than a call is guessed to take, until some were timed."""

BUSY_PATIENCE: Final = 5.0
"""Calls may take this many times their limit while main threads run Python: where they outnumber the cores,
gloo's own allreduce of 4 KiB was seen to wait 2.2 s for one (4 ranks on 2 cores, 2026)."""

_USUAL_STRETCH: Final = 1.45
"""Wall time of rounds over that of their calls, before any that take about as long were timed."""

_ENOUGH_BLOCKS, _NEAR = 15, math.log(4.0)
_INSTANT_S: Final = 1e-9
_MARGIN: Final = 1.05
_RECENT: Final = 24

_MISSED_SHARE, _ENOUGH_TO_JUDGE = 0.25, 12
"""Where more than this share of so many starts is missed, ranks get no cores in time: a barrier must do."""


@dataclass(kw_only=True)
class Sampling:
    """Takes samples from a bench.

    Attributes:
        bench: what measures.
        rng: for the order of arms.
        journal: where trials are recorded; None in runs that keep no record.
        dropped: samples that were dropped because a rank missed the start, so far.
        taken: samples that were kept, so far.
        past: what earlier launches of this run recorded; it is used up.
        limit_s: what a call of a candidate at a size may take until it is cut off.
        on_trial: called before each block and check, between timed calls: for what, which size, which arms.
        deaths: by candidate, how often it was cut off or was running when the run died.
        failures: why, the last time that a call of it was cut off, by candidate.
        failed: sizes and candidates with a wrong result there, or a call that was cut off.
    """

    bench: Bench
    rng: np.random.Generator
    journal: Journal | TableJournal | None = None
    dropped: int = 0
    taken: int = 0
    past: Past = field(default_factory=Past)
    limit_s: Callable[[Candidate, int], float | None] = lambda _candidate, _message_bytes: None
    failures: dict[Candidate, str] = field(default_factory=dict)
    failed: set[tuple[int, Candidate]] = field(default_factory=set)
    on_trial: OnTrial = lambda _purpose, _message_bytes, _arms: None
    _recent_s: dict[tuple[int, Candidate, Condition], list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _stretches: list[tuple[float, float]] = field(default_factory=list)
    """Of each block: log of a call's time, and wall time over its calls."""
    _starts: dict[int, tuple[int, int]] = field(default_factory=dict)
    _warm: set[tuple[int, Candidate, Condition]] = field(default_factory=set)
    _stale: set[tuple[int, Candidate, Condition]] = field(default_factory=set)
    """Called before, in a check or on connections that are gone."""
    _checks: dict[tuple[int, Candidate], Check] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.deaths = Counter(self.past.deaths)
        self._checks.update(self.past.checks)

    def now_s(self) -> float:
        """Seconds since the ranks joined."""
        return self.bench.now_s()

    def is_left_out(self, candidate: Candidate) -> bool:
        """Whether it was cut off, or was running when the run died, too often to be tried again."""
        return self.deaths[candidate] >= DEATHS

    def is_suspect(self, candidate: Candidate) -> bool:
        """Whether that has happened to it: then it runs alone, so that no other is blamed the next time."""
        return self.deaths[candidate] > 0

    def why_left_out(self, candidate: Candidate) -> str:
        """In words."""
        words = f"it was running {self.deaths[candidate]} times when it had to be cut off or the run died"
        return f"{words} ({self.failures[candidate]})" if candidate in self.failures else words

    def check(self, candidate: Candidate, message_bytes: int) -> str | None:
        """What speaks against timing the candidate at this size, or None; its result is checked once."""
        if self.is_left_out(candidate):
            return self.why_left_out(candidate)
        key = (message_bytes, candidate)
        if key not in self._checks:
            self.on_trial("check", message_bytes, (candidate,))
            number = self._begin("check", message_bytes, (candidate,), 1, "idle")
            limit_s = self.limit_s(candidate, message_bytes)
            check = self._checks[key] = self.bench.check(candidate, message_bytes, limit_s=limit_s)
            _LOG.info(
                "check %s of %s: %s",
                candidate.label,
                format_bytes(message_bytes),
                check.broken or check.problem or "right",
            )
            call_s = None if math.isnan(check.call_s) else check.call_s
            self._end(number, {"problem": check.problem, "call_s": call_s, "broken": check.broken})
            if check.broken is not None:
                self._count(candidate, message_bytes, check.broken)
            else:  # its calls have warmed it up, if not in the buffer that is timed
                self._stale.add((message_bytes, candidate, "idle"))
        problem = self._checks[key].broken or self._checks[key].problem
        if problem is not None:
            self.failed.add(key)
        return problem

    def checked_s(self, candidate: Candidate, message_bytes: int) -> float:
        """What a call took in the check of the candidate at this size; NaN where that is not known."""
        check = self._checks.get((message_bytes, candidate))
        return math.nan if check is None else check.call_s

    def stretch(self, call_s: float) -> float:
        """Wall time of rounds over that of their calls, as it was for calls that took about so long.

        Starts are spaced, ranks agree on each block: beside short calls that is more than the calls.
        """
        log_s = math.log(max(_INSTANT_S, call_s))
        near = sorted(
            (abs(log - log_s), found) for log, found in self._stretches if abs(log - log_s) <= _NEAR
        )
        return float(np.median([found for _, found in near[:_ENOUGH_BLOCKS]])) if near else _USUAL_STRETCH

    def renew(self) -> None:
        """New connections for all arms: the rounds that follow are a block of their own.

        Each arm is warmed up once more; not where its calls are long, beside which a new connection's first
        round trips are nothing.
        """
        self.bench.renew()
        self._stale |= self._warm
        self._warm.clear()

    def rounds(
        self,
        purpose: Purpose,
        message_bytes: int,
        arms: Sequence[Candidate],
        num_rounds: int,
        *,
        first_guess_s: float,
        condition: Condition = "idle",
        until_s: float = math.inf,
    ) -> Samples:
        """Time the arms in ``num_rounds`` whole rounds.

        Args:
            purpose: for the journal.
            message_bytes: buffer on each rank, a multiple of 4.
            arms: what is timed; the first is usually the default.
            num_rounds: rounds in which no rank missed its start.
            first_guess_s: how long a call may take, for arms not yet timed at this size.
            condition: what the main thread does meanwhile.
            until_s: no block starts after this time (of ``now_s``), but one always runs.

        Returns:
            Seconds, shape (rounds, arms), without NaN; fewer than ``num_rounds`` where time ran out.

        Raises:
            CandidateFailedError: a call had to be cut off, or broke down; what was timed is lost.
        """
        recorded = self.past.take((purpose, message_bytes, tuple(arms), condition), num_rounds)
        for times_s, arm in zip(recorded.T, arms, strict=True):
            self._recent_s[message_bytes, arm, condition].extend(times_s[-_RECENT:].tolist())
        if len(recorded) == num_rounds:
            return recorded
        number = self._begin(purpose, message_bytes, arms, num_rounds - len(recorded), condition)
        blocks: list[BlockTimes] = []
        whole: list[Samples] = list(recorded)
        asked = 0
        while (missing := num_rounds - len(whole)) > 0 and (not blocks or self.now_s() < until_s):
            # A round of many arms is lost with any of them.
            on_clock = asked < _ON_CLOCK * num_rounds
            block = self._block(message_bytes, arms, missing, first_guess_s, condition, on_clock=on_clock)
            asked += len(block.orders)
            self.on_trial(purpose, message_bytes, arms)
            began_s = self.now_s()
            times = self.bench.run(block)
            if times.broken is not None:
                failed = arms[times.broken.arm]
                self._end(number, {**_outcome(blocks), "broken": asdict(times.broken)})
                self._count(failed, message_bytes, times.broken.why)
                raise CandidateFailedError(failed, times.broken.why)
            blocks.append(times)
            self._learn(block, times, self.now_s() - began_s)
            if not all(self._recent_s[message_bytes, arm, condition] for arm in arms):
                first_guess_s *= 2  # every start after some arm was missed: it takes far longer than guessed
            whole.extend(row for row in times.times_s if not np.isnan(row).any())
        self._end(number, _outcome(blocks))
        times_s = np.array(whole, dtype=np.float64).reshape(len(whole), len(arms))
        if whole and _LOG.isEnabledFor(logging.INFO):
            medians_s = zip(arms, np.median(times_s, axis=0), strict=True)
            found = ", ".join(f"{arm.label} {format_seconds(median_s)}" for arm, median_s in medians_s)
            _LOG.info("%s of %s, %d rounds: %s", purpose, format_bytes(message_bytes), len(whole), found)
        return times_s

    def _block(
        self,
        message_bytes: int,
        arms: Sequence[Candidate],
        num_rounds: int,
        first_guess_s: float,
        condition: Condition,
        *,
        on_clock: bool,
    ) -> Block:
        keys = [(message_bytes, arm, condition) for arm in arms]
        known = [self._recent_s.get(key) for key in keys]
        expected = [spacing_s(recent) if recent else _GUESS_STRETCH * first_guess_s for recent in known]
        affordable = max(1, int(_BLOCK_S / sum(expected)))
        if not all(known):
            affordable = min(affordable, 2)  # a guess may be far off
        return Block(
            message_bytes=message_bytes,
            arms=tuple(arms),
            orders=tuple(
                tuple(int(arm) for arm in self.rng.permutation(len(arms)))
                for _ in range(min(num_rounds, affordable))
            ),
            expected_s=tuple(expected),
            warmups=tuple(
                0 if key in self._warm else num_warmups(call_s, again=key in self._stale)
                for key, call_s in zip(keys, expected, strict=True)
            ),
            limits_s=tuple(self._limit_s(arm, message_bytes, condition) for arm in arms),
            condition=condition,
            # Work beside the collective makes calls long beside a barrier's skew, and their times hard to
            # foresee.
            scheme="clock"
            if on_clock and condition == "idle" and not self._misses_too_many(message_bytes)
            else "barrier",
        )

    def _learn(self, block: Block, times: BlockTimes, took_s: float) -> None:
        assert times.scheme == "clock" or times.num_missed == 0, "nobody misses a start behind a barrier"
        kept = ~np.isnan(times.times_s)
        if block.condition == "idle" and kept.any():
            # A call that missed its start took its time all the same.
            call_s = float(np.nanmean(times.times_s))
            calls_s = call_s * (times.times_s.size + sum(block.warmups))
            self._stretches.append(
                (math.log(max(_INSTANT_S, call_s)), max(1.0, took_s / max(_INSTANT_S, calls_s)))
            )
        self.taken += int(kept.sum())
        self.dropped += times.num_missed
        for index, arm in enumerate(block.arms):
            key = (block.message_bytes, arm, block.condition)
            if kept[:, index].any():
                self._warm.add(key)
            self._recent_s[key] = [
                *self._recent_s[key],
                *(float(time_s) for time_s in times.times_s[kept[:, index], index]),
            ][-_RECENT:]
        if block.scheme == "clock":
            missed, starts = self._starts.get(block.message_bytes, (0, 0))
            self._starts[block.message_bytes] = (missed + times.num_missed, starts + times.times_s.size)

    def _limit_s(self, arm: Candidate, message_bytes: int, condition: Condition) -> float | None:
        limit_s = None if arm in DEFAULTS or arm == PLANNED else self.limit_s(arm, message_bytes)
        return limit_s if limit_s is None or condition != "busy" else BUSY_PATIENCE * limit_s

    def _count(self, candidate: Candidate, message_bytes: int, why: str) -> None:
        self.deaths[candidate] += 1
        self.failed.add((message_bytes, candidate))
        self.failures[candidate] = f"at {format_bytes(message_bytes)}: {why}"

    def _misses_too_many(self, message_bytes: int) -> bool:
        missed, starts = self._starts.get(message_bytes, (0, 0))
        return starts >= _ENOUGH_TO_JUDGE and missed > _MISSED_SHARE * starts

    def _begin(
        self, kind: str, message_bytes: int, arms: Sequence[Candidate], num_rounds: int, condition: Condition
    ) -> int:
        if self.journal is None:
            return 0
        return self.journal.begin(
            {
                "kind": kind,
                "message_bytes": message_bytes,
                "arms": [arm.to_json() for arm in arms],
                "num_rounds": num_rounds,
                "condition": condition,
                "at_s": self.now_s(),
            }
        )

    def _end(self, number: int, outcome: dict[str, Any]) -> None:
        if self.journal is not None:
            self.journal.end(number, {**outcome, "at_s": self.now_s()})


def num_warmups(call_s: float, *, again: bool = False) -> int:
    """Calls of an arm before its first that counts, at each size and in each condition.

    Args:
        call_s: what one takes.
        again: whether it was warm before its connections were made anew.
    """
    return (1 if call_s > _LONG_S else _WARMUPS) - again


def spacing_s(recent_s: Sequence[float]) -> float:
    """How far after a call the next one should start: what costs least time per kept sample.

    A wider spacing wastes time after every call, a narrower one loses the sample after each call that takes
    longer. Of the times seen, the one that costs least per share of the calls that it holds.

    Args:
        recent_s: what calls took, seconds, at least one.
    """
    ordered = sorted(recent_s)
    if len(ordered) < 3:
        return _GUESS_STRETCH * ordered[-1]
    # The share counts twice: a lost sample costs the others of its round too.
    costs = (time_s * (len(ordered) / held) ** 2 for held, time_s in enumerate(ordered, start=1))
    return _MARGIN * min(zip(costs, ordered, strict=True))[1]


def _outcome(blocks: Sequence[BlockTimes]) -> dict[str, Any]:
    """Every sample, as JSON: null where it was dropped."""
    return {
        "times_s": [
            [None if math.isnan(time_s) else float(time_s) for time_s in row]
            for block in blocks
            for row in block.times_s
        ],
        "num_missed": sum(block.num_missed for block in blocks),
        "schemes": sorted({block.scheme for block in blocks}),
    }
