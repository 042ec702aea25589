"""A backward on a GPU, with a device in its place that counts cycles: what needs none is tested here."""

from contextlib import closing
from dataclasses import asdict

import pytest
import torch
import torch.distributed as dist
from gloo_world import run_world

from topotune.errors import UsageError
from topotune.plan.model import Row
from topotune.step.buckets import assign_buckets, layout_of, limits_of
from topotune.step.gradients import Gradient, Gradients, gradients_to_document
from topotune.tune.emulated import EmulatedModel, units_for
from topotune.tune.options import CompareOptions, StepOptions, TuneOptions
from topotune.tune.spin import MOST_CYCLES, UNIT_CYCLES, SpinPace
from topotune.tune.step_session import without_settings

CYCLES_PER_S = 1.5e9


class CountingDevice:
    """A clock of cycles; nothing spins. What was called, in order."""

    device = torch.device("cpu")

    def __init__(self):
        self.calls, self.cycles, self.marks = [], 0, []

    def spin(self, cycles):
        assert 0 < cycles <= MOST_CYCLES
        self.calls.append(("spin", cycles))
        self.cycles += cycles

    def mark(self):
        self.marks.append(self.cycles)

    def between_marks_s(self):
        return (self.marks[-1] - self.marks[-2]) / CYCLES_PER_S

    def synchronize(self):
        self.calls.append(("synchronize",))

    def free_bytes(self):
        return 1e9


def made_up():
    sizes, backward_s = [4 * 40_000, 4 * 7, 4 * 250_000, 4 * 90_001], 0.4
    return Gradients(
        gradients=tuple(
            Gradient(num_bytes=size, dtype="float32", ready_s=backward_s * (index + 1) / 5)
            for index, size in enumerate(sizes)
        ),
        backward_s=backward_s,
        timed=True,
        source="made up",
    )


def test_a_unit_is_timed_by_the_devices_clock_after_it_has_risen():
    device = CountingDevice()
    assert SpinPace(device).unit_s() == pytest.approx(UNIT_CYCLES / CYCLES_PER_S)
    assert device.marks[0] > 0


def test_a_backward_spins_as_long_as_the_jobs_between_its_gradients_in_calls_within_the_limit():
    device, gradients = CountingDevice(), made_up()
    pace = SpinPace(device)
    num_units = units_for(gradients.backward_s, [pace.unit_s()])
    model = EmulatedModel(gradients, pace, num_units)
    ready_s = []
    start = device.cycles
    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(
            lambda _weight: ready_s.append((device.cycles - start) / CYCLES_PER_S)
        )
    model().backward()
    assert ready_s == pytest.approx(gradients.ready_s, abs=2e-5)
    assert (device.cycles - start) / CYCLES_PER_S == pytest.approx(gradients.backward_s, abs=2e-5)


def test_a_span_beyond_one_calls_limit_is_several_calls():
    device = CountingDevice()
    SpinPace(device).run(5 * MOST_CYCLES // UNIT_CYCLES // 2)
    assert device.calls == [("spin", MOST_CYCLES), ("spin", MOST_CYCLES), ("spin", MOST_CYCLES // 2)]


def never_fresh():
    raise AssertionError("one look needs no other groups")


def spun(rank, num_ranks, store):
    from topotune.links.messages import Messages
    from topotune.train import use
    from topotune.tune.step_ranks import StepRanks

    use(None)
    dist.init_process_group("topotune")
    raw, private = dist.new_group(backend="gloo"), dist.new_group(backend="gloo")
    device = CountingDevice()
    messages, nodes = Messages(private), (0,) * num_ranks
    with closing(StepRanks(dist.group.WORLD, raw, messages, nodes, never_fresh, spinner=device)) as ranks:
        prepared = ranks.do({"what": "prepare", "compute": "spin"})
        ranks.do({"what": "begin", "gradients": gradients_to_document(made_up()), "num_units": 10})
        arms = [
            ranks.do({"what": "arm", "arm": {"name": way, "way": way, "caps_mb": caps}})
            for way, caps in (("raw", None), ("plan", [0.5, 1.0]))
        ]
        device.calls.clear()
        taken = ranks.do({"what": "rounds", "orders": [["plan"]]})
    dist.destroy_process_group()
    return prepared, arms, device.calls, taken


@pytest.mark.gloo
def test_a_step_on_a_device_begins_and_ends_when_the_device_has_nothing_left_to_do():
    prepared, arms, calls, taken = run_world(2, spun)[0]
    assert prepared["unit_s"] == pytest.approx([UNIT_CYCLES / CYCLES_PER_S] * 2)
    assert prepared["memory_bytes"] == 0.5e9  # each rank's own
    for arm, caps in zip(arms, (None, (0.5, 1.0)), strict=True):
        buckets = assign_buckets(made_up().gradients, limits_of(caps))
        assert arm["layout_bytes"] == list(layout_of(made_up().gradients, buckets))
    assert calls[0] == calls[-1] == ("synchronize",)
    assert {call[0] for call in calls[1:-1]} == {"spin"}
    assert taken["broken"] is None


def step(**named):
    return {"step": StepOptions(**named)}


@pytest.mark.parametrize(("backend", "compute"), [("gloo", "matmul"), ("nccl", "spin")])
def test_what_stands_for_the_backward_is_chosen_by_the_library_where_nothing_is_said(backend, compute):
    assert TuneOptions(backend=backend, **step()).step.compute_on(backend) == compute


@pytest.mark.parametrize(
    ("backend", "compute", "message"),
    [
        ("gloo", "spin", "--compute spin: with gloo the backward is emulated by matmul or sleep"),
        ("nccl", "matmul", "--compute matmul: with nccl the backward is emulated by spin"),
        ("nccl", "sleep", "--compute sleep: with nccl the backward is emulated by spin"),
    ],
)
def test_a_backward_that_does_not_go_with_the_library_is_refused(backend, compute, message):
    for options in (TuneOptions, CompareOptions):
        given = {} if options is TuneOptions else {"plan_path": "plan.json"}
        with pytest.raises(UsageError) as error:
            options(backend=backend, **step(compute=compute), **given)
        assert error.value.message == message


def test_a_payload_of_options_reads_back():
    options = TuneOptions(backend="nccl", **step(compute="spin"))
    assert TuneOptions.from_payload(asdict(options)) == options


def test_steps_that_ran_without_nccls_settings_say_so():
    own = Row(min_bytes=0, max_bytes=1024, algorithm="default")
    setting = Row(min_bytes=1024, max_bytes=None, algorithm="nccl", params={"algo": "ring", "proto": "ll"})
    assert without_settings([own]) == []
    (line,) = without_settings([own, setting])
    assert line.startswith("1 row of NCCL's own settings acts through its tuner plugin alone")
    (line,) = without_settings([setting, setting])
    assert line.startswith("2 rows of NCCL's own settings act through its tuner plugin alone")
