import pytest

from topotune.errors import UsageError
from topotune.simulate.contenders import contenders
from topotune.simulate.direct_fabric import dragonfly_cluster, parse_counts, parse_link_rates, torus_cluster
from topotune.simulate.routed_survey import curves


@pytest.mark.parametrize(("sides", "links"), [([4, 4], 4), ([8, 8], 4), ([4, 4, 4], 6)])
def test_a_torus_is_bound_by_the_links_of_a_rank(sides, links):
    network, bound = torus_cluster(sides, 25e9)
    n = network.num_ranks
    busbw = 2 * (n - 1) / n / bound.s_per_byte
    assert busbw == pytest.approx(links * 25e9)
    assert bound.text == f"the {links} links of each rank, {links * 25} GB/s together"


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ((25e9, 50e9, 50e9), "the link of each rank, 25 GB/s"),
        ((100e9, 50e9, 10e9), "the links between groups, 80 GB/s out of each"),
        ((1e12, 10e9, 15e9), "the links between routers, 60 GB/s out of each"),
    ],
)
def test_a_dragonfly_is_bound_by_ranks_routers_or_groups(rates, text):
    _, bound = dragonfly_cluster((9, 4, 4), rates)
    assert bound.text == text


@pytest.mark.parametrize(
    "made",
    [
        torus_cluster([3, 4], 1e9),
        torus_cluster([3, 3, 3], 1e9),
        dragonfly_cluster((3, 2, 2), (1e9, 1e9, 1e8)),
    ],
    ids=["2-D torus", "3-D torus", "dragonfly"],
)
def test_no_algorithm_is_faster_than_the_bound(made):
    network, bound = made
    for curve in curves(network, list(contenders(network, None)), [2**30]):
        assert curve.time_s[0] >= bound.time_s(2**30)


def test_counts_and_rates_are_read():
    assert parse_counts("16x64x64", "--torus", 1, 6) == [16, 64, 64]
    assert parse_link_rates("400Gbit", "--dragonfly", 3) == [50e9] * 3
    assert parse_link_rates("200Gbit,400Gbit,100Gbit", "--dragonfly", 3) == [25e9, 50e9, 12.5e9]


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda: parse_counts("4x", "--torus", 1, 6), "--torus '4x': is no list of 1 to 6 counts"),
        (lambda: parse_counts("4x0", "--torus", 1, 6), "--torus '4x0': is no list of 1 to 6 counts"),
        (lambda: parse_counts("4x4", "--dragonfly", 3, 3), "--dragonfly '4x4': is no list of 3 counts"),
        (lambda: parse_counts("1000x1000", "--torus", 1, 6), "is 1000000 ranks, more than 131072"),
        (lambda: parse_link_rates(None, "--torus", 1), "--torus needs the rate of its links"),
        (lambda: parse_link_rates("1Gbit,2Gbit", "--torus", 1), "is 2 rates; --torus takes one rate"),
        (lambda: torus_cluster([2, 4], 1e9), "sides are at least 3"),
    ],
)
def test_what_is_no_cluster_is_refused(read, says):
    with pytest.raises(UsageError) as caught:
        read()
    assert says in caught.value.message
