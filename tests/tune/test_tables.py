"""Tables for groups and for other collectives, tuned on real ranks."""

import pytest
from gloo_world import RankError, run_world

from topotune.errors import UsageError
from topotune.plan import GroupShape, plan_from_document
from topotune.tune.options import TuneOptions, collectives_of

pytestmark = pytest.mark.gloo


def tune_rank(rank, num_ranks, store, payload):
    from topotune.tune.session import tune_worker

    reports = []
    document = tune_worker(payload, reports.append)
    return document, [report.done for report in reports]


def pair(stride):
    return GroupShape(num_ranks=2, num_nodes=1, ranks_per_node=2, stride=stride)


@pytest.mark.slow
def test_a_mesh_gets_a_table_for_each_shape_and_each_collective():
    payload = {"budget_s": 9.0, "sizes": [4096, 65536], "groups": "replicate=2,shard=2", "seed": 3}
    (document, done), *others = run_world(4, tune_rank, payload)
    assert others == [(None, [])] * 3
    plan = plan_from_document(document, "tuned")
    assert [group.shape.num_ranks for group in plan.groups] == [4, 2, 2]
    assert {group.shape for group in plan.groups[1:]} == {pair(1), pair(2)}
    for group in plan.groups:
        assert None not in (group.allreduce, group.reduce_scatter, group.allgather)
    assert "9 tables" in plan.certificate.method
    assert done == sorted(done)


@pytest.mark.slow
def test_collectives_of_the_world_are_tuned_without_groups():
    payload = {"budget_s": 6.0, "sizes": [65536], "collectives": ["allgather"], "seed": 3}
    (document, _), _ = run_world(2, tune_rank, payload)
    (world,) = plan_from_document(document, "tuned").groups
    assert world.allgather is not None
    assert world.allreduce is not None
    assert world.reduce_scatter is None


def test_groups_of_other_ranks_are_refused_on_all_ranks():
    with pytest.raises(RankError, match="--groups dp=3: a mesh of 3 ranks, but there are 2"):
        run_world(2, tune_rank, {"budget_s": 1.0, "sizes": [4096], "groups": "dp=3"})


def test_all_three_collectives_are_tuned_where_groups_are_given():
    assert collectives_of(None, None) == ("allreduce",)
    assert collectives_of("dp=2", None) == ("allreduce", "reduce_scatter", "allgather")
    assert collectives_of("dp=2", ("allgather", "allreduce")) == ("allreduce", "allgather")
    with pytest.raises(UsageError, match="--collectives: 'gather' is none of allreduce, reduce_scatter"):
        TuneOptions(collectives=("gather",))
