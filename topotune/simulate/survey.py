"""All algorithms side by side on one set of links, as ``topotune simulate`` shows them."""

from collections.abc import Sequence
from typing import Any, Final

from topotune.links.model import LinkModel
from topotune.links.placement import placement_of, rank_order
from topotune.plan.model import DEFAULT_ALGORITHM
from topotune.schedule.candidates import candidates
from topotune.simulate.native import predict_candidate

SCHEMA: Final = "topotune/prediction"
SCHEMA_VERSION: Final = 1


def survey(model: LinkModel, message_bytes: Sequence[int]) -> dict[str, Any]:
    """Predicted times of the default and of every candidate, as a JSON document, fastest first at each size.

    Candidates stand in the rank order that fits the links (``rank_order``; null for as numbered), as ``tune``
    would have them; the default keeps the ranks as numbered.

    Args:
        model: fitted links.
        message_bytes: sizes, each >= 1.
    """
    order = rank_order(model)
    by_position = model.reordered(order)
    found = candidates(placement_of(by_position), is_reordered=order is not None)
    named = [(DEFAULT_ALGORITHM, {}, model), *((*one, by_position) for one in found)]
    curves = [
        (algorithm, dict(params), predict_candidate(algorithm, params, links, message_bytes).tolist())
        for algorithm, params, links in named
    ]
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "warnings": [],
        "num_ranks": model.num_ranks,
        "rank_order": None if order is None else list(order),
        "sizes": [
            {
                "message_bytes": size,
                "predictions": [
                    {"algorithm": algorithm, "params": params, "time_s": times_s[index]}
                    for algorithm, params, times_s in sorted(curves, key=lambda curve: float(curve[2][index]))
                ],
            }
            for index, size in enumerate(message_bytes)
        ],
    }
