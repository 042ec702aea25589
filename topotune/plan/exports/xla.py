"""XLA's flags for JAX: size of combined all-reduces, two-level all-reduce, measured figures of the network.

Theory of operation. A flag that XLA does not know ends the process, so each flag stands here with the
versions of jaxlib in which it was found, and without ``--for`` only those are written that all of them
know. XLA in TensorFlow and in PyTorch/XLA has other versions; nothing is written for them, and `topotune
run`, which cannot know what the job will load, sets none. Our flags go before the user's own, which win as
the later ones do.

``nic_speed_gbps`` is in gigabytes/s despite its name, and the times must be whole microseconds above 0, or
XLA ignores them. The figures act where XLA's analytical estimator is on; whether it is stays XLA's choice.

Checked in the wheels of jaxlib 0.4.35, 0.5.3, 0.6.2, 0.7.2, 0.8.3, 0.9.2 and 0.10.2.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from topotune.errors import InputFileError
from topotune.plan import Plan
from topotune.plan.exports.algorithms import lost_tables, two_level
from topotune.plan.exports.buckets import one_size
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions

VERSIONS: Final = Versions(program="jaxlib", oldest=(0, 5), newest=(0, 10))
COMBINE: Final = "xla_gpu_all_reduce_combine_threshold_bytes"
TWO_LEVEL: Final = "xla_gpu_all_reduce_blueconnect_num_devices_per_host"
FIGURES: Final = "xla_gpu_analytical_latency_estimator_options"
KNOWN_SINCE: Final[Mapping[str, tuple[int, int]]] = {COMBINE: (0, 5), TWO_LEVEL: (0, 5), FIGURES: (0, 6)}
"""Flag → the first version of which all releases are known to have it."""

HEURISTIC_SINCE: Final = (0, 7)
"""From here on XLA may combine by a heuristic of its own, whatever the threshold."""

_OWN_COMBINE_BYTES: Final = 30 * 2**20 + 7
_BETWEEN: Final = "between nodes"
_VALUES: Final[Mapping[str, re.Pattern[str]]] = {
    COMBINE: re.compile(r"[1-9][0-9]{0,12}"),
    TWO_LEVEL: re.compile(r"[1-9][0-9]{0,6}"),
    FIGURES: re.compile(
        r"nic_speed_gbps=[0-9]{1,6}(\.[0-9]{1,6})?,rtt_us=[1-9][0-9]{0,8},gpus_per_node=[1-9][0-9]{0,6}"
    ),
}
_NOTHING: Final = "# no XLA flags to set\n"
_LINE: Final = re.compile(r'export XLA_FLAGS="((?:--[a-z_]+=[a-z_0-9.,=]+ )+)\$\{XLA_FLAGS-\}"\n')


@dataclass(frozen=True, kw_only=True, slots=True)
class XlaFlags:
    """Flags that every version chosen knows.

    Attributes:
        values: name, without dashes → value.
    """

    values: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            assert name in _VALUES, name
            assert _VALUES[name].fullmatch(value), (name, value)


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """The plan for JAX."""
    newest = VERSIONS.chosen(options.version)
    version = VERSIONS.oldest if options.version is None else newest
    hard = plan.fingerprint.hard
    if not hard.device_kind.startswith("cuda"):
        lost = f"the plan is for {hard.device_kind}, and XLA's flags are for GPUs: there is none to set"
        return Translated(document=XlaFlags(), warnings=(lost,))
    size = one_size(plan, "XLA")
    warnings = list(size.warnings)
    values = {}
    if size.num_bytes is not None:
        values[COMBINE] = str(size.num_bytes)
        if newest >= HEURISTIC_SINCE:
            warnings.append(
                "XLA may combine by a heuristic of its own, whatever the threshold: --xla_dump_to shows what "
                "it made"
            )
    levels = two_level(plan)
    is_two_level = levels is not None and levels.min_bytes <= (size.num_bytes or _OWN_COMBINE_BYTES)
    if levels is not None and is_two_level:
        values[TWO_LEVEL] = str(levels.ranks_per_node)
        if levels.min_bytes:
            warnings.append(f"{TWO_LEVEL} is for all sizes; the plan has it from {levels.min_bytes} bytes on")
    figures = _figures(plan)
    if figures is not None and version >= KNOWN_SINCE[FIGURES]:
        values[FIGURES] = figures
    elif figures is None and _is_measured(plan):
        warnings.append(
            f"XLA's model knows one class of links between nodes: {FIGURES} is left out, since the plan has "
            "several, or nodes that differ"
        )
    elif figures is not None:
        warnings.append(
            f"the measured figures of the network are left out: not all versions know {FIGURES}; "
            "--for 0.6 and newer do"
        )
    warnings += lost_tables(plan, "XLA", but="native_hierarchical" if is_two_level else None)
    assert all(KNOWN_SINCE[name] <= version for name in values)
    return Translated(document=XlaFlags(values=values), warnings=tuple(warnings))


def _is_measured(plan: Plan) -> bool:
    """Whether links between nodes were timed with NCCL; what another library reached says little of it."""
    is_nccl = plan.fingerprint.hard.backend == "nccl"
    return is_nccl and any(link.name.startswith(_BETWEEN) for link in plan.links)


def _figures(plan: Plan) -> str | None:
    """Options of XLA's model of the network; None where NCCL was not measured between nodes."""
    hard = plan.fingerprint.hard
    links = [link for link in plan.links if link.name.startswith(_BETWEEN)]
    if len(links) != 1 or not _is_measured(plan) or len(set(hard.ranks_per_node)) != 1:
        return None
    link = links[0]
    speed = f"{link.bandwidth_bytes_per_s / 1e9:.3f}"
    round_trip_us = max(1, round(2 * link.latency_s * 1e6))
    figures = f"nic_speed_gbps={speed},rtt_us={round_trip_us},gpus_per_node={hard.ranks_per_node[0]}"
    return figures if float(speed) > 0 and _VALUES[FIGURES].fullmatch(figures) else None


def write(flags: XlaFlags) -> str:
    """A line of a shell that puts the flags before those which are there."""
    if not flags.values:
        return _NOTHING
    shown = "".join(f"--{name}={value} " for name, value in flags.values.items())
    return f'export XLA_FLAGS="{shown}${{XLA_FLAGS-}}"\n'


def read(text: str, source: str) -> XlaFlags:
    """What `write` wrote.

    Raises:
        InputFileError: it is anything else, or has a flag that is not known to exist.
    """
    if text == _NOTHING:
        return XlaFlags()
    match = _LINE.fullmatch(text[:10_000])
    if match is None:
        raise InputFileError(source, "is not the line 'export XLA_FLAGS=…' of an export")
    values = {}
    for flag in match[1].split():
        name, _, value = flag.removeprefix("--").partition("=")
        if name not in _VALUES:
            raise InputFileError(source, f"has the flag --{name[:80]}, which no version is known to have")
        if name in values or not _VALUES[name].fullmatch(value):
            raise InputFileError(source, f"has --{name} twice, or with no value of it: {value[:60]}")
        values[name] = value
    return XlaFlags(values=values)


def how_to_use(path: str) -> str:
    """Lines of a shell."""
    return (
        f". {path}\n"
        "python -c \"import jax; jax.devices('cpu')\"   # ends at once if this jaxlib lacks a flag\n"
        "python train.py"
    )


TARGET: Final = Target(
    name="xla",
    summary="flags of XLA for JAX on GPUs, a line of a shell",
    versions=str(VERSIONS),
    from_plan=from_plan,
    write=write,
    read=read,
    how_to_use=how_to_use,
)
