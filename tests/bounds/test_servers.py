from fractions import Fraction

import pytest
from networks import racks, star, switched_boxes

from topotune.bounds import allreduce_lp, graph_allreduce_bound
from topotune.bounds.servers import server_params, server_shares
from topotune.schedule import build, verify
from topotune.simulate.network import network_of_graph
from topotune.simulate.routed import predict_routed


@pytest.mark.parametrize(
    ("rates", "shares"),
    [
        pytest.param([10] * 4, ["0.250"] * 4, id="equal hosts serve alike"),
        pytest.param([125] * 7 + [100], ["0.132"] * 7 + ["0.073"], id="a slower host serves less"),
        pytest.param([10] * 7 + [5], ["0.143"] * 7 + ["0.000"], id="one at half speed serves nothing"),
        pytest.param([10] * 8 + [100], ["0.000"] * 8 + ["1.000"], id="a wide host serves all"),
    ],
)
def test_shares_are_the_known_ones(rates, shares):
    found = server_shares(rates)
    assert sum(found) == 1
    assert [f"{float(share):.3f}" for share in found] == shares


@pytest.mark.parametrize("rates", [[10, 9, 7, 5], [20, 20, 10, 10], [10] * 4 + [50], [125] * 7 + [100]])
def test_with_them_no_link_takes_longer_than_the_optimum(rates):
    optimum = 1 / allreduce_lp(star(rates)).algbw_bytes_per_s
    for rate, share in zip(rates, server_shares(rates), strict=True):
        assert float((1 + share * (len(rates) - 2)) / Fraction(rate)) <= optimum * (1 + 1e-6)


def test_servers_that_take_pieces_of_all_at_once_come_near_the_optimum():
    graph = star([10**9] * 4 + [5 * 10**9])
    params = server_params(graph)
    assert params == {"servers": [4], "shares": [1]}
    schedule = build("parameter_server", {**params, "pieces": 64}, 5)
    assert verify(schedule) == ()
    (time_s,) = predict_routed(schedule, network_of_graph(graph), [2**30])
    assert 0.93 < graph_allreduce_bound(graph).time_s(2**30) / time_s <= 1


def test_shares_that_have_no_small_fraction_are_rounded():
    params = server_params(star([10_000_019, 9_999_991, 10_000_079, 9_999_973]))
    assert sum(params["shares"]) == pytest.approx(2**10, abs=2)
    assert verify(build("parameter_server", params, 4)) == ()


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(star([10] * 4), id="equal hosts"),
        pytest.param(star([10, 5]), id="two hosts"),
        pytest.param(racks(2, 2, 10, 10), id="no star"),
        pytest.param(switched_boxes(2, 2, 10, 5), id="several links a host"),
    ],
)
def test_where_shares_would_bring_nothing_there_are_none(graph):
    assert server_params(graph) is None
