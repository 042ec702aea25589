"""Horovod's settings as environment variables, for jobs that ``horovodrun`` does not start."""

from typing import Final

from topotune.errors import InputFileError
from topotune.plan.exports.fragment_texts import read_variables, write_variables
from topotune.plan.exports.horovod import MAX_FUSION_BYTES, VERSIONS, HorovodSettings, from_plan
from topotune.plan.exports.target import Target

_FUSION: Final = "HOROVOD_FUSION_THRESHOLD"
_TORUS: Final = "HOROVOD_TORUS_ALLREDUCE"


def environment(settings: HorovodSettings) -> dict[str, str]:
    """The variables; the threshold is in bytes."""
    variables = {}
    if settings.fusion_threshold_bytes is not None:
        variables[_FUSION] = str(settings.fusion_threshold_bytes)
    if settings.torus_allreduce is not None:
        variables[_TORUS] = "1" if settings.torus_allreduce else "0"
    return variables


def write(settings: HorovodSettings) -> str:
    """A line ``NAME=VALUE`` each."""
    return write_variables(environment(settings))


def read(text: str, source: str) -> HorovodSettings:
    """What `write` wrote.

    Raises:
        InputFileError: other variables, or values that are none of theirs.
    """
    variables = read_variables(text, source)
    for name in variables:
        if name not in (_FUSION, _TORUS):
            raise InputFileError(source, f"sets {name[:60]}, which is no setting of this export")
    threshold, torus = variables.get(_FUSION), variables.get(_TORUS)
    if threshold is not None:
        is_number = threshold.isascii() and threshold.isdigit() and len(threshold) <= 13
        if not is_number or not 1 <= int(threshold) <= MAX_FUSION_BYTES:
            raise InputFileError(source, f"{_FUSION} is {threshold[:40]!r}, not bytes from 1 to 2^40")
    if torus not in (None, "0", "1"):
        raise InputFileError(source, f"{_TORUS} is {torus[:40]!r}, not 0 or 1")
    return HorovodSettings(
        fusion_threshold_bytes=None if threshold is None else int(threshold),
        torus_allreduce=None if torus is None else torus == "1",
    )


def how_to_use(path: str) -> str:
    """Lines of a shell."""
    return f"set -a; . {path}; set +a\nmpirun -x HOROVOD_FUSION_THRESHOLD … python train.py"


TARGET: Final = Target(
    name="horovod-env",
    summary="the same as environment variables, for mpirun and srun",
    versions=str(VERSIONS),
    from_plan=from_plan,
    write=write,
    read=read,
    environment=environment,
    yields_to=("HOROVOD_AUTOTUNE",),
    how_to_use=how_to_use,
)
