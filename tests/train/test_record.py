"""Recording: real gradients of real models, in their order, and a job that never stops because of it."""

import subprocess
import sys
import warnings

import gloo_world
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

import topotune
from topotune.errors import OutputFileError, UsageError
from topotune.step.gradients import load_gradients


def model():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4).to(torch.bfloat16).float())


def train(module, num_steps):
    for _ in range(num_steps):
        module.zero_grad()
        module(torch.randn(2, 8)).square().mean().backward()


SIZES = (4 * 4, 4 * 16 * 4, 4 * 16, 4 * 8 * 16)
"""The last layer's bias and weight, the first layer's."""


def test_sizes_types_and_order_are_the_backwards(tmp_path):
    path = tmp_path / "gradients.json"
    module = model()
    recording = topotune.record(module, path, num_steps=4)
    train(module, 6)
    assert not path.exists()
    train(module, 1)
    found = load_gradients(path)
    assert sorted(found.sizes[:2]) == sorted(SIZES[:2])
    assert sorted(found.sizes[2:]) == sorted(SIZES[2:])
    assert (found.num_steps, found.timed, found.source) == (4, True, "recorded from Sequential")
    assert 0 < found.ready_s[0] <= found.ready_s[-1] <= found.backward_s
    train(module, 20)  # nothing is watched any more
    assert recording.num_steps == 4


def test_a_recording_that_is_closed_early_writes_what_there_is_and_says_so(tmp_path):
    path = tmp_path / "gradients.json"
    module = model()
    with topotune.record(module, path):
        train(module, 1)
    found = load_gradients(path)
    assert len(found.gradients) == 4
    assert found.warnings == ("only 1 steps ran: the times are those of a cold start",)


def test_parameters_without_gradients_are_left_out_and_frozen_ones_are_not_counted(tmp_path):
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused, self.frozen = nn.Linear(8, 4), nn.Linear(8, 4), nn.Linear(8, 8)
            self.frozen.requires_grad_(False)

        def forward(self, inputs):
            return {"out": [self.used(self.frozen(inputs))]}

    module = Partly()
    recording = topotune.record(module, None, num_steps=3)
    for _ in range(6):
        module(torch.randn(2, 8))["out"][0].sum().backward()
    found = recording.gradients()
    assert sorted(found.sizes) == [16, 128]
    assert found.warnings == ("2 parameters got no gradient in most steps and are left out",)


def test_nothing_is_recorded_before_a_backward_has_ended():
    recording = topotune.record(model(), None)
    with pytest.raises(UsageError, match="no backward of the model has ended yet"):
        recording.gradients()
    recording.close()


def test_another_kind_of_file_is_not_replaced(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(OutputFileError, match=r"exists and is no topotune/gradients"):
        topotune.record(model(), path)
    assert path.read_text() == "mine"


def test_a_place_that_is_lost_meanwhile_warns_and_lets_the_job_go_on(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    module = model()
    topotune.record(module, folder / "gradients.json", num_steps=1)
    folder.rmdir()
    with pytest.warns(UserWarning, match="topotune: gradients were not recorded"):
        train(module, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(module, 2)


@pytest.mark.parametrize("num_steps", [0, -1])
def test_at_least_one_step_is_recorded(num_steps):
    with pytest.raises(UsageError, match=f"num_steps is {num_steps}"):
        topotune.record(model(), None, num_steps=num_steps)


def test_a_model_without_parameters_is_refused():
    with pytest.raises(UsageError, match="the model has 0 parameters to train"):
        topotune.record(nn.ReLU(), None)


def in_ddp(rank, num_ranks, store, path):
    dist.init_process_group("gloo")
    wrapped = DDP(model(), bucket_cap_mb=0.0001, gradient_as_bucket_view=True)
    topotune.record(wrapped, path, num_steps=3)
    train(wrapped, 8)
    del wrapped  # torch may wait for ever where DDP outlives its group
    dist.destroy_process_group()


@pytest.mark.gloo
def test_rank_0_records_a_model_in_ddp(tmp_path):
    path = tmp_path / "gradients.json"
    gloo_world.run_world(2, in_ddp, str(path))
    found = load_gradients(path)
    assert sorted(found.sizes) == sorted(SIZES)
    assert found.num_steps == 3


JOB = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
for _ in range({steps}):
    model(torch.randn(2, 8)).sum().backward()
raise SystemExit({code})
"""


def record(tmp_path, *, steps, code):
    (tmp_path / "train.py").write_text(JOB.format(steps=steps, code=code))
    command = [sys.executable, "-m", "topotune", "record", "-o", "g.json", "--steps", "2", "--"]
    return subprocess.run(
        [*command, sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )


def test_a_job_that_knows_nothing_of_topotune_is_recorded_and_keeps_its_exit_code(tmp_path):
    done = record(tmp_path, steps=8, code=7)
    assert done.returncode == 7
    assert "topotune: recorded from Sequential: 4 gradients" in done.stderr
    assert load_gradients(tmp_path / "g.json").num_steps == 2


def test_a_job_that_trains_nothing_is_told_so(tmp_path):
    done = record(tmp_path, steps=0, code=0)
    assert done.returncode == 0
    assert "warning: no gradients were recorded" in done.stderr
    assert not (tmp_path / "g.json").exists()
