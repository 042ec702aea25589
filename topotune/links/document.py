"""The JSON form of a measurement, ``topotune/measurement``.

Samples are the facts; ``median_s``, ``ci_s``, ``num_samples``, ``fits``, ``shared`` and ``findings`` stand
beside them for people and scripts. They are derived anew whenever a measurement is written, and not
believed when one is read.

| schema_version | change |
| --- | --- |
| 1 | first; files made before flows were measured lack ``flow_tests`` and ``round_trips``, those without
figures of other tools may lack ``link_figures`` and ``collectives``, those of CPUs alone ``device_copies`` |
"""

import os
from dataclasses import asdict, fields
from typing import Any, Final, TypeVar, get_args

from topotune.documents import Migrations, Value, document_of
from topotune.errors import InputFileError
from topotune.links.device_copy import KINDS, CopyTiming
from topotune.links.figures import COLLECTIVES, CollectiveFigure, Duplex, LinkFigure
from topotune.links.findings import find
from topotune.links.fit import fit_links, link_classes
from topotune.links.flows import FlowTest, Purpose, RoundTripTimes
from topotune.links.measurement import SCHEMA, SCHEMA_VERSION, ExchangeTiming, Measurement, PairTiming
from topotune.links.model import LinkModel

MAX_RANKS: Final = 4096
MAX_TIMINGS: Final = 1_000_000
MAX_SAMPLES: Final = 100_000
_MAX_SECONDS: Final = 1e6

MIGRATIONS: Final[Migrations] = {}
"""Older schema_version → what makes a document of the next version out of it; version 1 is the first."""

Timing = TypeVar(
    "Timing",
    PairTiming,
    ExchangeTiming,
    FlowTest,
    RoundTripTimes,
    LinkFigure,
    CollectiveFigure,
    CopyTiming,
)

_DERIVED: Final = ("fits", "shared", "call_overhead_s", "findings")
_DERIVED_OF_PAIR: Final = ("median_s", "ci_s", "num_samples")
_DERIVED_OF_COPY: Final = ("bytes_per_s",)


def to_document(measurement: Measurement) -> dict[str, Any]:
    """The document of a measurement, with all that is derived from it."""
    model = fit_links(measurement) if measurement.times_links else None
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        **_plain(
            measurement,
            omit=(
                "pairs",
                "exchanges",
                "flow_tests",
                "round_trips",
                "link_figures",
                "collectives",
                "device_copies",
            ),
        ),
        "pairs": [
            {
                **_plain(pair),
                "median_s": pair.median_s,
                "ci_s": list(pair.ci_s),
                "num_samples": len(pair.samples_s),
            }
            for pair in measurement.pairs
        ],
        "exchanges": [_plain(exchange) for exchange in measurement.exchanges],
        "flow_tests": [_plain(test) for test in measurement.flow_tests],
        "round_trips": [_plain(trips) for trips in measurement.round_trips],
        **_figures(measurement),
        "device_copies": [
            {**_plain(timing), "bytes_per_s": timing.bytes_per_s} for timing in measurement.device_copies
        ],
        "fits": [] if model is None else _fits(model),
        "shared": [
            {
                "name": shared.name,
                "capacity_bytes_per_s": shared.capacity_bytes_per_s,
                "is_limit": shared.is_limit,
            }
            for shared in (model.shared if model is not None else ())
        ],
        "call_overhead_s": 0.0 if model is None else model.call_overhead_s,
        "findings": [asdict(finding) for finding in find(measurement, model)],
    }


def from_document(document: Any, source: str | os.PathLike[str]) -> Measurement:
    """A measurement from a document of unknown origin.

    Args:
        document: parsed JSON.
        source: the file it came from, for messages.

    Raises:
        InputFileError: no measurement, a newer version, a key missing or unknown, a value out of bounds, or
            timings that no cost can be fitted to.
    """
    value = document_of(
        Value(document, "", os.fspath(source), InputFileError), SCHEMA, SCHEMA_VERSION, MIGRATIONS
    )
    members = value.members(
        ("schema", "schema_version", "num_ranks", "node_of_rank", "node_names", "pairs"),
        (
            "exchanges",
            "flow_tests",
            "round_trips",
            "link_figures",
            "collectives",
            "device_copies",
            "reduce_s_per_byte",
            "created",
            "budget_s",
            "elapsed_s",
            "facts",
            "warnings",
            *_DERIVED,
        ),
    )

    def optional(name: str, take: Any, default: Any = None) -> Any:
        return take(members[name]) if name in members and members[name].raw is not None else default

    num_ranks = members["num_ranks"].integer(0, MAX_RANKS)
    nodes = members["node_of_rank"].items(num_ranks, what="ranks")
    names = members["node_names"].items(num_ranks, what="names")
    pairs = tuple(_pair(item, num_ranks) for item in members["pairs"].items(MAX_TIMINGS, what="timings"))
    exchanges = optional(
        "exchanges", lambda e: tuple(_exchange(i, num_ranks) for i in e.items(MAX_TIMINGS)), ()
    )
    try:
        measurement = Measurement(
            num_ranks=num_ranks,
            node_of_rank=tuple(node.integer(0, num_ranks - 1) for node in nodes),
            node_names=tuple(name.text() for name in names),
            pairs=pairs,
            exchanges=exchanges,
            flow_tests=optional(
                "flow_tests",
                lambda tests: tuple(_flow_test(test, num_ranks) for test in tests.items(MAX_TIMINGS)),
                (),
            ),
            round_trips=optional(
                "round_trips",
                lambda trips: tuple(_round_trips(item, num_ranks) for item in trips.items(MAX_TIMINGS)),
                (),
            ),
            link_figures=optional(
                "link_figures",
                lambda figures: tuple(_link_figure(item, num_ranks) for item in figures.items(MAX_TIMINGS)),
                (),
            ),
            collectives=optional(
                "collectives",
                lambda figures: tuple(_collective(item) for item in figures.items(MAX_TIMINGS)),
                (),
            ),
            device_copies=optional(
                "device_copies", lambda copies: tuple(map(_copy, copies.items(MAX_TIMINGS))), ()
            ),
            reduce_s_per_byte=optional("reduce_s_per_byte", _seconds, ()),
            created=optional("created", lambda created: created.text(max_length=100)),
            budget_s=optional("budget_s", lambda budget: budget.number(0, _MAX_SECONDS)),
            elapsed_s=optional("elapsed_s", lambda elapsed: elapsed.number(0, _MAX_SECONDS)),
            facts=optional(
                "facts", lambda facts: {key: v.text() for key, v in facts.mapping(64).items()}, {}
            ),
            warnings=optional("warnings", lambda w: tuple(item.text() for item in w.items(10_000)), ()),
        )
        if measurement.times_links:
            fit_links(measurement)
    except ValueError as error:
        if isinstance(error, InputFileError):
            raise
        raise InputFileError(os.fspath(source), str(error)) from error
    return measurement


def _pair(value: Value, num_ranks: int) -> PairTiming:
    members = value.members(
        ("src", "dst", "message_bytes", "one_way_s", "half_round_trip_s"),
        ("warmup_s", "clock_error_s", "num_concurrent", "steady", *_DERIVED_OF_PAIR),
    )
    given: dict[str, Any] = {
        "src": members["src"].integer(0, num_ranks - 1),
        "dst": members["dst"].integer(0, num_ranks - 1),
        "message_bytes": members["message_bytes"].integer(1),
        **{
            name: _seconds(members[name])
            for name in ("one_way_s", "half_round_trip_s", "warmup_s")
            if name in members
        },
    }
    if "clock_error_s" in members:
        given["clock_error_s"] = members["clock_error_s"].number(0, _MAX_SECONDS)
    if "num_concurrent" in members:
        given["num_concurrent"] = members["num_concurrent"].integer(1, MAX_TIMINGS)
    if "steady" in members:
        given["steady"] = members["steady"].boolean()
    return _made(value, PairTiming, given)


def _exchange(value: Value, num_ranks: int) -> ExchangeTiming:
    members = value.members(("a", "b", "message_bytes", "group", "num_concurrent", "samples_s"))
    given = {
        "a": members["a"].integer(0, num_ranks - 1),
        "b": members["b"].integer(0, num_ranks - 1),
        "message_bytes": members["message_bytes"].integer(1),
        "group": members["group"].integer(0, MAX_TIMINGS),
        "num_concurrent": members["num_concurrent"].integer(1, MAX_TIMINGS),
        "samples_s": _seconds(members["samples_s"]),
    }
    return _made(value, ExchangeTiming, given)


def _flow_test(value: Value, num_ranks: int) -> FlowTest:
    members = value.members(("purpose", "flows", "message_bytes", "rates_bytes_per_s", "number"))
    flows = members["flows"].items(num_ranks, min_items=1, what="flows")
    given = {
        "purpose": members["purpose"].text(one_of=get_args(Purpose)),
        "flows": tuple(
            tuple(end.integer(0, num_ranks - 1) for end in flow.items(2, min_items=2, what="ends"))
            for flow in flows
        ),
        "message_bytes": members["message_bytes"].integer(1),
        "rates_bytes_per_s": tuple(
            tuple(float(rate.number(0)) for rate in rates.items(MAX_SAMPLES, what="samples"))
            for rates in members["rates_bytes_per_s"].items(num_ranks, what="flows")
        ),
        "number": members["number"].integer(0, MAX_TIMINGS),
    }
    return _made(value, FlowTest, given)


def _round_trips(value: Value, num_ranks: int) -> RoundTripTimes:
    members = value.members(("a", "b", "min_s", "samples_s"))
    given = {
        "a": members["a"].integer(0, num_ranks - 1),
        "b": members["b"].integer(0, num_ranks - 1),
        "min_s": float(members["min_s"].number(0, _MAX_SECONDS)),
        "samples_s": _seconds(members["samples_s"]),
    }
    return _made(value, RoundTripTimes, given)


def _link_figure(value: Value, num_ranks: int) -> LinkFigure:
    bandwidths = ("bandwidth_bytes_per_s", "peak_bytes_per_s")
    times = ("latency_s", "min_s", "max_s")
    counts = ("message_bytes", "num_iterations", "num_concurrent")
    members = _known(
        value,
        ("src", "dst", "method"),
        (*bandwidths, *times, *counts, "duplex", "direct", "peer_access"),
    )
    given: dict[str, Any] = {
        "src": members["src"].optional(lambda rank: rank.integer(0, num_ranks - 1)),
        "dst": members["dst"].optional(lambda rank: rank.integer(0, num_ranks - 1)),
        "method": members["method"].text(),
        **{name: float(members[name].number(0)) for name in bandwidths if name in members},
        **{name: float(members[name].number(0, _MAX_SECONDS)) for name in times if name in members},
        **{name: members[name].boolean() for name in ("direct", "peer_access") if name in members},
        **{name: members[name].integer() for name in counts if name in members},
    }
    if "duplex" in members:
        given["duplex"] = members["duplex"].text(one_of=get_args(Duplex))
    return _made(value, LinkFigure, given)


def _collective(value: Value) -> CollectiveFigure:
    rates = ("algbw_bytes_per_s", "busbw_bytes_per_s", "max_error")
    times = ("time_s", "min_s", "max_s")
    counts = ("message_bytes", "num_ranks", "num_nodes", "num_wrong", "num_iterations", "run")
    texts = ("dtype", "op", "origin")
    members = _known(
        value,
        ("collective", "message_bytes", "time_s"),
        (*rates, *times, *counts, *texts, "of_part", "in_place", "root", "samples_s"),
    )
    given: dict[str, Any] = {
        "collective": members["collective"].text(one_of=COLLECTIVES),
        **{name: float(members[name].number(0)) for name in rates if name in members},
        **{name: float(members[name].number(0, _MAX_SECONDS)) for name in times if name in members},
        **{name: members[name].integer() for name in counts if name in members},
        **{name: members[name].text() for name in texts if name in members},
    }
    given |= {name: members[name].boolean() for name in ("of_part", "in_place") if name in members}
    if "root" in members:
        given["root"] = members["root"].integer()
    if "samples_s" in members:
        given["samples_s"] = _seconds(members["samples_s"])
    return _made(value, CollectiveFigure, given)


def _copy(value: Value) -> CopyTiming:
    members = value.members(
        ("node", "kind", "src", "dst", "message_bytes", "samples_s"),
        ("purpose", "num_concurrent", "peer_access", *_DERIVED_OF_COPY),
    )
    given: dict[str, Any] = {
        "kind": members["kind"].text(one_of=KINDS),
        **{name: members[name].text() for name in ("node", "src", "dst", "purpose") if name in members},
        "message_bytes": members["message_bytes"].integer(1),
        "samples_s": _seconds(members["samples_s"]),
    }
    if "num_concurrent" in members:
        given["num_concurrent"] = members["num_concurrent"].integer(1, MAX_TIMINGS)
    if "peer_access" in members:
        given["peer_access"] = members["peer_access"].optional(Value.boolean)
    return _made(value, CopyTiming, given)


def _known(value: Value, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Value]:
    """Members of a figure; those that are null, which says no more than their absence, are left out.

    Ends of a link are told apart by null: the memory of the host.
    """
    members = value.members(required, optional)
    return {key: item for key, item in members.items() if item.raw is not None or key in required}


def _made(value: Value, kind: type[Timing], given: dict[str, Any]) -> Timing:
    """A timing that checks itself; what it finds is said of its place in the file."""
    try:
        return kind(**given)
    except ValueError as error:
        value.fail(str(error))


def _seconds(value: Value) -> tuple[float, ...]:
    """Samples: finite numbers. One-way times between clocks that differ may be negative."""
    samples = value.items(MAX_SAMPLES, what="samples")
    return tuple(float(sample.number(-_MAX_SECONDS, _MAX_SECONDS)) for sample in samples)


def _plain(
    value: (
        Measurement
        | PairTiming
        | ExchangeTiming
        | FlowTest
        | RoundTripTimes
        | LinkFigure
        | CollectiveFigure
        | CopyTiming
    ),
    omit: tuple[str, ...] = (),
) -> dict[str, Any]:
    """A dataclass as JSON: tuples as lists."""
    plain = {}
    for field in fields(value):
        if field.name not in omit:
            plain[field.name] = _lists(getattr(value, field.name))
    return plain


_USUAL: Final = (("num_concurrent", 1), ("of_part", False))
"""Of figures, what need not be said."""


def _figures(measurement: Measurement) -> dict[str, Any]:
    """Other tools' figures, where there are any, without what they do not say."""
    return {
        name: [
            {
                key: part
                for key, part in _plain(figure).items()
                if key in ("src", "dst") or (part not in (None, []) and (key, part) not in _USUAL)
            }
            for figure in figures
        ]
        for name, figures in (
            ("link_figures", measurement.link_figures),
            ("collectives", measurement.collectives),
        )
        if figures
    }


def _lists(content: Any) -> Any:
    return [_lists(item) for item in content] if isinstance(content, tuple) else content


def _fits(model: LinkModel) -> list[dict[str, Any]]:
    """One entry for each class of links."""
    return [
        {
            **asdict(link_class),
            "segments": [
                {"from_bytes": start, "alpha_s": alpha, "beta_s_per_byte": beta}
                for start, alpha, beta in zip(
                    cost.from_bytes, cost.alpha_s, cost.beta_s_per_byte, strict=True
                )
            ],
        }
        for link_class, cost in zip(link_classes(model), model.classes, strict=True)
    ]
