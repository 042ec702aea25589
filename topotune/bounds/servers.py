"""How hosts of unequal links share the work of parameter servers, in closed form.

Theory. On one switch, a host that takes part with share w of the message as its server moves M (1 + w (k-2))
bytes each way: w M from and to each of k - 1 others as a server, (1 - w) M to and from the others' servers.
All links end together at T for w_i = (T B_i / M - 1) / (k-2), so that T = 2(k-1) M / sum B if no host's own
part takes longer, and M / min B else; hosts that cannot serve in that time get no share. With one wide host
beside many narrow ones that is a dedicated server; with equal hosts all serve alike.

*Dedicated* servers stand beside the k hosts, add for them, and own no part. One of rate H that serves a share
v moves k v M each way, so it takes v = T H / (k M), and T = 2(k-1) M / (sum B + (k-2)/k sum H). No tree is
cheaper: with a server's bytes counted at (k-2)/k, adding and copying a byte along any trees takes 2(k-1)
bytes, in the mean of what is sent and received. Tests hold this to the linear programme.

Source: Jiang et al. (BytePS), "A unified architecture for accelerating distributed DNN training in
heterogeneous GPU/CPU clusters", OSDI 2020, section 4, there for hosts of two kinds.
"""

from collections.abc import Sequence, Set
from fractions import Fraction
from math import gcd, lcm

from topotune.bounds.bound import Bound, NoBound, arcs_in_words, star_center, together_in_words
from topotune.bounds.graph import CapacityGraph
from topotune.bounds.in_network import in_network_bound
from topotune.plan.algorithms import MAX_WEIGHT
from topotune.schedule.model import Params

_ROUNDED_TO = 2**10


def served_s_per_byte(rates: Sequence[int], dedicated: Sequence[int] = ()) -> Fraction:
    """Shortest time per byte of an allreduce among k >= 2 hosts of a star, with the help of servers.

    Args:
        rates: of the link of each host, each way, in any unit; at least 1.
        dedicated: likewise of each server that owns no part.
    """
    hosts = len(rates)
    together = sum(rates) + Fraction(hosts - 2, hosts) * sum(dedicated)
    return max(Fraction(2 * (hosts - 1)) / together, Fraction(1, min(rates)))


def server_shares(rates: Sequence[int], dedicated: Sequence[int] = ()) -> list[Fraction]:
    """Share of the message that each of k >= 3 hosts of a star should serve; they sum to 1.

    Args:
        rates: of the link of each host, each way, in any unit; at least 1.
        dedicated: likewise of each server that owns no part; their shares stand behind the hosts'.
    """
    hosts = len(rates)
    s_per_byte = served_s_per_byte(rates, dedicated)
    spare = [max(Fraction(0), s_per_byte * rate - 1) / (hosts - 2) for rate in rates]
    spare += [s_per_byte * rate / hosts for rate in dedicated]
    return [one / sum(spare) for one in spare]


def served_bound(
    graph: CapacityGraph, servers: Set[str], reducing: Set[str] = frozenset()
) -> Bound | NoBound:
    """The bound of allreduce where servers add for the ranks: in closed form on stars.

    Args:
        graph: what the network carries.
        servers: vertices of it that add, and hand out what they added; those that hold ranks do so anyway.
        reducing: switches that do so as well.

    Raises:
        ValueError: some ranks cannot reach others.
    """
    servers = frozenset(servers) - graph.hosts
    center = star_center(graph, servers)
    found = in_network_bound(graph, servers | reducing)
    if isinstance(found, NoBound) or center is None or center in reducing:
        return found
    ends = [*sorted(graph.hosts), *sorted(servers)]
    arcs = [(end, center) for end in ends]
    if not graph.unlimited.isdisjoint([*arcs, *((center, end) for end in ends)]):
        return found
    ways = [(graph.capacities[arc], graph.capacities[arc[::-1]]) for arc in arcs]
    # Twice the rates, so that the mean of both ways is whole.
    both = [out + back for out, back in ways]
    hosts = len(graph.hosts)
    s_per_byte = 2 * served_s_per_byte(both[:hosts], both[hosts:])
    narrowest = min(min(way) for way in ways[:hosts])
    alike = all(out == back for out, back in ways)
    if s_per_byte * narrowest > 1:
        return Bound(
            s_per_byte=float(s_per_byte), text=together_in_words(graph, arcs), cut=tuple(ends), exact=alike
        )
    slowest = next(arc for arc, way in zip(arcs, ways, strict=True) if min(way) == narrowest)
    return Bound(
        s_per_byte=1.0 / narrowest, text=arcs_in_words(graph, [slowest]), cut=slowest[:1], exact=alike
    )


def dedicated_shares(graph: CapacityGraph, servers: Sequence[str]) -> list[int] | None:
    """Shares of ``dedicated_servers`` that end all links of a star at once, the ranks' first.

    Args:
        graph: what the network carries.
        servers: its vertices that only add.

    Returns:
        None where the graph is no star of hosts with one rank each, or something does not limit an end.
    """
    center = star_center(graph, frozenset(servers))
    if center is None or len(graph.hosts) != len(graph.compute) or len(graph.compute) < 3:
        return None
    ways = [((end, center), (center, end)) for end in (*graph.compute, *servers)]
    if any(arc in graph.unlimited for both in ways for arc in both):
        return None
    rates = [min(graph.capacities[out], graph.capacities[back]) for out, back in ways]
    return _whole(server_shares(rates[: len(graph.compute)], rates[len(graph.compute) :]))


def server_params(graph: CapacityGraph) -> Params | None:
    """Params of ``parameter_server`` with unequal shares for a star of unequal hosts with one rank each.

    Returns:
        None where all hosts are to serve alike, as they do unasked; where the graph is no such star; or where
            nothing limits a host.
    """
    center = star_center(graph)
    if center is None or len(graph.hosts) != len(graph.compute) or len(graph.compute) < 3:
        return None
    ways = [((host, center), (center, host)) for host in graph.compute]
    if any(arc in graph.unlimited for both in ways for arc in both):
        return None
    shares = server_shares([min(graph.capacities[out], graph.capacities[back]) for out, back in ways])
    if len(set(shares)) == 1:
        return None
    whole = _whole(shares)
    servers = [rank for rank, share in enumerate(whole) if share]
    return {"servers": servers, "shares": [whole[rank] for rank in servers]}


def _whole(shares: Sequence[Fraction]) -> list[int]:
    """The same as whole numbers, rounded where that takes large ones."""
    common = lcm(*(share.denominator for share in shares))
    whole = [int(share * common) for share in shares]
    whole = [one // gcd(*whole) for one in whole]
    return whole if max(whole) <= MAX_WEIGHT else [round(share * _ROUNDED_TO) for share in shares]
