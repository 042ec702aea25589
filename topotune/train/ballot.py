"""How all ranks of a group do the same at the same call, and ask nobody in the normal case.

Theory of operation. The calls that a group counts are collectives, in one order on all ranks: none ends on
one rank before all have begun it. So what a rank writes to the store between two calls c and c + 1, and knows
to be written, is there for whoever has ended c + 1. All follows from that, without clocks and waiting:

1. Votes. A rank that wants a trial of some kind of call adds 1 to that kind's counter, and takes it back when
   it no longer does. The one that makes the counter reach the number of ranks publishes a proposal.
2. Checks. Now and then all ranks look for a proposal: before the same call M, which follows from nothing but
   the calls and the plan, once in CHECK_EVERY_NS of the exchange that the plan expects. That is the only
   traffic of a job that nothing has befallen: one question to the store. Between calls M - 1 and M nobody
   votes, so a proposal is there for all of them or for none.
3. Seen. Who has found it says so before M. Before M + 1 all count who has, at this check: if it is all, the
   trial begins with that very call. A rank that could not ask has not said so, and the ballot is closed for
   good on all ranks: the job goes on with its plan.
4. The trial's last call E. Each rank puts its times down before E + 1. Before E + 2 rank 0 reads all of them
   and publishes what follows. Before E + 3 all read that, and E + 3 is the first call to which it applies.

Once it has seen a proposal, a rank that cannot reach the store does not know what the others do: its call
fails, and with it the job, as when any rank is lost.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from torch._C._distributed_c10d import Store

from topotune.errors import RunError

CHECK_EVERY_NS: Final = 10_000_000_000
_CHEAPEST_NS: Final = 20_000
_DEAREST_NS: Final = CHECK_EVERY_NS // 16


class Ballot:
    """The votes of one group, as one rank takes part in them. In the group's queue, one call at a time.

    Args:
        store: where the ranks meet; nobody else writes to it.
        rank: own rank in the group.
        size: of the group, at least 2.
        check_every_ns: exchange that the plan expects between two checks; the same on all ranks.

    Attributes:
        round: number of the ballot, from 0; one more after each trial.
        closed: whether there will be no trial any more.
    """

    def __init__(self, store: Store, rank: int, size: int, *, check_every_ns: int = CHECK_EVERY_NS) -> None:
        self._store = store
        self._connection: Store | None = None
        self._rank = rank
        self._size = size
        self._check_every_ns = check_every_ns
        self._expected_ns = 0
        self._checks_next = False
        self._num_checks = 0
        self._votes: set[int] = set()
        self.round = 0
        self.closed = False

    @property
    def may_vote(self) -> bool:
        """Whether a vote is allowed between this call and the next."""
        return not self._checks_next and not self.closed

    def has_vote(self, kind: int) -> bool:
        """Whether this rank wants a trial of this kind of call, in this round."""
        return kind in self._votes

    def vote(self, kind: int) -> None:
        """Want a trial, from now on. Between two calls, where `may_vote`."""
        self._votes.add(kind)
        try:
            if self._meeting().add(self._key("votes", kind), 1) == self._size and self._is_first():
                self._meeting().set(self._key("proposal"), str(kind))
                # A TCPStore does not answer a `set`; it answers this, when the other is done.
                self._meeting().check([self._key("proposal")])
        except RuntimeError:
            self.closed = True

    def withdraw(self, kind: int) -> None:
        """No longer want it. Between two calls, where `may_vote`."""
        self._votes.remove(kind)
        try:
            self._meeting().add(self._key("votes", kind), -1)
        except RuntimeError:
            self.closed = True

    def look(self, expected_ns: int) -> int | None:
        """Before each call while no trial has been seen: the kind proposed, where this rank has just seen it.

        Args:
            expected_ns: what the plan expects of the call; the same on all ranks.

        Raises:
            RunError: there is a proposal, and the store cannot be told that it was seen.
        """
        if self.closed:
            return None
        if not self._checks_next:
            self._expected_ns += min(max(expected_ns, _CHEAPEST_NS), _DEAREST_NS)
            if self._expected_ns >= self._check_every_ns:
                self._expected_ns, self._checks_next = 0, True
            return None
        self._checks_next = False
        self._num_checks += 1
        try:
            if not self._meeting().check([self._key("proposal")]):
                return None
            kind = int(self._meeting().get(self._key("proposal")))
        except RuntimeError:
            self.closed = True
            return None
        # Whether a request that failed was counted all the same, nobody can know.
        self._surely(lambda store: store.add(self._key("seen", self._num_checks), 1))
        return kind

    def is_seen_by_all(self) -> bool:
        """Before the call after the one before which this rank saw a proposal; ends the ballot if not.

        Raises:
            RunError: the store cannot be reached.
        """
        num_saw: int = self._surely(lambda store: store.add(self._key("seen", self._num_checks), 0))
        self.closed = num_saw != self._size
        return not self.closed

    def put_down(self, times: dict[str, Any]) -> None:
        """After the last call of the trial, before the next one: this rank's part.

        Raises:
            RunError: the store cannot be reached.
        """
        self._surely(lambda store: store.set(self._key("times", self._rank), json.dumps(times)))

    def settle(self, judge: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> None:
        """Before the second call after the trial's last: rank 0 judges what all have put down.

        Raises:
            RunError: the store cannot be reached.
        """
        if self._rank != 0:
            return
        keys = [self._key("times", rank) for rank in range(self._size)]
        heard = self._surely(lambda store: store.multi_get(keys))
        verdict = json.dumps(judge([json.loads(one) for one in heard]))
        self._surely(lambda store: store.set(self._key("verdict"), verdict))

    def outcome(self) -> dict[str, Any]:
        """Before the third call after the trial's last: what rank 0 published. The next round begins.

        Raises:
            RunError: the store cannot be reached.
        """
        verdict: dict[str, Any] = json.loads(self._surely(lambda store: store.get(self._key("verdict"))))
        self.round += 1
        self._votes.clear()
        return verdict

    def _is_first(self) -> bool:
        """Several kinds may get all votes at once, on several ranks; one of them is proposed."""
        return bool(self._meeting().add(self._key("proposals"), 1) == 1)

    def _key(self, name: str, number: int | None = None) -> str:
        return f"{self.round} {name}" if number is None else f"{self.round} {name} {number}"

    def _meeting(self) -> Store:
        """A connection of our own: one serves one waiting caller at a time, and the script may need it."""
        if self._connection is None:
            self._connection = self._store.clone()  # type: ignore[attr-defined]  # torch's stub forgot it
        return self._connection

    def _surely(self, ask: Callable[[Store], Any]) -> Any:
        try:
            return ask(self._meeting())
        except RuntimeError as error:
            raise RunError(
                f"rank {self._rank} of {self._size} could not ask the group's store whether all ranks leave "
                f"the plan: {error}"
            ) from error
