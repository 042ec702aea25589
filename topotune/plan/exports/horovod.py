"""Horovod: size of its fusion buffer, and its two-level allreduce; the file of ``horovodrun``.

Theory of operation. The file has MiB, the environment bytes (`topotune.plan.exports.horovod_env`). The file
reaches jobs that ``horovodrun`` starts; those of other launchers read the environment alone. Its reader skips
unknown keys without a word, and fails on an empty file, so that where nothing is set there is an empty
``params``.

``torus_allreduce`` is NCCL's reduce-scatter in the node, allreduce between nodes, all-gather in the node, for
all sizes. It is written only where the plan says the same of NCCL, from the fusion buffer's size or less on.
``hierarchical_allreduce`` goes through the host's memory and MPI, which no plan measures; the cycle time and
the cache are not measured either. A knob that is set is out of Horovod's own autotuning.
"""

from dataclasses import dataclass
from typing import Any, Final

from topotune.errors import InputFileError
from topotune.plan import Plan
from topotune.plan.exports.algorithms import lost_tables, two_level
from topotune.plan.exports.buckets import MIB, one_size
from topotune.plan.exports.fragment_texts import read_yaml, write_yaml
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions

VERSIONS: Final = Versions(program="Horovod", oldest=(0, 20), newest=(0, 28))
_TORUS_SINCE: Final = (0, 26)
_OWN_FUSION_BYTES: Final = 128 * MIB
MAX_FUSION_BYTES: Final = 2**40


@dataclass(frozen=True, kw_only=True, slots=True)
class HorovodSettings:
    """What Horovod is told.

    Attributes:
        fusion_threshold_bytes: at least 1 (0 would end all fusing); None keeps Horovod's own.
        torus_allreduce: True turns it on; None leaves it as it is.
    """

    fusion_threshold_bytes: int | None = None
    torus_allreduce: bool | None = None


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """The plan for Horovod."""
    version = VERSIONS.chosen(options.version)
    size = one_size(plan, "Horovod")
    warnings = list(size.warnings)
    levels = two_level(plan)
    torus = None
    if levels is not None and levels.min_bytes <= (size.num_bytes or _OWN_FUSION_BYTES):
        if version < _TORUS_SINCE:
            warnings.append("Horovod has torus_allreduce, which the plan calls for, from 0.26 on")
        else:
            torus = True
            if levels.min_bytes:
                warnings.append(
                    f"torus_allreduce is for all sizes; the plan has it from {levels.min_bytes} bytes on"
                )
    warnings += lost_tables(plan, "Horovod", but="native_hierarchical" if torus else None)
    return Translated(
        document=HorovodSettings(fusion_threshold_bytes=size.num_bytes, torus_allreduce=torus),
        warnings=tuple(warnings),
    )


def write(settings: HorovodSettings) -> str:
    """The YAML file; MiB may have a fraction, which is exact in binary."""
    params: dict[str, Any] = {}
    if settings.fusion_threshold_bytes is not None:
        whole, rest = divmod(settings.fusion_threshold_bytes, MIB)
        params["fusion_threshold_mb"] = settings.fusion_threshold_bytes / MIB if rest else whole
    if settings.torus_allreduce is not None:
        params["torus_allreduce"] = settings.torus_allreduce
    return write_yaml({"params": params})


def read(text: str, source: str) -> HorovodSettings:
    """What `write` wrote.

    Raises:
        InputFileError: it is no such file, or its threshold is none of whole bytes.
    """
    params = read_yaml(text, source).members(("params",))["params"]
    members = params.members((), ("fusion_threshold_mb", "torus_allreduce"))
    threshold = torus = None
    if "fusion_threshold_mb" in members:
        value = members["fusion_threshold_mb"]
        shown = value.text(max_length=40)
        try:
            num_bytes = float(shown) * MIB
        except ValueError as problem:
            raise InputFileError(source, f"is {shown!r}, not a number", place=value.place) from problem
        if not (1 <= num_bytes <= MAX_FUSION_BYTES and num_bytes == int(num_bytes)):
            value.fail(f"is {shown}, not whole bytes from 1 to 2^40")
        threshold = int(num_bytes)
    if "torus_allreduce" in members:
        torus = members["torus_allreduce"].text(one_of=("true", "false")) == "true"
    return HorovodSettings(fusion_threshold_bytes=threshold, torus_allreduce=torus)


def how_to_use(path: str) -> str:
    """Lines of a shell and prose."""
    return (
        f"horovodrun --config-file {path} -np 4 python train.py\n"
        "jobs of other launchers read the environment: topotune export … --to horovod-env"
    )


TARGET: Final = Target(
    name="horovod",
    summary="fusion buffer and two-level allreduce, the YAML file of horovodrun",
    versions=str(VERSIONS),
    from_plan=from_plan,
    write=write,
    read=read,
    how_to_use=how_to_use,
)
