"""``topotune import`` and ``topotune export``, run as a user does."""

import json
from pathlib import Path

import pytest
from command_line import topotune

FIXTURES = Path(__file__).parents[1] / "topology" / "fixtures"
XML = FIXTURES / "nccl-xml" / "switches-dual-port.xml"
MATRIX = FIXTURES / "nvidia-smi-topo" / "tabs-4gpu-4nic-legend.txt"
QUERY = FIXTURES / "nvidia-smi-q" / "two-gpus-one-at-x8.txt"


def test_a_file_becomes_a_topology_that_other_verbs_take(tmp_path):
    done = topotune("import", str(XML), "-o", "machine.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "written to machine.json\n")
    assert "GPU0" in done.stdout
    shown = topotune("show", "machine.json", "--json", cwd=tmp_path)
    assert json.loads(shown.stdout)["gpu_pairs"][0]["path"] == "NV18"
    again = topotune("export", "machine.json", "--to", "nccl-xml", "-o", "topo.xml", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (0, "")
    back = topotune("import", "topo.xml", "--json", cwd=tmp_path)
    first, second = json.loads((tmp_path / "machine.json").read_text()), json.loads(back.stdout)
    assert {key: first[key] for key in ("vertices", "links", "ranks")} == {
        key: second[key] for key in ("vertices", "links", "ranks")
    }


def test_json_is_one_document_with_the_warnings(tmp_path):
    done = topotune("import", str(MATRIX), "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert document["schema"] == "topotune/topology"
    assert document["warnings"] == [
        "NVSwitches were inferred: GPUs have more NVLinks to their peers than a GPU has"
    ]
    assert done.stderr == ""
    done = topotune("export", str(XML), "--to", "dot", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["text"].startswith("graph topology {")


def test_files_that_contradict_each_other_exit_2_with_both(tmp_path):
    done = topotune("import", str(MATRIX), str(QUERY), "-o", "machine.json", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    first, second = done.stderr.splitlines()
    assert first == f"error: {QUERY}: contradicts {MATRIX}: the number of GPUs is 2 here and 4 there"
    assert second.startswith("hint: leave one of them out; files of two nodes need the nodes' names")
    assert not (tmp_path / "machine.json").exists()


@pytest.mark.parametrize(
    ("arguments", "first_line"),
    [
        (["import", "nowhere.xml"], "error: nowhere.xml: no such file"),
        (["import", "a=nowhere.xml"], "error: nowhere.xml: no such file"),
        (["import", "plan.txt"], "error: plan.txt: is in no format that topotune reads"),
        (["import", "--format", "ini", "plan.txt"], "error: --format ini: no such format"),
        (["import", str(XML), "-o", "plan.txt"], "error: plan.txt: exists already"),
        (["export", str(XML), "--to", "svg"], "error: --to svg: no such format"),
        (["export", str(MATRIX), "--to", "nccl-xml"], "error: GPU 0 has no PCI address, by which NCCL knows"),
        (["export", str(XML), "--to", "dot", "-o", "plan.txt"], "error: plan.txt: exists already"),
    ],
    ids=lambda value: " ".join(Path(word).name for word in value) if isinstance(value, list) else "",
)  # fmt: skip
def test_wrong_use_is_one_clear_line_and_exit_code_2(tmp_path, arguments, first_line):
    (tmp_path / "plan.txt").write_text("dear plan")
    done = topotune(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0].startswith(first_line)
    assert (tmp_path / "plan.txt").read_text() == "dear plan"
