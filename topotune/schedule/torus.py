"""Allreduce on a two-dimensional torus: rings along rows and columns, half of the message in either order.

Theory of operation. One half goes around the rings of the rows first (reduce-scatter), each rank's share then
around the ring of its column, and back; the other half begins with the columns. While one half uses the links
of the rows the other uses those of the columns, so all links of a torus are busy, and only rows + columns
steps are taken where one ring would take their product.

Source: Ying et al., "Image classification at supercomputer scale", 2018 (the 2-D scheme of TPU pods);
Jain and Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus interconnects", 2010.
"""

import numpy as np

from topotune.errors import UsageError
from topotune.schedule.assemble import MAX_RANKS, Transfers, assemble, check_count, check_num_transfers
from topotune.schedule.model import Schedule
from topotune.schedule.phases import allgather_ring, reduce_scatter_ring


def torus(num_ranks: int, *, rows: int) -> Schedule:
    """Rank r stands in row r // columns and column r % columns.

    Args:
        num_ranks: 1 to 4096.
        rows: a divisor of it.

    Raises:
        UsageError: a count out of range, rows that do not divide the ranks, or too many transfers.
    """
    check_count("num_ranks", num_ranks, MAX_RANKS)
    check_count("rows", rows, num_ranks)
    if num_ranks % rows:
        raise UsageError(f"torus: {rows} rows do not divide {num_ranks} ranks")
    columns = num_ranks // rows
    check_num_transfers(4 * num_ranks * (num_ranks - 1), "torus", num_ranks)
    place = np.arange(num_ranks).reshape(rows, columns)
    parts: list[Transfers] = []
    for half, lines in enumerate((place, place.T)):
        # Chunk c of this half ends at the rank in line c // length and position c % length of the line.
        num_lines, length = lines.shape
        chunks = np.arange(num_ranks)
        line_of_chunk, position = np.divmod(chunks, length)
        across = lines[:, position]  # the ranks that hold a chunk once it went along its line, by line
        named = chunks + half * num_ranks
        at_across = length - 1
        back = at_across + 2 * (num_lines - 1)
        for line in lines:
            along = line[:, None]
            parts.append(_on(reduce_scatter_ring(along, position, named), half))
            parts.append(_on(allgather_ring(along, position, named, first_step=back), half))
        parts.append(_on(reduce_scatter_ring(across, line_of_chunk, named, first_step=at_across), half))
        end = at_across + num_lines - 1
        parts.append(_on(allgather_ring(across, line_of_chunk, named, first_step=end), half))
    return assemble("torus", {"rows": rows}, num_ranks, range(2 * num_ranks + 1), parts)


def _on(transfers: Transfers, channel: int) -> Transfers:
    return transfers._replace(channel=channel)
