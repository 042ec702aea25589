"""All algorithms side by side on one set of links, as ``topotune simulate`` shows them."""

from collections.abc import Sequence
from typing import Any, Final

from topotune.links.model import LinkModel
from topotune.plan.model import DEFAULT_ALGORITHM
from topotune.schedule.candidates import candidates
from topotune.simulate.native import predict_candidate

SCHEMA: Final = "topotune/prediction"
SCHEMA_VERSION: Final = 1


def survey(model: LinkModel, message_bytes: Sequence[int]) -> dict[str, Any]:
    """Predicted times of the default and of every candidate, as a JSON document, fastest first at each size.

    Args:
        model: fitted links.
        message_bytes: sizes, each >= 1.
    """
    named = ((DEFAULT_ALGORITHM, {}), *candidates(model.num_ranks, model.node_of_rank))
    curves = [
        (algorithm, dict(params), predict_candidate(algorithm, params, model, message_bytes).tolist())
        for algorithm, params in named
    ]
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "warnings": [],
        "num_ranks": model.num_ranks,
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
