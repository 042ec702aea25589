"""Kubernetes: the variables of a container, and the volume that brings the plan into the pod.

The plan comes as a ConfigMap, of at most 1 MiB. All values are quoted: the API takes texts alone, and ``on``
or ``1`` would be none.
"""

from dataclasses import dataclass
from typing import Any, Final

from topotune.errors import InputFileError
from topotune.plan import Plan, file_bytes
from topotune.plan.exports.fragment_texts import MAX_VARIABLES, read_yaml, write_yaml
from topotune.plan.exports.job_environment import PLAN_VARIABLE, job_environment, nothing_set
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions

VERSIONS: Final = Versions(program="Kubernetes", oldest=(1, 20), newest=(1, 35))
_MAX_CONFIG_MAP_BYTES: Final = 2**20
_VOLUME: Final = "topotune-plan"
_FOLDER: Final = "/etc/topotune"
_PLAN_PATH: Final = f"{_FOLDER}/plan.json"
_MOUNTS: Final[list[dict[str, Any]]] = [{"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}]
_VOLUMES: Final[list[dict[str, Any]]] = [{"name": _VOLUME, "configMap": {"name": _VOLUME}}]


@dataclass(frozen=True, kw_only=True, slots=True)
class PodSettings:
    """What goes into a pod.

    Attributes:
        variables: of the container, name and value; with TOPOTUNE_PLAN comes the volume.
    """

    variables: tuple[tuple[str, str], ...] = ()


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """The plan for Kubernetes."""
    VERSIONS.chosen(options.version)
    translation = job_environment(plan, _PLAN_PATH)
    warnings = list(translation.refusals)
    if not translation.variables:
        warnings.append(nothing_set("Kubernetes"))
    num_bytes = len(file_bytes(plan))
    if num_bytes > _MAX_CONFIG_MAP_BYTES:
        warnings.append(
            f"the plan has {num_bytes} bytes, more than a ConfigMap holds (1 MiB): mount it in another way "
            f"at {_FOLDER}"
        )
    variables = tuple((variable.name, variable.value) for variable in translation.variables)
    return Translated(document=PodSettings(variables=variables), warnings=tuple(warnings))


def write(settings: PodSettings) -> str:
    """YAML: ``env`` and ``volumeMounts`` for the container, ``volumes`` for the pod."""
    document: dict[str, Any] = {"env": [{"name": name, "value": value} for name, value in settings.variables]}
    if PLAN_VARIABLE in dict(settings.variables):
        document |= {"volumeMounts": _MOUNTS, "volumes": _VOLUMES}
    return write_yaml(document)


def read(text: str, source: str) -> PodSettings:
    """What `write` wrote.

    Raises:
        InputFileError: it is anything else.
    """
    members = read_yaml(text, source).members(("env",), ("volumeMounts", "volumes"))
    variables = []
    for item in members["env"].items(MAX_VARIABLES):
        variable = item.members(("name", "value"))
        variables.append((variable["name"].text(), variable["value"].text()))
    settings = PodSettings(variables=tuple(variables))
    if write(settings) != text:
        raise InputFileError(source, "is not as an export writes it: it was changed, or cut off")
    return settings


def how_to_use(path: str) -> str:
    """Lines of a shell and prose."""
    return (
        f"kubectl create configmap {_VOLUME} --from-file=plan.json\n"
        f"env and volumeMounts of {path} go into the container that trains, volumes into its pod's spec"
    )


TARGET: Final = Target(
    name="kubernetes",
    summary="variables and volume of a pod, YAML",
    versions=str(VERSIONS),
    from_plan=from_plan,
    write=write,
    read=read,
    how_to_use=how_to_use,
)
