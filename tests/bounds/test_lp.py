"""What the linear programme says beside the rate: shares, and what of each link serves which part."""

import networks
import pytest

from topotune.bounds import allreduce_lp

GRAPHS = [
    pytest.param(networks.star([10, 10, 7, 5]), id="unequal hosts on one switch"),
    pytest.param(networks.grid(3, 3, 25), id="mesh"),
    pytest.param(networks.racks(2, 3, 10, 15), id="racks"),
]


@pytest.mark.parametrize("graph", GRAPHS)
def test_both_parts_fit_each_link_and_leave_nothing_at_switches(graph):
    best = allreduce_lp(graph)
    largest = max(graph.capacities.values())
    for arc, capacity in graph.capacities.items():
        used = best.copying_bytes_per_s[arc] + best.adding_bytes_per_s[arc]
        assert used <= capacity + 1e-6 * largest
    for part in (best.copying_bytes_per_s, best.adding_bytes_per_s):
        for switch in set(graph.vertices) - graph.hosts:
            entering = sum(rate for (_, head), rate in part.items() if head == switch)
            leaving = sum(rate for (tail, _), rate in part.items() if tail == switch)
            assert entering == pytest.approx(leaving, abs=1e-6 * largest)


@pytest.mark.parametrize("graph", GRAPHS)
def test_each_host_takes_in_and_sends_what_it_does_not_root(graph):
    best = allreduce_lp(graph)
    for host, share in best.shares.items():
        rest = (1 - share) * best.algbw_bytes_per_s * (1 - 1e-6)
        assert sum(rate for (_, head), rate in best.copying_bytes_per_s.items() if head == host) >= rest
        assert sum(rate for (tail, _), rate in best.adding_bytes_per_s.items() if tail == host) >= rest


def test_time_is_size_over_rate():
    best = allreduce_lp(networks.star([10, 10]))
    assert best.time_s(100) == pytest.approx(100 / best.algbw_bytes_per_s)
