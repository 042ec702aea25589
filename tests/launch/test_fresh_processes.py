"""Each launch runs on processes of its own, of all ranks, whoever started them."""

import json
import os
import subprocess
import sys

import pytest

from topotune.errors import UsageError
from topotune.launch import launcher_here
from topotune.launch.fresh_processes import run_launches
from topotune.probe.membership import PerNode

pytestmark = pytest.mark.gloo


def meet(payload):
    """What all ranks of a launch are: their processes and their numbers; asked for on rank 0."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, [os.getpid(), dist.get_rank()])
    dist.destroy_process_group()
    if payload["fails"]:
        raise UsageError("launch 1 fails", hint="as it should")
    return {"found": found, "payload": payload} if os.environ["RANK"] == "0" else None


def in_launches(fails=False):
    return run_launches(
        meet,
        lambda number, results: (
            None if number == 2 else {"number": number, "seen": len(results), "fails": fails and number == 1}
        ),
        launcher_here(None),
        num_launches=5,
        num_local_ranks=None,
        default_ranks=2,
    )


def assert_fresh(results):
    assert [one["payload"]["seen"] for one in results] == [0, 1]
    assert all([rank for _, rank in one["found"]] == [0, 1] for one in results)
    assert len({pid for one in results for pid, _ in one["found"]}) == 4


@pytest.mark.slow
def test_local_ranks_are_started_anew_for_each_launch():
    assert_fresh(in_launches())


@pytest.mark.slow
def test_ranks_of_a_launcher_start_a_process_of_their_own_for_each_launch(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, sys\n"
        "from test_fresh_processes import in_launches\n"
        "from topotune.errors import UsageError\n"
        "try:\n"
        "    results = in_launches(fails=sys.argv[1] == 'fail')\n"
        "except UsageError as error:\n"
        "    results = str(error)\n"
        f"open('{tmp_path}/result-' + os.environ['RANK'], 'w').write(json.dumps(results))\n"
    )
    folder = os.path.dirname(__file__)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    }
    for how in ("well", "fail"):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        subprocess.run([*launcher, str(script), how], env=environment, check=True, timeout=120)
        own, other = (json.loads((tmp_path / f"result-{rank}").read_text()) for rank in (0, 1))
        if how == "well":
            assert_fresh(own)
            assert other == [None, None]
        else:
            assert own == other == "launch 1 fails"


def test_nodes_that_are_started_once_each_are_refused():
    launcher = PerNode(launcher="sagemaker", node_index=0, num_nodes=2, master_address="a", master_port=1)
    with pytest.raises(UsageError, match="--launches 3: 2 nodes that are started once each"):
        run_launches(
            meet, lambda number, results: {}, launcher, num_launches=3, num_local_ranks=2, default_ranks=2
        )
