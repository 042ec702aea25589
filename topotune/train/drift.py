"""Drift: whether the calls of a group still take what they took, and what all ranks do if they do not.

Theory of operation. Each rank times the calls that the plan's algorithms serve, by their kind: collective,
bytes and type. A `Detector` for each kind learns what is usual at the job's start and finds a lasting change:
this job is compared with itself, compute beside it and all. What the plan says counts once: calls that, when
they have been learnt, take far longer than the plan saw the default take look as if the cluster had changed.

A rank that suspects a kind of call votes for a trial (`Ballot`). Only if all ranks do, there is one: the rank
that comes last to a call sees no waiting in it, so what all ranks see is no straggler. In the trial the plan
and the default take turns. If the default is faster, all ranks use it for that kind of call from one and the
same call on, for the rest of the job; if calls have become slower, but by either, the plan stays; and rank 0
of the group warns, once for either and each collective. If only the waiting has grown, nothing is said but in
the record. What is usual is then learnt anew, and the next trial of that kind must wait twice as long.

All planned collectives of a group are watched and counted together, in the one order that they have on all
ranks. What `Ballot` asks of a counted call holds for each of them: a reduce-scatter and an all-gather, too,
end on no rank before all have begun, since each rank's result has something of every other's in it.

A call's price is that of two clock readings and of keeping a number (`python benchmarks/dispatch.py`).
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum, auto
from typing import Any, Final

from torch._C._distributed_c10d import Store

from topotune.plan import Row, find_row
from topotune.plan.model import Collective
from topotune.step.curve import curves_of_rows
from topotune.train.ballot import CHECK_EVERY_NS, Ballot
from topotune.train.detector import Detector, Rules
from topotune.train.drift_record import RECORD, warn
from topotune.train.kind_of_call import Kind, KindOfCall
from topotune.train.trial import Finding, RankTimes, Verdict, judge, order_of_trial
from topotune.units import format_bytes, format_seconds

MAX_KINDS: Final = 256
"""Kinds of calls that are watched in a group; further ones run by the plan, unwatched."""

_LONGEST_TRIAL: Final = 16384
"""Counted calls after which a trial ends, whatever it has: the job may not make such calls any more. A large
model under FSDP makes some hundreds of calls a step, and of the rarest kind one."""

_UNKNOWN_NS: Final = 1_000_000
"""What is expected of a call where the plan has no evidence: this, and 1 ns a byte."""

_MAX_EVENTS: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftOptions:
    """What tests change.

    Attributes:
        rules: of the detectors.
        check_every_ns: as in `Ballot`.
    """

    rules: Rules = field(default_factory=Rules)
    check_every_ns: int = CHECK_EVERY_NS


OPTIONS = DriftOptions()


@dataclass(frozen=True, kw_only=True, slots=True)
class DriftEvent:
    """The end of a trial.

    Attributes:
        at_s: since the group was made.
        text: one line.
        verdict: equal on all ranks.
    """

    at_s: float
    text: str
    verdict: Verdict


class Phase(Enum):
    """What a group does next about drift; the same at the same call on all ranks."""

    LOOK = auto()
    """Nothing is going on."""
    PROPOSED = auto()
    """A proposal was seen; the next call begins the trial, if all have seen it."""
    TRIAL = auto()
    """Plan and default take turns."""
    PUT_DOWN = auto()
    """The trial has ended; all ranks' times are in the store from the next call on."""
    SETTLE = auto()
    """Rank 0 judges before the next call."""
    APPLY = auto()
    """The verdict is there, and applies from the next call on."""


class _Trial:
    """A trial as it runs: which call is whose, and the times of this rank."""

    def __init__(self, known: KindOfCall, number: int) -> None:
        self.known = known
        self._order = order_of_trial(number)
        self._times_s: list[float] = []
        self._num_counted = 0

    @property
    def runs_plan(self) -> bool:
        """Whether the plan has the next call of this kind."""
        return self._order[len(self._times_s)]

    def count(self, known: KindOfCall | None, time_s: float) -> bool:
        """A call has ended, of this kind or another; whether the trial has."""
        self._num_counted += 1
        if known is self.known:
            self._times_s.append(time_s)
        return len(self._times_s) == len(self._order) or self._num_counted >= _LONGEST_TRIAL

    def times(self) -> RankTimes:
        """What this rank measured, without the pair of warming up."""
        plan_s: list[float] = []
        default_s: list[float] = []
        for first in range(2, len(self._times_s) - 1, 2):
            by_plan, by_default = self._times_s[first : first + 2]
            if not self._order[first]:
                by_plan, by_default = by_default, by_plan
            plan_s.append(by_plan)
            default_s.append(by_default)
        return RankTimes(
            usual_s=self.known.detector.usual_s, plan_s=tuple(plan_s), default_s=tuple(default_s)
        )


class Drift:
    """The watch over one group's planned calls. `begin` and `end` are called in the group's queue, in turn.

    Args:
        store: where the ranks meet; nobody else writes to it.
        rank: own rank in the group.
        size: of the group, at least 2.
        where: what the group is called.
        tables: collective → rows of the plan.
        acts: whether there may be trials; the same on all ranks.

    Attributes:
        kinds: of calls, as they were first made.
        events: trials that have ended, the last ones.
        began_s: when the group was made, by the monotonic clock.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        where: str,
        tables: Mapping[Collective, Sequence[Row]],
        acts: bool = True,
    ) -> None:
        self.where = where
        self.kinds: dict[Kind, KindOfCall] = {}
        self.events: deque[DriftEvent] = deque(maxlen=_MAX_EVENTS)
        self.began_s = time.monotonic()
        self._rank = rank
        self._size = size
        self._tables = tables
        self._curves = {name: curves_of_rows(rows) for name, rows in tables.items()}
        self._rules = OPTIONS.rules
        self._ballot = Ballot(store, rank, size, check_every_ns=OPTIONS.check_every_ns)
        self._ballot.closed = not acts
        self._phase = Phase.LOOK
        self._proposed: KindOfCall | None = None
        self._trial: _Trial | None = None
        self._fallen: set[Kind] = set()
        self._warned: set[tuple[Collective, Finding]] = set()

    def has_fallen(self, kind: Kind) -> bool:
        """Whether the default has taken this kind of call over, as far as calls have run; from any thread."""
        return kind in self._fallen

    @property
    def is_changing(self) -> bool:
        """Whether a trial was proposed whose outcome does not apply yet: others may be in the default."""
        return self._phase is not Phase.LOOK

    def begin(self, kind: Kind, algorithm: str) -> bool:
        """Before a call in its turn: whether the plan's algorithm runs it, and not the default.

        Args:
            kind: of call; not fallen, and served by the algorithm.
            algorithm: that the plan has for it.

        Raises:
            RunError: the ranks agree on a change, and the group's store cannot be reached.
        """
        known = self.kinds.get(kind)
        if known is None and len(self.kinds) < MAX_KINDS:
            known = self.kinds[kind] = self._new_kind(kind, algorithm)
        if self._phase is Phase.LOOK:
            self._look(known)
        else:
            self._go_on()
        if kind in self._fallen:  # from this very call on
            return False
        trial = self._trial
        return trial is None or trial.known is not known or trial.runs_plan

    def end(self, kind: Kind, time_s: float) -> None:
        """After a call in its turn, if it did not fail.

        Args:
            kind: of call.
            time_s: what it took.

        Raises:
            RunError: it ended a trial, and the group's store cannot be reached.
        """
        if kind in self._fallen:
            return
        known = self.kinds.get(kind)
        trial = self._trial
        if trial is not None:
            if trial.count(known, time_s):
                self._ballot.put_down(asdict(trial.times()))
                self._trial, self._phase = None, Phase.PUT_DOWN
            if trial.known is known:
                return
        if known is None:
            return
        known.observe(time_s, time.monotonic(), self.began_s)
        if known.suspect != self._ballot.has_vote(known.number) and self._phase is Phase.LOOK:
            self._vote(known)

    def _vote(self, known: KindOfCall) -> None:
        if not self._ballot.may_vote:
            return
        if known.suspect:
            self._ballot.vote(known.number)
        else:
            self._ballot.withdraw(known.number)

    def document(self) -> dict[str, Any]:
        """What this rank saw, for the record; {} before the first call."""
        if not self.kinds:
            return {}
        return {
            "group": self.where,
            "rank": self._rank,
            "kinds": [known.document() for known in list(self.kinds.values())],
            "trials": [asdict(event) for event in list(self.events)],
        }

    def _look(self, known: KindOfCall | None) -> None:
        proposed = self._ballot.look(_UNKNOWN_NS if known is None else known.expected_ns)
        if proposed is not None:
            self._proposed = next(one for one in self.kinds.values() if one.number == proposed)
            self._phase = Phase.PROPOSED

    def _go_on(self) -> None:
        """The step before a counted call that follows from the one before."""
        match self._phase:
            case Phase.PROPOSED:
                assert self._proposed is not None
                if self._ballot.is_seen_by_all():
                    self._trial, self._phase = _Trial(self._proposed, self._ballot.round), Phase.TRIAL
                else:
                    self._phase = Phase.LOOK
            case Phase.PUT_DOWN:
                self._phase = Phase.SETTLE
            case Phase.SETTLE:
                self._ballot.settle(self._judge)
                self._phase = Phase.APPLY
            case Phase.APPLY:
                self._apply(Verdict(**self._ballot.outcome()))
                self._phase = Phase.LOOK

    def _judge(self, heard: list[dict[str, Any]]) -> dict[str, Any]:
        ranks = [
            RankTimes(usual_s=one["usual_s"], plan_s=tuple(one["plan_s"]), default_s=tuple(one["default_s"]))
            for one in heard
        ]
        return asdict(judge(ranks, order=self._rules.order))

    def _apply(self, verdict: Verdict) -> None:
        """All ranks leave the plan for this kind of call, or go on with it; before the call that is first."""
        known = self._proposed
        assert known is not None
        self._proposed = None
        text = f"{self.where}: {told(known, verdict, self._size)}"
        known.settle(has_fallen=verdict.finding == "worse")
        if known.fallen:
            self._fallen.add(known.kind)
        self.events.append(DriftEvent(at_s=time.monotonic() - self.began_s, text=text, verdict=verdict))
        if self._rank == 0:
            RECORD.write_aside()
            warning = (known.kind[0], verdict.finding)
            if verdict.finding in ("worse", "slower") and warning not in self._warned:
                self._warned.add(warning)
                warn(f"topotune: {text}")

    def _new_kind(self, kind: Kind, algorithm: str) -> KindOfCall:
        collective, num_bytes, _ = kind
        # In integers, of the plan's own figures: their sum is the same on all ranks, whatever the processor.
        evidence = find_row(self._tables[collective], num_bytes).evidence
        if evidence is None:
            expected_ns = _UNKNOWN_NS + num_bytes
        else:
            at = max(1, evidence.measured_bytes)
            expected_ns = round(1e9 * evidence.median_s) * max(at, num_bytes) // at
        curves = self._curves[collective]
        return KindOfCall(
            number=len(self.kinds),
            kind=kind,
            name=algorithm,
            expected_ns=expected_ns,
            plan_s=None if curves is None else curves[0].time_s(num_bytes),
            default_s=None if curves is None else curves[1].time_s(num_bytes),
            detector=Detector(self._rules),
        )


def told(known: KindOfCall, verdict: Verdict, size: int) -> str:
    """A trial in one line, with its figures."""
    collective, num_bytes, _ = known.kind
    plan, default = format_seconds(verdict.plan_s), format_seconds(verdict.default_s)
    what = f"{collective} of {format_bytes(num_bytes)} by {known.name}"
    then = ""
    if verdict.usual_s is not None:
        then = f", {verdict.low_s / verdict.usual_s:.1f} times what was usual"
    if known.starts_slow and known.plan_s is not None:
        then = f", where the plan says {format_seconds(known.plan_s)}"
    pairs = f"faster in {verdict.num_lost} of {verdict.num_pairs} pairs of calls"
    match verdict.finding:
        case "worse":
            return (
                f"{what} takes {plan} now{then}; the default takes {default}, {pairs}: all {size} ranks use "
                "the default for it from here on"
            )
        case "slower":
            return f"{what} takes {plan} now{then}; the default takes {default}, {pairs}: the plan stays"
        case "waiting":
            return f"{what} is as fast as it was ({plan}), ranks wait longer for each other: the plan stays"
        case "undecided":
            return f"{what}: too few calls for a trial ({verdict.num_pairs} pairs): the plan stays"
