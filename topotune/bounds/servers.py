"""How hosts of unequal links share the work of parameter servers, in closed form.

Theory. On one switch, a host that takes part with share w of the message as its server moves M (1 + w (k-2))
bytes each way: w M from and to each of k - 1 others as a server, (1 - w) M to and from the others' servers.
All links end together at T for w_i = (T B_i / M - 1) / (k-2), so that T = 2(k-1) M / sum B if no host's own
part takes longer, and M / min B else; hosts that cannot serve in that time get no share. With one wide host
beside many narrow ones that is a dedicated server; with equal hosts all serve alike.

Source: Jiang et al. (BytePS), "A unified architecture for accelerating distributed DNN training in
heterogeneous GPU/CPU clusters", OSDI 2020, section 4, there for hosts of two kinds.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

from topotune.bounds.bound import star_center
from topotune.bounds.graph import CapacityGraph
from topotune.plan.algorithms import MAX_WEIGHT
from topotune.schedule.model import Params

_ROUNDED_TO = 2**10


def server_shares(rates: Sequence[int]) -> list[Fraction]:
    """Share of the message that each of k >= 3 hosts of a star should serve; they sum to 1.

    Args:
        rates: of the link of each host, each way, in any unit; at least 1.
    """
    hosts = len(rates)
    s_per_byte = max(Fraction(2 * (hosts - 1), sum(rates)), Fraction(1, min(rates)))
    spare = [max(Fraction(0), s_per_byte * rate - 1) for rate in rates]
    return [one / sum(spare) for one in spare]


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
    common = lcm(*(share.denominator for share in shares))
    whole = [int(share * common) for share in shares]
    whole = [one // gcd(*whole) for one in whole]
    if max(whole) > MAX_WEIGHT:
        whole = [round(share * _ROUNDED_TO) for share in shares]
    servers = [rank for rank, share in enumerate(whole) if share]
    return {"servers": servers, "shares": [whole[rank] for rank in servers]}
