"""Which candidates a size tries: those that the prediction does not rule out.

How many candidates there are grows with what is known of the cluster: each grouping of the ranks brings some
twenty. A size tries the best-predicted variant of every algorithm, whatever was predicted of it, and beyond
those only the best-predicted of all, up to `MOST_VARIANTS`; none that should take over `HOPELESS` times as
long as the best. Where even the best takes long, bytes decide, which the model knows well, and to measure is
dear: there nothing is tried that should take over `HOPELESS_BYTES` times as long. So a search is as long on a
thousand nodes as on four.
"""

import math
from collections.abc import Callable, Iterable
from typing import Final

from topotune.tune.trial import Candidate

MOST_VARIANTS: Final = 24
HOPELESS: Final = 4.0
HOPELESS_BYTES: Final = 2.0
LONG_CALL_S: Final = 0.01
"""From this predicted time of the best on, a size is one where bytes decide."""

PredictedTime = Callable[[Candidate, int], float]


def shortlist(
    candidates: Iterable[Candidate], predicted_s: PredictedTime, message_bytes: int
) -> tuple[Candidate, ...]:
    """What a size tries, in predicted order, best first.

    Args:
        candidates: all of them, without the default.
        predicted_s: a candidate's time at a size; infinite where it does not take the size.
        message_bytes: the size.
    """
    order_s = {one: predicted_s(one, message_bytes) for one in candidates}
    able = sorted((one for one in order_s if math.isfinite(order_s[one])), key=order_s.__getitem__)
    if able and order_s[able[0]] >= LONG_CALL_S:
        able = [one for one in able if order_s[one] <= HOPELESS_BYTES * order_s[able[0]]]
    best_of: dict[str, Candidate] = {}
    for one in able:
        best_of.setdefault(one.algorithm, one)
    kept = set(best_of.values())
    for one in able:
        if len(kept) >= MOST_VARIANTS or order_s[one] > HOPELESS * order_s[able[0]]:
            break
        kept.add(one)
    return tuple(one for one in able if one in kept)
