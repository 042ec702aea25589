import networks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topotune.bounds import CapacityGraph, allreduce_lp, optima
from topotune.bounds.cut_planes import allreduce_by_cuts
from topotune.bounds.servers import dedicated_shares, served_bound, server_shares
from topotune.bounds.symmetry import likeness


def with_servers(rates, dedicated):
    """A star of hosts, and servers behind them."""
    star = networks.star([*rates, *dedicated])
    graph = CapacityGraph(capacities=star.capacities, compute=star.compute[: len(rates)])
    return graph, star.compute[len(rates) :]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(100, 900), min_size=2, max_size=5),
    st.lists(st.integers(10, 900), min_size=1, max_size=3),
)
def test_closed_form_equals_the_linear_programme(rates, dedicated):
    graph, servers = with_servers(rates, dedicated)
    found = served_bound(graph, set(servers))
    best = allreduce_by_cuts(graph, likeness(graph, set(servers)), adding=set(servers))
    assert found.exact
    assert found.s_per_byte == pytest.approx(1 / best.algbw_bytes_per_s, rel=1e-6)


def test_as_many_servers_as_hosts_take_all_the_work():
    """The case of BytePS: with n servers beside n hosts every link carries the message once each way."""
    graph, servers = with_servers([10] * 4, [10] * 4)
    assert served_bound(graph, set(servers)).s_per_byte == pytest.approx(1 / 10)
    assert server_shares([10] * 4, [10] * 4) == [0] * 4 + [0.25] * 4


def test_few_servers_share_the_work_with_the_hosts():
    graph, servers = with_servers([10] * 4, [10])
    assert served_bound(graph, set(servers)).s_per_byte == pytest.approx(6 / 45)
    shares = dedicated_shares(graph, servers)
    assert [share / sum(shares) for share in shares] == pytest.approx([1 / 6] * 4 + [1 / 3])


def test_a_slow_host_holds_back_whatever_the_servers():
    graph, servers = with_servers([10, 10, 2], [100])
    found = served_bound(graph, set(servers))
    assert (found.s_per_byte, found.cut) == (pytest.approx(1 / 2), ("h2",))


def test_servers_that_nothing_limits_still_leave_what_the_hosts_carry():
    graph, servers = with_servers([10, 10, 10], [1000])
    graph = CapacityGraph(
        capacities=graph.capacities,
        compute=graph.compute,
        unlimited=frozenset({(servers[0], "switch"), ("switch", servers[0])}),
    )
    assert served_bound(graph, set(servers)).s_per_byte == pytest.approx(1 / 10)
    assert dedicated_shares(graph, servers) is None


@pytest.mark.parametrize("where", ["spine", "rack0"])
def test_servers_anywhere_help_and_are_never_above_the_programme(where):
    net = networks.racks(2, 3, 10, 10)
    capacities = {**net.capacities, ("server", where): 100, (where, "server"): 100}
    graph = CapacityGraph(capacities=capacities, compute=net.compute)
    found = served_bound(graph, {"server"})
    assert not found.exact, "trees with servers between may not reach it"
    assert found.s_per_byte <= 1 / allreduce_lp(net).algbw_bytes_per_s * (1 + 1e-9)


def test_optima_say_both_with_and_without():
    graph, servers = with_servers([10] * 4, [10] * 4)
    found = optima(networks.star([10] * 4), served=(graph, set(servers)))
    assert found.allreduce.algbw_bytes_per_s == pytest.approx(10 * 4 / 6)
    assert found.allreduce_served.algbw_bytes_per_s == pytest.approx(10)


def test_a_server_on_the_vertex_of_a_rank_is_no_second_host():
    graph, (server,) = with_servers([10, 10, 10], [20])
    alone = served_bound(graph, {server})
    assert served_bound(graph, {server, "h0"}) == alone
