"""Which plan this process was given: by `use`, or by the environment. Nothing is read here.

A path that does not exist on one node must not stop that node's ranks in ``use``, before the others know of
it.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from topotune.errors import UsageError
from topotune.plan import Plan, canonical_bytes, load_plan, plan_from_bytes

PLAN_VARIABLE: Final = "TOPOTUNE_PLAN"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanSource:
    """Where a plan comes from.

    Attributes:
        text: in messages: the path, or ``given by the script``.
        plan: the plan itself, where a script passed one.
        path: its file otherwise.
    """

    text: str
    plan: Plan | None = None
    path: Path | None = None

    def read(self) -> Plan:
        """The plan; one that a script passed as all ranks will read it, so that what is wrong is found here.

        Raises:
            PlanError: its file cannot be read, is no plan, or breaks a rule.
            TypeError: a script passed one with values that JSON does not have.
        """
        if self.plan is not None:
            return plan_from_bytes(canonical_bytes(self.plan), self.text)
        assert self.path is not None
        return load_plan(self.path)


class _Chosen:
    """What `use` said last; ``said`` is False until it was called, and the environment then decides."""

    said = False
    source: PlanSource | None = None
    in_use = False


def use(plan: Plan | str | os.PathLike[str] | None) -> None:
    """Say which plan the job's groups shall use; call it on all ranks, before ``dist.init_process_group``.

    Args:
        plan: a plan, the path of one, or None for none at all, whatever TOPOTUNE_PLAN says. A path is read by
            rank 0 when the group is made, and all ranks use what it read.

    Raises:
        UsageError: a ``topotune`` group stands already, and with it the decision of all its ranks.
    """
    if _Chosen.in_use:
        raise UsageError(
            "topotune.use() came after the process group was made, whose ranks have agreed on a plan already",
            hint='call it before dist.init_process_group("topotune")',
        )
    _Chosen.said = True
    _Chosen.source = source_of(plan)


def source_of(plan: Plan | str | os.PathLike[str] | None) -> PlanSource | None:
    """What a script passed, as a source.

    Raises:
        UsageError: neither a plan nor a path.
    """
    if plan is None:
        return None
    if isinstance(plan, Plan):
        return PlanSource(text="given by the script", plan=plan)
    if isinstance(plan, str | os.PathLike):
        return PlanSource(text=os.fspath(plan), path=Path(plan))
    raise UsageError(
        f"a plan was expected, or the path of one, not {type(plan).__name__}",
        hint="topotune.load_plan(path) reads one",
    )


def given_source() -> PlanSource | None:
    """What this process was given: by `use`, else by TOPOTUNE_PLAN, else nothing."""
    if _Chosen.said:
        return _Chosen.source
    path = os.environ.get(PLAN_VARIABLE)
    return source_of(path) if path else None


def set_in_use(in_use: bool) -> None:
    """Whether a world group stands that has agreed on a plan; `use` is refused meanwhile."""
    _Chosen.in_use = in_use
