"""Rank 0's side of measuring a training step: what arms stand, and in which order they run.

A round runs every arm once, in an order drawn anew; a step counts as its slowest rank's time, from a common
barrier. Two arms are compared within rounds, by the statistics that rows are confirmed with.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from topotune.plan import Plan, plan_to_document
from topotune.step.curve import Curve
from topotune.step.gradients import Gradients, gradients_to_document
from topotune.tune.emulated import units_for
from topotune.tune.statistics import Samples
from topotune.tune.step_ranks import StepArm, Way


class StepFailedError(Exception):
    """A step under the plan was cut off or broke down, on all ranks; the group was made anew.

    Args:
        name: of the arm.
        why: in words.
    """

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.why = why


@dataclass(frozen=True, kw_only=True, slots=True)
class Stand:
    """What came of setting up an arm.

    Attributes:
        layout_bytes: buckets that DDP keeps; None where there are none, or this torch does not say.
        step_s: of its last warm-up step, slowest rank.
        by_rank_s: the same, each rank's own.
    """

    layout_bytes: tuple[int, ...] | None
    step_s: float
    by_rank_s: tuple[float, ...]


class StepBench:
    """Measures steps on all ranks.

    Args:
        command: has all ranks carry out a command, and returns rank 0's result.
        compute: of the emulated backward.
        rng: for the order of arms.
    """

    def __init__(
        self, command: Callable[[Mapping[str, Any]], Any], compute: str, rng: np.random.Generator
    ) -> None:
        self._command = command
        self._rng = rng
        self.compute = compute
        found = self._do("prepare", compute=compute)
        self._unit_by_rank_s: list[float] = found["unit_s"]
        self.memory_bytes: float = found["memory_bytes"]
        self.num_threads: int = found["num_threads"][0]

    def begin(self, gradients: Gradients) -> None:
        """Take these gradients, with their times, for all arms to come."""
        self._do(
            "begin",
            gradients=gradients_to_document(gradients),
            num_units=units_for(gradients.backward_s, self._unit_by_rank_s),
        )

    def holds(self, gradients: Gradients, num_arms: int) -> bool:
        """Whether every rank has the memory for so many arms: the buckets of each, the gradients of one."""
        return (num_arms + 1) * gradients.total_bytes <= self.memory_bytes

    def adopt(self, plan: Plan) -> None:
        """Have the ``topotune`` group run a plan that was just made."""
        self._do("plan", plan=plan_to_document(plan))

    def stand(self, name: str, way: Way, caps_mb: Sequence[float] | None = None) -> Stand:
        """Set up an arm, and run its first steps.

        Raises:
            StepFailedError: it is an arm under the plan, and did not work.
        """
        arm = StepArm(name=name, way=way, caps_mb=None if caps_mb is None else tuple(caps_mb))
        found = self._do("arm", arm=arm.to_json())
        _raise_broken(found["broken"])
        last = tuple(times[-1] for times in found["last_s"])
        layout = found["layout_bytes"]
        return Stand(layout_bytes=None if layout is None else tuple(layout), step_s=max(last), by_rank_s=last)

    def rounds(self, names: Sequence[str], num_rounds: int) -> dict[str, Samples]:
        """Steps of each arm, interleaved: seconds by rank, shape (ranks, rounds).

        Raises:
            StepFailedError: an arm under the plan did not work.
        """
        orders = [[names[index] for index in self._rng.permutation(len(names))] for _ in range(num_rounds)]
        found = self._do("rounds", orders=orders)
        _raise_broken(found["broken"])
        flat = [name for order in orders for name in order]
        times_s = np.array(found["by_rank"], dtype=np.float64)
        return {name: times_s[:, [index for index, one in enumerate(flat) if one == name]] for name in names}

    def renew(self) -> None:
        """New connections for what runs with and without the plan. All arms are gone."""
        self._do("renew")

    def drop(self, *names: str) -> None:
        """Let go of arms."""
        self._do("drop", names=list(names))

    def _do(self, what: str, **arguments: Any) -> Any:
        return self._command({"do": "step", "what": what, **arguments})


def slowest(by_rank_s: Samples) -> Samples:
    """A step's time: its slowest rank's; shape (ranks, rounds) → (rounds,)."""
    return np.asarray(np.max(by_rank_s, axis=0))


def balanced(gradients: Gradients, curve: Curve, layout_bytes: Sequence[int]) -> Gradients:
    """Gradients with a backward: their own, or as long as the exchange of these buckets takes.

    Where the job's backward is not known this is where buckets matter most: far shorter or longer ones leave
    either nothing to hide behind, or everything hidden.
    """
    if gradients.timed:
        return gradients
    return gradients.with_backward(sum(curve.time_s(num_bytes) for num_bytes in layout_bytes))


def _raise_broken(broken: Sequence[str] | None) -> None:
    if broken is not None:
        raise StepFailedError(*broken)
