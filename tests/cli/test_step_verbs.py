"""What concerns a training step on the command line: gradients in, wrong use refused."""

import json

import pytest
from command_line import topotune

from topotune.documents import document_text
from topotune.step.gradients import gradients_to_document
from topotune.step.models import resnet50

WRONG = [
    (["tune", "--gradients", "nowhere.json"], "error: {}/nowhere.json: no such file"),
    (["tune", "--params", "many"], "error: 'many' is no number of parameters"),
    (["tune", "--params", "3"], "error: a model of 3 parameters is none that a transformer is typical of"),
    (["tune", "--backward", "1s"], "error: --backward 1s: of which gradients?"),
    (["tune", "--params", "1M", "--backward", "0"], "error: '0' is no duration above 0"),
    (
        ["tune", "--params", "1M", "--compute", "guess"],
        "error: --compute guess: is none of matmul, sleep, spin",
    ),
    (
        ["tune", "--params", "1M", "--compute", "spin"],
        "error: --compute spin: with gloo the backward is emulated by matmul or sleep",
    ),
    (["record", "--", "no-such-command"], "error: 'no-such-command': no such command"),
    (["record", "-o", "no/such.json", "--", "true"], "error: no/such.json: the folder {}/no does not exist"),
]


@pytest.mark.parametrize(("arguments", "first_line"), WRONG, ids=[" ".join(wrong[0]) for wrong in WRONG])
def test_wrong_use_is_one_clear_line_and_exit_code_2(tmp_path, arguments, first_line):
    done = topotune(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(first_line.format(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_gradients_of_a_file_and_of_a_number_are_not_taken_together(tmp_path):
    (tmp_path / "g.json").write_text(document_text(gradients_to_document(resnet50())))
    done = topotune("tune", "--gradients", "g.json", "--params", "350M", cwd=tmp_path)
    assert done.returncode == 2
    assert "hint: leave --gradients or --params out" in done.stderr


def test_show_says_what_a_job_exchanges(tmp_path):
    document = gradients_to_document(resnet50())
    (tmp_path / "g.json").write_text(document_text(document))
    said = topotune("show", "g.json", cwd=tmp_path).stdout
    assert said.startswith("ResNet-50: 161 gradients, 97.5 MiB\nDDP's own buckets: 7.82 MiB, 30 MiB, ")
    assert said.rstrip().endswith("and 149 smaller ones")
    assert json.loads(topotune("show", "g.json", "--json", cwd=tmp_path).stdout) == document
