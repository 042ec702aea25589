"""The optimum of allreduce between hosts on one switch that is no limit itself, in closed form.

Theory. Host i sends at most s_i bytes/s and receives at most r_i. Two facts hold for any allreduce of M
bytes among k hosts without help from the switch, whatever its algorithm. Every host must hear of what only
the others have, and be heard: T >= M / min(s_i, r_i). And in total at least 2(k-1)M bytes must be sent
(each of the k parts of a byte's sum joins it by one message, and the sum reaches the k-1 hosts that did not
finish it by one message each): T >= 2(k-1)M / sum s_i, and likewise for sum r_i. Shares w_i = (T s_i/M -
1)/(k-2) of the message reach the larger of these for s_i = r_i, so that this is the optimum then, and a
valid bound always.

Source: Patarasuk and Yuan, JPDC 2009, for equal hosts; Jiang et al. (BytePS), OSDI 2020, for unequal ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, kw_only=True, slots=True)
class StarBound:
    """The bound of a star and which of the two facts sets it.

    Attributes:
        s_per_byte: T/M, exact.
        slowest: index of the host whose own link sets it; None where all links together do.
        sending: whether it is set by what can be sent (or received).
    """

    s_per_byte: Fraction
    slowest: int | None
    sending: bool


def star_bound(
    send_bytes_per_s: Sequence[int | None], receive_bytes_per_s: Sequence[int | None]
) -> StarBound | None:
    """Shortest time per byte of an allreduce among the hosts of a star.

    Args:
        send_bytes_per_s: of each of k >= 2 hosts; None for a host without a limit.
        receive_bytes_per_s: likewise.

    Returns:
        the bound; None where no host has a limit. All links together win ties.
    """
    candidates: list[StarBound] = []
    for rates, sending in ((send_bytes_per_s, True), (receive_bytes_per_s, False)):
        known = [rate for rate in rates if rate is not None]
        if len(known) == len(rates):
            together = Fraction(2 * (len(rates) - 1), sum(known))
            candidates.append(StarBound(s_per_byte=together, slowest=None, sending=sending))
    for rates, sending in ((send_bytes_per_s, True), (receive_bytes_per_s, False)):
        candidates += [
            StarBound(s_per_byte=Fraction(1, rate), slowest=host, sending=sending)
            for host, rate in enumerate(rates)
            if rate is not None
        ]
    return max(candidates, key=lambda bound: bound.s_per_byte, default=None)
