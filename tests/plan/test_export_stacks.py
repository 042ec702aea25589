"""Exports to training stacks and launchers: what they write, that it is read back, and what they refuse."""

import json
from pathlib import Path

import export_plans
import pytest
from export_plans import PLANS, STACKS, make, text_of, warnings_of
from hypothesis import given
from hypothesis import strategies as st

from topotune.errors import InputFileError, UsageError
from topotune.plan.exports import ExportOptions, catalog, find_target

CAPS = st.lists(st.floats(1e-9, 2**20, allow_nan=False), min_size=1, max_size=5)
WITH_BUCKETS = ("torch", "horovod", "horovod-env", "deepspeed", "megatron", "accelerate", "tensorflow", "xla")


@pytest.fixture(autouse=True)
def _only_stacks(monkeypatch):
    monkeypatch.setattr(catalog, "MODULES", export_plans.only_stacks())


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("target", STACKS)
def test_what_is_written_is_as_expected(target, name):
    assert text_of(target, PLANS[name]) == (export_plans.GOLDEN / f"{target}.{name}").read_text()


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("target", STACKS)
def test_what_was_written_is_read_back_and_written_alike(target, name):
    found = find_target(target)
    document = found.from_plan(PLANS[name], export_plans.OPTIONS).document
    text = found.write(document)
    assert found.read(text, "file") == document
    assert found.write(found.read(text, "file")) == text
    assert text.endswith("\n")


@given(caps=CAPS, target=st.sampled_from(WITH_BUCKETS), is_gpu=st.booleans())
def test_any_bucket_sizes_are_read_back_as_they_were(caps, target, is_gpu):
    document = export_plans.gpu_document(*caps) if is_gpu else export_plans.cpu_document()
    document["ddp"] = {"bucket_caps_mb": caps}
    found = find_target(target)
    exported = found.from_plan(make(document), export_plans.OPTIONS).document
    assert found.read(found.write(exported), "file") == exported


NOTHING_SET = {
    "torch": '{\n "ddp": {},\n "environment": {},\n "init_process_group": {\n  "backend": "gloo"\n }\n}\n',
    "horovod": "params: {}\n",
    "horovod-env": "\n",
    "deepspeed": "{}\n",
    "megatron": "\n",
    "accelerate": "{}\n",
    "tensorflow": "{}\n",
    "xla": "# no XLA flags to set\n",
    "kubernetes": "env: []\n",
}


@pytest.mark.parametrize("target", STACKS)
def test_a_plan_of_defaults_sets_nothing_and_says_so(target):
    plan = PLANS["default"]
    said = warnings_of(target, plan)
    assert any("there is no" in sentence for sentence in said), said
    if target in NOTHING_SET:
        assert text_of(target, plan) == NOTHING_SET[target]
    else:
        assert "TOPOTUNE_PLAN" not in text_of(target, plan)
        assert "HOROVOD" not in text_of(target, plan)


@pytest.mark.parametrize("target", ["torch", "horovod", "deepspeed", "megatron", "accelerate", "tensorflow"])
def test_what_is_lost_is_said(target):
    said = " | ".join(warnings_of(target, PLANS["cpu"]))
    assert "2 rows of the plan's tables (hierarchical, ring) cannot be said to" in said
    assert "the plan's order of ranks cannot be said to" in said


@pytest.mark.parametrize("target", ["sagemaker", "azureml", "slurm", "kubernetes"])
def test_jobs_of_launchers_take_the_plan_itself_and_lose_nothing(target):
    assert "TOPOTUNE_PLAN" in text_of(target, PLANS["cpu"])
    assert not any("cannot be said" in sentence for sentence in warnings_of(target, PLANS["cpu"]))


def test_programs_with_one_size_get_the_one_that_repeats_and_say_so():
    said = warnings_of("horovod", PLANS["cpu"])
    assert (
        "Horovod has one bucket size for all: of the plan's 2 (1, 25 MiB) the last is written, which repeats"
        in said
    )
    assert text_of("horovod", PLANS["cpu"]) == "params:\n  fusion_threshold_mb: 25\n"


def test_a_fused_buffer_is_not_larger_than_the_largest_bucket_of_the_model():
    document = export_plans.cpu_document()
    document["ddp"] = {"bucket_caps_mb": [4096], "layout_bytes": [3 * 2**20, 5 * 2**20]}
    assert text_of("horovod-env", make(document)) == f"HOROVOD_FUSION_THRESHOLD={5 * 2**20}\n"


def test_sizes_that_only_repeat_are_one_size():
    plan = make(export_plans.gpu_document(8, 8, 8))
    assert json.loads(text_of("torch", plan))["ddp"] == {"bucket_cap_mb": 8}
    assert json.loads(text_of("accelerate", plan)) == {"bucket_cap_mb": 8}


@pytest.mark.parametrize("target", ["sagemaker", "azureml"])
def test_launchers_with_as_many_ranks_everywhere_refuse_other_plans(target):
    document = export_plans.default_document()
    document["fingerprint"]["hard"]["ranks_per_node"] = [3, 1]
    document["groups"][0]["shape"]["ranks_per_node"] = 0
    with pytest.raises(UsageError, match=r"starts as many ranks on every node, and the plan is for 3, 1"):
        find_target(target).from_plan(make(document), export_plans.OPTIONS)
    assert "#SBATCH --ntasks" not in text_of("slurm", make(document))
    assert any("SLURM_HOSTFILE" in sentence for sentence in warnings_of("slurm", make(document)))


@pytest.mark.parametrize("version", ["4", "2.x", "-1.0", "999.0", "0.0"])
@pytest.mark.parametrize("target", STACKS)
def test_versions_that_were_not_looked_at_are_refused(target, version):
    with pytest.raises(UsageError, match=f"--for {version}: "):
        find_target(target).from_plan(PLANS["cpu"], ExportOptions(version=version))


@pytest.mark.parametrize("target", STACKS)
def test_every_target_names_its_versions_and_how_it_is_used(target):
    found = find_target(target)
    assert found.name == target
    assert " to " in found.versions
    assert "a.file" in found.how_to_use("a.file") or target in ("horovod-env",)


def test_the_page_on_frameworks_names_every_target_with_its_versions():
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "frameworks.md").read_text()
    for target in STACKS:
        assert f"`{target}`" in page
        assert find_target(target).versions in page


BROKEN = ("", "{", "[]", '{"unknown": 1}', "a: &x [*x]", "A=B=C D", "export XLA_FLAGS=$(id)", "\x00")


@pytest.mark.parametrize("text", BROKEN)
@pytest.mark.parametrize("target", STACKS)
def test_other_files_are_refused_by_name(target, text):
    with pytest.raises(InputFileError, match=r"^the\.file: "):
        find_target(target).read(text or " {", "the.file")


TAMPERED = {
    "torch": ('"ens9"', '"ens9; reboot"', "is 'ens9; reboot', not a list of network interfaces"),
    "horovod": ("25", "0", "is 0, not whole bytes from 1"),
    "horovod-env": ("26214400", "0", "HOROVOD_FUSION_THRESHOLD is '0', not bytes from 1"),
    "deepspeed": ("13107200", "0", "is 0, not a whole number from 1"),
    "megatron": ("6553600", "0", "is not the one line '--ddp-bucket-size N' of an export"),
    "sagemaker": ("-x GLOO", "-x LD_PRELOAD=a -x GLOO", "is not as an export writes it"),
    "azureml": ("pytorch", "mpi", "is not as an export writes it"),
    "slurm": ("exit 0", "reboot; exit 0", "is not as an export writes it"),
    "kubernetes": ("readOnly: true", "readOnly: false", "is not as an export writes it"),
    "tensorflow": ("26214400", "0", "is 0, not a whole number from 1"),
}


@pytest.mark.parametrize("target", TAMPERED)
def test_files_that_were_changed_are_refused_with_the_reason(target):
    old, new, reason = TAMPERED[target]
    text = text_of(target, PLANS["cpu"])
    assert old in text
    with pytest.raises(InputFileError) as caught:
        find_target(target).read(text.replace(old, new), "the.file")
    assert reason in caught.value.message


def test_an_interface_that_no_shell_should_see_is_refused():
    document = export_plans.cpu_document()
    document["context"]["interface"] = "eth0$(reboot)"
    for target in ("torch", "sagemaker", "azureml", "slurm", "kubernetes"):
        with pytest.raises(UsageError, match="which is no list of network interfaces"):
            find_target(target).from_plan(make(document), export_plans.OPTIONS)
