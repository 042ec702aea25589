"""What scripts and notebooks import: the names, that they cost nothing until used, and their examples."""

import doctest
import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest
from plan_example import example

import topotune
from topotune.errors import InputFileError, OutputFileError, UsageError
from topotune.topology import topology_to_document
from topotune.topology.catalog import load_profile
from topotune.topology.profile_topology import machine_network

WITH_EXAMPLES = {
    "topotune": 1,
    "topotune.plan.load": 1,
    "topotune.topology.model": 1,
    "topotune.train.recording": 1,
    "topotune.tune.from_python": 1,
}
"""Modules whose docstrings are run, and how many have examples at least."""


def test_every_name_is_there_and_documented():
    assert sorted(topotune.__all__) == topotune.__all__ == dir(topotune)
    for name in set(topotune.__all__) - {"__version__"}:
        found = getattr(topotune, name)
        assert callable(found)
        assert len(inspect.getdoc(found)) > 40


@pytest.fixture
def with_files(tmp_path, monkeypatch):
    """In a folder with the files that examples read."""
    (tmp_path / "plan.json").write_text(json.dumps(example()))
    machine = topology_to_document(machine_network(load_profile("dgx-a100"), 1))
    (tmp_path / "machine.json").write_text(json.dumps(machine))
    monkeypatch.chdir(tmp_path)


def test_examples_of_the_page_about_python_give_what_they_say(with_files):
    page = Path(__file__).parents[1] / "docs" / "reference" / "python.md"
    found = doctest.testfile(str(page), module_relative=False, optionflags=doctest.REPORT_ONLY_FIRST_FAILURE)
    assert found.attempted > 8
    assert found.failed == 0


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings_give_what_they_say(name, with_files):
    module = importlib.import_module(name)
    tests = [one for one in doctest.DocTestFinder().find(module) if one.examples]
    assert len(tests) >= WITH_EXAMPLES[name]
    runner = doctest.DocTestRunner(optionflags=doctest.FAIL_FAST)
    said = []
    for one in tests:
        runner.run(one, out=said.append)
    assert runner.failures == 0, "".join(said)


def test_importing_topotune_imports_nothing_else():
    script = (
        "import sys; before = set(sys.modules); import topotune; dir(topotune);"
        "print([n for n in set(sys.modules) - before if n.split('.')[0] in ('torch', 'numpy', 'pandas')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("first", ["topotune.tune", "from topotune.tune.options import TuneOptions"])
def test_tune_is_a_function_and_a_room_in_whatever_order_they_are_asked_for(first):
    script = (
        f"import topotune\n{first}\n"
        "import inspect\n"
        "assert 'budget_s' in inspect.signature(topotune.tune).parameters\n"
        "import topotune.tune.journal\n"
        "try:\n    topotune.tune(budget_s=-1)\n"
        "except topotune.errors.UsageError as error:\n    print(error.message)\n"
        "assert 'torch' not in __import__('sys').modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "a budget of -1 s is no time to work in\n"


def test_a_topology_is_read_from_files_of_several_kinds(tmp_path):
    matrix = tmp_path / "topo.txt"
    matrix.write_text("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n")
    topology = topotune.Topology.from_file(matrix)
    own = tmp_path / "own.json"
    own.write_text(json.dumps(topology_to_document(topology)))
    assert topotune.Topology.from_file(str(own)) == topology
    assert sum(vertex.kind == "gpu" for vertex in topology.vertices) == 2


def test_a_topology_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputFileError, match=r"none\.json"):
        topotune.Topology.from_file(tmp_path / "none.json")
    with pytest.raises(UsageError, match="no file was given"):
        topotune.Topology.from_file()


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"sizes": [8, 4]}, UsageError, "not ascending"),
        ({"sizes": "many"}, UsageError, "many"),
        ({"min_gain": 20}, UsageError, "not within 0 and 10"),
        ({"backend": "mpi"}, UsageError, "mpi"),
        ({"resume": True}, UsageError, "--resume"),
        ({"backward_s": 0.1}, UsageError, "of which gradients"),
        ({"gradients": "none.json"}, InputFileError, "none.json"),
        ({"num_ranks": 0}, UsageError, "0"),
        ({"path": "no/such/folder/plan.json"}, OutputFileError, "no/such/folder"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_is_refused_before_anything_is_started(options, error, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=says):
        topotune.tune(**options)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_plan_is_not_replaced(tmp_path):
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(OutputFileError):
        topotune.tune(tmp_path / "plan.json")
    assert (tmp_path / "plan.json").read_text() == "{}"
