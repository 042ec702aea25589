"""Megatron-LM: options of NCCL's communicators, the YAML file of ``--nccl-communicator-config-path``.

The file goes by the names of Megatron's groups, and a plan goes by shapes. The world's channels
(`topotune.plan.exports.nccl_channels`) are written for the groups that Megatron reduces gradients on, which
are the world where all ranks are data-parallel replicas; which of Megatron's other groups has the shape of a
plan's smaller group depends on the job's parallel sizes, so nothing is written for these. Megatron skips
names that it does not know without a word, so none that differs by release is written.

``min_ctas``, ``cga_cluster_size``, ``net_name`` and ``is_high_priority_stream`` are measured by no plan; a
``net_name`` that a machine lacks ends the job. An empty mapping is a valid file that sets nothing.
"""

from dataclasses import dataclass
from typing import Final

from topotune.plan import Plan
from topotune.plan.exports.algorithms import lost_tables
from topotune.plan.exports.fragment_texts import number_of, read_yaml, write_yaml
from topotune.plan.exports.nccl_channels import MAX_CTAS, channels_of
from topotune.plan.exports.nccl_rows import NEWEST
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions
from topotune.plan.nccl import MAX_NCCL_CHANNELS

VERSIONS: Final = Versions(program="Megatron-Core", oldest=(0, 8), newest=(0, 16))
GRADIENT_GROUPS: Final = ("dp", "dp_cp")
"""The groups of gradients, without and with context parallelism."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommunicatorConfig:
    """What the file says.

    Attributes:
        max_ctas: of each of `GRADIENT_GROUPS`; None sets nothing.
    """

    max_ctas: int | None = None


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """The plan for Megatron-LM's communicators."""
    VERSIONS.chosen(options.version)
    channels = channels_of(plan, NEWEST)
    world = plan.groups[0].shape
    of_world = [group.max_ctas for group in channels.groups if group.shape == world]
    warnings = list(channels.warnings) if of_world else []
    if of_world:
        warnings.append(
            f"{' and '.join(GRADIENT_GROUPS)} are the plan's {world.num_ranks} ranks only where all of them "
            "are data-parallel: leave the file out of other jobs"
        )
    else:
        warnings.append("there is no number of channels that the plan has for all sizes: nothing is set")
    if len(channels.groups) > len(of_world):
        warnings.append("channels of groups smaller than the world have no name in Megatron that is theirs")
    warnings += lost_tables(plan, "Megatron-LM")
    document = CommunicatorConfig(max_ctas=of_world[0] if of_world else None)
    return Translated(document=document, warnings=tuple(warnings))


def write(config: CommunicatorConfig) -> str:
    """The YAML file."""
    if config.max_ctas is None:
        return "{}\n"
    return write_yaml({group: {MAX_CTAS: config.max_ctas} for group in GRADIENT_GROUPS})


def read(text: str, source: str) -> CommunicatorConfig:
    """What `write` wrote.

    Raises:
        InputFileError: it is anything else.
    """
    value = read_yaml(text, source)
    members = value.members((), GRADIENT_GROUPS)
    found = {
        group: number_of(member.members((MAX_CTAS,))[MAX_CTAS], 1, MAX_NCCL_CHANNELS)
        for group, member in members.items()
    }
    if found and (len(found) < len(GRADIENT_GROUPS) or len(set(found.values())) > 1):
        value.fail(f"does not say the same of {' and '.join(GRADIENT_GROUPS)}, as an export does")
    return CommunicatorConfig(max_ctas=next(iter(found.values()), None))


def how_to_use(path: str) -> str:
    """A line of a shell."""
    return (
        f"torchrun … pretrain_gpt.py --nccl-communicator-config-path {path} …\n"
        "NCCL_MAX_CTAS in the environment is stronger than the file"
    )


TARGET: Final = Target(
    name="megatron-nccl",
    summary="channels of Megatron-LM's NCCL groups, the YAML of --nccl-communicator-config-path",
    versions=str(VERSIONS),
    from_plan=from_plan,
    write=write,
    read=read,
    how_to_use=how_to_use,
)
