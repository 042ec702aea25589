"""SageMaker: arguments of an estimator, JSON.

Theory of operation. SageMaker's launchers set NCCL's variables themselves: NCCL_PROTO=simple on all of
them, NCCL_ALGO=ring with model parallelism, NCCL_SOCKET_IFNAME, and libfabric's on instances with EFA. What
a job says there is overwritten, or worse: a value of NCCL_PROTO keeps the network plugin from its own check
whether EFA keeps the order of bytes, without which LL and LL128 corrupt data silently. So no variable of
NCCL, of libfabric or of the verbs library is ever written; `EstimatorArguments` refuses them, also when a
file is read.

PyTorch jobs on GPUs run by torchrun, one rank on each GPU; all others by mpirun, which must be told the
number of ranks and which variables to pass on. Hyperparameters become arguments of the training script. The
one that is written, ``ddp_bucket_cap_mb``, is that of Hugging Face's Trainer: whole MiB, and not 25, which
it would not hand on.
"""

import re
from dataclasses import dataclass
from typing import Any, Final

from topotune.documents import Value
from topotune.errors import InputFileError
from topotune.plan import Plan
from topotune.plan.exports.buckets import one_ddp_cap
from topotune.plan.exports.cluster_shape import equal_ranks_per_node
from topotune.plan.exports.fragment_texts import MAX_VARIABLES, read_json, write_json
from topotune.plan.exports.job_environment import job_environment, nothing_set
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions

VERSIONS: Final = Versions(program="SageMaker Python SDK", oldest=(2, 100), newest=(2, 250))
_NEVER: Final = ("NCCL_", "FI_", "RDMAV_")
_PLAIN: Final = re.compile(r"[\w./,:=@%+-]*", re.ASCII)
"""Values that stay one word wherever mpirun's options are cut or joined."""

_PLAN_PATH: Final = "/opt/ml/code/plan.json"
_BUCKET: Final = "ddp_bucket_cap_mb"
_NOT_HANDED_ON_MB: Final = 25
_MAX_NODES: Final = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class EstimatorArguments:
    """Arguments of ``sagemaker.pytorch.PyTorch``.

    Attributes:
        num_instances: nodes.
        mpi_processes_per_host: ranks on each by mpirun; None is torchrun's one on each GPU.
        variables: of each process, name and value, by name; none of NCCL's or of its network's.
        bucket_cap_mb: the hyperparameter of Hugging Face's Trainer; None leaves it out.
    """

    num_instances: int
    mpi_processes_per_host: int | None = None
    variables: tuple[tuple[str, str], ...] = ()
    bucket_cap_mb: int | None = None

    def __post_init__(self) -> None:
        for name, value in self.variables:
            assert not is_never_set(name), name
            assert _PLAIN.fullmatch(value), value

    @property
    def distribution(self) -> dict[str, Any]:
        """The argument of this name."""
        if self.mpi_processes_per_host is None:
            return {"torch_distributed": {"enabled": True}}
        mpi: dict[str, Any] = {"enabled": True, "processes_per_host": self.mpi_processes_per_host}
        if self.variables:
            mpi["custom_mpi_options"] = " ".join(f"-x {name}={value}" for name, value in self.variables)
        return {"mpi": mpi}


def is_never_set(name: str) -> bool:
    """Whether a variable is one that SageMaker's launchers or the network plugin must set."""
    return name.startswith(_NEVER)


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """The plan for SageMaker.

    Raises:
        UsageError: nodes of the plan differ in their number of ranks.
    """
    VERSIONS.chosen(options.version)
    hard = plan.fingerprint.hard
    num_ranks = equal_ranks_per_node(plan, "SageMaker")
    translation = job_environment(plan, _PLAN_PATH)
    warnings = list(translation.refusals)
    free = [variable for variable in translation.variables if not is_never_set(variable.name)]
    kept = [variable for variable in free if _PLAIN.fullmatch(variable.value)]
    warnings += (
        f"{variable.name}: not written, since SageMaker cuts mpirun's options at blanks and signs: "
        f"{variable.value[:60]}"
        for variable in free
        if variable not in kept
    )
    dropped = sorted({variable.name for variable in translation.variables if is_never_set(variable.name)})
    if dropped:
        warnings.append(
            f"{', '.join(dropped)}: not written, since SageMaker's launchers and the network plugin of AWS "
            "set NCCL's variables"
        )
    if not kept:
        warnings.append(nothing_set("SageMaker"))
    cap, cap_warnings = one_ddp_cap(plan, "the Trainer's ddp_bucket_cap_mb")
    warnings += cap_warnings
    hyperparameter = None
    if cap is not None and cap == int(cap) and cap != _NOT_HANDED_ON_MB:
        hyperparameter = int(cap)
        warnings.append(
            f"the hyperparameter {_BUCKET} becomes an argument of the script: leave it out for scripts that "
            "do not take it"
        )
    elif cap is not None:
        warnings.append(f"{_BUCKET} takes whole MiB other than 25, not {cap:g}: it is left out")
    is_torchrun = hard.device_kind.startswith("cuda") and num_ranks == hard.device_count
    arguments = EstimatorArguments(
        num_instances=len(hard.ranks_per_node),
        mpi_processes_per_host=None if is_torchrun else num_ranks,
        variables=tuple(sorted((variable.name, variable.value) for variable in kept)),
        bucket_cap_mb=hyperparameter,
    )
    return Translated(document=arguments, warnings=tuple(warnings))


def write(arguments: EstimatorArguments) -> str:
    """A JSON object of keyword arguments."""
    cap = arguments.bucket_cap_mb
    return write_json(
        {
            "distribution": arguments.distribution,
            "environment": dict(arguments.variables),
            "hyperparameters": {} if cap is None else {_BUCKET: cap},
            "instance_count": arguments.num_instances,
        }
    )


def read(text: str, source: str) -> EstimatorArguments:
    """What `write` wrote.

    Raises:
        InputFileError: it is anything else, or sets what must not be set.
    """
    members = read_json(text, source).members(
        ("distribution", "environment", "hyperparameters", "instance_count")
    )
    hyperparameters = members["hyperparameters"].members((), (_BUCKET,))
    arguments = EstimatorArguments(
        num_instances=members["instance_count"].integer(1, _MAX_NODES),
        mpi_processes_per_host=_processes(members["distribution"]),
        variables=tuple(sorted(_variables(members["environment"]).items())),
        bucket_cap_mb=hyperparameters[_BUCKET].integer(1, 2**20) if hyperparameters else None,
    )
    if write(arguments) != text:
        raise InputFileError(source, "is not as an export writes it: it was changed, or cut off")
    return arguments


def _processes(distribution: Value) -> int | None:
    kinds = distribution.members((), ("torch_distributed", "mpi"))
    if "mpi" not in kinds:
        return None
    mpi = kinds["mpi"].members(("enabled", "processes_per_host"), ("custom_mpi_options",))
    return mpi["processes_per_host"].integer(1, _MAX_NODES)


def _variables(environment: Value) -> dict[str, str]:
    variables = {}
    for name, value in environment.mapping(MAX_VARIABLES).items():
        if is_never_set(name):
            value.fail("is NCCL's or its network's, which SageMaker's launchers set")
        text = value.text()
        if not _PLAIN.fullmatch(text):
            value.fail("has a blank or sign at which SageMaker cuts mpirun's options")
        variables[name] = text
    return variables


def how_to_use(path: str) -> str:
    """Lines of a script and prose."""
    return (
        "plan.json goes into source_dir; in the script that starts the job\n"
        "  import json\n"
        f"  estimator = PyTorch(source_dir=…, entry_point=…, **json.load(open({path!r})))"
    )


TARGET: Final = Target(
    name="sagemaker",
    summary="arguments of an estimator (distribution, environment, hyperparameters), JSON",
    versions=str(VERSIONS),
    from_plan=from_plan,
    write=write,
    read=read,
    how_to_use=how_to_use,
)
