"""A training step on real ranks: real DDP, real buckets, and one decision for all."""

import json

import numpy as np
import pytest
import torch
import torch.distributed as dist
from gloo_world import run_world

from topotune.plan import load_plan
from topotune.step.buckets import assign_buckets, ddp_buckets, layout_of, limits_of
from topotune.step.gradients import Gradient, Gradients, gradients_to_document, load_gradients

pytestmark = pytest.mark.gloo

SIZES = [4 * 40_000, 4 * 7, 4 * 250_000, 4 * 90_001, 4 * 12]


def made_up(backward_s=0.03):
    return Gradients(
        gradients=tuple(
            Gradient(num_bytes=size, dtype="float32", ready_s=backward_s * (index + 1) / len(SIZES))
            for index, size in enumerate(SIZES)
        ),
        backward_s=backward_s,
        timed=True,
        source="made up",
    )


def test_gradients_come_in_their_order_also_where_several_are_ready_at_once():
    from topotune.step.models import typical_transformer
    from topotune.tune.emulated import EmulatedModel, HostPace

    gradients = typical_transformer(1_000_000).with_backward(0.01)
    model = EmulatedModel(gradients, HostPace("matmul"), 5)
    seen = []
    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(lambda weight: seen.append(4 * weight.numel()))
    for _ in range(3):
        seen.clear()
        model().backward()
        assert tuple(seen) == gradients.sizes


def fresh():
    return dist.new_group(backend="topotune"), dist.new_group(backend="gloo")


def emulated(rank, num_ranks, store, compute):
    """Rounds of all ways to run a step, driven as rank 0 drives them; gradients of an arm afterwards."""
    from contextlib import closing

    from topotune.links.messages import Messages
    from topotune.train import use
    from topotune.tune.step_ranks import StepRanks

    use(None)
    dist.init_process_group("topotune")
    raw, private = dist.new_group(backend="gloo"), dist.new_group(backend="gloo")
    with closing(StepRanks(dist.group.WORLD, raw, Messages(private), (0,) * num_ranks, fresh)) as ranks:
        results = {"prepared": ranks.do({"what": "prepare", "compute": compute})}
        ranks.do({"what": "begin", "gradients": gradients_to_document(made_up()), "num_units": 20})
        arms = {"job": ("raw", None), "planned": ("plan", [0.5, 1.0]), "alone": ("alone", None)}
        for name, (way, caps) in arms.items():
            arm = {"name": name, "way": way, "caps_mb": caps}
            results[name] = ranks.do({"what": "arm", "arm": arm})
        orders = [["job", "alone", "planned"], ["planned", "job", "alone"]]
        results["rounds"] = ranks.do({"what": "rounds", "orders": orders})
        ranks.do({"what": "drop", "names": ["job", "alone"]})
        results["after"] = ranks.do({"what": "rounds", "orders": [["planned"]]})
    dist.destroy_process_group()
    return results


def by_definition(rank, num_ranks, store):
    """The buckets of a step of a model whose parameters are defined in one order and ready in another."""
    from contextlib import closing
    from dataclasses import replace

    from topotune.links.messages import Messages
    from topotune.train import use
    from topotune.tune.step_ranks import StepRanks

    use(None)
    dist.init_process_group("topotune")
    raw, private = dist.new_group(backend="gloo"), dist.new_group(backend="gloo")
    gradients = replace(made_up(), definition_order=(2, 0, 4, 1, 3))
    with closing(StepRanks(dist.group.WORLD, raw, Messages(private), (0,) * num_ranks, fresh)) as ranks:
        ranks.do({"what": "prepare", "compute": "sleep"})
        ranks.do({"what": "begin", "gradients": gradients_to_document(gradients), "num_units": 20})
        found = {}
        for way, caps in (("raw", None), ("plan", (0.2, 1.0, 0.1))):
            arm = {"name": way, "way": way, "caps_mb": caps}
            found[caps] = tuple(ranks.do({"what": "arm", "arm": arm})["layout_bytes"])
    dist.destroy_process_group()
    return gradients, found


def test_a_step_of_a_job_with_unused_parameters_keeps_the_buckets_of_their_definition():
    gradients, found = run_world(2, by_definition)[0]
    for caps, layout in found.items():
        assert layout == layout_of(gradients.gradients, ddp_buckets(gradients, limits_of(caps)))


@pytest.mark.parametrize("compute", ["matmul", "sleep"])
def test_steps_run_in_real_ddp_with_the_buckets_of_its_rule(compute):
    ours, theirs = run_world(2, emulated, compute)
    gradients = made_up().gradients
    for name, caps in (("job", None), ("planned", (0.5, 1.0))):
        assert ours[name]["layout_bytes"] == list(
            layout_of(gradients, assign_buckets(gradients, limits_of(caps)))
        )
    assert ours["alone"]["layout_bytes"] is None
    assert all(unit_s > 0 for unit_s in ours["prepared"]["unit_s"])
    times_s = np.array(ours["rounds"]["by_rank"])
    assert times_s.shape == (2, 6)
    assert (times_s > 0).all()
    assert ours["rounds"]["broken"] is None
    assert np.array(ours["after"]["by_rank"]).shape == (2, 1)
    # every rank sees what all ranks saw
    assert ours["rounds"] == theirs["rounds"]


def adopting(rank, num_ranks, store):
    """What runs the buckets of steps under two plans, one after the other."""
    from contextlib import closing

    from job_plan import job_plan, rows

    from topotune.links.messages import Messages
    from topotune.plan import plan_to_document
    from topotune.train import use
    from topotune.tune.step_ranks import StepRanks

    use(None)
    dist.init_process_group("topotune")
    world = dist.group.WORLD
    raw, private = dist.new_group(backend="gloo"), dist.new_group(backend="gloo")
    seen = []
    with closing(StepRanks(world, raw, Messages(private), (0,) * num_ranks, fresh)) as ranks:
        ranks.do({"what": "prepare", "compute": "sleep"})
        ranks.do({"what": "begin", "gradients": gradients_to_document(made_up()), "num_units": 20})
        for algorithm in ("ring", "recursive_doubling"):
            plan = job_plan(num_ranks, rows((0, algorithm, {})))
            ranks.do({"what": "plan", "plan": plan_to_document(plan)})
            before = world.calls
            ranks.do({"what": "arm", "arm": {"name": algorithm, "way": "plan", "caps_mb": None}})
            seen.append({name for collective, name in world.calls - before if collective == "allreduce"})
    dist.destroy_process_group()
    return seen


def test_steps_under_a_plan_run_by_the_one_that_was_adopted_last():
    assert run_world(2, adopting) == [[{"ring"}, {"recursive_doubling"}]] * 2


def renewing(rank, num_ranks, store):
    """Steps under a plan on the groups of a first look, and on those of a second; which groups ran them."""
    from contextlib import closing

    from job_plan import job_plan, rows

    from topotune.links.messages import Messages
    from topotune.plan import plan_to_document
    from topotune.train import use
    from topotune.tune.step_ranks import StepRanks

    use(None)
    dist.init_process_group("topotune")
    world = dist.group.WORLD
    raw, private = dist.new_group(backend="gloo"), dist.new_group(backend="gloo")
    made = []

    def made_fresh():
        made.append(fresh())
        return made[-1]

    seen = []
    with closing(StepRanks(world, raw, Messages(private), (0,) * num_ranks, made_fresh)) as ranks:
        ranks.do({"what": "prepare", "compute": "sleep"})
        ranks.do({"what": "begin", "gradients": gradients_to_document(made_up()), "num_units": 20})
        ranks.do({"what": "plan", "plan": plan_to_document(job_plan(num_ranks, rows((0, "ring", {}))))})
        for look in (1, 2):
            if look == 2:
                ranks.do({"what": "renew"})
            before = world.calls
            ranks.do({"what": "arm", "arm": {"name": "job", "way": "raw", "caps_mb": None}})
            ranks.do({"what": "arm", "arm": {"name": "planned", "way": "plan", "caps_mb": None}})
            taken = ranks.do({"what": "rounds", "orders": [["job", "planned"], ["planned", "job"]]})
            own = made[-1][0].calls if made else {}
            seen.append(
                (
                    sum((world.calls - before).values()) > 0,
                    {name for collective, name in own if collective == "allreduce"},
                    np.array(taken["by_rank"]).shape,
                )
            )
        ranks.do({"what": "rounds", "orders": [["job"]]})
    dist.destroy_process_group()
    return len(made), seen


def test_a_second_look_runs_under_the_same_plan_on_groups_of_its_own():
    for num_made, (first, second) in run_world(2, renewing):
        assert num_made == 1
        assert first == (True, set(), (2, 4))
        assert second == (False, {"ring"}, (2, 4))


def failing(rank, num_ranks, store):
    """A planned algorithm that breaks on one rank in the middle of a backward."""
    from contextlib import closing

    from topotune.links.messages import Messages
    from topotune.train import use
    from topotune.tune.step_ranks import StepRanks

    use(None)
    dist.init_process_group("topotune")
    world = dist.group.WORLD
    raw, private = dist.new_group(backend="gloo"), dist.new_group(backend="gloo")
    with closing(StepRanks(world, raw, Messages(private), (0,) * num_ranks, fresh)) as ranks:
        ranks.do({"what": "prepare", "compute": "sleep"})
        ranks.do({"what": "begin", "gradients": gradients_to_document(made_up()), "num_units": 20})
        ranks.do({"what": "arm", "arm": {"name": "job", "way": "raw", "caps_mb": None}})
        world.override = ("ring", {})
        ranks.do({"what": "arm", "arm": {"name": "planned", "way": "plan", "caps_mb": None}})
        if rank == 1:
            world.stop_planned()
        broken = ranks.do({"what": "rounds", "orders": [["job", "planned"], ["planned", "job"]]})
        # what does not need the plan goes on, and the group is as good as new
        after = ranks.do({"what": "rounds", "orders": [["job"]]})
        again = ranks.do({"what": "arm", "arm": {"name": "planned", "way": "plan", "caps_mb": None}})
    total = torch.full((1000,), float(rank + 1))
    dist.all_reduce(total)
    dist.destroy_process_group()
    return broken["broken"], after["by_rank"], again["broken"], total.tolist()[0]


def test_a_step_that_fails_on_one_rank_fails_on_all_and_the_others_go_on():
    for (name, why), after, again, total in run_world(3, failing):
        assert name == "planned"
        assert why
        assert np.array(after).shape == (3, 1)
        assert again is None
        assert total == 6.0


def tune_rank(rank, num_ranks, store, payload):
    from topotune.tune.session import tune_worker

    reports = []
    return tune_worker(payload, reports.append), [(report.phase, report.done) for report in reports]


def compare_rank(rank, num_ranks, store, payload):
    from topotune.tune.session import compare_worker

    return compare_worker(payload)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A plan with buckets for the gradients in a file."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "gradients.json").write_text(json.dumps(gradients_to_document(made_up())))
    payload = {
        "budget_s": 20.0,
        "sizes": [1024, 65536],
        "seed": 1,
        "step": {"gradients_path": str(folder / "gradients.json"), "compute": "sleep"},
    }
    results = run_world(2, tune_rank, payload)
    (folder / "plan.json").write_text(json.dumps(results[0][0]))
    return folder, results


@pytest.mark.slow
def test_a_plan_tuned_with_gradients_says_which_buckets_and_why(tuned):
    folder, results = tuned
    plan = load_plan(folder / "plan.json")
    gradients = load_gradients(folder / "gradients.json")
    assert results[1] == (None, [])
    phases = list(dict.fromkeys(phase for phase, _ in results[0][1]))
    assert phases[-2:] == ["step", "done"]
    done = [share for _, share in results[0][1]]
    assert done == sorted(done)
    ddp = plan.ddp
    assert ddp.gradients == gradients.in_words()
    assert ddp.compute == "sleep"
    assert "-bound: " in ddp.bound
    assert sum(ddp.layout_bytes) == gradients.total_bytes
    assert ddp.evidence.measured_bytes == gradients.total_bytes
    layout = layout_of(
        gradients.gradients, assign_buckets(gradients.gradients, limits_of(ddp.bucket_caps_mb))
    )
    assert ddp.layout_bytes == layout
    if ddp.bucket_caps_mb is None:
        assert ddp.evidence.ratio_ci == (1.0, 1.0)
    else:
        assert ddp.evidence.ratio_ci[0] > 1 + plan.certificate.min_gain


@pytest.mark.slow
def test_compare_pairs_a_step_with_and_without_the_plan(tuned):
    folder, _ = tuned
    payload = {
        "plan_path": str(folder / "plan.json"),
        "sizes": [1024],
        "budget_s": 6.0,
        "step": {"gradients_path": str(folder / "gradients.json"), "compute": "sleep"},
    }
    document, nothing = run_world(2, compare_rank, payload)
    assert nothing is None
    step = document["step"]
    low, high = step["ratio_ci"]
    assert low <= step["ratio"] <= high
    assert step["ratio"] == pytest.approx(step["default_median_s"] / step["plan_median_s"])
    assert step["num_samples"] >= 8
    assert step["verdict"] in ("faster", "same", "slower")
    assert sum(step["default_layout_bytes"]) == sum(step["plan_layout_bytes"]) == sum(SIZES)
    assert step["compute"] == "sleep"
    assert step["bound"]["text"].startswith(f"{step['bound']['kind']}-bound: ")
