"""Azure ML: distribution, instances and variables of a command job, a part of its YAML (CLI and SDK v2).

The plan's file lies in the job's code folder, which is the working folder of every process. Paths of NCCL's
topology files depend on the machine's type, which a plan does not hold.
"""

from dataclasses import dataclass
from typing import Any, Final

from topotune.errors import InputFileError
from topotune.plan import Plan
from topotune.plan.exports.cluster_shape import equal_ranks_per_node
from topotune.plan.exports.fragment_texts import MAX_VARIABLES, number_of, read_yaml, write_yaml
from topotune.plan.exports.job_environment import job_environment, nothing_set
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions

VERSIONS: Final = Versions(program="Azure ML CLI", oldest=(2, 0), newest=(2, 40))
_PLAN_PATH: Final = "plan.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandJob:
    """What of a command job the plan decides.

    Attributes:
        num_instances: nodes.
        processes_per_instance: ranks on each.
        variables: of each process, name and value.
    """

    num_instances: int
    processes_per_instance: int
    variables: tuple[tuple[str, str], ...] = ()


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """The plan for Azure ML.

    Raises:
        UsageError: nodes of the plan differ in their number of ranks.
    """
    VERSIONS.chosen(options.version)
    num_ranks = equal_ranks_per_node(plan, "Azure ML")
    translation = job_environment(plan, _PLAN_PATH)
    warnings = list(translation.refusals)
    if not translation.variables:
        warnings.append(nothing_set("Azure ML"))
    job = CommandJob(
        num_instances=len(plan.fingerprint.hard.ranks_per_node),
        processes_per_instance=num_ranks,
        variables=tuple((variable.name, variable.value) for variable in translation.variables),
    )
    return Translated(document=job, warnings=tuple(warnings))


def write(job: CommandJob) -> str:
    """YAML, keys of a command job."""
    document: dict[str, Any] = {
        "distribution": {"type": "pytorch", "process_count_per_instance": job.processes_per_instance},
        "environment_variables": dict(job.variables),
        "resources": {"instance_count": job.num_instances},
    }
    return write_yaml(document)


def read(text: str, source: str) -> CommandJob:
    """What `write` wrote.

    Raises:
        InputFileError: it is anything else.
    """
    members = read_yaml(text, source).members(("distribution", "environment_variables", "resources"))
    distribution = members["distribution"].members(("type", "process_count_per_instance"))
    variables = members["environment_variables"].mapping(MAX_VARIABLES)
    job = CommandJob(
        num_instances=number_of(members["resources"].members(("instance_count",))["instance_count"], 1),
        processes_per_instance=number_of(distribution["process_count_per_instance"], 1),
        variables=tuple((name, value.text()) for name, value in variables.items()),
    )
    if write(job) != text:
        raise InputFileError(source, "is not as an export writes it: it was changed, or cut off")
    return job


def how_to_use(path: str) -> str:
    """Lines of a shell and prose."""
    return (
        f"merge {path} into the job's YAML and put plan.json into its code folder:\n"
        f"  yq -y -s '.[0] * .[1]' job.yml {path} > tuned.yml   # the yq of Debian and PyPI\n"
        "  az ml job create --file tuned.yml"
    )


TARGET: Final = Target(
    name="azureml",
    summary="distribution, instances and variables of a command job, YAML",
    versions=str(VERSIONS),
    from_plan=from_plan,
    write=write,
    read=read,
    how_to_use=how_to_use,
)
