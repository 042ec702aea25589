"""Sharded parameter servers: every server adds up one share of the message and hands it back to all.

With all ranks as servers each link carries what a ring's carries, in two steps instead of 2(n-1), if the
network bears n-1 flows into one host at once. With a few servers beside the others, hosts that have better
links, or nothing else to do, take the load, all of it or unequal shares (`topotune.bounds.servers`).

Servers may be ranks of the job, or processes beside it that only add (*dedicated* servers: machines without
GPUs, say). These own no part: what first reaches them replaces what they held.

Source: Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014; Jiang et al.
(BytePS), OSDI 2020; balanced shards as in Thangakrishnan et al., "Herring", SC 2020.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from topotune.errors import UsageError
from topotune.plan.algorithms import MAX_WEIGHT
from topotune.schedule.assemble import (
    MAX_PIECES,
    MAX_RANKS,
    Transfers,
    assemble,
    check_count,
    check_num_transfers,
)
from topotune.schedule.model import COPY, REDUCE, Params, Schedule


def parameter_server(
    num_ranks: int,
    *,
    servers: Sequence[int] | None = None,
    shares: Sequence[int] | None = None,
    pieces: int = 1,
) -> Schedule:
    """One tree of height 1 a server; the servers are ranks like the others.

    Args:
        num_ranks: 1 to 4096.
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
    params: Params = {} if servers is None else {"servers": chosen}
    return _served("parameter_server", params, num_ranks, 0, chosen, shares, pieces)


def dedicated_servers(
    num_owners: int, num_servers: int, *, shares: Sequence[int] | None = None, pieces: int = 1
) -> Schedule:
    """An allreduce of the first ``num_owners`` ranks, with the help of as many servers as stand behind them.

    Args:
        num_owners: ranks of the job, 1 to 4095.
        num_servers: that only add, 1 to 4095; 4096 of both together.
        shares: of the message, what each rank serves, the owners' first, over the sum of all; 0 for none.
            None: the servers serve equal shares, the owners none.
        pieces: as of `parameter_server`.

    Raises:
        UsageError: a count out of range, another number of shares, or too many transfers.
    """
    check_count("num_owners", num_owners, MAX_RANKS - 1)
    check_count("num_servers", num_servers, MAX_RANKS - num_owners)
    num_ranks = num_owners + num_servers
    params: Params = {"num_owners": num_owners, "num_servers": num_servers}
    if shares is None:
        chosen, weights = list(range(num_owners, num_ranks)), None
    else:
        if len(shares) != num_ranks:
            raise UsageError(f"dedicated_servers: {len(shares)} shares for {num_ranks} ranks")
        chosen = [rank for rank, share in enumerate(shares) if share != 0]
        weights = [shares[rank] for rank in chosen]
        if not chosen:
            raise UsageError("dedicated_servers: no rank serves a share")
        params = {**params, "shares": list(shares)}
    return _served("dedicated_servers", params, num_ranks, num_servers, chosen, weights, pieces)


def dedicated_servers_of_nodes(
    nodes: Sequence[Sequence[int]], num_servers: int, *, pieces: int = 1
) -> Schedule:
    """The same with ranks that share nodes: what a node's ranks have is added up there first.

    Each server's share is cut among the ranks of a node, so that all their ways out carry it.

    Args:
        nodes: the job's ranks on each node; together 0 to n - 1.
        num_servers: that only add, behind the job's ranks; all serve equal shares.
        pieces: as of `parameter_server`.

    Raises:
        UsageError: nodes that are no partition of the ranks, a count out of range, or too many transfers.
    """
    num_owners = sum(map(len, nodes))
    if sorted(rank for node in nodes for rank in node) != list(range(num_owners)) or not all(nodes):
        raise UsageError("dedicated_servers: the nodes do not hold each rank from 0 on once")
    check_count("num_owners", num_owners, MAX_RANKS - 1)
    check_count("num_servers", num_servers, MAX_RANKS - num_owners)
    check_count("pieces", pieces, MAX_PIECES)
    size = max(map(len, nodes))
    num_lanes = num_servers * size
    check_num_transfers(2 * num_owners * num_lanes * pieces, "dedicated_servers", num_owners + num_servers)
    lane = np.arange(num_lanes)[:, None]
    server, place = num_owners + lane // size, lane % size
    piece = np.arange(pieces)
    chunk = lane * pieces + piece
    parts: list[Transfers] = []
    for number, node in enumerate(nodes):
        ranks = np.asarray(node, dtype=np.int64)
        speaker = ranks[place % len(node)]
        # Each server begins with another node, so that none is first everywhere.
        turn = (number - (lane // size) * len(nodes) // num_servers) % len(nodes)
        is_first = (turn == 0)[:, 0]
        outwards = size - 1 + turn + piece
        back = size - 1 + len(nodes) + piece
        for is_copy, mine in ((True, is_first), (False, ~is_first)):
            parts.append(
                Transfers(
                    outwards[mine],
                    speaker[mine],
                    server[mine],
                    chunk[mine],
                    COPY if is_copy else REDUCE,
                    lane[mine],
                )
            )
        parts.append(Transfers(back, server, speaker, chunk, COPY, lane))
        for hop in range(1, len(node)):
            other = ranks[(place + hop) % len(node)]
            parts += [
                Transfers(hop - 1 + piece, other, speaker, chunk, REDUCE, lane),
                Transfers(back + 1, speaker, other, chunk, COPY, lane),
            ]
    params: Params = {"nodes": [list(node) for node in nodes], "num_servers": num_servers}
    if pieces != 1:
        params = {**params, "pieces": pieces}
    num_ranks = num_owners + num_servers
    return assemble(
        "dedicated_servers",
        params,
        num_ranks,
        range(num_lanes * pieces + 1),
        parts,
        servers=range(num_owners, num_ranks),
    )


def _served(
    algorithm: str,
    params: Params,
    num_ranks: int,
    num_dedicated: int,
    chosen: Sequence[int],
    shares: Sequence[int] | None,
    pieces: int,
) -> Schedule:
    """The last ``num_dedicated`` ranks own nothing; those ``chosen`` serve, each in a channel of its own."""
    check_count("pieces", pieces, MAX_PIECES)
    weights = [1] * len(chosen) if shares is None else list(shares)
    if len(weights) != len(chosen):
        raise UsageError(f"{algorithm}: {len(weights)} shares for {len(chosen)} servers")
    for weight in weights:
        check_count(f"{algorithm}: a share", weight, MAX_WEIGHT)
    num_owners = num_ranks - num_dedicated
    check_num_transfers(2 * num_owners * len(chosen) * pieces, algorithm, num_ranks)
    channels = np.arange(len(chosen))[:, None, None]
    serving = np.asarray(chosen, dtype=np.int64)[:, None, None]
    piece = np.arange(pieces)
    parts: list[Transfers] = []
    for is_dedicated in (False, True):
        mine = (serving[:, 0, 0] >= num_owners) == is_dedicated
        channel, server = channels[mine], serving[mine]
        chunk = channel * pieces + piece
        # Each server begins with another client, so that none is first everywhere.
        if is_dedicated:
            num_clients, begin = num_owners, (server - num_owners) * num_owners // num_dedicated
        else:
            num_clients, begin = num_owners - 1, server + 1
        turn = np.arange(num_clients)[:, None]
        client = (begin + turn) % num_owners
        adding = turn[is_dedicated:]
        parts += [
            Transfers(turn[:is_dedicated] + piece, client[:, :is_dedicated], server, chunk, COPY, channel),
            Transfers(adding + piece, client[:, is_dedicated:], server, chunk, REDUCE, channel),
            Transfers(num_clients + piece, server, client, chunk, COPY, channel),
        ]
    bounds = [0, *accumulate(weight for weight in weights for _ in range(pieces))]
    if shares is not None and algorithm == "parameter_server":
        params = {**params, "shares": weights}
    if pieces != 1:
        params = {**params, "pieces": pieces}
    return assemble(algorithm, params, num_ranks, bounds, parts, servers=range(num_owners, num_ranks))
