"""Ring allreduce: reduce-scatter once around, all-gather once around; least bytes per rank, 2(n-1) hops.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
"""

import numpy as np

from topotune.schedule.assemble import MAX_PIECES, MAX_RANKS, assemble, check_count, check_num_transfers
from topotune.schedule.model import Schedule
from topotune.schedule.phases import allgather_ring, reduce_scatter_ring

MAX_CHANNELS = 64


def ring(num_ranks: int, *, channels: int = 1, pieces: int = 1) -> Schedule:
    """Rings over disjoint parts of the message, neighbouring channels in opposite directions.

    Each channel cuts its part in n chunks and each chunk in ``pieces``, which follow each other step by step:
    a rank sends piece p + 1 of a chunk while it reduces piece p. A rank sends 2(n-1)/n of the message.

    Args:
        num_ranks: n >= 1.
        channels: independent rings, 1 to 64.
        pieces: per chunk, 1 to 1024.

    Raises:
        UsageError: a count out of range, or too many transfers.
    """
    check_count("num_ranks", num_ranks, MAX_RANKS)
    check_count("channels", channels, MAX_CHANNELS)
    check_count("pieces", pieces, MAX_PIECES)
    num_chunks = channels * num_ranks * pieces
    check_num_transfers(2 * (num_ranks - 1) * num_chunks, "ring", num_ranks)
    parts = []
    for channel in range(channels):
        members = np.arange(num_ranks)[:: 1 if channel % 2 == 0 else -1, None]
        owners, piece = np.divmod(np.arange(num_ranks * pieces), pieces)
        chunks = np.arange(len(owners)) + channel * len(owners)
        half = (num_ranks - 1) * pieces
        reduce = reduce_scatter_ring(members, owners, chunks, first_step=piece, stride=pieces)
        gather = allgather_ring(members, owners, chunks, first_step=half + piece, stride=pieces)
        parts += [reduce._replace(channel=channel), gather._replace(channel=channel)]
    params = {"channels": channels, "pieces": pieces}
    return assemble("ring", params, num_ranks, range(num_chunks + 1), parts)
