"""Channels of NCCL's process groups: written for a group alone where the plan has one for all of it."""

import json

import pytest
import torch.distributed as dist
from export_plans import PLANS, channels_document, make, text_of, warnings_of
from nccl_plans import DEFAULT, group, nccl, plan_of, table

from topotune.errors import InputFileError
from topotune.plan.exports import ExportOptions, find_target

RING = nccl("ring", "simple", 16)


def options_of(plan, version=None):
    return json.loads(text_of("torch", plan, ExportOptions(version=version))).get("process_group_nccl", [])


@pytest.mark.parametrize("num_rows", [1, 3, 200])
def test_rows_that_agree_at_all_sizes_are_the_groups_channels(num_rows):
    choices = [nccl("tree" if index % 2 else "ring", "simple", 16) for index in range(num_rows)]
    (entry,) = options_of(plan_of(allreduce=table(*choices)))
    assert entry == {
        "config": {"max_ctas": 16},
        "shape": {"num_ranks": 16, "num_nodes": 2, "ranks_per_node": 8, "stride": 1},
    }


OTHERS = {
    "another number at the smallest size": (nccl("ring", "simple", 8), RING, RING),
    "another number at the largest size": (RING, RING, nccl("ring", "simple", 8)),
    "no number inside": (RING, nccl("ring", "simple"), RING),
    "default at the smallest size": (DEFAULT, RING, RING),
    "default at the largest size": (RING, RING, DEFAULT),
    "an algorithm that NCCL does not run": (RING, {"algorithm": "double_binary_tree"}, RING),
}


@pytest.mark.parametrize("choices", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("target", ["torch", "megatron-nccl"])
def test_one_size_that_says_something_else_leaves_the_whole_group_to_nccl(target, choices):
    plan = plan_of(allreduce=table(*choices))
    assert "max_ctas" not in text_of(target, plan)
    assert any("16 ranks are left out" in said for said in warnings_of("torch", plan))


def test_a_table_of_another_collective_counts_too():
    assert not options_of(plan_of(allreduce=table(RING), allgather=table(DEFAULT)))
    assert options_of(plan_of(allreduce=table(RING), allgather=table(RING)))


def test_plans_of_other_backends_say_nothing_about_nccls_channels():
    for target in ("torch", "megatron-nccl"):
        assert "max_ctas" not in text_of(target, PLANS["cpu"])


def test_torch_takes_each_group_by_its_shape_and_megatron_the_world_alone():
    plan = make(channels_document(world=None, inside=8))
    (entry,) = options_of(plan)
    assert (entry["shape"]["num_ranks"], entry["config"]) == (2, {"max_ctas": 8})
    assert text_of("megatron-nccl", plan) == "{}\n"
    assert any("have no name in Megatron" in said for said in warnings_of("megatron-nccl", plan))


@pytest.mark.parametrize(("version", "num_written"), [("2.4", 0), ("2.6", 0), ("2.7", 1), ("2.14", 1)])
def test_more_channels_than_the_nccl_of_a_torch_knows_are_not_written(version, num_written):
    plan = plan_of(allreduce=table(nccl("ring", "simple", 48)))
    options = ExportOptions(version=version)
    assert len(options_of(plan, version)) == num_written
    told = any("48 channels for groups of 16 ranks" in said for said in warnings_of("torch", plan, options))
    assert told == (num_written == 0)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("target", ["torch", "megatron-nccl"])
def test_options_that_no_plan_measures_are_never_written(target, name):
    text = text_of(target, PLANS[name])
    for option in ("priority", "min_ctas", "cga", "net_name", "traffic", "split_share", "NCCL_"):
        assert option not in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"max_ctas": 16', '"max_ctas": 65'),
        ('"max_ctas": 16', '"max_ctas": 0'),
        ('"max_ctas": 16', '"net_name": "x"'),
        ('"num_ranks": 4', '"num_ranks": 1'),
        ('"num_ranks": 4', '"num_ranks": -4'),
    ],
)
def test_changed_options_are_refused_by_place(old, new):
    text = text_of("torch", PLANS["channels"])
    assert old in text
    with pytest.raises(InputFileError, match=r"process_group_nccl\[0\]"):
        find_target("torch").read(text.replace(old, new, 1), "file")


@pytest.mark.parametrize(
    "text",
    ["dp:\n  max_ctas: 16\n", "dp:\n  max_ctas: 16\ndp_cp:\n  max_ctas: 8\n", "tp:\n  max_ctas: 16\n"],
)
def test_a_file_of_megatrons_that_no_export_writes_is_refused(text):
    with pytest.raises(InputFileError):
        find_target("megatron-nccl").read(text, "file")


def test_the_options_are_attributes_that_torch_has():
    if not dist.is_nccl_available():
        pytest.skip("this torch is built without NCCL")
    options = dist.ProcessGroupNCCL.Options()
    for entry in options_of(PLANS["channels"]):
        for name, value in entry["config"].items():
            assert hasattr(options.config, name)
            setattr(options.config, name, value)
            assert getattr(options.config, name) == value


def test_groups_of_a_shape_stand_in_the_order_of_the_plan():
    more = (group(8, 1, 1, allreduce=table(nccl("ring", "ll", 4))),)
    plan = plan_of(allreduce=table(RING), more_groups=more)
    assert [entry["config"]["max_ctas"] for entry in options_of(plan)] == [16, 4]
