"""Timing one allreduce on real ranks, from a common start on synchronised clocks to the last rank's end.

Theory of operation. Rank 0 drives, all others follow: they wait for its next command, do it, and tell each
other what they saw. A block of samples is agreed at once. After the warm-up calls every rank says on the
common clock when it was ready; the first start lies a little after the last of them, and each further one
after what the call before is expected to take. A rank that comes too late for a start says so, and that
sample is dropped and counted: a barrier before each sample would leave a skew as large as a small collective.
A sample is the time from the common start to the last rank's end, so it holds what a late rank costs
everybody.

Where the clocks agree too poorly for the size (nodes far apart, small messages) every sample begins with a
barrier, and its time is the slowest rank's own duration.

The default is timed on a raw gloo group as ``dist.all_reduce``, candidates on the ``topotune`` group by the
same call, so that dispatch counts. Connections have luck of their own, so both get new ones between blocks of
rounds that are to be independent.

A candidate's call that does not end within its limit is cut off: its private connections are closed, which
ends it on every rank, on each at its own call. A rank that has left such a call makes no more of candidates
in this block, and all its calls of the default, which others wait for. At the end of the block all ranks tell
each other where they stopped, and so all of them, or none, make the private connections anew; the raw group
and the one for commands never notice. The earliest call that failed anywhere is the one to blame.

Source: round-time synchronisation of ReproMPI; reference: Hunold and Carpen-Amarie, "Reproducible MPI
benchmarking is still not as easy as you think", TPDS 2016.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist

from topotune.errors import TopotuneError, WrongResultError, error_from_json, error_to_json
from topotune.execute import Communicator, check_exact
from topotune.links.clock import SynchronizedClock
from topotune.links.messages import Messages
from topotune.plan.nccl import NCCL
from topotune.schedule.model import Params
from topotune.train.process_group import ProcessGroupTopotune
from topotune.tune.calls import Calls
from topotune.tune.points import ELEMENT_BYTES
from topotune.tune.trial import (
    DEFAULT,
    DEFAULTS,
    DISPATCHED,
    PLANNED,
    TWIN,
    WRAPPED,
    Block,
    BlockTimes,
    Broken,
    Candidate,
    Check,
    Condition,
    Scheme,
)
from topotune.tune.workload import Backward, batch_for, python_until_done
from topotune.units import format_bytes

_LEAD_S: Final = 1.5e-3
"""From the last rank's ready to the first start: ranks hear of it up to an exchange later."""

_GAP_S: Final = 2e-4
"""Added between samples: setting the algorithm, waking from sleep."""

_LATE_S, _LATE_SHARE = 1e-4, 0.1
"""A rank that is later than both has missed the common start: waking from sleep costs 50-100 µs."""

_CLOCK_SHARE: Final = 0.1
"""Clocks that may be wrong by more than this share of a call's time are too poor for it."""

_SYNC_EVERY_S: Final = 5.0
_SHORTEST_BACKWARD_S, _LONGEST_BACKWARD_S = 2e-3, 5e-2


class Station:
    """One rank's part in every measurement.

    Args:
        planned: the ``topotune`` group of all ranks.
        raw: a group of the same ranks on the library that is tuned.
        private: for commands, clocks and results; nobody else's.
        node_of_rank: verified node numbers.
        fresh_raw: makes one more group of the same ranks, like ``raw``; collective.

    Attributes:
        device: where messages are.
    """

    def __init__(
        self,
        planned: ProcessGroupTopotune,
        raw: dist.ProcessGroup,
        private: Communicator,
        node_of_rank: tuple[int, ...],
        fresh_raw: Callable[[], dist.ProcessGroup] = lambda: dist.new_group(backend="gloo"),
    ) -> None:
        self.messages = Messages(private.group)
        self.clock = SynchronizedClock(private.group, node_of_rank=node_of_rank)
        self.device = torch.device("cpu")
        self._planned = planned
        self._first_raw = self._raw = raw
        self._fresh_raw = fresh_raw
        self._twin: dist.ProcessGroup | None = None
        self._private = private
        self._tensor = torch.zeros(0)
        self._backward: tuple[int, Backward] | None = None
        self._sent: tuple[torch.Tensor, ...] = ()
        self._built: set[Candidate] = set()
        self._others: dict[str, Callable[[Mapping[str, Any]], Any]] = {}

    def serve(self, name: str, do: Callable[[Mapping[str, Any]], Any]) -> None:
        """Have commands of this name carried out by a function; on all ranks, before the first of them."""
        self._others[name] = do

    def follow(self) -> TopotuneError | None:
        """Do what rank 0 commands until it commands to end; with what it gave up, if it did."""
        while (command := self.hear())["do"] != "end":
            if command["do"] == "fail":
                return error_from_json(command["error"])
            self.do(command)
        return None

    def tell(self, command: Mapping[str, Any]) -> None:
        """Rank 0: send a command to all others."""
        data = torch.frombuffer(bytearray(json.dumps(command).encode()), dtype=torch.uint8)
        length = torch.tensor([len(data)])
        others = range(1, self.messages.size)
        started = [(rank, self.messages.start_send(part, rank)) for rank in others for part in (length, data)]
        for rank, work in started:
            with self.messages.talking_to(rank, "passing a command on"):
                work.wait()
        # The sending thread lets go of the tensors a moment after the wait ends: they live until the next
        # command.
        self._sent = (length, data)

    def hear(self) -> dict[str, Any]:
        """Other ranks: the next command of rank 0."""
        length = torch.zeros(1, dtype=torch.int64)
        with self.messages.talking_to(0, "waiting for its next command"):
            self.messages.start_recv(length, 0).wait()
            data = torch.zeros(int(length), dtype=torch.uint8)
            self.messages.start_recv(data, 0).wait()
        command: dict[str, Any] = json.loads(bytes(data.tolist()))
        return command

    def do(self, command: Mapping[str, Any]) -> Any:
        """Carry out a command, together with all other ranks; the result is the same on all of them."""
        if command["do"] == "sync":
            return self._sync()
        if command["do"] == "check":
            arm = Candidate.of(command["arm"]["algorithm"], command["arm"]["params"])
            return self._check(arm, command["message_bytes"], command["limit_s"])
        if command["do"] == "renew":
            return self._renew()
        if command["do"] == "arrange":
            order = command["rank_order"]
            self._planned.rank_order = None if order is None else tuple(order)
            return None
        if command["do"] in self._others:
            return self._others[command["do"]](command)
        assert command["do"] == "block", command["do"]
        return self._run(Block.from_json(command["block"]), command["scheme"], command["batch"])

    def _sync(self) -> float:
        """Synchronise the clocks; the worst rank's error in seconds."""
        self.clock.sync()
        return max(error_s for (error_s,) in self.messages.gather_numbers(self.clock.max_error_s))

    def _renew(self) -> None:
        """New connections for the default and for candidates; the first raw group stays: others hold it."""
        gone = [group for group in (self._raw, self._twin) if group not in (None, self._first_raw)]
        self._raw, self._twin = self._fresh_raw(), None
        self._renew_planned()
        for group in gone:
            dist.destroy_process_group(group)

    def _check(self, arm: Candidate, message_bytes: int, limit_s: float | None) -> dict[str, Any]:
        before = self._planned.calls["allreduce", arm.algorithm]
        calls = Calls(self._planned)
        self._build((arm,), (limit_s,), calls)
        self._choose(arm, limit_s)
        dispatch = _ThroughDispatch(arm, limit_s, self._private, calls, self._reduce)
        problem = None
        try:
            check_exact(dispatch, message_bytes)
        except WrongResultError as error:
            problem = error.message
        by_rank = self.messages.gather_numbers(*dispatch.calls_s, *calls.outcome)
        broken = self._settle(calls, [numbers[-2:] for numbers in by_rank])
        if broken is not None:
            return {"problem": None, "call_s": None, "broken": broken[1]}
        passes_by = (PLANNED.algorithm, NCCL)  # what the plan says, and NCCL's own: not counted by that name
        if arm.algorithm not in passes_by and self._planned.calls["allreduce", arm.algorithm] == before:
            problem = f"it does not take messages of {format_bytes(message_bytes)}"
        call_s = min(max(call_s) for call_s in list(zip(*by_rank, strict=True))[:-2])
        return {"problem": problem, "call_s": call_s, "broken": None}

    def _run(self, block: Block, scheme: Scheme, batch: int) -> dict[str, Any]:
        """A block; the same on all ranks.

        Returns:
            ``by_rank``: each rank's times of each sample in the order of sampling, NaN where it came too
            late. ``broken``: the arm whose call failed, and why; or None.
        """
        tensor = self._buffer(block.message_bytes)
        calls = Calls(self._planned)

        def call(arm: Candidate, limit_s: float | None) -> None:
            calls.make(arm, limit_s, lambda: self._call(arm, tensor, block.condition, batch))

        self._build(block.arms, block.limits_s, calls)
        for arm, warmups, limit_s in zip(block.arms, block.warmups, block.limits_s, strict=True):
            self._choose(arm, limit_s)
            for _ in range(warmups):
                call(arm, limit_s)
        ready_s = self.messages.gather_numbers(self.clock.now_s())
        start_s = max(at_s for (at_s,) in ready_s) + _LEAD_S
        taken: list[float] = []
        for index in (index for order in block.orders for index in order):
            arm, limit_s = block.arms[index], block.limits_s[index]
            self._choose(arm, limit_s)
            if scheme == "barrier":
                self.messages.barrier()
                start_s = self.clock.now_s()
                missed = False
            else:
                late_s = self.clock.wait_until(start_s)
                missed = late_s > max(_LATE_S, _LATE_SHARE * block.expected_s[index])
            call(arm, limit_s)
            taken.append(math.nan if missed else self.clock.now_s() - start_s)
            start_s += block.expected_s[index] + _GAP_S
        by_rank = self.messages.gather_numbers(*taken, *calls.outcome)
        broken = self._settle(calls, [numbers[-2:] for numbers in by_rank])
        return {
            "by_rank": [numbers[:-2] for numbers in by_rank],
            "broken": None if broken is None else [block.arms.index(broken[0]), broken[1]],
        }

    def _build(self, arms: Sequence[Candidate], limits_s: Sequence[float | None], calls: Calls) -> None:
        """Make candidates ready, so that the first call of each is like any other."""
        if TWIN in arms and self._twin is None:
            self._twin = self._fresh_raw()
        missing = [
            (arm, limit_s)
            for arm, limit_s in zip(arms, limits_s, strict=True)
            if arm not in DEFAULTS and arm != PLANNED and arm not in self._built
        ]
        for arm, limit_s in missing:
            self._choose(arm, limit_s)
            calls.make(arm, limit_s, partial(self._build_arm, arm))
            self._built.add(arm)
        if missing:
            self.messages.barrier()

    def _settle(self, calls: Calls, outcomes: Sequence[Sequence[float]]) -> tuple[Candidate, str] | None:
        """After calls of candidates: what failed on any rank, and everything anew if something did.

        Args:
            calls: what this rank made.
            outcomes: of all ranks.
        """
        failed = [(at, -passed_s, rank) for rank, (at, passed_s) in enumerate(outcomes) if at]
        if not failed:
            return None
        at, _, rank = min(failed)
        why = str(self.messages.gather(calls.why)[rank])
        self._renew_planned()
        return calls.arms[int(at) - 1], why

    def _build_arm(self, arm: Candidate) -> None:
        self._planned.build_override()

    def _renew_planned(self) -> None:
        """All private connections of candidates anew, as after one of their calls failed. Collective."""
        self._planned.renew()
        self._built.clear()

    def _choose(self, arm: Candidate, limit_s: float | None) -> None:
        if arm == DISPATCHED:
            self._planned.override = (DEFAULT.algorithm, {})
            return
        if arm in DEFAULTS:
            return
        self._planned.override = None if arm == PLANNED else (arm.algorithm, arm.params)
        self._planned.call_limit = None if limit_s is None else timedelta(seconds=limit_s)

    def _call(self, arm: Candidate, tensor: torch.Tensor, condition: Condition, batch: int) -> None:
        if condition == "idle":
            self._start(arm, tensor, is_async=False)
            return
        backward = self._prepared(batch) if condition == "backward" else None
        work = self._start(arm, tensor, is_async=True)
        if backward is not None:
            backward.run()
        else:
            python_until_done(work)
        work.wait()

    def _group_of(self, arm: Candidate) -> dist.ProcessGroup:
        if arm == DEFAULT:
            return self._raw
        if arm == TWIN:
            assert self._twin is not None, "it was built with its block"
            return self._twin
        return self._planned.wrapped if arm == WRAPPED else self._planned

    def _start(self, arm: Candidate, tensor: torch.Tensor, *, is_async: bool) -> Any:
        return dist.all_reduce(tensor, group=self._group_of(arm), async_op=is_async)

    def _reduce(self, arm: Candidate, flat: torch.Tensor, op: Any) -> None:
        """One call by an arm on numbers in the host's memory."""
        dist.all_reduce(flat, op=op, group=self._planned)

    def _prepared(self, batch: int) -> Backward:
        if self._backward is None or self._backward[0] != batch:
            self._backward = (batch, Backward(batch, self.device))
        return self._backward[1]

    def _buffer(self, message_bytes: int) -> torch.Tensor:
        """Zeros, which stay zeros however often they are summed; written once, so that their pages exist."""
        num_elements = message_bytes // ELEMENT_BYTES
        if len(self._tensor) < num_elements:
            self._tensor = torch.empty(num_elements).zero_()
        return self._tensor[:num_elements]


class TorchBench:
    """Rank 0's side: a `Bench` on real ranks.

    Args:
        station: rank 0's own.
        started_s: ``time.perf_counter()`` when the ranks had joined.
    """

    def __init__(self, station: Station, *, started_s: float) -> None:
        self._station = station
        self._started_s = started_s
        self._synced_s = -math.inf
        self._clock_error_s = math.inf
        self._default_s: dict[int, float] = {}
        self._batches: dict[int, int] = {}
        self._in_command = False

    def now_s(self) -> float:
        """Seconds since the ranks joined."""
        return time.perf_counter() - self._started_s

    def charge(self, passed_s: float) -> None:
        """Count time that earlier launches of the run took, seconds."""
        self._started_s -= passed_s

    def arrange(self, rank_order: tuple[int, ...] | None) -> None:
        """Have all candidates run with this rank at each position; before the first of them.

        Rank 0 decides, and tells the others: what was fitted may differ in its last bits from rank to rank.
        """
        self.command({"do": "arrange", "rank_order": rank_order})

    def check(self, candidate: Candidate, message_bytes: int, *, limit_s: float | None) -> Check:
        """Run a candidate on known numbers through dispatch."""
        found = self.command(
            {
                "do": "check",
                "arm": candidate.to_json(),
                "message_bytes": message_bytes,
                "limit_s": limit_s,
            }
        )
        call_s = math.nan if found["call_s"] is None else found["call_s"]
        return Check(problem=found["problem"], call_s=call_s, broken=found["broken"])

    def run(self, block: Block) -> BlockTimes:
        """Run a block on all ranks."""
        if self.now_s() - self._synced_s > _SYNC_EVERY_S:
            self._clock_error_s = self.command({"do": "sync"})
            self._synced_s = self.now_s()
        scheme = block.scheme
        if self._clock_error_s > _CLOCK_SHARE * min(block.expected_s):
            scheme = "barrier"
        batch = self._batch(block.message_bytes) if block.condition == "backward" else 0
        found = self.command({"do": "block", "block": block.to_json(), "scheme": scheme, "batch": batch})
        times_s = np.full((len(block.orders), len(block.arms)), math.nan)
        if found["broken"] is not None:
            arm, why = found["broken"]
            return BlockTimes(times_s=times_s, num_missed=0, scheme=scheme, broken=Broken(arm=arm, why=why))
        # NaN where any rank came too late
        slowest_s = np.max(np.array(found["by_rank"], dtype=np.float64), axis=0)
        for row, order in enumerate(block.orders):
            times_s[row, list(order)] = slowest_s[row * len(order) : (row + 1) * len(order)]
        self._remember_default(block, times_s)
        return BlockTimes(times_s=times_s, num_missed=int(np.isnan(times_s).sum()), scheme=scheme)

    def renew(self) -> None:
        """Have all ranks give the default and the candidates new connections."""
        self.command({"do": "renew"})

    def end(self) -> None:
        """Send the other ranks home."""
        self._station.tell({"do": "end"})

    def fail(self, error: TopotuneError) -> bool:
        """Send the other ranks home with this error; whether they heard it.

        In the middle of a command they do not listen: then it is that command which failed, for all.
        """
        if self._in_command:
            return False
        self._station.tell({"do": "fail", "error": error_to_json(error)})
        return True

    def command(self, command: Mapping[str, Any]) -> Any:
        """Have all ranks, this one among them, carry out a command; this one's result."""
        self._in_command = True
        self._station.tell(command)
        outcome = self._station.do(command)
        self._in_command = False
        return outcome

    def _remember_default(self, block: Block, times_s: Any) -> None:
        if block.condition == "idle" and block.arms[0] == DEFAULT and not np.isnan(times_s[:, 0]).all():
            self._default_s[block.message_bytes] = float(np.nanmedian(times_s[:, 0]))

    def _batch(self, message_bytes: int) -> int:
        """Batch of a backward about as long as the default's call: so either can hide the other."""
        if message_bytes not in self._batches:
            default_s = self._default_s.get(message_bytes, _SHORTEST_BACKWARD_S)
            target_s = min(_LONGEST_BACKWARD_S, max(_SHORTEST_BACKWARD_S, default_s))
            self._batches[message_bytes] = batch_for(target_s, self._station.device)
        return self._batches[message_bytes]


class _ThroughDispatch:
    """An executable that goes the way of a job's call: ``dist.all_reduce`` on the ``topotune`` group."""

    max_message_bytes: int | None = None

    def __init__(
        self,
        arm: Candidate,
        limit_s: float | None,
        communicator: Communicator,
        calls: Calls,
        reduce: Callable[[Candidate, torch.Tensor, Any], None],
    ) -> None:
        self.algorithm = arm.algorithm
        self.params: Params = arm.params
        self.communicator = communicator
        self.calls_s: list[float] = []
        self._reduce = reduce
        self._arm = arm
        self._limit_s = limit_s
        self._calls = calls

    def supports(self, dtype: torch.dtype, op: Any) -> bool:
        """Dispatch serves everything."""
        return True

    def allreduce_(self, flat: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> None:
        """Allreduce in place."""
        began_s = time.perf_counter()
        self._calls.make(self._arm, self._limit_s, lambda: self._reduce(self._arm, flat, op))
        self.calls_s.append(time.perf_counter() - began_s)
