import pytest

from topotune.links.placement import Placement
from topotune.plan.algorithms import PART_COLLECTIVES, check_params
from topotune.schedule import build, verify
from topotune.schedule.part_candidates import part_candidates


@pytest.mark.parametrize("collective", PART_COLLECTIVES)
@pytest.mark.parametrize("node_of_rank", [(0,), (0, 0, 0), (0, 0, 1, 1), (0, 1, 0, 1, 0), (0, 1, 2)], ids=str)
def test_candidates_are_what_plans_may_hold_and_what_verifies(collective, node_of_rank):
    placement = Placement(node_of_rank=node_of_rank)
    found = part_candidates(placement, collective)
    for algorithm, params in found:
        assert check_params(algorithm, params, len(node_of_rank), collective=collective) is None
        if not algorithm.startswith("shm"):
            assert verify(build(algorithm, params, len(node_of_rank), collective)) == ()
    names = {algorithm for algorithm, _ in found}
    assert (
        names
        == {
            (0,): set(),
            (0, 0, 0): {"ring", "halving_doubling", "shm"},
            (0, 0, 1, 1): {"ring", "halving_doubling", "hierarchical", "shm_hierarchical"},
            (0, 1, 0, 1, 0): {"ring", "halving_doubling", "hierarchical"},
            (0, 1, 2): {"ring", "halving_doubling"},
        }[node_of_rank]
    )
