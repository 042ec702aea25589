"""All algorithms side by side on one set of links, as ``topotune simulate`` shows them."""

from collections.abc import Sequence
from typing import Any

from topotune.links.model import LinkModel
from topotune.links.placement import placement_of, rank_order
from topotune.plan.model import DEFAULT_ALGORITHM
from topotune.schedule.candidates import candidates
from topotune.schedule.model import Schedule
from topotune.simulate.consistency import contradictions
from topotune.simulate.document import SCHEMA, SCHEMA_VERSION
from topotune.simulate.native import predict_candidate
from topotune.simulate.prediction import predict


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
    return _document(model, curves, message_bytes, order)


def survey_schedule(model: LinkModel, schedule: Schedule, message_bytes: Sequence[int]) -> dict[str, Any]:
    """Predicted times of one schedule, ranks as numbered, as a JSON document.

    Raises:
        UsageError: the schedule and the model are for different numbers of ranks.
    """
    times_s = predict(schedule, model, message_bytes).tolist()
    return _document(model, [(schedule.algorithm, dict(schedule.params), times_s)], message_bytes, None)


def _document(
    model: LinkModel,
    curves: Sequence[tuple[str, dict[str, Any], list[float]]],
    message_bytes: Sequence[int],
    order: Sequence[int] | None,
) -> dict[str, Any]:
    fastest: dict[str, list[float]] = {}
    for algorithm, _, times_s in curves:
        fastest[algorithm] = list(map(min, times_s, fastest.get(algorithm, times_s)))
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "warnings": contradictions(fastest, message_bytes),
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
