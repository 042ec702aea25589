"""Reading what ``topotune optimum`` writes (``topotune/optimum``)."""

from dataclasses import dataclass
from typing import Final

from topotune.bounds.optimum import SCHEMA, SCHEMA_VERSION, Optima, Optimum
from topotune.documents import MAX_RATE, MIN_RATE, Value, document_of
from topotune.results.fields import MAX_CUT, maybe, needed, seconds, warnings_of, words
from topotune.units import MAX_MESSAGE_BYTES

_MAX_SIZES: Final = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class LeastTime:
    """What an allreduce of one size takes at least.

    Attributes:
        message_bytes: buffer on each rank.
        time_s: the provable shortest time.
        flat_ring_time_s: of a flat ring, at best; None where it is not known.
    """

    message_bytes: int
    time_s: float
    flat_ring_time_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimumResult:
    """The optimum of each collective on one network, and of an allreduce at chosen sizes.

    Attributes:
        optima: by collective, with what holds them back.
        latency_s: what messages cost beside their bytes; 0 where it is not known.
        sizes: ascending; empty where none were asked for.
        warnings: one line each.
    """

    optima: Optima
    latency_s: float
    sizes: tuple[LeastTime, ...]
    warnings: tuple[str, ...] = ()

    def time_s(self, message_bytes: float) -> float:
        """Shortest time of an allreduce of any size."""
        return max(self.optima.allreduce.time_s(message_bytes), self.latency_s)


def optimum_of(value: Value) -> OptimumResult:
    """An optimum from a document of unknown origin.

    Raises:
        InputFileError: no optimum, a newer version, or a value missing or out of bounds.
    """
    document = document_of(value, SCHEMA, SCHEMA_VERSION)
    sizes = maybe(document, "sizes", lambda listed: [_size(one) for one in listed.items(_MAX_SIZES)]) or []
    ring = maybe(document, "flat_ring", lambda one: _rate(needed(one, "algbw_bytes_per_s")))
    return OptimumResult(
        optima=Optima(
            num_ranks=needed(document, "num_ranks").integer(2, 2**31),
            allgather=_collective(needed(document, "allgather")),
            reduce_scatter=_collective(needed(document, "reduce_scatter")),
            allreduce=_collective(needed(document, "allreduce")),
            allreduce_in_network=maybe(document, "allreduce_in_network", _collective),
            allreduce_served=maybe(document, "allreduce_served", _collective),
            ring_algbw_bytes_per_s=ring,
        ),
        latency_s=maybe(document, "latency_s", lambda one: seconds(one, above=False)) or 0.0,
        sizes=tuple(sorted(sizes, key=lambda size: size.message_bytes)),
        warnings=warnings_of(document),
    )


def _collective(value: Value) -> Optimum:
    bottleneck = needed(value, "bottleneck")
    return Optimum(
        algbw_bytes_per_s=_rate(needed(value, "algbw_bytes_per_s")),
        busbw_bytes_per_s=_rate(needed(value, "busbw_bytes_per_s")),
        text=words(needed(bottleneck, "text")),
        cut=tuple(one.text() for one in needed(bottleneck, "cut").items(MAX_CUT)),
        exact=needed(value, "exact").boolean(),
    )


def _size(value: Value) -> LeastTime:
    return LeastTime(
        message_bytes=needed(value, "message_bytes").integer(1, MAX_MESSAGE_BYTES),
        time_s=seconds(needed(value, "time_s")),
        flat_ring_time_s=maybe(value, "flat_ring_time_s", seconds),
    )


def _rate(value: Value) -> float:
    return float(value.number(MIN_RATE, MAX_RATE))
