"""The plan: which algorithm each message size uses, with the evidence. Standard library only, no exceptions.

A plan is read inside training jobs, so nothing here may import more than the standard library.
Field by field as in docs/reference/plan-format.md; ``topotune schema plan`` prints the JSON Schema.

Every value checks itself with `topotune.plan.rules` when it is made (`BrokenRule`, a ValueError), so
that a plan which exists can be written, read back and used.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from topotune.plan.rules import (
    evidence_problem,
    group_problem,
    hard_fingerprint_problem,
    plan_problem,
    refuse,
    row_problem,
    shape_problem,
)

SCHEMA = "topotune/plan"
SCHEMA_VERSION = 1

Collective = Literal["allreduce", "reduce_scatter", "allgather"]
COLLECTIVES: tuple[Collective, ...] = ("allreduce", "reduce_scatter", "allgather")
DEFAULT_ALGORITHM = "default"
NO_BOUND_COMPUTED = "no bound was computed"


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
        predicted_s: what the simulator said before measuring.
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

    def __post_init__(self) -> None:
        refuse(evidence_problem(self))


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One size range of a table.

    Attributes:
        min_bytes: the smallest message of the range.
        max_bytes: the first size beyond it; None is unbounded.
        algorithm: what runs (``default``, ``ring``, …).
        params: of the algorithm; what is left out is as the generator has it.
        percent_of_optimum: share of the provable optimum that was reached; None where there is no bound.
        bottleneck: what bounds it; None where there is no bound.
        no_bound_reason: why one of the two is None (``no bound was computed`` where nobody says); else None.
        evidence: what was measured; None where nothing was.
    """

    min_bytes: int
    max_bytes: int | None
    algorithm: str
    params: dict[str, Any] = field(default_factory=dict)
    percent_of_optimum: float | None = None
    bottleneck: Bottleneck | None = None
    no_bound_reason: str | None = None
    evidence: Evidence | None = None

    def __post_init__(self) -> None:
        if self.no_bound_reason is None and (self.percent_of_optimum is None or self.bottleneck is None):
            object.__setattr__(self, "no_bound_reason", NO_BOUND_COMPUTED)
        refuse(row_problem(self))


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

    def __post_init__(self) -> None:
        refuse(shape_problem(self))


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The tables of one shape of process group. A table that was not tuned is None (absent in JSON).

    Attributes:
        shape: of the groups that these tables are for.
        allreduce: rows by size, without gaps from 0 to unbounded.
        reduce_scatter: likewise; the message is all ranks' parts together.
        allgather: likewise; the message is all ranks' parts together.
    """

    shape: GroupShape
    allreduce: tuple[Row, ...] | None = None
    reduce_scatter: tuple[Row, ...] | None = None
    allgather: tuple[Row, ...] | None = None

    def __post_init__(self) -> None:
        refuse(group_problem(self))


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkClass:
    """One fitted class of links, with 95 % intervals.

    Attributes:
        name: in words (``within a node``, ``between nodes``).
        num_pairs: directed pairs of ranks in it.
        latency_s: of the smallest message.
        latency_ci_s: interval of that; None where there were too few samples.
        bandwidth_bytes_per_s: of the largest messages, one direction.
        bandwidth_ci_bytes_per_s: interval of that; None where there were too few samples.
        max_relative_error: worst deviation of the fit from a median over all sizes (0.1 = 10 %).
    """

    name: str
    num_pairs: int
    latency_s: float
    latency_ci_s: tuple[float, float] | None
    bandwidth_bytes_per_s: float
    bandwidth_ci_bytes_per_s: tuple[float, float] | None
    max_relative_error: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ddp:
    """Bucket sizes for DDP.

    Attributes:
        bucket_caps_mb: MiB, first bucket first; None keeps torch's own default.
        layout_bytes: the buckets that result, in the order in which they become ready.
        projected_from: measured message sizes that the choice was projected from.
        evidence: a step with these buckets against one with torch's own, both under the plan.
        projection_loss: what the best that DDP's arguments can say takes longer than the best buckets of all,
            by the model (0.01 is 1 %).
        gradients: whose step was measured, in words.
        compute: what stood for the backward's computing: ``matmul``, ``sleep`` or ``spin``.
        bound: what bounds the step without the plan, in words.
    """

    bucket_caps_mb: tuple[float, ...] | None = None
    layout_bytes: tuple[int, ...] | None = None
    projected_from: tuple[int, ...] | None = None
    evidence: Evidence | None = None
    projection_loss: float | None = None
    gradients: str | None = None
    compute: str | None = None
    bound: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HardFingerprint:
    """What must be equal, or the plan is not applied.

    Attributes:
        backend: of torch.distributed (``gloo``, ``nccl``).
        device_kind: ``cpu``, or ``cuda (NVIDIA H200)``.
        device_count: GPUs of a node, or its logical CPUs; the least over the nodes.
        world_size: number of ranks.
        ranks_per_node: on each node, in the order of their numbers.
        collective_library: with major.minor (``gloo (torch 2.13)``, ``nccl 2.27``).
    """

    backend: str
    device_kind: str
    device_count: int
    world_size: int
    ranks_per_node: tuple[int, ...]
    collective_library: str

    def __post_init__(self) -> None:
        refuse(hard_fingerprint_problem(self))


@dataclass(frozen=True, kw_only=True, slots=True)
class SoftFingerprint:
    """What may differ, with one warning.

    Attributes:
        hosts: name of each node's host, in the order of their numbers.
        driver: version of the NVIDIA driver; None without one.
        kernel: release of the operating system's kernel; None where it is not known.
        torch: full version of torch.
    """

    hosts: tuple[str, ...]
    driver: str | None
    kernel: str | None
    torch: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Fingerprint:
    """For which cluster a plan is.

    Attributes:
        hard: what must be equal, or the plan is not applied.
        soft: what may differ, with one warning; what is bound to hosts is dropped if they differ.
    """

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
        false_win_rate: share of default-against-default comparisons that were called a win on this cluster;
            None if that was not measured.
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
    """When and with what a plan was made.

    Attributes:
        created: ISO 8601, UTC.
        topotune_version: that made it.
        seed: of all random choices.
        budget_s: the time that tuning was allowed.
        elapsed_s: the time that it took.
        versions: of the libraries in use.
        network: which network interfaces the nodes used, and why, in words; None on one node.
        interface: what GLOO_SOCKET_IFNAME must say for the same, where gloo by itself takes another interface
            and all nodes used one name; else None.
    """

    created: str
    topotune_version: str
    seed: int
    budget_s: float
    elapsed_s: float
    versions: dict[str, str] = field(default_factory=dict)
    network: str | None = None
    interface: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What training reads.

    Attributes:
        groups: the tables; the first is the world group.
        fingerprint: for which cluster the plan is.
        certificate: how the choice was confirmed.
        context: when and with what it was made.
        links: fitted classes of links.
        ddp: bucket sizes; None where they were not tuned.
        rank_order: position → rank, for a better placement; None keeps ranks as numbered.
        warnings: what a reader should know, one line each.
    """

    groups: tuple[Group, ...]
    fingerprint: Fingerprint
    certificate: Certificate
    context: Context
    links: tuple[LinkClass, ...] = ()
    ddp: Ddp | None = None
    rank_order: tuple[int, ...] | None = None
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refuse(plan_problem(self))
