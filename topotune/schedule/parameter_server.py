"""Sharded parameter servers: every server adds up one share of the message and hands it back to all.

With all ranks as servers each link carries what a ring's carries, in two steps instead of 2(n-1), if the
network bears n-1 flows into one host at once. With a few servers beside the others, hosts that have better
links, or nothing else to do, take the load, all of it or unequal shares (`topotune.bounds.servers`).

Source: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014; Jiang et al.
(BytePS), OSDI 2020; balanced shards as in Thangakrishnan et al., "Herring", SC 2020.
"""

from collections.abc import Sequence
from dataclasses import replace

from topotune.errors import UsageError
from topotune.schedule.assemble import MAX_RANKS, check_count
from topotune.schedule.forest import forest
from topotune.schedule.model import Params, Schedule


def parameter_server(
    num_ranks: int,
    *,
    servers: Sequence[int] | None = None,
    shares: Sequence[int] | None = None,
    pieces: int = 1,
) -> Schedule:
    """One tree of height 1 a server.

    Args:
        num_ranks: 1 to 1024.
        servers: different ranks; None for all.
        shares: of the message, what each of them serves, over the sum of all; None for equal ones.
        pieces: that each share is cut in, 1 to 1024. A server takes one piece after the other from each rank;
            with several, all ranks send to it at once.

    Raises:
        UsageError: a count out of range, servers that are no ranks, another number of shares, or too many
            transfers.
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
    weights = [1] * len(chosen) if shares is None else list(shares)
    if len(weights) != len(chosen):
        raise UsageError(f"parameter_server: {len(weights)} shares for {len(chosen)} servers")
    params: Params = {} if servers is None else {"servers": chosen}
    if shares is not None:
        params = {**params, "shares": weights}
    if pieces != 1:
        params = {**params, "pieces": pieces}
    return replace(forest(weights, trees, pieces=pieces), algorithm="parameter_server", params=params)
