"""The files that pages speak of and their readers have: made when a command asks for one."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import nccl_plans
import result_files
from plan_example import example as plan_document

from topotune.plan import plan_to_document
from topotune.schedule.document import to_document as schedule_to_document
from topotune.schedule.doubling import halving_doubling
from topotune.schedule.ring import ring
from topotune.step.gradients import gradients_to_document
from topotune.step.models import resnet50
from topotune.topology import topology_to_document

_TESTS = Path(__file__).parents[1]
_TOPOLOGIES = _TESTS / "topology" / "fixtures"
_BENCHMARKS = _TESTS / "links" / "fixtures"

_TRAIN = """
import atexit
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

model = torch.nn.Linear(64, 64)
if "RANK" in os.environ:
    dist.init_process_group("topotune")
    model = DistributedDataParallel(model)
for _ in range(20):
    model(torch.randn(8, 64)).sum().backward()
if dist.is_initialized():
    dist.destroy_process_group()
# Threads of torch's gloo may still drop a call's Python objects: at the interpreter's end that aborts the
# process (torch 2.13, plain gloo as well: every third job while another runs, two ranks each on two cores).
atexit._run_exitfuncs()
os._exit(0)
"""


def _document(make: Callable[[], object]) -> Callable[[Path], None]:
    return lambda path: path.write_text(json.dumps(make())) and None


def _copy(source: Path) -> Callable[[Path], None]:
    return lambda path: shutil.copyfile(source, path) and None


def _first(folder: Path) -> Callable[[Path], None]:
    """The first whole fixture of a format."""
    names = sorted(
        one for one in folder.iterdir() if not one.name.endswith(".json") and "cut" not in one.name
    )
    return _copy(names[0])


GIVEN: Final[Mapping[str, Callable[[Path], None]]] = {
    "plan.json": _document(plan_document),
    "plan.journal.jsonl": lambda path: result_files.write_journal(path, "a"),
    "links.json": lambda path: _copy(_TESTS.parent / "notebooks" / "data" / "links-4x2-degraded.json")(path),
    "machine.json": _document(lambda: topology_to_document(result_files.cluster(1))),
    "check.json": _document(lambda: result_files.check("a")),
    "gradients.json": _document(lambda: gradients_to_document(resnet50().with_backward(0.05))),
    "topo.xml": _copy(_TOPOLOGIES / "nccl-xml" / "switches-dual-port.xml"),
    "node.xml": _copy(_TOPOLOGIES / "nccl-xml" / "static-without-classes.xml"),
    "topo-m.txt": _copy(_TOPOLOGIES / "nvidia-smi-topo" / "allocation-range-and-blank.txt"),
    "smi-q.txt": _copy(_TOPOLOGIES / "nvidia-smi-q" / "two-gpus-one-at-x8.txt"),
    "topology.conf": _first(_TOPOLOGIES / "slurm-topology"),
    "allreduce.txt": _first(_BENCHMARKS / "nccl-tests"),
    "p2p.txt": _first(_BENCHMARKS / "p2p-bandwidth"),
    "ring.json": _document(lambda: schedule_to_document(ring(4))),
    "halving.json": _document(lambda: schedule_to_document(halving_doubling(8))),
    "train.py": lambda path: path.write_text(_TRAIN) and None,
}
"""Name → what writes it."""


def give(name: str, folder: Path, command: str) -> None:
    """Make a file that a command reads; exports to NCCL want a plan that was measured on it."""
    if name == "plan.json" and "--to nccl" in command:
        (folder / name).write_text(json.dumps(plan_to_document(nccl_plans.THREE_ROWS)))
    elif name == "topo.xml" and "smi-q.txt" in command:  # of one machine
        GIVEN["node.xml"](folder / name)
    else:
        GIVEN[name](folder / name)
