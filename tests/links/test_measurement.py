import copy
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_links import affine, exchange, measured

from topotune.errors import InputFileError
from topotune.links import (
    ExchangeTiming,
    FlowTest,
    Measurement,
    PairTiming,
    RoundTripTimes,
    find,
    fit_links,
    measurement_from_document,
    measurement_to_document,
    median_ci,
)
from topotune.links.ping_pong import has_trend

NODES = [0, 0, 1]
EXCHANGES = exchange(0, [(0, 1)], 8, 1e-4) + exchange(1, [(0, 2)], 65536, 2e-4)
FLOW_TESTS = (
    FlowTest(
        purpose="round",
        flows=((0, 2), (2, 0)),
        message_bytes=65536,
        rates_bytes_per_s=((1e6, 2e6), (1.5e6, 1e6)),
        number=0,
    ),
    FlowTest(purpose="alone", flows=((2, 1),), message_bytes=65536, rates_bytes_per_s=((3e6,),), number=2),
)
ROUND_TRIPS = (RoundTripTimes(a=0, b=2, min_s=1e-4, samples_s=(1e-4, 1.5e-4)),)


def example():
    measurement = measured(
        NODES, lambda *_: affine(2e-5, 1e9), sizes=(8, 1024, 65536), num_samples=7, exchanges=EXCHANGES
    )
    return replace(measurement, flow_tests=FLOW_TESTS, round_trips=ROUND_TRIPS)


@pytest.mark.parametrize(
    ("num_samples", "ranks"),
    [
        (1, (1, 1)),
        (5, (1, 5)),
        (6, (1, 6)),
        (8, (1, 8)),
        (9, (2, 8)),
        (10, (2, 9)),
        (25, (8, 18)),
        (100, (40, 61)),
    ],
)
def test_interval_of_the_median_is_the_tabled_one(num_samples, ranks):
    assert median_ci(range(1, num_samples + 1)) == ranks


def test_interval_of_the_median_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(3)
    for num_samples in (15, 60):
        samples = rng.exponential(size=(2000, num_samples))
        inside = [low <= math.log(2) <= high for low, high in map(median_ci, samples.tolist())]
        assert 0.94 <= np.mean(inside) <= 0.995


@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=1500))
def test_interval_of_the_median_holds_the_median_and_ignores_order(samples):
    low, high = median_ci(samples)
    assert low <= np.median(samples) <= high
    assert median_ci(samples[::-1]) == (low, high)


def timing(**facts):
    given = {
        "src": 0,
        "dst": 1,
        "message_bytes": 8,
        "one_way_s": (2e-5, 3e-5),
        "half_round_trip_s": (4e-5, 5e-5),
    }
    return PairTiming(**(given | facts))


def test_one_way_times_count_only_where_the_clocks_are_good_enough():
    assert timing(clock_error_s=2e-6).samples_s == (2e-5, 3e-5)
    assert timing(clock_error_s=3e-6).samples_s == (4e-5, 5e-5)
    assert timing(one_way_s=(-1e-6, 3e-5)).samples_s == (4e-5, 5e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: timing(dst=0), "a timing from rank 0 to itself"),
        (lambda: timing(message_bytes=0), "a message of 0 bytes"),
        (lambda: timing(one_way_s=()), "0 one-way times and 2 half round trips"),
        (lambda: timing(half_round_trip_s=(0.0, 1.0)), "a half round trip is not above 0 s"),
        (lambda: timing(one_way_s=(1.0, math.nan)), "a one-way time is not finite"),
        (
            lambda: ExchangeTiming(a=1, b=1, message_bytes=8, group=0, num_concurrent=1, samples_s=(1.0,)),
            "an exchange between ranks 1 and 1",
        ),
        (
            lambda: Measurement(num_ranks=2, node_of_rank=(0,), node_names=("a",), pairs=()),
            "node_of_rank names 1 ranks, num_ranks is 2",
        ),
        (
            lambda: Measurement(num_ranks=2, node_of_rank=(0, 2), node_names=("a", "b"), pairs=()),
            r"nodes are numbered \[0, 2\] and 2 have names",
        ),
        (
            lambda: Measurement(
                num_ranks=2, node_of_rank=(0, 0), node_names=("a",), pairs=(timing(), timing())
            ),
            "two timings from rank 0 to 1 of 8 bytes",
        ),
    ],
)
def test_impossible_facts_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_measurement_survives_its_document_whole():
    measurement = example()
    document = json.loads(json.dumps(measurement_to_document(measurement), allow_nan=False))
    assert measurement_from_document(document, "links.json") == measurement
    assert document["schema"] == "topotune/measurement"
    first = document["pairs"][0]
    assert {"src", "dst", "message_bytes", "median_s", "ci_s", "num_samples"} <= set(first)
    assert first["num_samples"] == 7
    assert [fit["name"] for fit in document["fits"]] == ["within a node", "between nodes"]
    assert document["warnings"] == []
    assert isinstance(document["findings"], list)


def test_a_file_from_before_flows_were_measured_still_reads():
    document = broken(flow_tests=KeyError, round_trips=KeyError)
    assert measurement_from_document(document, "links.json") == replace(
        example(), flow_tests=(), round_trips=()
    )


def test_derived_fields_of_a_file_are_not_believed():
    measurement = example()
    document = measurement_to_document(measurement)
    document["pairs"][0]["median_s"] = 1e-12
    document["fits"] = []
    assert measurement_from_document(document, "links.json") == measurement


def broken(**changes):
    document = json.loads(json.dumps(measurement_to_document(example())))
    for path, value in changes.items():
        target, *inside = path.split("__")
        place = document
        for key in [target, *inside][:-1]:
            place = place[int(key) if key.isdigit() else key]
        last = [target, *inside][-1]
        if value is KeyError:
            del place[last]
        else:
            place[last] = value
    return document


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "links.json: is a list of 0, not a document of topotune"),
        (broken(schema="topotune/plan"), "links.json: is a topotune/plan, not a topotune/measurement"),
        (
            broken(schema_version=2),
            "links.json: made by a newer topotune: schema_version 2, this one reads 1",
        ),
        (broken(pairs=KeyError), "links.json: lacks the key 'pairs'"),
        (broken(num_ranks=10**9), "links.json: num_ranks: is 1000000000, not a whole number from 0 to 4096"),
        (broken(pairs__3__src=7), "links.json: pairs[3].src: is 7, not a whole number from 0 to 2"),
        (broken(pairs__3__dst=0, pairs__3__src=0), "links.json: pairs[3]: a timing from rank 0 to itself"),
        (
            broken(pairs__0__half_round_trip_s=[]),
            "links.json: pairs[0]: 7 one-way times and 0 half round trips: must be as many, and one at least",
        ),
        (broken(pairs__0__one_way_s="fast"), "links.json: pairs[0].one_way_s: is"),
        (broken(pairs__0__cost=1), "links.json: pairs[0]: has the unknown key 'cost'"),
        (broken(exchanges__0__a=1), "links.json: exchanges[0]: an exchange between ranks 1 and 1"),
        (broken(pairs=[]), "links.json: no pair of ranks within a node was timed"),
        (
            broken(flow_tests__0__purpose="fun"),
            "links.json: flow_tests[0].purpose: is 'fun', not one of alone, round, boundary, ",
        ),
        (
            broken(flow_tests__0__flows=[[0, 2], [0, 2, 1]]),
            "links.json: flow_tests[0].flows[1]: has 3 ends, more than 2",
        ),
        (
            broken(flow_tests__0__flows=[[0, 2], [0, 3]]),
            "links.json: flow_tests[0].flows[1][1]: is 3, not a whole number from 0 to 2",
        ),
        (
            broken(flow_tests__0__flows=[[0, 2], [1, 2]]),
            "links.json: flow_tests[0]: flows ((0, 2), (1, 2)): a rank sends or receives in two of them",
        ),
        (
            broken(flow_tests__0__rates_bytes_per_s=[[1e6], [1e6, 2e6]]),
            "links.json: flow_tests[0]: flows with [1, 2] samples: must be as many for all, one at least",
        ),
        (
            broken(flow_tests__0__rates_bytes_per_s=[[1e6], [0]]),
            "links.json: flow_tests[0]: a flow's rate is not above 0 bytes/s",
        ),
        (
            broken(flow_tests__1__number=0),
            "links.json: flow tests are not in the order of their numbers, each number once",
        ),
        (
            broken(flow_tests__1__flows=[[0, 1]]),
            "links.json: a flow between ranks 0 and 1 among 3 ranks: must be ranks of two nodes",
        ),
        (
            broken(round_trips__0__samples_s=[2e-4, 1e-4]),
            "links.json: round_trips[0]: round trips need samples, ascending",
        ),
        (
            broken(round_trips__0__b=1),
            "links.json: round trips between ranks 0 and 1 among 3 ranks: must be ranks of two nodes",
        ),
    ],
)
def test_a_bad_document_is_refused_by_place_and_value(document, message):
    with pytest.raises(InputFileError) as caught:
        measurement_from_document(copy.deepcopy(document), "links.json")
    assert caught.value.message.startswith(message)


def test_slow_classes_and_contention_are_found():
    nodes, size = [0, 1, 2, 3], 2**22
    together = exchange(0, [(0, 1), (2, 3)], size, 0.02)
    alone = exchange(1, [(0, 1)], size, 0.01)
    measurement = measured(
        nodes,
        lambda a, b: affine(1e-5, 2.5e8 if 2 in (a, b) else 1e9),
        noise=0.001,
        exchanges=together + alone,
    )
    slow, contention = find(measurement, fit_links(measurement))
    assert (slow.code, slow.severity, slow.where) == (
        "slow-links",
        "warning",
        "between nodes, to or from node c",
    )
    assert "0.25 GB/s" in slow.evidence
    assert (contention.code, contention.severity) == ("pairs-contend", "info")
    assert contention.evidence.endswith("2 times as long") or "2.0 times as long" in contention.evidence


def test_equal_quiet_links_have_no_findings():
    measurement = measured([0, 0, 0], lambda *_: affine(1e-5, 1e9))
    assert find(measurement, fit_links(measurement)) == ()


@pytest.mark.parametrize(
    ("samples", "trend"),
    [
        ([9, 8, 7, 6, 5, 4], True),
        ([4, 5, 6, 7, 8, 9], True),
        ([5, 6, 5, 6, 5, 6], False),
        ([9, 8, 7, 6], False),
        ([5.0] * 20, False),
    ],
)
def test_a_trend_is_told_from_noise(samples, trend):
    assert has_trend(samples) is trend
