"""Regular fabrics of any size, whose routes are known by formula: fat trees, rails, tori, dragonflies.

Theory of operation. Searching for the ways between 65,536 ranks takes minutes; in a regular network they are
known beforehand. Each function here lays out a `Network` by arithmetic and gives it its routes (and, for
symmetry, the lines of ranks that are alike): the same that a search would find in fat trees, rails and tori.
In dragonflies messages take the minimal way, as their routers do: at most one link inside the first group,
one to the other group, one inside that; a search would find shortcuts over two groups here and there.

Source: Leiserson, "Fat-trees", 1985; Kim, Dally, Scott, Abts, "Technology-driven, highly-scalable
dragonfly topology", ISCA 2008.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import numpy as np

from topotune.errors import UsageError
from topotune.simulate.network import LATENCY_S, FloatArray, IntArray, Network
from topotune.simulate.routes import Leaving, Routes, Walk, join_routes

_MAX_WALKED = 2**17


def switched_nodes(
    num_nodes: int,
    ranks_per_node: int,
    *,
    inside_bytes_per_s: float,
    nic_bytes_per_s: float,
    nodes_per_leaf: int,
    oversubscription: float = 1.0,
    rails: bool = False,
    inside_latency_s: float = LATENCY_S["nvlink"],
    outside_latency_s: float = LATENCY_S["infiniband"],
    call_overhead_s: float = 0.0,
    reduce_s_per_byte: float = 0.0,
) -> Network:
    """Nodes of ranks on one switch each, with an adapter a rank, under leaf switches and a spine.

    Args:
        num_nodes: k.
        ranks_per_node: g; rank r is on node r // g.
        inside_bytes_per_s: of the link of a rank to the switch of its node, each way.
        nic_bytes_per_s: of an adapter.
        nodes_per_leaf: nodes under one leaf switch, or with ``rails`` under g of them: one for each place.
        oversubscription: what the adapters below a leaf carry, over what its uplink carries.
        rails: whether adapters of one place share a leaf switch (rail-optimised), rather than those of one
            node.
        inside_latency_s: of each link inside a node.
        outside_latency_s: of each link from an adapter on.
        call_overhead_s: as of `Network`.
        reduce_s_per_byte: as of `Network`.

    Raises:
        UsageError: counts below 1, leaves that are not full, or no positive rate.
    """
    num_ranks = num_nodes * ranks_per_node
    _check_counts(num_nodes=num_nodes, ranks_per_node=ranks_per_node, nodes_per_leaf=nodes_per_leaf)
    if num_nodes % nodes_per_leaf:
        raise UsageError(f"{num_nodes} nodes do not fill leaves of {nodes_per_leaf}")
    if min(inside_bytes_per_s, nic_bytes_per_s, oversubscription) <= 0:
        raise UsageError(
            f"a fabric of {inside_bytes_per_s:g} B/s inside nodes, {nic_bytes_per_s:g} B/s an adapter and an "
            f"oversubscription of {oversubscription:g}: each must be above 0"
        )
    rank = np.arange(num_ranks)
    node, place = np.divmod(rank, ranks_per_node)
    pod = node // nodes_per_leaf
    leaf = pod * ranks_per_node + place if rails else pod
    num_leaves = num_nodes // nodes_per_leaf * (ranks_per_node if rails else 1)
    leaf_of_rank = leaf
    at_node, at_nic = num_ranks + node, num_ranks + num_nodes + rank
    first_leaf = 2 * num_ranks + num_nodes
    at_leaf, leaves = first_leaf + leaf, first_leaf + np.arange(num_leaves)
    spine = np.full(num_leaves, first_leaf + num_leaves)
    uplink = nic_bytes_per_s * num_ranks / num_leaves / oversubscription
    kinds = [
        (rank, at_node, inside_bytes_per_s, inside_latency_s),
        (at_node, rank, inside_bytes_per_s, inside_latency_s),
        (rank, at_nic, nic_bytes_per_s, inside_latency_s),
        (at_nic, rank, nic_bytes_per_s, inside_latency_s),
        (at_nic, at_leaf, nic_bytes_per_s, outside_latency_s),
        (at_leaf, at_nic, nic_bytes_per_s, outside_latency_s),
        (leaves, spine, uplink, outside_latency_s),
        (spine, leaves, uplink, outside_latency_s),
    ]
    first = [0, *accumulate(len(tail) for tail, *_ in kinds)]
    names = (
        *(f"n{n}/gpu{p}" for n, p in zip(node.tolist(), place.tolist(), strict=True)),
        *(f"n{n}/nvswitch" for n in range(num_nodes)),
        *(f"n{n}/nic{p}" for n, p in zip(node.tolist(), place.tolist(), strict=True)),
        *(f"leaf{n}" for n in range(num_leaves)),
        "spine",
    )

    def routes(src: IntArray, dst: IntArray) -> Routes:
        inside = node[src] == node[dst]
        below = ~inside & (leaf_of_rank[src] == leaf_of_rank[dst])
        above = ~inside & ~below
        blocks = []
        for which, ways in (
            (inside & (src != dst), ((0, src), (1, dst))),
            (below, ((2, src), (4, src), (5, dst), (3, dst))),
            (
                above,
                ((2, src), (4, src), (6, leaf[src]), (7, leaf[dst]), (5, dst), (3, dst)),
            ),
        ):
            rows = np.flatnonzero(which)
            links = np.stack([first[kind] + at[rows] for kind, at in ways]).T
            blocks.append((rows, _whole_ways(links, latency_s)))
        return join_routes(blocks, len(src))

    latency_s = np.concatenate([np.full(len(tail), latency) for tail, _, _, latency in kinds])
    pods = (ranks_per_node, ranks_per_node * nodes_per_leaf)
    return Network(
        vertices=names,
        tail=np.concatenate([tail for tail, *_ in kinds]),
        head=np.concatenate([head for _, head, *_ in kinds]),
        bandwidth_bytes_per_s=np.concatenate([np.full(len(tail), rate) for tail, _, rate, _ in kinds]),
        latency_s=latency_s,
        vertex_of_rank=rank,
        node_of_rank=tuple(node.tolist()),
        call_overhead_s=call_overhead_s,
        reduce_s_per_byte=reduce_s_per_byte,
        own_routes=routes,
        lines=tuple((1, size) for size in dict.fromkeys(pods)),
    )


def torus(
    sides: Sequence[int],
    *,
    link_bytes_per_s: float,
    latency_s: float = LATENCY_S["nvlink"],
    call_overhead_s: float = 0.0,
    reduce_s_per_byte: float = 0.0,
) -> Network:
    """A rank at every place of a grid whose ends are joined, in any number of dimensions.

    Args:
        sides: length of each dimension, at least 3; the last one counts fastest.
        link_bytes_per_s: between neighbours, each way.
        latency_s: of each link.
        call_overhead_s: as of `Network`.
        reduce_s_per_byte: as of `Network`.

    Raises:
        UsageError: a side below 3, or no positive rate.
    """
    if not sides or min(sides) < 3 or link_bytes_per_s <= 0:
        raise UsageError(
            f"a torus of sides {list(sides)} with {link_bytes_per_s} bytes/s: sides are at least 3"
        )
    num_ranks = math.prod(sides)
    places = np.arange(num_ranks).reshape(tuple(sides))
    heads = [np.roll(places, way, axis).reshape(-1) for axis in range(len(sides)) for way in (-1, 1)]
    strides = [math.prod(sides[axis + 1 :]) for axis in range(len(sides))]
    num_links = num_ranks * len(heads)
    network = Network(
        vertices=tuple(f"p{rank}" for rank in range(num_ranks)),
        tail=np.tile(np.arange(num_ranks), len(heads)),
        head=np.concatenate(heads),
        bandwidth_bytes_per_s=np.full(num_links, float(link_bytes_per_s)),
        latency_s=np.full(num_links, latency_s),
        vertex_of_rank=np.arange(num_ranks),
        node_of_rank=tuple(range(num_ranks)),
        call_overhead_s=call_overhead_s,
        reduce_s_per_byte=reduce_s_per_byte,
        lines=tuple(zip(strides, sides, strict=True))[::-1],
    )
    return replace(network, own_routes=partial(_torus_routes, network, tuple(sides), tuple(strides)))


def _torus_routes(
    network: Network, sides: tuple[int, ...], strides: tuple[int, ...], src: IntArray, dst: IntArray
) -> Routes:
    """Of all shortest ways, shared; found by walking, with distances by formula."""
    links_of = Leaving(network)
    nothing_blocked = np.zeros(network.num_ranks, dtype=np.bool_)
    far = np.flatnonzero(src != dst)
    blocks = []
    for begin in range(0, len(far), _MAX_WALKED):
        rows = far[begin : begin + _MAX_WALKED]
        end = dst[rows]

        def hops_to(vertex: IntArray, pair: IntArray, end: IntArray = end) -> IntArray:
            total = np.zeros(len(vertex), dtype=np.int64)
            for side, stride in zip(sides, strides, strict=True):
                apart = np.abs(vertex // stride % side - end[pair] // stride % side)
                total += np.minimum(apart, side - apart)
            return total

        walk = Walk(network, links_of, hops_to, nothing_blocked, end)
        blocks.append((rows, walk.routes(src[rows])))
    return join_routes(blocks, len(src))


def dragonfly(
    num_groups: int,
    routers_per_group: int,
    ranks_per_router: int,
    *,
    rank_bytes_per_s: float,
    local_bytes_per_s: float,
    global_bytes_per_s: float,
    latency_s: float = LATENCY_S["infiniband"],
    call_overhead_s: float = 0.0,
    reduce_s_per_byte: float = 0.0,
) -> Network:
    """Groups of routers that are all joined, and a link between every two groups.

    The link of a group to the one that is d further on, d from 1, leaves at router d - 1 modulo the routers.

    Args:
        num_groups: at least 2.
        routers_per_group: a.
        ranks_per_router: p; ranks are numbered router by router, group by group.
        rank_bytes_per_s: of the link of a rank, each way.
        local_bytes_per_s: of the link between two routers of a group, each way.
        global_bytes_per_s: of the link between two groups, each way.
        latency_s: of each link.
        call_overhead_s: as of `Network`.
        reduce_s_per_byte: as of `Network`.

    Raises:
        UsageError: counts below 1, fewer than two groups, or no positive rate.
    """
    _check_counts(routers_per_group=routers_per_group, ranks_per_router=ranks_per_router)
    if num_groups < 2 or min(rank_bytes_per_s, local_bytes_per_s, global_bytes_per_s) <= 0:
        raise UsageError(f"a dragonfly of {num_groups} groups: at least 2, and rates above 0")
    num_routers = num_groups * routers_per_group
    num_ranks = num_routers * ranks_per_router
    rank, a = np.arange(num_ranks), routers_per_group
    router_of_rank = rank // ranks_per_router
    router = np.arange(num_routers)
    group, own = np.divmod(router, a)
    local_tail, local_peer = np.divmod(np.arange(num_routers * a), a)
    local_head = group[local_tail] * a + local_peer
    from_group, further = np.divmod(np.arange(num_groups * (num_groups - 1)), num_groups - 1)
    to_group = (from_group + further + 1) % num_groups
    out_router = from_group * a + further % a
    back = (from_group - to_group - 1) % num_groups
    in_router = to_group * a + back % a
    # A router's link to itself keeps the numbering simple; no way uses it.
    kinds = [
        (rank, num_ranks + router_of_rank, rank_bytes_per_s),
        (num_ranks + router_of_rank, rank, rank_bytes_per_s),
        (num_ranks + local_tail, num_ranks + local_head, local_bytes_per_s),
        (num_ranks + out_router, num_ranks + in_router, global_bytes_per_s),
    ]
    first = [0, *accumulate(len(tail) for tail, *_ in kinds)]
    link_latency_s = np.full(first[-1], latency_s)

    def local(at: IntArray, to: IntArray) -> IntArray:
        return first[2] + at * a + to % a

    def routes(src: IntArray, dst: IntArray) -> Routes:
        at, to = router_of_rank[src], router_of_rank[dst]
        other = group[at] != group[to]
        number = group[at] * (num_groups - 1) + (group[to] - group[at] - 1) % num_groups
        number = np.where(other, number, 0)
        leaves, enters = np.where(other, out_router[number], at), np.where(other, in_router[number], to)
        columns = [
            (src != dst, src),
            (at != leaves, local(at, leaves)),
            (other, first[3] + number),
            (~other & (at != to), local(at, to)),
            (other & (enters != to), local(enters, to)),
            (src != dst, first[1] + dst),
        ]
        taken, links = np.stack([use for use, _ in columns]).T, np.stack([link for _, link in columns]).T
        pair = np.nonzero(taken)[0]
        total_s = np.bincount(pair, link_latency_s[links[taken]], minlength=len(src)).astype(np.float64)
        return Routes(pair=pair, link=links[taken], share=np.ones(len(pair)), latency_s=total_s)

    ranks_per_group = a * ranks_per_router
    return Network(
        vertices=(
            *(f"r{number}" for number in range(num_ranks)),
            *(f"g{g}/router{r}" for g, r in zip(group.tolist(), own.tolist(), strict=True)),
        ),
        tail=np.concatenate([tail for tail, *_ in kinds]),
        head=np.concatenate([head for _, head, *_ in kinds]),
        bandwidth_bytes_per_s=np.concatenate([np.full(len(tail), rate) for tail, _, rate in kinds]),
        latency_s=link_latency_s,
        vertex_of_rank=rank,
        node_of_rank=tuple(router_of_rank.tolist()),
        call_overhead_s=call_overhead_s,
        reduce_s_per_byte=reduce_s_per_byte,
        own_routes=routes,
        lines=((1, ranks_per_router), (1, ranks_per_group)),
    )


def _whole_ways(links: IntArray, latency_s: FloatArray) -> Routes:
    """One way a row, of all of a message."""
    num_pairs, length = links.shape
    return Routes(
        pair=np.repeat(np.arange(num_pairs), length),
        link=links.reshape(-1),
        share=np.ones(num_pairs * length),
        latency_s=latency_s[links].sum(axis=1),
    )


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"{name.replace('_', ' ')} is {count}: at least 1")
