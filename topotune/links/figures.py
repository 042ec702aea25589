"""What other tools say of links and collectives: their own figures, mostly without the samples behind them.

A benchmark's table gives one number for many repetitions, and does not say where each of them ended. Such a
number is kept as what it is, beside our own timings and never among them: no interval can be had from it, and
who reads it must know by which method it came.

Source of the bus bandwidth factors: nccl-tests, doc/PERFORMANCE.md.
"""

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

Collective = Literal[
    "allreduce",
    "allgather",
    "reduce_scatter",
    "alltoall",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "sendrecv",
    "hypercube",
    "barrier",
]
COLLECTIVES: Final[tuple[str, ...]] = get_args(Collective)

Duplex = Literal["sum", "one"]

_SHARE_OF_OTHERS = ("allgather", "reduce_scatter", "alltoall", "gather", "scatter", "hypercube")


def busbw_factor(collective: str, num_ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests has it.

    Args:
        collective: of `COLLECTIVES`.
        num_ranks: n >= 1.
    """
    others = (num_ranks - 1) / num_ranks
    if collective == "allreduce":
        return 2 * others
    return others if collective in _SHARE_OF_OTHERS else 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkFigure:
    """One way between two ends, as another tool sums it up: a bandwidth or a latency.

    Attributes:
        src, dst: ranks; None: the memory of the host. Equal: a copy within one device.
        method: how it was taken, in the tool's words.
        bandwidth_bytes_per_s: payload per second; None where the figure is a latency.
        latency_s: of one message; None where the figure is a bandwidth.
        duplex: None: nothing flows the other way; ``sum``: both ways at once, and the figure is of both
            together; ``one``: both ways at once, and the figure is of one.
        direct: False where the tool was told to go through the host's memory, though the devices may reach
            each other.
        num_concurrent: so many such ways were in use at the same time, and the figure is the mean of one of
            them.
        peer_access: whether the devices can reach each other's memory, where the tool says so.
        message_bytes: of each message; None where the tool does not say.
        num_iterations: behind the figure, where the tool says so.
        min_s, max_s: fastest and slowest of these, where the figure is a latency.
        peak_bytes_per_s: best of these, where the figure is a bandwidth.
    """

    src: int | None
    dst: int | None
    method: str
    bandwidth_bytes_per_s: float | None = None
    latency_s: float | None = None
    duplex: Duplex | None = None
    direct: bool = True
    num_concurrent: int = 1
    peer_access: bool | None = None
    message_bytes: int | None = None
    num_iterations: int | None = None
    min_s: float | None = None
    max_s: float | None = None
    peak_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        if (self.bandwidth_bytes_per_s is None) == (self.latency_s is None):
            raise ValueError("a figure of a link is a bandwidth or a latency: one of the two")
        _check_above_zero(
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            latency_s=self.latency_s,
            min_s=self.min_s,
            max_s=self.max_s,
            peak_bytes_per_s=self.peak_bytes_per_s,
        )
        if self.num_concurrent < 1:
            raise ValueError(f"{self.num_concurrent} ways at the same time: must be at least 1")
        if self.duplex not in (None, *get_args(Duplex)):
            raise ValueError(f"{self.duplex!r} is none of {', '.join(get_args(Duplex))}")


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveFigure:
    """One collective at one size, as a benchmark states it.

    Attributes:
        collective: allreduce, allgather, …
        message_bytes: as nccl-tests counts them: the buffer of each rank; of allgather and reduce_scatter all
            ranks' parts together. 0 is a call without data.
        of_part: the tool states the size of one rank's part, and ``message_bytes`` is that, since nobody says
            how many ranks there were.
        time_s: of one operation, in the mean of those that the tool repeated.
        in_place: whether input and output were one buffer; None where the tool does not say.
        num_ranks: n, where it is stated or follows from what is; else None.
        num_nodes: that these ranks were on, where it is stated.
        algbw_bytes_per_s, busbw_bytes_per_s: as the tool states them, rounded as it rounds them.
        num_wrong: values of the result that were wrong; None where nobody looked.
        max_error: largest deviation of the result, where the tool states one (nccl-tests before 2.11).
        dtype, op: of the elements, and what combined them, in the tool's words.
        root: of the collectives that have one.
        num_iterations: behind the time, where the tool says so.
        min_s, max_s: fastest and slowest of the ranks or repetitions, where the tool says so.
        samples_s: of the single repetitions, where the tool lists them.
        run: number of the run among those of the document; figures of one run share its conditions.
        origin: where a published figure was published; None for what was run and captured.
    """

    collective: Collective
    message_bytes: int
    time_s: float
    of_part: bool = False
    in_place: bool | None = None
    num_ranks: int | None = None
    num_nodes: int | None = None
    algbw_bytes_per_s: float | None = None
    busbw_bytes_per_s: float | None = None
    num_wrong: int | None = None
    max_error: float | None = None
    dtype: str | None = None
    op: str | None = None
    root: int | None = None
    num_iterations: int | None = None
    min_s: float | None = None
    max_s: float | None = None
    samples_s: tuple[float, ...] = ()
    run: int = 0
    origin: str | None = None

    def __post_init__(self) -> None:
        if self.collective not in COLLECTIVES:
            raise ValueError(f"{self.collective!r} is none of {', '.join(COLLECTIVES)}")
        if self.message_bytes < 0:
            raise ValueError(f"a collective of {self.message_bytes} bytes")
        if self.of_part and self.num_ranks is not None:
            raise ValueError(f"the size of a part, though the message of {self.num_ranks} ranks is known")
        _check_above_zero(time_s=self.time_s, min_s=self.min_s, max_s=self.max_s)
        if not all(0 < sample < math.inf for sample in self.samples_s):
            raise ValueError("a sample of a collective is not above 0 s")

    @property
    def busbw(self) -> float | None:
        """Bus bandwidth in bytes/s: as stated, else from size, time and ranks; None where these do not do."""
        if self.busbw_bytes_per_s is not None:
            return self.busbw_bytes_per_s
        if self.num_ranks is None or self.collective == "barrier":
            return None
        return self.message_bytes / self.time_s * busbw_factor(self.collective, self.num_ranks)


def _check_above_zero(**figures: float | None) -> None:
    for name, figure in figures.items():
        if figure is not None and not 0 < figure < math.inf:
            raise ValueError(f"{name} is {figure}: must be above 0 and finite")
