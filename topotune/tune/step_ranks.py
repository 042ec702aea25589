"""Each rank's part in measuring a training step: real DDP, real buckets, a backward that is emulated.

Theory of operation. An arm is a way to run the step: DDP on a raw group with torch's own buckets (what
the job would do), DDP on the ``topotune`` group with the plan, or no exchange at all (the backward alone).
All arms stand at once, so that they can take turns. Rank 0 says in which order; a sample begins with a
barrier and lasts until this rank's backward, with the exchange in it, has ended. The slowest rank's is the
step's. The first steps of an arm are not timed: DDP runs other buckets in them.

Connections have luck of their own (`topotune.tune.blocks`), and DDP keeps the groups that it was made on.
So a second look begins with new groups for both ways, under the same plan, and with arms made anew.

On GPUs groups are NCCL's, gradients are on this rank's device, and the backward spins there: a sample begins
when the device has nothing left to do, and ends when it is done with the backward and the exchange.

A call that fails under the plan fails on every rank, each at its own call (the private connections are
closed); the arm is dropped and the group's connections are made anew. What fails on the raw group is the end
of the run, as anywhere.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter
from typing import Any, Final, Literal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from topotune.errors import RunError
from topotune.execute.communicator import cause_in_words
from topotune.links.messages import Messages
from topotune.plan import plan_from_document
from topotune.step.gradients import Gradients, gradients_from_document
from topotune.train.agreement import Agreement
from topotune.train.ddp import ddp_arguments
from topotune.train.deadline import DEADLINES
from topotune.train.process_group import ProcessGroupTopotune
from topotune.tune.emulated import Compute, EmulatedModel, HostPace, Pace
from topotune.tune.spin import Spinner, SpinPace

Way = Literal["raw", "plan", "alone"]

WARM_UP: Final = 3
"""Steps until DDP's buckets are those it keeps, and torch has noted them."""

_LEAST_LIMIT_S: Final = 20.0
_PATIENCE: Final = 20.0
"""A call under the plan is cut off after this many times a backward, but not before the former."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepArm:
    """One way to run a step.

    Attributes:
        name: tells it from the others.
        way: DDP on the raw group, on the ``topotune`` group, or no exchange.
        caps_mb: what DDP is given; None for nothing.
    """

    name: str
    way: Way
    caps_mb: tuple[float, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """As rank 0 sends it to the others."""
        caps = None if self.caps_mb is None else list(self.caps_mb)
        return {"name": self.name, "way": self.way, "caps_mb": caps}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "StepArm":
        """The arm that ``to_json`` wrote."""
        caps = document["caps_mb"]
        return cls(name=document["name"], way=document["way"], caps_mb=None if caps is None else tuple(caps))


@dataclass(kw_only=True)
class _Standing:
    """An arm that stands."""

    model: torch.nn.Module
    step: torch.nn.Module
    way: Way


class StepRanks:
    """One rank's side; every method is called on all ranks, with the same arguments.

    Args:
        planned: the ``topotune`` group of all ranks.
        raw: a group of the same ranks on the library that is tuned.
        messages: between them, for what is not timed.
        node_of_rank: verified node numbers.
        fresh: makes one more ``topotune`` group and one more raw group of the same ranks; collective.
        spinner: the device that gradients are on; None for the host.
    """

    def __init__(
        self,
        planned: ProcessGroupTopotune,
        raw: dist.ProcessGroup,
        messages: Messages,
        node_of_rank: tuple[int, ...],
        fresh: Callable[[], tuple[ProcessGroupTopotune, dist.ProcessGroup]],
        *,
        spinner: Spinner | None = None,
    ) -> None:
        self._planned = planned
        self._raw = raw
        self._messages = messages
        self._node_of_rank = node_of_rank
        self._fresh = fresh
        self._spinner = spinner
        self._pace = self._pace_of("sleep")
        self._gradients: Gradients | None = None
        self._num_units = 1
        self._arms: dict[str, _Standing] = {}

    def do(self, command: Mapping[str, Any]) -> Any:
        """Carry out a command of rank 0; the result is the same on all ranks."""
        what = command["what"]
        if what == "prepare":
            return self._prepare(command["compute"])
        if what == "begin":
            self._gradients = gradients_from_document(command["gradients"], "rank 0's gradients")
            self._num_units = command["num_units"]
            return None
        if what == "plan":
            return self._adopt(command["plan"])
        if what == "renew":
            return self._renew()
        if what == "arm":
            return self._stand(StepArm.from_json(command["arm"]))
        if what == "rounds":
            return self._rounds([list(order) for order in command["orders"]])
        assert what == "drop", what
        for name in command["names"]:
            self._arms.pop(name, None)
        self._messages.barrier()
        return None

    def close(self) -> None:
        """Let go of all arms: torch may wait for ever where DDP outlives its group."""
        self._arms.clear()

    def _pace_of(self, compute: Compute) -> Pace:
        return HostPace(compute) if self._spinner is None else SpinPace(self._spinner)

    def _prepare(self, compute: Any) -> dict[str, Any]:
        """What rank 0 needs to know of all ranks: how fast each computes, and how much memory is left."""
        self._messages.barrier()
        self._pace = self._pace_of(compute)
        unit_s, free = self._pace.unit_s(), self._pace.free_bytes()
        # Ranks of a node share its memory; each has a device of its own.
        sharing = self._node_of_rank.count(self._node_of_rank[self._messages.rank])
        own = free / sharing if self._spinner is None else free
        by_rank = self._messages.gather_numbers(unit_s, own, float(torch.get_num_threads()))
        return {
            "unit_s": [numbers[0] for numbers in by_rank],
            "memory_bytes": min(numbers[1] for numbers in by_rank),
            "num_threads": [int(numbers[2]) for numbers in by_rank],
        }

    def _adopt(self, document: dict[str, Any]) -> None:
        """Have the ``topotune`` group run a plan that was just made."""
        self._planned.override, self._planned.call_limit = None, None
        self._planned.adopt(
            Agreement(
                plan=plan_from_document(document, "the new plan"),
                outcome="the new plan used",
                global_ranks=tuple(range(self._messages.size)),
                node_of_rank=self._node_of_rank,
            )
        )
        self._messages.barrier()

    def _renew(self) -> None:
        """New groups, and so connections, for both ways. Arms go; the old groups stay: others hold them."""
        self._arms.clear()
        agreement = self._planned.agreement
        self._planned, self._raw = self._fresh()
        if agreement is not None:
            self._planned.adopt(agreement)
        self._messages.barrier()

    def _stand(self, arm: StepArm) -> dict[str, Any]:
        """Make an arm, and run its first steps; the layout that DDP keeps, or why it failed."""
        assert self._gradients is not None
        model = EmulatedModel(self._gradients, self._pace, self._num_units)
        step: torch.nn.Module = model
        if arm.way != "alone":
            step = DistributedDataParallel(
                model,
                process_group=self._raw if arm.way == "raw" else self._planned,
                init_sync=False,  # it would read what is in no memory
                find_unused_parameters=self._gradients.definition_order is not None,
                **ddp_arguments(arm.caps_mb),
            )
        self._arms[arm.name] = _Standing(model=model, step=step, way=arm.way)
        taken = self._rounds([[arm.name]] * WARM_UP)
        layout = None
        if isinstance(step, DistributedDataParallel) and taken["broken"] is None:
            layout = _layout_of(step)
        return {"layout_bytes": layout, "broken": taken["broken"], "last_s": taken["by_rank"]}

    def _rounds(self, orders: Sequence[Sequence[str]]) -> dict[str, Any]:
        """Steps of standing arms, in this order.

        Returns:
            ``by_rank``: each rank's seconds of each step, in order, NaN (None in JSON) from a failure on.
            ``broken``: [name, why] of the arm whose call failed first, or None.
        """
        names = [name for order in orders for name in order]
        taken: list[float] = []
        failed_at, why = 0, ""
        for number, name in enumerate(names, start=1):
            arm = self._arms[name]
            # Before each step all ranks know of all failures, so that none waits for one that has given up.
            any_failed = any(at for (at,) in self._messages.gather_numbers(float(failed_at)))
            if any_failed and arm.way == "plan":
                taken.append(math.nan)
                continue
            try:
                taken.append(self._timed(arm))
            except RuntimeError as error:
                if arm.way != "plan":
                    raise
                failed_at, why = number, cause_in_words(error)
                self._planned.stop_planned()
                taken.append(math.nan)
        by_rank = self._messages.gather_numbers(*taken, float(failed_at))
        failures = [(int(numbers[-1]), rank) for rank, numbers in enumerate(by_rank) if numbers[-1]]
        broken = None
        if failures:
            number, rank = min(failures)
            broken = [names[number - 1], str(self._messages.gather(why)[rank])]
            for name in [name for name, arm in self._arms.items() if arm.way == "plan"]:
                del self._arms[name]
            self._planned.renew()
        return {"by_rank": [numbers[:-1] for numbers in by_rank], "broken": broken}

    def _timed(self, arm: _Standing) -> float:
        assert self._gradients is not None
        limit_s = max(_LEAST_LIMIT_S, _PATIENCE * self._gradients.backward_s)
        if arm.way == "plan":
            self._planned.call_limit = timedelta(seconds=limit_s)
        try:
            loss = arm.step()
            self._pace.synchronize()
        finally:
            self._messages.barrier()
        start_s = perf_counter()
        with self._cut_off(arm, limit_s):
            loss.backward()
            self._pace.synchronize()
        took_s = perf_counter() - start_s
        arm.model.zero_grad(set_to_none=True)  # arms take turns, and so does their memory
        return took_s

    @contextmanager
    def _cut_off(self, arm: _Standing, limit_s: float) -> Iterator[None]:
        """End a step under the plan after this long on a device, where calls have no limit of their own.

        Raises:
            RunError: it had to be.
        """
        if self._spinner is None or arm.way != "plan":
            yield
            return
        with DEADLINES.within(limit_s, self._planned.stop_planned) as expiry:
            yield
        if expiry.passed:
            raise RunError(f"a step had not ended after {limit_s:.3g} s")


def _layout_of(step: DistributedDataParallel) -> list[int] | None:
    """Buckets that DDP says it keeps; None where this torch does not say."""
    data: dict[str, Any] = step._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    # Where parameters may be unused it keeps those that it began with.
    said = data.get("bucket_sizes" if step.find_unused_parameters else "rebuilt_bucket_sizes")
    return None if said is None else [int(size) for size in str(said).split(",")]
