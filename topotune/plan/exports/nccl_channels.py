"""How many channels NCCL may use in one process group, where a plan's evidence says it for the whole group.

Theory of operation. ``max_ctas`` of a communicator's configuration knows neither sizes nor collectives. So it
is written for a group only where the plan's tables of that group name NCCL's algorithms at every size, all of
them with the same number of channels: that is what was measured there, at all sizes. A minimum of CTAs, CGA
clusters, a network's name or a stream's priority are measured by no plan, and are never written.

Unlike NCCL_MAX_CTAS, which holds for the whole job, this lets groups of one job differ. NCCL_MAX_CTAS, where
the job sets it, is stronger.

Source: NCCL 2.30, ``ncclConfig_t`` and ``NCCL_MAX_CTAS`` (at most 64 channels, 32 up to 2.24).
"""

from dataclasses import dataclass
from typing import Final

from topotune.documents import Value
from topotune.plan.exports.nccl_env import most_ctas
from topotune.plan.exports.nccl_rows import Version, shown
from topotune.plan.load import take_shape
from topotune.plan.model import COLLECTIVES, Group, GroupShape, Plan
from topotune.plan.nccl import MAX_NCCL_CHANNELS, NCCL

MAX_CTAS: Final = "max_ctas"
OTHER_COLLECTIVES: Final = (
    f"{MAX_CTAS} holds for all collectives of its group, also for those that the plan has no table of"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupChannels:
    """Channels of one kind of process group.

    Attributes:
        shape: of the group.
        max_ctas: channels at most, at all sizes.
    """

    shape: GroupShape
    max_ctas: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Channels:
    """What a plan says about channels, group by group; the world's comes first where it is there."""

    groups: tuple[GroupChannels, ...] = ()
    warnings: tuple[str, ...] = ()


def channels_of(plan: Plan, version: Version) -> Channels:
    """The groups whose every measured size has one number of channels; none for a plan of another backend.

    Args:
        plan: the plan.
        version: of the NCCL that will run; it bounds the number.
    """
    if plan.fingerprint.hard.backend != NCCL:
        return Channels()
    groups, warnings = [], []
    for group in plan.groups:
        named = _named(group)
        only = named.pop() if len(named) == 1 else None
        if only is None:
            if named - {None}:
                warnings.append(
                    f"numbers of channels for groups of {group.shape.num_ranks} ranks are left out: they "
                    f"differ by size, or the plan leaves some to NCCL, and {MAX_CTAS} holds for all alike"
                )
        elif only > most_ctas(version):
            warnings.append(
                f"{only} channels for groups of {group.shape.num_ranks} ranks are left out: NCCL "
                f"{shown(version)} takes at most {most_ctas(version)}"
            )
        else:
            groups.append(GroupChannels(shape=group.shape, max_ctas=only))
    if groups:
        warnings.append(OTHER_COLLECTIVES)
    return Channels(groups=tuple(groups), warnings=tuple(warnings))


def _named(group: Group) -> set[int | None]:
    """The channels that rows of a group name; None among them where one names none."""
    tables = (getattr(group, collective) for collective in COLLECTIVES)
    rows = [row for table in tables for row in table or ()]
    return {row.params.get("channels") if row.algorithm == NCCL else None for row in rows}


def groups_to_json(groups: tuple[GroupChannels, ...]) -> list[dict[str, object]]:
    """A list of shapes, each with the options of ``ProcessGroupNCCL.Options().config`` beside it."""
    return [
        {
            "shape": {
                "num_ranks": group.shape.num_ranks,
                "num_nodes": group.shape.num_nodes,
                "ranks_per_node": group.shape.ranks_per_node,
                "stride": group.shape.stride,
            },
            "config": {MAX_CTAS: group.max_ctas},
        }
        for group in groups
    ]


def take_groups(value: Value, max_groups: int) -> tuple[GroupChannels, ...]:
    """What `groups_to_json` wrote.

    Raises:
        UsageError: of the value's own kind, where it is anything else.
    """
    found = []
    for item in value.items(max_groups, min_items=1):
        members = item.members(("config", "shape"))
        config = members["config"].members((MAX_CTAS,))
        found.append(
            GroupChannels(
                shape=take_shape(members["shape"]),
                max_ctas=config[MAX_CTAS].integer(1, MAX_NCCL_CHANNELS),
            )
        )
    return tuple(found)
