"""Reading what ``topotune simulate`` writes (``topotune/prediction``)."""

from typing import Any, Final

from topotune.documents import Value, document_of
from topotune.plan.describe import params_in_words
from topotune.results.fields import MAX_CUT, maybe, needed, seconds, warnings_of, words
from topotune.simulate.document import (
    SCHEMA,
    SCHEMA_VERSION,
    Bottleneck,
    NcclChoice,
    Predicted,
    PredictedSize,
    Prediction,
)
from topotune.units import MAX_MESSAGE_BYTES

_MAX_SIZES: Final = 10_000
_MAX_PREDICTIONS: Final = 100_000
_MAX_RANKS: Final = 2**20
_MAX_PARAMS: Final = 16


def prediction_of(value: Value) -> Prediction:
    """A prediction from a document of unknown origin.

    Raises:
        InputFileError: no prediction, a newer version, or a value missing or out of bounds.
    """
    document = document_of(value, SCHEMA, SCHEMA_VERSION)
    sizes = [_size(one) for one in needed(document, "sizes").items(_MAX_SIZES, what="sizes")]
    return Prediction(
        num_ranks=needed(document, "num_ranks").integer(1, 2**31),
        sizes=sorted(sizes, key=lambda size: size.message_bytes),
        rank_order=maybe(
            document, "rank_order", lambda one: [rank.integer() for rank in one.items(_MAX_RANKS)]
        ),
        network=maybe(document, "network", words),
        bottleneck=maybe(document, "bottleneck", _bottleneck),
        no_bound_reason=maybe(document, "no_bound_reason", words),
        nccl_version=maybe(document, "nccl_version", lambda one: one.text(max_length=100)),
        warnings=list(warnings_of(document)),
    )


def params_of(value: Value) -> dict[str, Any]:
    """An algorithm's parameters: plain numbers, texts, truth values, and lists of them, which have words."""
    for param in value.mapping(_MAX_PARAMS).values():
        if not isinstance(param.raw, int | float | str | bool | list | None):
            param.fail("is an object: a parameter is a number, a text, true, false or a list")
        if isinstance(param.raw, str):
            param.text(max_length=1000)
    params: dict[str, Any] = value.raw
    try:
        params_in_words(params)
    except (TypeError, ValueError, AttributeError, IndexError):
        value.fail("are no parameters that any algorithm of topotune has")
    return params


def _size(value: Value) -> PredictedSize:
    predictions = needed(value, "predictions").items(_MAX_PREDICTIONS, what="predictions")
    return PredictedSize(
        message_bytes=needed(value, "message_bytes").integer(1, MAX_MESSAGE_BYTES),
        predictions=sorted((_predicted(one) for one in predictions), key=lambda one: one.time_s),
        optimum_s=maybe(value, "optimum_s", seconds),
        nccl=maybe(value, "nccl", _nccl),
    )


def _nccl(value: Value) -> NcclChoice:
    return NcclChoice(
        algorithm=needed(value, "algorithm").text(max_length=100),
        protocol=needed(value, "protocol").text(max_length=100),
        time_s=seconds(needed(value, "time_s")),
        percent_of_optimum=maybe(value, "percent_of_optimum", lambda one: one.number(0, 1e6)),
    )


def _predicted(value: Value) -> Predicted:
    return Predicted(
        algorithm=needed(value, "algorithm").text(max_length=100),
        params=params_of(needed(value, "params")),
        time_s=seconds(needed(value, "time_s")),
        percent_of_optimum=maybe(value, "percent_of_optimum", lambda one: one.number(0, 1e6)),
    )


def _bottleneck(value: Value) -> Bottleneck:
    cut = needed(value, "cut").items(MAX_CUT)
    return Bottleneck(text=words(needed(value, "text")), cut=[one.text() for one in cut])
