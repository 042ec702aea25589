import pytest
from made_up_network import LINE, Network, racks, round_trips

from topotune.links.flow_plan import matchings
from topotune.links.inference import infer_structure
from topotune.links.inference.round_trips import LATENCY_ALPHA, latency_levels


def blocks(*sizes_and_times, far_s):
    """Nodes in blocks of these sizes, smallest first, have these round trips; others ``far_s``."""

    def distance_s(a, b):
        return next((time_s for size, time_s in sizes_and_times if a // size == b // size), far_s)

    return distance_s


def levels(num_nodes, distance_s, **options):
    network = Network(num_nodes=num_nodes)
    return latency_levels(network.measurement(round_trips=round_trips(distance_s, num_nodes, **options)))


def by_fours(num_nodes):
    return tuple(tuple(range(start, start + 4)) for start in range(0, num_nodes, 4))


@pytest.mark.parametrize("noise", [0.01, 0.05])
@pytest.mark.parametrize("num_nodes", [8, 12, 32])
def test_racks_that_are_nearer_inside_are_found(num_nodes, noise):
    (level,) = levels(num_nodes, blocks((4, 50e-6), far_s=90e-6), noise=noise)
    assert level.groups == by_fours(num_nodes)
    assert level.p_value <= LATENCY_ALPHA


@pytest.mark.parametrize(
    "distance_s",
    [blocks((4, 40e-6), (8, 70e-6), far_s=130e-6), blocks((4, 10e-6), (16, 60e-6), far_s=90e-6)],
    ids=["even steps", "a wide step below a narrow one"],
)
def test_levels_inside_levels_are_found(distance_s):
    found = levels(32, distance_s)
    groups = {group for level in found for group in level.groups}
    assert set(by_fours(32)) <= groups
    assert any(len(group) in (8, 16) for group in groups)
    for group in groups:
        assert all(
            set(group) <= set(other) or set(other) <= set(group) or not set(group) & set(other)
            for other in groups
        )


def test_noise_makes_no_levels():
    found = [
        levels((4, 5, 6, 8, 12)[seed % 5], lambda a, b: 6e-5, noise=(0.05, 0.2, 0.5)[seed % 3], seed=seed)
        for seed in range(30)
    ]
    assert found == [()] * 30


def test_slow_hosts_are_no_group():
    assert levels(8, lambda a, b: 5e-5 * (1 + 0.5 * (a in (1, 2)) + 0.5 * (b in (1, 2)))) == ()


def test_four_nodes_look_like_two_groups_too_often_by_chance():
    assert levels(4, blocks((2, 50e-6), far_s=90e-6)) == ()


class TestFewPairsOfMany:
    """8 random peers of each node."""

    def pairs(self, num_nodes):
        return sorted({pair for pairs in matchings(num_nodes, 8, seed=3) for pair in pairs})

    def test_large_groups_are_found(self):
        (level,) = levels(256, blocks((128, 50e-6), far_s=90e-6), pairs=self.pairs(256))
        assert [len(group) for group in level.groups] == [128, 128]

    def test_small_groups_stay_hidden(self):
        assert levels(1024, blocks((32, 50e-6), far_s=90e-6), pairs=self.pairs(1024)) == ()

    def test_noise_makes_no_groups(self):
        assert levels(256, lambda a, b: 6e-5, noise=0.3, pairs=self.pairs(256)) == ()


def test_racks_with_plenty_between_them_stand_by_their_round_trips():
    trips = round_trips(blocks((4, 50e-6), far_s=90e-6), 8)
    structure = infer_structure(Network(num_nodes=8).explored(round_trips=trips))
    assert [group.nodes for group in structure.groups] == list(by_fours(8))
    for group in structure.groups:
        assert group.reasons == {"round trips"}
        assert group.latency_p_value <= LATENCY_ALPHA
        assert group.uplinks == ()


def test_round_trips_and_rates_agree_on_racks():
    trips = round_trips(blocks((4, 50e-6), far_s=90e-6), 8)
    structure = infer_structure(racks(4, 4, uplink=LINE).explored(round_trips=trips))
    assert [group.reasons for group in structure.groups] == [{"concurrent flows", "round trips"}] * 2
    assert all(len(group.uplinks) == 2 for group in structure.groups)
