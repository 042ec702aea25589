"""DDP's rule: equal to torch's own function and to real DDP."""

from dataclasses import replace

import gloo_world
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from step_facts import gradients, made_up_gradients
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from topotune.step.buckets import (
    assign_buckets,
    caps_of,
    ddp_buckets,
    distinct_buckets,
    layout_of,
    limits_of,
)
from topotune.step.gradients import ELEMENT_BYTES
from topotune.step.models import resnet50
from topotune.train.recording import record
from topotune.units import MIB

LIMITS = st.lists(st.integers(1, 2000), min_size=1, max_size=4)


def by_torch(made_up, limits):
    tensors = [
        torch.empty(one.num_bytes // ELEMENT_BYTES[one.dtype], dtype=getattr(torch, one.dtype))
        for one in made_up.gradients
    ]
    indices, _ = dist._compute_bucket_assignment_by_size(
        tensors, limits, [False] * len(tensors), list(range(len(tensors)))
    )
    return tuple(map(tuple, indices))


@given(made_up=made_up_gradients(max_size=30), limits=LIMITS)
@settings(deadline=None)
def test_buckets_are_those_of_torchs_own_function(made_up, limits):
    assert assign_buckets(made_up.gradients, limits) == by_torch(made_up, limits)


@given(made_up=made_up_gradients(max_size=30, dtypes=("float32", "bfloat16", "float64")), limits=LIMITS)
@settings(deadline=None)
def test_buckets_of_several_types_are_torchs_but_for_the_order_of_the_open_ones(made_up, limits):
    ours, theirs = assign_buckets(made_up.gradients, limits), by_torch(made_up, limits)
    num_open = len({one.dtype for one in made_up.gradients})
    assert sorted(ours) == sorted(theirs)
    assert ours[: len(ours) - num_open] == theirs[: len(theirs) - num_open]


@pytest.mark.parametrize("limits", [limits_of(None), limits_of((25,)), limits_of((0.5, 3.25, 40))])
def test_resnet50_is_bucketed_as_torch_does(limits):
    assert assign_buckets(resnet50().gradients, limits) == by_torch(resnet50(), limits)


@given(made_up=made_up_gradients(max_size=12), cuts=st.data())
@settings(deadline=None)
def test_a_list_of_caps_makes_every_partition(made_up, cuts):
    count = len(made_up.gradients)
    places = [*sorted(cuts.draw(st.sets(st.integers(1, count)) if count else st.just(set()))), count]
    ends = sorted(set(places))
    starts = [0, *ends[:-1]]
    layout = [sum(made_up.sizes[first:last]) for first, last in zip(starts, ends, strict=True)]
    buckets = assign_buckets(made_up.gradients, limits_of(caps_of(layout)))
    assert layout_of(made_up.gradients, buckets) == tuple(layout)


TYPES = ("float32", "bfloat16", "float64")


@given(made_up=made_up_gradients(max_size=8) | made_up_gradients(max_size=8, dtypes=TYPES))
@settings(deadline=None)
def test_distinct_buckets_are_those_of_every_single_cap(made_up):
    every = {assign_buckets(made_up.gradients, (cap,)) for cap in range(1, made_up.total_bytes + 2)}
    caps = distinct_buckets(made_up.gradients, most=10_000)
    assert caps == sorted(caps)
    found = [assign_buckets(made_up.gradients, (cap,)) for cap in caps]
    assert set(found) == every
    assert len(found) == len(every)


@given(made_up=made_up_gradients(max_size=8, dtypes=TYPES))
@settings(deadline=None)
def test_no_cap_makes_torch_partition_several_types_in_a_way_that_is_not_found(made_up):
    caps = distinct_buckets(made_up.gradients, most=10_000)
    found = {tuple(sorted(by_torch(made_up, (cap,)))) for cap in caps}
    every = {tuple(sorted(by_torch(made_up, (cap,)))) for cap in range(1, made_up.total_bytes + 2)}
    assert found == every


def test_buckets_of_thousands_of_gradients_are_thinned_and_end_with_one_bucket():
    many = gradients([4 * (1 + index % 97) for index in range(3000)])
    caps = distinct_buckets(many.gradients, most=200)
    assert len(caps) <= 300
    assert len(assign_buckets(many.gradients, (caps[-1],))) == 1


@given(made_up=made_up_gradients(max_size=12), data=st.data())
@settings(deadline=None)
def test_buckets_by_definition_are_torchs_of_parameters_as_defined_sent_the_other_way_round(made_up, data):
    order = tuple(data.draw(st.permutations(range(len(made_up.gradients)))))
    limits = data.draw(LIMITS)
    tensors = [torch.empty(made_up.sizes[index] // 4) for index in order]
    filled, _ = dist._compute_bucket_assignment_by_size(tensors, limits, [False] * len(tensors))
    theirs = tuple(tuple(order[place] for place in bucket) for bucket in reversed(filled))
    assert ddp_buckets(replace(made_up, definition_order=order), limits) == theirs


def test_limits_are_ddps():
    assert limits_of(None) == (dist._DEFAULT_FIRST_BUCKET_BYTES, 25 * MIB)
    assert limits_of((25,)) == (25 * MIB,)
    assert limits_of((0.5, 1.75)) == (MIB // 2, 7 * MIB // 4)


CAPS = {"default": None, "one": (0.3,), "one of many": (0.0001,), "list": (0.02, 0.3, 0.1), "all": (99,)}


def real_buckets(rank, num_ranks, store):
    dist.init_process_group("gloo")
    found = {}
    for name, caps in CAPS.items():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(200, 300), nn.Linear(300, 1000), nn.Linear(1000, 7), nn.Linear(7, 3))
        if caps is None:
            kwargs = {}
        else:
            kwargs = {"bucket_cap_mb": caps[0]} if len(caps) == 1 else {"bucket_cap_mb_list": list(caps)}
        wrapped = DDP(model, **kwargs)
        for _ in range(3):  # torch notes what it rebuilt a step later
            wrapped(torch.randn(4, 200)).sum().backward()
        sizes = wrapped._get_ddp_logging_data()["rebuilt_bucket_sizes"]
        found[name] = tuple(int(size) for size in str(sizes).split(","))
        del wrapped  # torch may wait for ever where DDP outlives its group
    dist.destroy_process_group()
    return found


@pytest.mark.gloo
def test_buckets_are_those_of_real_ddp():
    found = gloo_world.run_world(2, real_buckets)[0]
    # A linear layer's bias is ready before its weight.
    sizes = [
        4 * size
        for width_in, width_out in ((7, 3), (1000, 7), (300, 1000), (200, 300))
        for size in (width_out, width_in * width_out)
    ]
    ready = gradients(sizes)
    expected = {
        name: layout_of(ready.gradients, assign_buckets(ready.gradients, limits_of(caps)))
        for name, caps in CAPS.items()
    }
    assert found == expected


UNUSED_CAPS = {"default": None, "one": (0.3,), "list": (0.02, 0.3, 0.1)}


def buckets_with_unused_parameters(rank, num_ranks, store):
    """Defined in one order, used in another, one not at all."""
    dist.init_process_group("gloo")
    found = {}
    for name, caps in UNUSED_CAPS.items():

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.last = nn.Linear(1000, 7, bias=False)
                self.unused = nn.Linear(11, 400, bias=False)
                self.first = nn.Linear(200, 1000, bias=False)

            def forward(self, x):
                return self.last(self.first(x))

        kwargs = {}
        if caps is not None:
            kwargs = {"bucket_cap_mb": caps[0]} if len(caps) == 1 else {"bucket_cap_mb_list": list(caps)}
        wrapped = DDP(Model(), find_unused_parameters=True, **kwargs)
        with record(wrapped, path=None, num_steps=3) as recording:
            for _ in range(5):
                wrapped(torch.randn(4, 200)).sum().backward()
        data = wrapped._get_ddp_logging_data()
        layout = tuple(map(int, str(data["bucket_sizes"]).split(",")))
        found[name] = recording.gradients() if rank == 0 else None, layout
        assert not data.get("has_rebuilt_buckets")
        del wrapped  # torch may wait for ever where DDP outlives its group
    dist.destroy_process_group()
    return found


@pytest.mark.gloo
def test_a_job_with_unused_parameters_is_recorded_with_the_buckets_that_its_ddp_keeps():
    for name, (recorded, layout) in gloo_world.run_world(2, buckets_with_unused_parameters)[0].items():
        assert recorded.definition_order is not None
        sizes = [recorded.sizes[index] for index in recorded.definition_order]
        assert sizes == [4 * 7000, 4 * 4400, 4 * 200_000]
        assert recorded.ready_s[recorded.definition_order[1]] == 0.0
        assert recorded.warnings == (
            "1 parameters got no gradient in most steps and are exchanged all the same",
        )
        caps = UNUSED_CAPS[name]
        assert layout_of(recorded.gradients, ddp_buckets(recorded, limits_of(caps))) == layout
