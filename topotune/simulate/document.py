"""What ``topotune simulate`` writes (``"schema": "topotune/prediction"``), as classes that have its fields.

| schema_version | change |
| --- | --- |
| 1 | first |
"""

from dataclasses import dataclass
from typing import Any, Final

SCHEMA: Final = "topotune/prediction"
SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """One algorithm at one size.

    Attributes:
        algorithm: its name.
        params: what its generator was given.
        time_s: predicted, from common start to last end.
        percent_of_optimum: share of the shortest time that it reaches; null where none is known.
    """

    algorithm: str
    params: dict[str, Any]
    time_s: float
    percent_of_optimum: float | None = None


@dataclass(frozen=True, kw_only=True)
class NcclChoice:
    """What NCCL's own cost model picks at a size.

    Attributes:
        algorithm: ``ring``, ``tree``, ``nvls``, ``nvls_tree``.
        protocol: ``ll``, ``ll128``, ``simple``.
        time_s: that NCCL itself expects, which was not measured either.
        percent_of_optimum: share of the shortest time; null where none is known, or where NCCL would have the
            switches reduce, which this optimum does without.
    """

    algorithm: str
    protocol: str
    time_s: float
    percent_of_optimum: float | None = None


@dataclass(frozen=True, kw_only=True)
class PredictedSize:
    """All algorithms at one size.

    Attributes:
        message_bytes: on each rank.
        predictions: fastest first.
        optimum_s: what nothing can beat on these links; null where no limit is known.
        nccl: what NCCL would run; null where that is not known.
    """

    message_bytes: int
    predictions: list[Predicted]
    optimum_s: float | None = None
    nccl: NcclChoice | None = None


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """What holds an allreduce of large messages back.

    Attributes:
        text: in words.
        cut: vertices on one side of it; empty where no single cut does.
    """

    text: str
    cut: list[str]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Predicted times of an allreduce by every algorithm, and the optimum.

    Attributes:
        num_ranks: n.
        sizes: by message size, ascending.
        rank_order: rank at each position, as candidates stand; null for as numbered.
        network: what was simulated, in words; null for measured links.
        bottleneck: of large messages; null where no limit is known.
        no_bound_reason: why there is no optimum, if there is none.
        nccl_version: whose choices stand at each size; null where there are none.
        warnings: one line each.
    """

    num_ranks: int
    sizes: list[PredictedSize]
    rank_order: list[int] | None = None
    network: str | None = None
    bottleneck: Bottleneck | None = None
    no_bound_reason: str | None = None
    nccl_version: str | None = None
    warnings: list[str]
