import json
import os
from pathlib import Path

import pytest
from command_line import topotune
from export_plans import gpu_document
from plan_example import example as plan_document

from topotune.cli import plans
from topotune.errors import OutputFileError, UsageError


def refused(*arguments: str, cwd: Path) -> str:
    """The first line of a refusal; it must be wrong use, said on stderr alone."""
    done = topotune(*arguments, cwd=cwd)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "first_line"),
    [
        (["tune", "--nproc-per-node", "0"], "error: --nproc-per-node 0: a node has 1 to 1024 ranks"),
        (["measure", "--nproc-per-node", "-3"], "error: --nproc-per-node -3: a node has 1 to 1024 ranks"),
        (["tune", "--budget", "0"], "error: '0' is no duration above 0"),
        (["tune", "--budget", "soon"], "error: 'soon' is no duration"),
        (["tune", "--sizes", "big"], "error: 'big' is no size in bytes"),
        (["tune", "--sizes", ""], "error: '' is no size in bytes"),
        (["tune", "--sizes", "0"], "error: '0' has a size of 0 bytes"),
        (
            ["tune", "--sizes", "8M:1K"],
            "error: '8M:1K' is an empty range of sizes: it runs from 8388608 to 1024 bytes",
        ),
        (
            ["tune", "--sizes", "1K,1001"],
            "error: a size of 1001 bytes cannot be measured: messages are float32, up to 4 GiB",
        ),
        (["tune", "--backend", "mpi"], "error: --backend mpi: is neither gloo nor nccl"),
        (["tune", "--min-gain", "-1"], "error: --min-gain -1: a gain lies between 0 and 1000 %"),
        (["probe", "--root", "nowhere"], "error: root folder 'nowhere' does not exist"),
        (["show", "nowhere.json"], "error: nowhere.json: no such file"),
        (["compare", "nowhere.json"], "error: nowhere.json: no such file"),
        (["run", "--plan", "nowhere.json", "--", "true"], "error: nowhere.json: no such file"),
        (["schema", "nothing"], "error: 'nothing': no such kind of document"),
        (["tune", "--sides", "3"], "error: No such option: --sides"),
        (["tuna"], "error: No such command 'tuna'."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_one_clear_line_and_exit_code_2(tmp_path, arguments, first_line):
    assert refused(*arguments, cwd=tmp_path).startswith(first_line)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has an NVIDIA driver")
def test_nccl_without_a_gpu_is_refused(tmp_path):
    assert refused("tune", "--backend", "nccl", cwd=tmp_path).startswith(
        "error: --backend nccl: no GPU was found on this machine: "
    )


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has an NVIDIA driver")
def test_a_plan_for_nccl_is_not_compared_without_a_gpu(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(gpu_document()))
    assert refused("compare", "plan.json", cwd=tmp_path).startswith(
        "error: plan.json is for nccl: no GPU was found on this machine: "
    )
    assert refused("compare", "plan.json", "--step", "--compute", "matmul", cwd=tmp_path).startswith(
        "error: --compute matmul: with nccl the backward is emulated by spin"
    )


def test_an_output_folder_that_does_not_exist_is_refused_before_any_work(tmp_path):
    line = refused("tune", "-o", "no/such/plan.json", cwd=tmp_path)
    assert line == f"error: no/such/plan.json: the folder {tmp_path}/no/such does not exist"


def test_an_output_folder_that_is_not_writable_is_refused_before_any_work(tmp_path):
    assert refused("tune", "-o", "/proc/plan.json", cwd=tmp_path).startswith(
        "error: /proc/plan.json: the folder /proc is not writable"
    )


@pytest.mark.parametrize("verb", ["tune", "measure", "probe"])
def test_an_existing_file_of_another_kind_is_never_overwritten_unasked(tmp_path, verb):
    letter = tmp_path / "letter.txt"
    letter.write_text("dear plan")
    assert refused(verb, "-o", "letter.txt", cwd=tmp_path).startswith("error: letter.txt: ")
    assert letter.read_text() == "dear plan"


def test_a_file_in_the_journals_place_is_kept_and_refused_before_any_rank_is_started(tmp_path, monkeypatch):
    monkeypatch.setattr(plans, "on_ranks", lambda *_, **__: pytest.fail("ranks were started"))
    notes = tmp_path / "plan.journal.jsonl"
    notes.write_text("my notes")
    with pytest.raises(OutputFileError, match="is there and is no journal of topotune"):
        plans.tune(output=tmp_path / "plan.json", budget="1s", as_json=True)
    assert notes.read_text() == "my notes"


def test_a_program_that_the_kernel_cannot_run_is_refused(tmp_path):
    plan = plan_document()
    plan["context"]["interface"] = None
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "job").write_bytes(b"\0 no program")
    (tmp_path / "job").chmod(0o755)
    assert refused("run", "--plan", "plan.json", "--", "./job", cwd=tmp_path) == (
        "error: './job': cannot be run: Exec format error"
    )


def test_sizes_that_cannot_be_compared_are_refused_before_any_rank_is_started(tmp_path, monkeypatch):
    monkeypatch.setattr(plans, "on_ranks", lambda *_, **__: pytest.fail("ranks were started"))
    (tmp_path / "plan.json").write_bytes(plan_bytes())
    with pytest.raises(UsageError, match="a size of 1001 bytes cannot be measured"):
        plans.compare(tmp_path / "plan.json", sizes="1001", budget="1s", seed=0)


def plan_bytes(**changes: object) -> bytes:
    return json.dumps({**plan_document(), **changes}).encode()


def overlapping_rows() -> bytes:
    document = plan_document()
    document["groups"][0]["allreduce"][1]["min_bytes"] = 512
    return json.dumps(document).encode()


def unknown_algorithm() -> bytes:
    document = plan_document()
    document["groups"][0]["allreduce"][1]["algorithm"] = "magic"
    return json.dumps(document).encode()


def a_million_rows() -> bytes:
    document = plan_document()
    row = b'{"min_bytes":0,"max_bytes":null,"algorithm":"default"}'
    document["groups"][0]["allreduce"] = ["ROWS"]
    return json.dumps(document).encode().replace(b'"ROWS"', b",".join([row] * 1_000_000))


BROKEN_PLANS = {
    "cut off": plan_bytes()[:400],
    "empty": b"",
    "no JSON": b"plan: fast",
    "newer": plan_bytes(schema_version=2),
    "a topology": plan_bytes(schema="topotune/topology"),
    "overlapping rows": overlapping_rows(),
    "unknown algorithm": unknown_algorithm(),
    "nested 200,000 deep": b'{"a":' + b"[" * 200_000,
    "a million rows": a_million_rows(),
}


@pytest.mark.parametrize("verb", [["compare"], ["run", "--plan"]], ids=["compare", "run"])
@pytest.mark.parametrize("broken", BROKEN_PLANS, ids=list(BROKEN_PLANS))
def test_a_plan_that_cannot_be_used_is_refused_with_file_and_reason(tmp_path, verb, broken):
    (tmp_path / "plan.json").write_bytes(BROKEN_PLANS[broken])
    command = ["--", "true"] if verb[0] == "run" else []
    line = refused(*verb, "plan.json", *command, cwd=tmp_path)
    assert line.startswith("error: plan.json: ")
    assert len(line) < 400
    assert (tmp_path / "plan.json").read_bytes() == BROKEN_PLANS[broken]


@pytest.mark.gloo
def test_a_plan_for_another_world_size_is_refused_with_both_sizes(tmp_path):
    (tmp_path / "plan.json").write_bytes(plan_bytes())
    line = refused("compare", "plan.json", "--nproc-per-node", "2", cwd=tmp_path)
    assert "4" in line
    assert "2" in line


@pytest.mark.parametrize("root", ["empty", "file"])
def test_a_root_that_is_no_captured_machine_is_refused(tmp_path, root):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    assert refused("probe", "--root", root, cwd=tmp_path).startswith("error: root ")
