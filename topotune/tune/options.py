"""What a tuning run and a comparison are asked to do."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from topotune.errors import UsageError
from topotune.plan.model import COLLECTIVES, Collective
from topotune.step.gradients import MAX_BACKWARD_S, Gradients, load_gradients
from topotune.step.models import resnet50, typical_transformer
from topotune.tune.mesh import check_syntax
from topotune.tune.points import ELEMENT_BYTES
from topotune.units import MAX_SECONDS, MIB, parse_sizes

DEFAULT_BUDGET_S: Final = 60.0
DEFAULT_MIN_GAIN: Final = 0.02
DEFAULT_SIZES: Final = parse_sizes("1K:64M:4")
_LARGEST_BYTES: Final = 4096 * MIB
BACKENDS: Final = ("gloo", "nccl")
"""The collective libraries that can be tuned."""
COMPUTES: Final = {"gloo": ("matmul", "sleep"), "nccl": ("spin",)}
"""What an emulated backward does, by the job's library: multiply matrices on its threads, or wait; or spin on
its GPU. The first is chosen where nothing is said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepOptions:
    """Which training step is measured; with neither a file nor a number it is ResNet-50's.

    Attributes:
        gradients_path: a file of recorded gradients, read by rank 0.
        num_parameters: of a typical transformer, where there is no file.
        backward_s: length of the backward; None takes the recorded one, or where nothing was recorded what
            the default's exchange takes.
        compute: what the emulated backward does: ``matmul`` or ``sleep``, on GPUs ``spin``; None takes the
            first that fits.

    Raises:
        UsageError: both a file and a number, or a value out of its range.
    """

    gradients_path: str | None = None
    num_parameters: int | None = None
    backward_s: float | None = None
    compute: str | None = None

    def __post_init__(self) -> None:
        if self.gradients_path is not None and self.num_parameters is not None:
            raise UsageError(
                f"gradients are either those of {self.gradients_path} or of a typical model of "
                f"{self.num_parameters} parameters",
                hint="leave --gradients or --params out",
            )
        if self.num_parameters is not None:
            typical_transformer(self.num_parameters)
        if self.backward_s is not None and not 0 < self.backward_s <= MAX_BACKWARD_S:
            raise UsageError(f"a backward of {self.backward_s:g} s is none", hint="write --backward 150ms")
        known = [name for names in COMPUTES.values() for name in names]
        if self.compute is not None and self.compute not in known:
            raise UsageError(f"--compute {self.compute}: is none of {', '.join(known)}")

    def compute_on(self, backend: str) -> str:
        """What stands for the backward's computing where the job's library is this one.

        Raises:
            UsageError: what was asked for does not go with it.
        """
        fitting = COMPUTES[backend]
        if self.compute is None:
            return fitting[0]
        if self.compute not in fitting:
            raise UsageError(
                f"--compute {self.compute}: with {backend} the backward is emulated by "
                f"{' or '.join(fitting)}",
                hint="leave --compute out",
            )
        return self.compute

    def gradients(self) -> Gradients:
        """The gradients; their backward is still to be chosen where they are not timed.

        Raises:
            InputFileError: the file cannot be read, or is none of gradients.
        """
        if self.gradients_path is not None:
            found = load_gradients(self.gradients_path)
        elif self.num_parameters is not None:
            found = typical_transformer(self.num_parameters)
        else:
            found = resnet50()
        return found if self.backward_s is None else found.with_backward(self.backward_s)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any] | None) -> Self | None:
        """Options out of a worker's payload: the names above; None where no step is to be measured.

        Raises:
            UsageError: a value out of its range, a name that is no option.
        """
        if payload is None:
            return None
        _check_names(cls, payload)
        return cls(**payload)


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions:
    """Options of ``tune``.

    Attributes:
        budget_s: wall time from "ranks joined" to "plan written", above 0.
        sizes: message sizes in bytes, ascending, multiples of 4.
        min_gain: a row departs from the default only where the ratio's interval lies above 1 + this; within
            [0, 10].
        seed: of every random choice.
        backend: the collective library of the job: gloo, or nccl with one GPU for each rank.
        journal_path: where the journal is written (by rank 0); None keeps none.
        resume: whether to go on with the run whose journal stands there.
        fresh: whether to tune even where a plan for this cluster is known.
        step: the training step to choose buckets for; None chooses none.
        groups: process groups of the job, as `topotune.tune.mesh` reads them; None for the world alone.
        collectives: that tables are made for; None takes allreduce, and all three where groups are given. The
            world's allreduce is always tuned.

    Raises:
        UsageError: a value out of its range.
    """

    budget_s: float = DEFAULT_BUDGET_S
    sizes: tuple[int, ...] = DEFAULT_SIZES
    min_gain: float = DEFAULT_MIN_GAIN
    seed: int = 0
    backend: str = "gloo"
    journal_path: str | None = None
    resume: bool = False
    fresh: bool = False
    step: StepOptions | None = None
    groups: str | None = None
    collectives: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _check_budget(self.budget_s)
        _check_sizes(self.sizes)
        _check_tables(self.groups, self.collectives)
        if not 0 <= self.min_gain <= 10:
            raise UsageError(
                f"a minimum gain of {self.min_gain:g} is not within 0 and 10", hint="2 % is 0.02"
            )
        _check_seed(self.seed)
        if self.resume and self.journal_path is None:
            raise UsageError(
                "--resume needs the plan's name, beside which the journal stands",
                hint="topotune tune --resume -o plan.json",
            )
        _check_backend(self)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Options out of a worker's payload: the names above as JSON; ``sizes`` None takes the usual ones.

        Raises:
            UsageError: a value out of its range, a name that is no option.
        """
        named = _with_collectives(payload)
        sizes, step = named.pop("sizes", None), StepOptions.from_payload(named.pop("step", None))
        _check_names(cls, named)
        return cls(**named, sizes=DEFAULT_SIZES if sizes is None else tuple(sizes), step=step)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareOptions:
    """Options of ``compare``.

    Attributes:
        plan_path: the plan's file; read by rank 0.
        sizes: message sizes in bytes; None takes ends and middles of the plan's rows, and the usual sizes.
        budget_s: about how long the measuring may take; each size gets its fewest rounds even beyond it.
        seed: of every random choice.
        step: the training step to compare, too; None compares none.
        groups: process groups of the job, to compare, too, as `topotune.tune.mesh` reads them; or None.
        collectives: whose tables are compared; as of `TuneOptions`.
        backend: the collective library that the plan is for.

    Raises:
        UsageError: a value out of its range.
    """

    plan_path: str
    sizes: tuple[int, ...] | None = None
    budget_s: float = 30.0
    seed: int = 0
    step: StepOptions | None = None
    groups: str | None = None
    collectives: tuple[str, ...] | None = None
    backend: str = "gloo"

    def __post_init__(self) -> None:
        _check_budget(self.budget_s)
        _check_tables(self.groups, self.collectives)
        if self.sizes is not None:
            _check_sizes(self.sizes)
        _check_seed(self.seed)
        _check_backend(self)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Options out of a worker's payload: the names above, JSON values.

        Raises:
            UsageError: a value out of its range, a name that is no option.
        """
        named = _with_collectives(payload)
        sizes, step = named.pop("sizes", None), StepOptions.from_payload(named.pop("step", None))
        _check_names(cls, named)
        return cls(**named, sizes=None if sizes is None else tuple(sizes), step=step)


def _with_collectives(payload: Mapping[str, Any]) -> dict[str, Any]:
    named = dict(payload)
    if named.get("collectives") is not None:
        named["collectives"] = tuple(named["collectives"])
    return named


def _check_names(options: type, named: Mapping[str, Any]) -> None:
    known = {field.name for field in fields(options)}
    for name in named:
        if name not in known:
            raise UsageError(f"{name!r} is no option of {options.__name__}: {', '.join(sorted(known))}")


def collectives_of(groups: str | None, collectives: tuple[str, ...] | None) -> tuple[Collective, ...]:
    """Whose tables are asked for, in the order of plans."""
    if collectives is None:
        return COLLECTIVES if groups is not None else ("allreduce",)
    return tuple(name for name in COLLECTIVES if name in collectives)


def _check_backend(options: TuneOptions | CompareOptions) -> None:
    """Refuse a library that nobody knows, and what is measured in the host's memory alone."""
    if options.backend not in BACKENDS:
        raise UsageError(f"backend {options.backend!r} is neither {' nor '.join(BACKENDS)}")
    if options.step is not None:
        options.step.compute_on(options.backend)
    if options.backend == "gloo":
        return
    if options.groups is not None or options.collectives not in (None, ("allreduce",)):
        raise UsageError(
            "on GPUs the allreduce of all ranks is measured alone: there are no tables of other groups and "
            "collectives for them yet",
            hint="leave --groups and --collectives out",
        )


def _check_tables(groups: str | None, collectives: tuple[str, ...] | None) -> None:
    if groups is not None:
        check_syntax(groups)
    for name in collectives or ():
        if name not in COLLECTIVES:
            raise UsageError(
                f"--collectives: {name!r:.60} is none of {', '.join(COLLECTIVES)}",
                hint="write --collectives allreduce,reduce_scatter,allgather",
            )


def _check_budget(budget_s: float) -> None:
    if not (math.isfinite(budget_s) and budget_s > 0):
        raise UsageError(f"a budget of {budget_s:g} s is no time to work in", hint="write --budget 60s")
    if budget_s > MAX_SECONDS:
        raise UsageError(f"a budget of {budget_s:g} s is more than 7 days", hint="write --budget 10m")


def _check_sizes(sizes: tuple[int, ...]) -> None:
    if not sizes:
        raise UsageError("no message sizes were given", hint="write --sizes 1K:64M:4")
    if list(sizes) != sorted(set(sizes)):
        raise UsageError(f"sizes {sizes} are not ascending, each once")
    for size in sizes:
        if not ELEMENT_BYTES <= size <= _LARGEST_BYTES or size % ELEMENT_BYTES:
            raise UsageError(
                f"a size of {size} bytes cannot be measured: messages are float32, up to 4 GiB",
                hint=f"write a multiple of {ELEMENT_BYTES}",
            )


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**32:
        raise UsageError(f"a seed of {seed} is not within 0 and 2**32 - 1")
