"""What ``topotune compare`` and ``topotune optimum`` write, as classes that have the documents' fields.

Their schemas are made from these. What reads them (`topotune.results.comparison`, `topotune.results.optimum`)
takes what pictures need, and passes over the rest.
"""

from dataclasses import dataclass
from typing import Literal

from topotune.simulate.document import Bottleneck

Verdict = Literal["faster", "slower", "same"]


@dataclass(frozen=True, kw_only=True)
class ComparedRow:
    """The plan against the default at one message size.

    Attributes:
        message_bytes: buffer on each rank.
        default_median_s: median time of the default.
        plan_median_s: median time under the plan, dispatch included.
        ratio: default / plan.
        ratio_ci: its interval; those of all rows of a table hold together with ``confidence``.
        num_samples: of each of the two.
        verdict: ``faster`` where the whole interval is above 1.02, ``slower`` where it is below 0.98.
        algorithm: what the plan uses at this size.
        outlier_share: of the samples of both, beyond Tukey's fences; none was removed.
        autocorrelation: of the default's samples, each with the one before it.
        two_modes: whether the times of either have two modes.
    """

    message_bytes: int
    default_median_s: float
    plan_median_s: float
    ratio: float
    ratio_ci: tuple[float, float]
    num_samples: int
    verdict: Verdict
    algorithm: str = ""
    outlier_share: float | None = None
    autocorrelation: float | None = None
    two_modes: bool | None = None


@dataclass(frozen=True, kw_only=True)
class ComparedTableDocument:
    """Another collective, or a process group of the job's mesh, against the default.

    Attributes:
        collective: ``allreduce``, ``reduce_scatter``, ``allgather``.
        group: its name, as the groups were given; ``world`` for all ranks.
        num_ranks: of one such group.
        rows: by message size, ascending.
    """

    collective: str
    group: str
    num_ranks: int
    rows: list[ComparedRow]


@dataclass(frozen=True, kw_only=True)
class TimelineBucket:
    """One bucket's exchange by the model; times are from the start of the backward.

    Attributes:
        num_bytes: of the bucket.
        complete_s: when it may be sent, it and all ahead of it being complete.
        start_s: of its exchange.
        end_s: of its exchange.
    """

    num_bytes: int
    complete_s: float
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class TimelineDocument:
    """A training step as the model sees it; no bucket's time in it was measured by itself.

    Attributes:
        backward_s: the backward's length.
        buckets: in the order of sending.
    """

    backward_s: float
    buckets: list[TimelineBucket]


@dataclass(frozen=True, kw_only=True)
class StepBoundDocument:
    """What a step without the plan is bound by.

    Attributes:
        kind: in a word.
        text: in words.
    """

    kind: str
    text: str


@dataclass(frozen=True, kw_only=True)
class ComparedStepDocument:
    """A training step under the plan against one without, measured in turn.

    Attributes:
        default_median_s: median of steps without the plan.
        plan_median_s: median of steps under it.
        ratio: default / plan.
        ratio_ci: its interval.
        num_samples: of each of the two.
        verdict: as of a row; ``slower`` was seen on two sets of connections, or over several launches.
        outlier_share: as of a row.
        autocorrelation: as of a row.
        two_modes: as of a row.
        gradients: whose step it is, in words.
        backward_s: length of the backward that was emulated.
        compute: what stood for the backward's computing.
        num_threads: that computed.
        default_layout_bytes: the buckets that DDP made by itself, in the order of sending.
        plan_layout_bytes: those under the plan.
        default_timeline: the step without the plan by the model; null where the model has none.
        plan_timeline: the same under the plan.
        bound: what the step without the plan is bound by; null where that is not known.
    """

    default_median_s: float
    plan_median_s: float
    ratio: float
    ratio_ci: tuple[float, float]
    num_samples: int
    verdict: Verdict
    gradients: str
    outlier_share: float | None = None
    autocorrelation: float | None = None
    two_modes: bool | None = None
    backward_s: float | None = None
    compute: str | None = None
    num_threads: int | None = None
    default_layout_bytes: list[int] | None = None
    plan_layout_bytes: list[int] | None = None
    default_timeline: TimelineDocument | None = None
    plan_timeline: TimelineDocument | None = None
    bound: StepBoundDocument | None = None


@dataclass(frozen=True, kw_only=True)
class ComparisonDocument:
    """A plan against the default: paired, on fresh samples, at several message sizes.

    Attributes:
        plan: the plan's file.
        num_ranks: n.
        confidence: with which all intervals of a table hold together.
        correction: how they were widened for that.
        num_launches: of the ranks, over which samples were joined.
        num_dropped: samples of the rows that do not count, because a rank missed the common start.
        rows: allreduce over all ranks, by message size, ascending.
        tables: of other collectives and of groups.
        step: a training step; absent where none was compared.
        warnings: one line each.
    """

    plan: str
    num_ranks: int
    rows: list[ComparedRow]
    confidence: float | None = None
    correction: str | None = None
    num_launches: int | None = None
    num_dropped: int | None = None
    tables: list[ComparedTableDocument] | None = None
    step: ComparedStepDocument | None = None
    warnings: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class BestRate:
    """The best that one collective can do, and what holds it back.

    Attributes:
        algbw_bytes_per_s: message size over time. The message of an all-gather or reduce-scatter is all
            ranks' parts together, that of an allreduce what each rank holds.
        busbw_bytes_per_s: the same times (n-1)/n, and twice that for an allreduce.
        bottleneck: what holds it back.
        exact: whether it is known to be reached; else only that nothing is faster.
    """

    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    bottleneck: Bottleneck
    exact: bool


@dataclass(frozen=True, kw_only=True)
class FlatRing:
    """What flat rings in the order of the ranks reach at best.

    Attributes:
        algbw_bytes_per_s: of an allreduce.
        busbw_bytes_per_s: of an allreduce.
    """

    algbw_bytes_per_s: float
    busbw_bytes_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class LeastTimeDocument:
    """What an allreduce of one size takes at least.

    Attributes:
        message_bytes: buffer on each rank.
        time_s: the provable shortest time.
        flat_ring_time_s: of flat rings, at best; null where it is not known.
    """

    message_bytes: int
    time_s: float
    flat_ring_time_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class OptimumDocument:
    """The provable best of each collective on one network.

    Attributes:
        num_ranks: n.
        allreduce: its best rates.
        allgather: its best rates.
        reduce_scatter: its best rates.
        allreduce_in_network: the same where switches add; null where none does.
        allreduce_served: the same with the servers that only add; null where there is none.
        flat_ring: how close flat rings come; null where the network is too large to say.
        latency_s: what messages cost beside their bytes, in every allreduce; 0 where it is not known.
        sizes: shortest times at the sizes that were asked for.
        warnings: one line each.
    """

    num_ranks: int
    allreduce: BestRate
    allgather: BestRate
    reduce_scatter: BestRate
    allreduce_in_network: BestRate | None = None
    allreduce_served: BestRate | None = None
    flat_ring: FlatRing | None = None
    latency_s: float | None = None
    sizes: list[LeastTimeDocument] | None = None
    warnings: list[str] | None = None
