"""PyTorch: arguments of DistributedDataParallel, the process groups' backend and options, gloo's interface.

Theory of operation. An explicit ``bucket_cap_mb=25`` is not DDP's default: it makes the first bucket 25 MiB
too, where the default makes it 1 MiB (since torch 2.4; before, no cap could say the former). So nothing is
written where the plan has no sizes. Several sizes need ``bucket_cap_mb_list`` (torch 2.11); they were
measured together, so an older torch gets none of them.

Of the options of ProcessGroupNCCL, ``config.max_ctas`` is written, by shape of group, where the plan's rows
of the group all say it (`topotune.plan.exports.nccl_channels`). The others (``is_high_priority_stream``,
``min_ctas``, ``cga_cluster_size``, ``net_name``, ``traffic_class``, …) are measured by no plan and stay as
they are. Nothing but data is written, no code.
"""

from dataclasses import dataclass
from typing import Any, Final

from topotune.plan import Plan
from topotune.plan.exports.algorithms import lost_tables
from topotune.plan.exports.buckets import caps_of, keeps_own, one_ddp_cap
from topotune.plan.exports.fragment_texts import read_json, write_json
from topotune.plan.exports.interface import INTERFACE_VARIABLE, interface_of, take_interface
from topotune.plan.exports.nccl_channels import GroupChannels, channels_of, groups_to_json, take_groups
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions
from topotune.plan.load import MAX_BUCKETS
from topotune.plan.rules import MAX_GROUPS

VERSIONS: Final = Versions(program="PyTorch", oldest=(2, 4), newest=(2, 14))
_LIST_SINCE: Final = (2, 11)
_NCCL_OF_WHEELS: Final = (((2, 4), (2, 20)), ((2, 5), (2, 21)), ((2, 7), (2, 26)))
"""(torch, the NCCL of its wheels from that version on), as far as the bound on channels goes."""

_OPTIONS: Final = "process_group_nccl"


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchSettings:
    """What a training script hands to torch.

    Attributes:
        backend: of ``init_process_group``: that of the plan's measurements.
        bucket_caps_mb: MiB; one is ``bucket_cap_mb``, several ``bucket_cap_mb_list``; None keeps DDP's own.
        interface: value of GLOO_SOCKET_IFNAME; None leaves gloo its choice.
        nccl_groups: options of ProcessGroupNCCL for groups of a shape; the world's first.
    """

    backend: str
    bucket_caps_mb: tuple[float, ...] | None = None
    interface: str | None = None
    nccl_groups: tuple[GroupChannels, ...] = ()


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """The plan for torch."""
    version = VERSIONS.chosen(options.version)
    caps = caps_of(plan)
    if caps is None:
        warnings: tuple[str, ...] = (keeps_own("DDP"),)
    elif len(caps) > 1 and version < _LIST_SINCE:
        _, warnings = one_ddp_cap(plan, f"DDP of torch {version[0]}.{version[1]}")
        caps = None
    else:
        warnings = ()
    nccl = next(nccl for torch, nccl in reversed(_NCCL_OF_WHEELS) if torch <= version)
    channels = channels_of(plan, nccl)
    settings = TorchSettings(
        backend=plan.fingerprint.hard.backend,
        bucket_caps_mb=caps,
        interface=interface_of(plan),
        nccl_groups=channels.groups,
    )
    lost = lost_tables(plan, "torch's own backends")
    return Translated(document=settings, warnings=(*warnings, *channels.warnings, *lost))


def write(settings: TorchSettings) -> str:
    """A JSON object: arguments of DDP and ``init_process_group``, the environment before, NCCL's options."""
    ddp: dict[str, Any] = {}
    caps = settings.bucket_caps_mb
    if caps is not None:
        ddp = {"bucket_cap_mb": caps[0]} if len(caps) == 1 else {"bucket_cap_mb_list": list(caps)}
    environment = {} if settings.interface is None else {INTERFACE_VARIABLE: settings.interface}
    document: dict[str, Any] = {
        "ddp": ddp,
        "environment": environment,
        "init_process_group": {"backend": settings.backend},
    }
    if settings.nccl_groups:
        document[_OPTIONS] = groups_to_json(settings.nccl_groups)
    return write_json(document)


def read(text: str, source: str) -> TorchSettings:
    """What `write` wrote."""
    members = read_json(text, source).members(("ddp", "environment", "init_process_group"), (_OPTIONS,))
    ddp = members["ddp"].members((), ("bucket_cap_mb", "bucket_cap_mb_list"))
    caps: tuple[float, ...] | None = None
    if len(ddp) == 2:
        members["ddp"].fail("has both bucket_cap_mb and bucket_cap_mb_list, which overrides it silently")
    for key, value in ddp.items():
        items = value.items(MAX_BUCKETS, min_items=2) if key == "bucket_cap_mb_list" else [value]
        caps = tuple(item.number(0.0, 2**20, above=True) for item in items)
    environment = members["environment"].members((), (INTERFACE_VARIABLE,))
    return TorchSettings(
        backend=members["init_process_group"].members(("backend",))["backend"].text(max_length=100),
        bucket_caps_mb=caps,
        interface=take_interface(environment[INTERFACE_VARIABLE]) if environment else None,
        nccl_groups=take_groups(members[_OPTIONS], MAX_GROUPS) if _OPTIONS in members else (),
    )


def how_to_use(path: str) -> str:
    """Lines of a training script."""
    return (
        "in the training script\n"
        "  import json, os\n"
        f"  settings = json.load(open({path!r}))\n"
        '  os.environ.update(settings["environment"] | os.environ)\n'
        '  dist.init_process_group(**settings["init_process_group"])\n'
        '  model = DistributedDataParallel(model, **settings["ddp"])\n'
        f'where "{_OPTIONS}" is in it, for a group of such a shape\n'
        "  options = dist.ProcessGroupNCCL.Options()\n"
        '  for name, value in entry["config"].items(): setattr(options.config, name, value)\n'
        "  dist.init_process_group(…, pg_options=options) or dist.new_group(…, pg_options=options)\n"
        'which buckets came of it, after three steps: model._get_ddp_logging_data()["rebuilt_bucket_sizes"]'
    )


TARGET: Final = Target(
    name="torch",
    summary="arguments of DDP and init_process_group, options of NCCL's process groups, JSON",
    versions=str(VERSIONS),
    from_plan=from_plan,
    write=write,
    read=read,
    how_to_use=how_to_use,
)
