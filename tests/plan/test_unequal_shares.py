from dataclasses import replace

import pytest
from plan_example import example

from topotune.plan import Row, plan_from_document
from topotune.plan.unequal_shares import has_unequal_shares, without_unequal_shares

STARS = [[-1, 0, 0, 0], [1, -1, 1, 1], [2, 2, -1, 2], [3, 3, 3, -1]]


@pytest.mark.parametrize(
    ("algorithm", "params", "node_of_rank", "expected"),
    [
        ("forest", {"weights": [5, 5, 5, 4], "down": STARS}, [0, 1, 2, 3], False),
        ("forest", {"weights": [3, 3, 3, 1], "down": STARS}, [0, 1, 2, 3], True),
        ("forest", {"weights": [1, 1, 1], "down": STARS[:3]}, [0, 1, 2, 3], True),
        ("forest", {"weights": [3, 1, 3, 1], "down": STARS}, [0, 0, 1, 1], False),
        ("parameter_server", {}, [0, 1, 2, 3], False),
        ("parameter_server", {"servers": [0, 1]}, [0, 0, 1, 1], False),
        ("parameter_server", {"shares": [4, 1, 1, 1]}, [0, 1, 2, 3], True),
        ("parameter_server", {"servers": [1, 0], "shares": [9, 1]}, [0, 1, 1], True),
        ("ring", {"pieces": 4}, [0, 1, 2, 3], False),
    ],
)
def test_shares_are_unequal_where_some_nodes_add_up_more(algorithm, params, node_of_rank, expected):
    assert has_unequal_shares(algorithm, params, node_of_rank) == expected


def test_rows_of_unequal_shares_become_default_and_the_others_stay():
    plan = plan_from_document(example(), "plan.json")
    world, *others = plan.groups
    first, _, last = world.allreduce
    spares_a_node = Row(
        min_bytes=1024,
        max_bytes=1048576,
        algorithm="forest",
        params={"weights": [3, 1], "down": [STARS[0], STARS[2]]},
        no_bound_reason="a test",
    )
    plan = replace(
        plan, groups=(replace(world, allreduce=(first, spares_a_node, last)), *others), rank_order=None
    )
    found, count = without_unequal_shares(plan)
    assert count == 1
    assert found.groups[0].allreduce == (
        first,
        Row(min_bytes=1024, max_bytes=1048576, algorithm="default"),
        last,
    )
    assert found.groups[1:] == plan.groups[1:]
    assert without_unequal_shares(found) == (found, 0)
