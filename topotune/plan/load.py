"""Reading a plan. Standard library only: this runs inside training jobs.

Nothing in the file is trusted: sizes, depths, counts, texts and numbers are bounded, every key must be known,
and the rules of `topotune.plan.rules` must hold. An unknown key is refused rather than skipped, since a
key with a typing error in it would otherwise lose what it says without a word; therefore each new key of the
format raises ``schema_version``. A newer version is refused, an older one is migrated.
"""

import os
from collections.abc import Callable
from typing import Any, Final, TypeVar

from topotune.documents import Migrations, Value, document_of, parse_json, read_bytes
from topotune.errors import PlanError
from topotune.plan.model import (
    COLLECTIVES,
    SCHEMA,
    SCHEMA_VERSION,
    Bottleneck,
    Certificate,
    Context,
    Ddp,
    Evidence,
    Fingerprint,
    Group,
    GroupShape,
    HardFingerprint,
    LinkClass,
    Plan,
    Row,
    SoftFingerprint,
)
from topotune.plan.rules import MAX_GROUPS, MAX_RANKS, MAX_ROWS, BrokenRule

MAX_PARAMS: Final = 16
MAX_CUT: Final = 2**16
MAX_WARNINGS: Final = 256
MAX_LINK_CLASSES: Final = 4096
MAX_BUCKETS: Final = 4096
MAX_SECONDS: Final = 1e9
MAX_RATIO: Final = 1e9

MIGRATIONS: Final[Migrations] = {}
"""Older schema_version → what makes a document of the next version out of it; version 1 is the first."""

T = TypeVar("T")
Absent = TypeVar("Absent")


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan from a file.

        >>> plan = load_plan("plan.json")
        >>> [(row.min_bytes, row.algorithm) for row in plan.groups[0].allreduce]
        [(0, 'default'), (1024, 'ring'), (1048576, 'hierarchical')]

    Raises:
        PlanError: the file cannot be read, is no plan, or breaks a rule; it names file, place and value.
    """
    return plan_from_bytes(read_bytes(path, error=PlanError), os.fspath(path))


def plan_from_bytes(data: bytes, source: str) -> Plan:
    """Read a plan from its JSON text.

    Args:
        data: UTF-8.
        source: names the text in errors: a path, or where else the bytes come from.

    Raises:
        PlanError: as `load_plan`.
    """
    return _plan(parse_json(data, source, error=PlanError))


def plan_from_document(document: dict[str, Any], source: str) -> Plan:
    """Read a plan from its parsed JSON, as `plan_to_document` gives it.

    Raises:
        PlanError: as `load_plan`.
    """
    return _plan(Value(document, "", source, PlanError))


def _plan(root: Value) -> Plan:
    document = document_of(root, SCHEMA, SCHEMA_VERSION, MIGRATIONS)
    members = document.members(
        ("schema", "schema_version", "groups", "fingerprint", "certificate", "context"),
        ("links", "ddp", "rank_order", "warnings"),
    )
    # The fingerprint first: with another world size, what the groups say would only confuse.
    fingerprint = _fingerprint(members["fingerprint"])
    return _make(
        document,
        Plan,
        fingerprint=fingerprint,
        groups=tuple(take_group(group) for group in members["groups"].items(MAX_GROUPS, what="groups")),
        certificate=take_certificate(members["certificate"]),
        context=_context(members["context"]),
        links=_when(members, "links", lambda links: tuple(map(_link, links.items(MAX_LINK_CLASSES))), ()),
        ddp=_nullable(members, "ddp", _ddp),
        rank_order=_nullable(members, "rank_order", lambda order: _integers(order, MAX_RANKS, MAX_RANKS - 1)),
        warnings=_when(members, "warnings", lambda texts: _texts(texts, MAX_WARNINGS), ()),
    )


def _make(value: Value, cls: Callable[..., T], **fields: Any) -> T:
    """Make a part of the model, and say where in the file it breaks a rule."""
    try:
        return cls(**fields)
    except BrokenRule as rule:
        value.fail(rule.problem, inside=rule.place)


def _when(members: dict[str, Value], key: str, take: Callable[[Value], T], absent: Absent) -> T | Absent:
    return take(members[key]) if key in members else absent


def _nullable(members: dict[str, Value], key: str, take: Callable[[Value], T]) -> T | None:
    return members[key].optional(take) if key in members else None


def _integers(value: Value, max_items: int, maximum: int) -> tuple[int, ...]:
    return tuple(item.integer(0, maximum) for item in value.items(max_items))


def _texts(value: Value, max_items: int) -> tuple[str, ...]:
    return tuple(item.text() for item in value.items(max_items))


def _bytes(value: Value) -> int:
    return value.integer(1)


def _seconds(value: Value) -> float:
    return value.number(0.0, MAX_SECONDS)


def _seconds_above_0(value: Value) -> float:
    return value.number(0.0, MAX_SECONDS, above=True)


def _ratio(value: Value) -> float:
    return value.number(0.0, MAX_RATIO, above=True)


def _ratio_interval(value: Value) -> tuple[float, float]:
    return value.interval(0.0, MAX_RATIO)


def _share_interval(value: Value) -> tuple[float, float]:
    return value.interval(0.0, 1.0)


def take_group(value: Value) -> Group:
    """The tables of one shape of process groups that an object says.

    Raises:
        TopotuneError: of the value's own kind, where it says none.
    """
    members = value.members(("shape",), COLLECTIVES)
    tables = {
        name: tuple(_row(row) for row in members[name].items(MAX_ROWS, what="rows"))
        for name in COLLECTIVES
        if name in members
    }
    return _make(value, Group, shape=take_shape(members["shape"]), **tables)


def take_shape(value: Value) -> GroupShape:
    """The shape of process groups that an object says.

    Raises:
        TopotuneError: of the value's own kind, where it says none.
    """
    members = value.members(("num_ranks", "num_nodes", "ranks_per_node", "stride"))
    return _make(
        value,
        GroupShape,
        num_ranks=members["num_ranks"].integer(1, MAX_RANKS),
        num_nodes=members["num_nodes"].integer(1, MAX_RANKS),
        ranks_per_node=members["ranks_per_node"].integer(0, MAX_RANKS),
        stride=members["stride"].integer(0, MAX_RANKS),
    )


def _row(value: Value) -> Row:
    members = value.members(
        ("min_bytes", "max_bytes", "algorithm"),
        ("params", "percent_of_optimum", "bottleneck", "no_bound_reason", "evidence"),
    )
    return _make(
        value,
        Row,
        min_bytes=members["min_bytes"].integer(),
        max_bytes=members["max_bytes"].optional(Value.integer),
        algorithm=members["algorithm"].text(max_length=100),
        params=_when(
            members,
            "params",
            lambda params: {name: item.raw for name, item in params.mapping(MAX_PARAMS).items()},
            {},
        ),
        percent_of_optimum=_nullable(members, "percent_of_optimum", lambda share: share.number(above=True)),
        bottleneck=_nullable(members, "bottleneck", _bottleneck),
        no_bound_reason=_nullable(members, "no_bound_reason", Value.text),
        evidence=_nullable(members, "evidence", _evidence),
    )


def _bottleneck(value: Value) -> Bottleneck:
    members = value.members(("text", "cut"))
    return Bottleneck(text=members["text"].text(), cut=_texts(members["cut"], MAX_CUT))


def _evidence(value: Value) -> Evidence:
    members = value.members(
        ("median_s", "default_median_s", "ratio", "ratio_ci", "num_samples", "measured_bytes"),
        ("extrapolated", "predicted_s", "confirmed_bytes", "backward_ratio_ci", "busy_ratio"),
    )
    return _make(
        value,
        Evidence,
        median_s=_seconds_above_0(members["median_s"]),
        default_median_s=_seconds_above_0(members["default_median_s"]),
        ratio=_ratio(members["ratio"]),
        ratio_ci=_ratio_interval(members["ratio_ci"]),
        num_samples=members["num_samples"].integer(1),
        measured_bytes=_bytes(members["measured_bytes"]),
        extrapolated=_when(members, "extrapolated", Value.boolean, False),
        predicted_s=_nullable(members, "predicted_s", _seconds),
        confirmed_bytes=_when(
            members, "confirmed_bytes", lambda sizes: tuple(map(_bytes, sizes.items(MAX_ROWS))), ()
        ),
        backward_ratio_ci=_nullable(members, "backward_ratio_ci", _ratio_interval),
        busy_ratio=_nullable(members, "busy_ratio", _ratio),
    )


def _link(value: Value) -> LinkClass:
    members = value.members(
        (
            "name",
            "num_pairs",
            "latency_s",
            "latency_ci_s",
            "bandwidth_bytes_per_s",
            "bandwidth_ci_bytes_per_s",
            "max_relative_error",
        )
    )
    return LinkClass(
        name=members["name"].text(),
        num_pairs=members["num_pairs"].integer(1),
        latency_s=_seconds(members["latency_s"]),
        latency_ci_s=members["latency_ci_s"].optional(lambda ends: ends.interval(0.0, MAX_SECONDS)),
        bandwidth_bytes_per_s=members["bandwidth_bytes_per_s"].number(above=True),
        bandwidth_ci_bytes_per_s=members["bandwidth_ci_bytes_per_s"].optional(Value.interval),
        max_relative_error=members["max_relative_error"].optional(Value.number),
    )


def _ddp(value: Value) -> Ddp:
    texts = ("gradients", "compute", "bound")
    members = value.members(
        (), ("bucket_caps_mb", "layout_bytes", "projected_from", "evidence", "projection_loss", *texts)
    )

    def caps(items: Value) -> tuple[float, ...]:
        return tuple(cap.number(0.0, 2**20, above=True) for cap in items.items(MAX_BUCKETS, min_items=1))

    def sizes(items: Value) -> tuple[int, ...]:
        return tuple(map(_bytes, items.items(MAX_BUCKETS, min_items=1)))

    return Ddp(
        bucket_caps_mb=_nullable(members, "bucket_caps_mb", caps),
        layout_bytes=_nullable(members, "layout_bytes", sizes),
        projected_from=_nullable(members, "projected_from", sizes),
        evidence=_nullable(members, "evidence", _evidence),
        projection_loss=_nullable(members, "projection_loss", lambda loss: loss.number(0.0, MAX_RATIO)),
        **{name: _nullable(members, name, Value.text) for name in texts},
    )


def _fingerprint(value: Value) -> Fingerprint:
    members = value.members(("hard", "soft"))
    hard = members["hard"].members(
        ("backend", "device_kind", "device_count", "world_size", "ranks_per_node", "collective_library")
    )
    soft = members["soft"].members(("hosts", "driver", "kernel", "torch"))
    return Fingerprint(
        hard=_make(
            members["hard"],
            HardFingerprint,
            backend=hard["backend"].text(),
            device_kind=hard["device_kind"].text(),
            device_count=hard["device_count"].integer(),
            world_size=hard["world_size"].integer(1, MAX_RANKS),
            ranks_per_node=_integers(hard["ranks_per_node"], MAX_RANKS, MAX_RANKS),
            collective_library=hard["collective_library"].text(),
        ),
        soft=SoftFingerprint(
            hosts=_texts(soft["hosts"], MAX_RANKS),
            driver=soft["driver"].optional(Value.text),
            kernel=soft["kernel"].optional(Value.text),
            torch=soft["torch"].text(),
        ),
    )


def take_certificate(value: Value) -> Certificate:
    """The certificate that an object says.

    Raises:
        TopotuneError: of the value's own kind, where it says none.
    """
    members = value.members(
        ("method", "num_comparisons", "correction", "confidence", "min_gain"),
        ("false_win_rate", "false_win_rate_ci", "num_null_trials"),
    )
    return Certificate(
        method=members["method"].text(),
        num_comparisons=members["num_comparisons"].integer(),
        correction=members["correction"].text(),
        confidence=members["confidence"].number(0.0, 1.0),
        min_gain=members["min_gain"].number(0.0, MAX_RATIO),
        false_win_rate=_nullable(members, "false_win_rate", lambda rate: rate.number(0.0, 1.0)),
        false_win_rate_ci=_nullable(members, "false_win_rate_ci", _share_interval),
        num_null_trials=_when(members, "num_null_trials", Value.integer, 0),
    )


def _context(value: Value) -> Context:
    members = value.members(
        ("created", "topotune_version", "seed", "budget_s", "elapsed_s"),
        ("versions", "network", "interface"),
    )
    return Context(
        created=members["created"].text(),
        topotune_version=members["topotune_version"].text(),
        seed=members["seed"].integer(),
        budget_s=_seconds(members["budget_s"]),
        elapsed_s=_seconds(members["elapsed_s"]),
        versions=_when(
            members,
            "versions",
            lambda versions: {name: version.text() for name, version in versions.mapping(256).items()},
            {},
        ),
        network=_nullable(members, "network", Value.text),
        interface=_nullable(members, "interface", lambda interface: interface.text(max_length=256)),
    )
