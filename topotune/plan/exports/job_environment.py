"""The variables that a job should start with under a plan: what `topotune run` and launchers' files set.

They are topotune's own, gloo's interface, and those of every target that is environment variables and no
more. None of them may take the place of what the user has set.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from topotune.errors import UsageError
from topotune.plan import Plan
from topotune.plan.exports.algorithms import departs
from topotune.plan.exports.catalog import targets
from topotune.plan.exports.interface import INTERFACE_VARIABLE, interface_of
from topotune.plan.exports.target import ExportOptions

PLAN_VARIABLE: Final = "TOPOTUNE_PLAN"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobVariable:
    """One variable.

    Attributes:
        name: of it.
        value: of it.
        unless: other variables by which the user has said that it shall not be set.
    """

    name: str
    value: str
    unless: tuple[str, ...] = ()

    def is_free(self, environment: Mapping[str, str]) -> bool:
        """Whether the user has left it open: neither it nor one of ``unless`` is set to anything."""
        return not any(environment.get(name) for name in (self.name, *self.unless))


@dataclass(frozen=True, kw_only=True, slots=True)
class Translation:
    """What the targets that are environment variables make of a plan.

    Attributes:
        variables: in the order of the targets.
        refusals: of targets that cannot take this plan, a sentence each.
    """

    variables: tuple[JobVariable, ...]
    refusals: tuple[str, ...]


def translate(plan: Plan) -> Translation:
    """The variables of other programs, each by its target."""
    variables: list[JobVariable] = []
    refusals = []
    for target in targets():
        if target.environment is None:
            continue
        try:
            document = target.from_plan(plan, ExportOptions()).document
        except UsageError as error:
            refusals.append(f"nothing of {target.name} is set: {error.message}")
            continue
        variables += (
            JobVariable(name=name, value=value, unless=target.yields_to)
            for name, value in target.environment(document).items()
        )
    return Translation(variables=tuple(variables), refusals=tuple(refusals))


def job_environment(plan: Plan, plan_path: str) -> Translation:
    """All variables of a job that finds the plan's file at ``plan_path``; none where the plan says nothing.

    Raises:
        UsageError: the plan names what can be no interface.
    """
    own = []
    if says_something(plan):
        own.append(JobVariable(name=PLAN_VARIABLE, value=plan_path))
    interface = interface_of(plan)
    if interface is not None:
        own.append(JobVariable(name=INTERFACE_VARIABLE, value=interface))
    translation = translate(plan)
    return Translation(variables=(*own, *translation.variables), refusals=translation.refusals)


def says_something(plan: Plan) -> bool:
    """Whether topotune's backend or `ddp_kwargs` would do anything else than without this plan."""
    return departs(plan) or (plan.ddp is not None and plan.ddp.bucket_caps_mb is not None)


def nothing_set(program: str) -> str:
    """What is said where there is no variable at all."""
    return f"the plan keeps every default: there is no variable to set for {program}"
