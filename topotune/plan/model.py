"""The plan: which algorithm each message size uses, with the evidence. Standard library only, no exceptions.

A plan is read inside training jobs, so nothing here may import more than the standard library.
Field by field as in docs/plan-format.md; ``topotune schema plan`` prints the JSON Schema.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = "topotune/plan"
SCHEMA_VERSION = 1

Collective = Literal["allreduce", "reduce_scatter", "allgather"]
COLLECTIVES: tuple[Collective, ...] = ("allreduce", "reduce_scatter", "allgather")
DEFAULT_ALGORITHM = "default"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bottleneck:
    """What bounds a row.

    Attributes:
        text: in words (``link of node b``).
        cut: the vertices or ranks on one side of the bottleneck cut.
    """

    text: str
    cut: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What was measured for a row, on fresh samples, plan and default interleaved.

    Attributes:
        median_s: of the row's algorithm, at ``measured_bytes``.
        default_median_s: of the default, in the same blocks.
        ratio: default / plan.
        ratio_ci: its 95 % interval [low, high].
        num_samples: per arm.
        measured_bytes: the size the figures above belong to.
        extrapolated: True where the row was not measured at its own size.
        predicted_s: what the simulator said before measuring; None for the default.
        confirmed_bytes: the sizes at which a row that departs from the default was confirmed.
        backward_ratio_ci: interval of default / plan while a real backward runs beside it; None if not taken.
        busy_ratio: default / plan while the main thread runs Python; None if not taken.
    """

    median_s: float
    default_median_s: float
    ratio: float
    ratio_ci: tuple[float, float]
    num_samples: int
    measured_bytes: int
    extrapolated: bool = False
    predicted_s: float | None = None
    confirmed_bytes: tuple[int, ...] = ()
    backward_ratio_ci: tuple[float, float] | None = None
    busy_ratio: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One size range ``[min_bytes, max_bytes)`` of a table; ``max_bytes`` None is unbounded.

    ``percent_of_optimum`` and ``bottleneck`` are None where there is no bound; ``no_bound_reason`` then says why.
    """

    min_bytes: int
    max_bytes: int | None
    algorithm: str
    params: dict[str, Any] = field(default_factory=dict)
    percent_of_optimum: float | None = None
    bottleneck: Bottleneck | None = None
    no_bound_reason: str | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupShape:
    """By what a process group of a job finds its table.

    Attributes:
        num_ranks: of the group.
        num_nodes: nodes that the group's ranks lie on.
        ranks_per_node: ranks of the group on each of them; 0 where they differ.
        stride: distance of neighbouring global ranks in the group; 0 where it varies. 1 for the world.
    """

    num_ranks: int
    num_nodes: int
    ranks_per_node: int
    stride: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The tables of one shape of process group. A table that was not tuned is None (absent in JSON)."""

    shape: GroupShape
    allreduce: tuple[Row, ...] | None = None
    reduce_scatter: tuple[Row, ...] | None = None
    allgather: tuple[Row, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkClass:
    """One fitted class of links, with 95 % intervals."""

    name: str
    num_pairs: int
    latency_s: float
    latency_ci_s: tuple[float, float] | None
    bandwidth_bytes_per_s: float
    bandwidth_ci_bytes_per_s: tuple[float, float] | None
    max_relative_error: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ddp:
    """Bucket sizes for DDP: ``bucket_caps_mb`` None keeps torch's own default."""

    bucket_caps_mb: tuple[float, ...] | None = None
    layout_bytes: tuple[int, ...] | None = None
    projected_from: tuple[int, ...] | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HardFingerprint:
    """What must be equal, or the plan is not applied."""

    backend: str
    device_kind: str
    device_count: int
    world_size: int
    ranks_per_node: tuple[int, ...]
    collective_library: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SoftFingerprint:
    """What may differ, with one warning."""

    hosts: tuple[str, ...]
    driver: str | None
    kernel: str | None
    torch: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Fingerprint:
    """For which cluster a plan is."""

    hard: HardFingerprint
    soft: SoftFingerprint


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """How the choice was confirmed.

    Attributes:
        method: in words.
        num_comparisons: confirmatory comparisons made.
        correction: name of the correction for their number (``holm``, ``bonferroni``).
        confidence: of the corrected intervals (0.95).
        min_gain: margin that an interval had to clear (0.02 = 2 %).
        false_win_rate: share of default-against-default comparisons that were called a win on this cluster; None
            if that was not measured.
        false_win_rate_ci: its 95 % interval.
        num_null_trials: how many such comparisons.
    """

    method: str
    num_comparisons: int
    correction: str
    confidence: float
    min_gain: float
    false_win_rate: float | None = None
    false_win_rate_ci: tuple[float, float] | None = None
    num_null_trials: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """When and with what a plan was made."""

    created: str
    topotune_version: str
    seed: int
    budget_s: float
    elapsed_s: float
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What training reads. ``groups[0]`` is the world group; ``rank_order`` None keeps ranks as numbered."""

    groups: tuple[Group, ...]
    fingerprint: Fingerprint
    certificate: Certificate
    context: Context
    links: tuple[LinkClass, ...] = ()
    ddp: Ddp | None = None
    rank_order: tuple[int, ...] | None = None
    warnings: tuple[str, ...] = ()
