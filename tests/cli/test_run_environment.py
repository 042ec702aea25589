"""`topotune run` sets what the plan's exports say in variables alone, and nothing that the user has set."""

import json
import os
import subprocess
import sys

import plan_example
import pytest

NAMES = ("TOPOTUNE_PLAN", "GLOO_SOCKET_IFNAME", "HOROVOD_FUSION_THRESHOLD", "TF_CONFIG", "XLA_FLAGS")
SHOW = f"import json, os; print(json.dumps({{n: os.environ[n] for n in {NAMES} if n in os.environ}}))"


def run(folder, *options, ddp=True, **variables: str) -> tuple[dict[str, str], list[str]]:
    document = plan_example.example()
    document["context"]["interface"] = "lo"
    if not ddp:
        document["ddp"] = None
    (folder / "plan.json").write_text(json.dumps(document))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    job = [sys.executable, "-c", SHOW]
    done = subprocess.run(
        [sys.executable, "-m", "topotune", "run", *options, "--plan", "plan.json", "--", *job],
        cwd=folder,
        env={name: value for name, value in inherited.items() if name not in NAMES} | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr.splitlines()


def test_the_job_gets_the_variables_and_hears_nothing_unasked(tmp_path):
    found, said = run(tmp_path)
    assert found == {
        "TOPOTUNE_PLAN": str(tmp_path / "plan.json"),
        "GLOO_SOCKET_IFNAME": "lo",
        "HOROVOD_FUSION_THRESHOLD": "26214400",
    }
    assert said == []
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]  # what needs a file is export's affair


def test_verbose_says_in_one_line_what_was_set(tmp_path):
    _, said = run(tmp_path, "-v")
    line = next(line for line in said if line.startswith("set for the job: "))
    assert f"TOPOTUNE_PLAN={tmp_path}/plan.json GLOO_SOCKET_IFNAME=lo" in line
    assert "HOROVOD_FUSION_THRESHOLD=26214400" in line


@pytest.mark.parametrize("variable", ["HOROVOD_FUSION_THRESHOLD", "HOROVOD_AUTOTUNE"])
def test_what_the_user_has_set_stands(tmp_path, variable):
    found, said = run(tmp_path, "--verbose", **{variable: "1"})
    assert found.get("HOROVOD_FUSION_THRESHOLD") == ("1" if variable.endswith("THRESHOLD") else None)
    assert any(line.startswith("left as the user has it: HOROVOD_FUSION_THRESHOLD") for line in said)
    assert "HOROVOD_FUSION_THRESHOLD=" not in said[0]


def test_tf_config_and_xla_flags_reach_the_job_as_they_were(tmp_path):
    given = {"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}', "XLA_FLAGS": "--xla_mine=1"}
    found, _ = run(tmp_path, **given)
    assert {name: found[name] for name in given} == given


def test_a_plan_without_buckets_sets_none(tmp_path):
    found, _ = run(tmp_path, ddp=False)
    assert set(found) == {"TOPOTUNE_PLAN", "GLOO_SOCKET_IFNAME"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--to", "torch", "--dtype", "bf16"], "error: --dtype bf16: torch does not count elements"),
        (["--to", "deepspeed", "--dtype", "int8"], "error: --dtype int8: no such type of gradients"),
        (["--to", "horovod", "--for", "9.1"], "error: --for 9.1: this export is for Horovod 0.20 to 0.28"),
        (["--to", "dask"], "error: --to dask: a plan cannot be exported to that"),
    ],
    ids=["no elements", "no type", "no version", "no target"],
)
def test_wrong_use_of_export_is_one_clear_line(tmp_path, arguments, reason):
    done = export(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == reason
    assert done.stdout == ""


def export(folder, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "plan.json").write_text(json.dumps(plan_example.example()))
    return subprocess.run(
        [sys.executable, "-m", "topotune", "export", "plan.json", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_an_export_to_a_file_says_what_is_lost_and_how_it_is_used(tmp_path):
    done = export(tmp_path, "--to", "deepspeed", "--dtype", "fp32", "-o", "ds.json")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "ds.json").read_text()) == {
        "zero_optimization": {"reduce_bucket_size": 25 * 2**20 // 4}
    }
    assert "warning: reduce_bucket_size acts in ZeRO stages 1 to 3; stage 0 has a fixed size" in done.stderr
    assert "jq -s" in done.stdout


def test_a_launchers_file_names_the_plan_by_its_whole_path(tmp_path):
    assert f"'export TOPOTUNE_PLAN={tmp_path}/plan.json'" in export(tmp_path, "--to", "slurm").stdout


def test_list_names_every_target_with_its_versions(tmp_path):
    lines = export(tmp_path, "--to", "list").stdout.splitlines()
    summary = "the same as environment variables, for mpirun and srun (Horovod 0.20 to 0.28)"
    assert ["horovod-env", summary] in [line.split(maxsplit=1) for line in lines]
