"""A Schedule: a collective written down as data, for given ranks, for any message size.

Theory of operation. The message is cut into chunks, each a fraction of it. Transfers are rows of integer
columns ``(step, channel, src, dst, chunk, op)``. Within one channel, steps run in order; all transfers of one
step read what stood there when the step began, and may run together. Channels are independent lanes: each
chunk belongs to one channel, and nothing orders the steps of two channels. ``op`` says what the receiver does
with what arrives: replace its own chunk (COPY) or combine it with its own (REDUCE).

A transfer moves one chunk from ``src`` to ``dst``; a rank may both send and receive a chunk in one step
(recursive doubling does), but receives each chunk at most once in a step, so that the order of reduction is
part of the data.

Most schedules are allreduces. Some have *servers*: ranks that add for the others, own no part of the sum and
need no result; what they hold is scratch, so what first reaches them is a COPY. Of a reduce-scatter or an
all-gather the message is all ranks' parts together: n equal parts, of which the r-th belongs to rank r, each
of them a whole number of chunks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from topotune.plan.model import Collective

SCHEMA = "topotune/schedule"
SCHEMA_VERSION = 1

COPY: Final = 0
REDUCE: Final = 1

IntColumn = npt.NDArray[np.int32]
ParamValue = int | float | str | bool | list[int] | list[list[int]] | list[list[list[int]]]
Params = Mapping[str, ParamValue]
PartCollective = Literal["reduce_scatter", "allgather"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """A collective for ``num_ranks`` ranks.

    Attributes:
        algorithm: name in the catalogue (``ring``, ``recursive_doubling``, …).
        params: what the generator was given.
        num_ranks: n >= 1.
        chunk_bounds: cumulative numerators of the chunks' ends over ``D = chunk_bounds[-1]``, starting at 0
            and never falling: chunk i of a message of m elements is ``[m*b[i]//D, m*b[i+1]//D)``. Shape
            (num_chunks + 1,).
        step, channel, src, dst, chunk, op: the columns, int32, all of shape (num_transfers,), sorted by
            (channel, step).
        collective: what it does.
        servers: ranks that only help, ascending; of allreduces alone.
    """

    algorithm: str
    num_ranks: int
    chunk_bounds: tuple[int, ...]
    step: IntColumn
    channel: IntColumn
    src: IntColumn
    dst: IntColumn
    chunk: IntColumn
    op: IntColumn
    params: Params = field(default_factory=dict)
    collective: Collective = "allreduce"
    servers: tuple[int, ...] = ()

    @property
    def num_owners(self) -> int:
        """Ranks whose parts are added up: all but the servers."""
        return self.num_ranks - len(self.servers)

    @property
    def num_chunks(self) -> int:
        """Number of chunks."""
        return len(self.chunk_bounds) - 1

    @property
    def num_transfers(self) -> int:
        """Number of transfers."""
        return len(self.step)

    def chunk_fractions(self) -> npt.NDArray[np.float64]:
        """Share of the message that each chunk holds; shape (num_chunks,), sums to 1."""
        bounds = np.asarray(self.chunk_bounds, dtype=np.float64)
        fractions: npt.NDArray[np.float64] = np.diff(bounds) / bounds[-1]
        return fractions

    def element_bounds(self, num_elements: int) -> list[int]:
        """Where the chunks of a message of ``num_elements`` begin and end; length num_chunks + 1."""
        denominator = self.chunk_bounds[-1]
        return [num_elements * bound // denominator for bound in self.chunk_bounds]
