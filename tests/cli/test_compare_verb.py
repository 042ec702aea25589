"""``topotune compare`` as scripts use it: real ranks, and an exit code that says if the plan is slower."""

import json

import pytest
from closed_schema import validate_written
from command_line import topotune
from job_plan import job_plan, rows

from topotune.documents import document_text
from topotune.plan import plan_to_document
from topotune.step.gradients import Gradient, Gradients, gradients_to_document

pytestmark = pytest.mark.gloo

CRUMBLED = {"channels": 4, "pieces": 32}
"""A ring that sends 1 KiB in 256 messages of an element each, where gloo sends a few."""


def compared(folder, table, *options):
    (folder / "plan.json").write_text(document_text(plan_to_document(job_plan(2, rows(*table)))))
    return topotune("compare", "plan.json", "--budget", "1s", *options, cwd=folder)


def test_a_plan_that_is_slower_at_a_size_is_called_so_and_exits_3(tmp_path):
    table = ((0, "ring", CRUMBLED), (16384, "default", {}))
    done = compared(tmp_path, table, "--sizes", "1K", "-o", "comparison.json")
    assert done.returncode == 3, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.lstrip().startswith("1 KiB ")]
    assert line.endswith("  slower")
    assert "\nsamples: " in done.stdout
    document = json.loads((tmp_path / "comparison.json").read_text())
    validate_written(document, "comparison")
    (row,) = document["rows"]
    assert (row["verdict"], row["algorithm"]) == ("slower", "ring")
    assert row["ratio"] < row["ratio_ci"][1] < 0.98


def test_a_plan_of_defaults_is_never_faster_and_the_exit_code_says_what_the_verdicts_say(tmp_path):
    done = compared(tmp_path, ((0, "default", {}),), "--sizes", "1K,4M", "--json")
    small, large = json.loads(done.stdout)["rows"]
    assert {small["algorithm"], large["algorithm"]} == {"default"}
    assert large["verdict"] == "same"
    assert small["verdict"] in ("same", "slower"), "by its dispatch alone"
    assert done.returncode == (3 if small["verdict"] == "slower" else 0), done.stderr


@pytest.mark.slow
def test_a_plan_whose_step_is_slower_exits_3_also_where_no_size_is(tmp_path):
    gradients = Gradients(
        gradients=tuple(
            Gradient(num_bytes=1024, dtype="float32", ready_s=2e-3 * (index + 1) / 8) for index in range(8)
        ),
        backward_s=2e-3,
        timed=True,
        source="a test",
    )
    (tmp_path / "gradients.json").write_text(document_text(gradients_to_document(gradients)))
    step = ("--step", "--gradients", "gradients.json", "--compute", "sleep")
    table = ((0, "ring", CRUMBLED), (16384, "default", {}))
    done = compared(tmp_path, table, "--sizes", "4M", *step, "--json")
    document = json.loads(done.stdout)
    validate_written(document, "comparison")
    assert document["rows"][0]["verdict"] != "slower"
    assert document["step"]["verdict"] == "slower"
    assert document["step"]["ratio_ci"][1] < 0.98
    assert done.returncode == 3, done.stderr
