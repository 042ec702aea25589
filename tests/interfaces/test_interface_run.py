"""`topotune run` gives the job the network interface of its plan."""

import json
import os
import subprocess
import sys

import plan_example
import pytest

SHOW = [sys.executable, "-c", "import os; print(os.environ.get('GLOO_SOCKET_IFNAME'))"]


def run(folder, interface, **variables) -> tuple[str, str]:
    document = plan_example.example()
    document["context"]["interface"] = interface
    (folder / "plan.json").write_text(json.dumps(document))
    environment = {name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}
    done = subprocess.run(
        [sys.executable, "-m", "topotune", "run", "--plan", "plan.json", "--", *SHOW],
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.mark.parametrize(
    ("interface", "variables", "expected", "warning"),
    [
        ("lo", {}, "lo", ""),
        (None, {}, "None", ""),
        ("lo", {"GLOO_SOCKET_IFNAME": "eth5"}, "eth5", ""),
        ("lo,eth77", {}, "None", "warning: no network interface 'eth77' here, as in the plan\n"),
    ],
    ids=["the plan's", "the plan has none", "the user's own stands", "not on this machine"],
)
def test_the_job_gets_the_plans_interface_where_it_is_there(
    tmp_path, interface, variables, expected, warning
):
    assert run(tmp_path, interface, **variables) == (expected, warning)
