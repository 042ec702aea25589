"""Sharded parameter servers: every server adds up one share of the message and hands it back to all.

With all ranks as servers each link carries what a ring's carries, in two steps instead of 2(n-1), if the
network bears n-1 flows into one host at once. With a few servers beside the others, hosts that have better
links, or nothing else to do, take the load.

Source: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014; Jiang et al.
(BytePS), OSDI 2020; balanced shards as in Thangakrishnan et al., "Herring", SC 2020.
"""

from collections.abc import Sequence
from dataclasses import replace

from topotune.errors import UsageError
from topotune.schedule.assemble import MAX_RANKS, check_count
from topotune.schedule.forest import forest
from topotune.schedule.model import Params, Schedule


def parameter_server(num_ranks: int, *, servers: Sequence[int] | None = None) -> Schedule:
    """One tree of height 1 a server, with equal shares.

    Args:
        num_ranks: 1 to 1024.
        servers: different ranks; None for all.

    Raises:
        UsageError: a count out of range, servers that are no ranks, or too many transfers.
    """
    check_count("num_ranks", num_ranks, MAX_RANKS)
    chosen = list(range(num_ranks)) if servers is None else list(servers)
    known = [rank for rank in chosen if isinstance(rank, int) and not isinstance(rank, bool)]
    if not chosen or len(known) < len(chosen) or not set(known) <= set(range(num_ranks)):
        raise UsageError(
            f"parameter_server: servers {chosen!r:.100} are not among ranks 0 to {num_ranks - 1}"
        )
    if len(set(chosen)) < len(chosen):
        raise UsageError(f"parameter_server: servers {chosen!r:.100} name a rank twice")
    trees = [[-1 if rank == server else server for rank in range(num_ranks)] for server in chosen]
    params: Params = {} if servers is None else {"servers": chosen}
    return replace(forest([1] * len(chosen), trees), algorithm="parameter_server", params=params)
