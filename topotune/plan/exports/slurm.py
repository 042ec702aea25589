"""Slurm: a task prolog that sets the job's variables, and the lines of sbatch that the plan fits.

``srun --task-prolog=FILE`` runs the file before each task, in the task's environment; what it prints as
``export NAME=VALUE`` is set for the task, the value as it stands, without quotes. So each variable is set
where the job has left it open, and the interface only on nodes that have it. The sbatch lines are comments
there.
"""

import re
import shlex
from dataclasses import dataclass
from typing import Final

from topotune.errors import InputFileError, UsageError
from topotune.plan import Plan
from topotune.plan.exports.cluster_shape import ranks_per_node
from topotune.plan.exports.interface import INTERFACE_VARIABLE
from topotune.plan.exports.job_environment import JobVariable, job_environment, nothing_set
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions

VERSIONS: Final = Versions(program="Slurm", oldest=(20, 11), newest=(25, 11))
_MAX_LINES: Final = 300
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_HEAD: Final = (
    "#!/bin/sh\n"
    "# Task prolog of topotune for Slurm: srun sets in each task what this prints.\n"
    "# For the head of the batch script:\n"
)
_SBATCH: Final = re.compile(r"#SBATCH --(nodes|ntasks-per-node)=([1-9][0-9]{0,6})")
_VARIABLE: Final = re.compile(
    r'\[ -n "((?:\$\{\w+-\})+)" \] \|\| .*?printf \'%s\\n\' (.*?)(?: \})?', re.ASCII
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmJob:
    """What a job is started with.

    Attributes:
        num_nodes: of the job.
        tasks_per_node: on each; None where they differ, which sbatch cannot say.
        variables: of each task.
    """

    num_nodes: int
    tasks_per_node: int | None
    variables: tuple[JobVariable, ...] = ()


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """The plan for Slurm.

    Raises:
        UsageError: the plan's path has control characters, which a line of a prolog cannot hold.
    """
    VERSIONS.chosen(options.version)
    path = options.plan_path or "plan.json"
    if _CONTROL.search(path):
        raise UsageError(f"{path!r}: has control characters, which srun cannot pass on", hint="move the plan")
    translation = job_environment(plan, path)
    num_tasks = ranks_per_node(plan)
    warnings = list(translation.refusals)
    if num_tasks is None:
        warnings.append(
            "the plan has different numbers of ranks on its nodes, which sbatch cannot say: "
            "SLURM_HOSTFILE and srun --distribution=arbitrary can"
        )
    if not translation.variables:
        warnings.append(nothing_set("Slurm"))
    job = SlurmJob(
        num_nodes=len(plan.fingerprint.hard.ranks_per_node),
        tasks_per_node=num_tasks,
        variables=translation.variables,
    )
    return Translated(document=job, warnings=tuple(warnings))


def write(job: SlurmJob) -> str:
    """The prolog, a shell script."""
    lines = [f"#SBATCH --nodes={job.num_nodes}"]
    if job.tasks_per_node is not None:
        lines.append(f"#SBATCH --ntasks-per-node={job.tasks_per_node}")
    lines += map(_line, job.variables)
    return _HEAD + "\n".join((*lines, "exit 0")) + "\n"


def _line(variable: JobVariable) -> str:
    taken = "".join(f"${{{name}-}}" for name in (variable.name, *variable.unless))
    set_it = f"printf '%s\\n' {shlex.quote(f'export {variable.name}={variable.value}')}"
    if variable.name == INTERFACE_VARIABLE:
        devices = [f"[ -e /sys/class/net/{name.split(':')[0]} ]" for name in variable.value.split(",")]
        set_it = f"{{ {' && '.join(devices)} && {set_it}; }}"
    return f'[ -n "{taken}" ] || {set_it}'


def read(text: str, source: str) -> SlurmJob:
    """What `write` wrote; nothing is run.

    Raises:
        InputFileError: it is anything else.
    """
    lines = text.removeprefix(_HEAD).splitlines()
    if len(lines) > _MAX_LINES or not text.startswith(_HEAD):
        raise InputFileError(source, "is no task prolog of an export")
    counts: dict[str, int] = {}
    variables = []
    for number, line in enumerate(lines[:-1], 1 + _HEAD.count("\n")):
        if match := _SBATCH.fullmatch(line):
            counts[match[1]] = int(match[2])
        elif match := _VARIABLE.fullmatch(line):
            variables.append(_variable(match, source, f"line {number}"))
        else:
            raise InputFileError(source, "is no line of an export", place=f"line {number}")
    job = SlurmJob(
        num_nodes=counts.get("nodes", 1),
        tasks_per_node=counts.get("ntasks-per-node"),
        variables=tuple(variables),
    )
    if write(job) != text:
        raise InputFileError(source, "is not as an export writes it: it was changed, or cut off")
    return job


def _variable(match: re.Match[str], source: str, place: str) -> JobVariable:
    name, *unless = re.findall(r"\w+", match[1])
    try:
        words = shlex.split(match[2].removesuffix(";"))
    except ValueError as problem:
        raise InputFileError(source, "has a quote that is not closed", place=place) from problem
    start = f"export {name}="
    if len(words) != 1 or not words[0].startswith(start):
        raise InputFileError(source, f"does not export {name}", place=place)
    return JobVariable(name=name, value=words[0].removeprefix(start), unless=tuple(unless))


def how_to_use(path: str) -> str:
    """Lines of a shell and prose."""
    return (
        f"chmod +x {shlex.quote(path)}\n"
        f"srun --task-prolog={shlex.quote(path)} python train.py\n"
        f"in a batch script with the lines #SBATCH of {path}; the plan must lie where all nodes see it"
    )


TARGET: Final = Target(
    name="slurm",
    summary="task prolog that sets the job's variables, with lines for sbatch",
    versions=str(VERSIONS),
    from_plan=from_plan,
    write=write,
    read=read,
    how_to_use=how_to_use,
)
