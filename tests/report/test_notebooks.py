"""Notebooks are executed on the data that is stored beside them: as scripts, and as Jupyter runs them."""

import re
import runpy
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
VARIABLES = ("LINKS", "PLAN", "JOURNAL", "COMPARISON", "GRADIENTS", "BENCHMARK")


def check_what_is_my_cluster(names):
    assert "slow-node" in set(names["findings"]["code"])
    assert len(names["bandwidth"].outliers) > 0


def check_why_this_plan(names):
    chosen = set(names["rows"]["algorithm"])
    assert {"default", "shm_hierarchical"} <= chosen
    assert names["marks"][0][1] != "default"
    assert set(names["decisions"]["chosen"].str.split().str[0]) == chosen
    assert len(names["candidates"]["arm"].unique()) > 20
    faster = names["compared"][names["compared"]["verdict"] == "faster"]
    assert (faster["ratio_low"] > 1.02).all()


def check_buckets_and_the_step(names):
    default, torchs, single, best = (way.timeline for way in names["whatever"])
    assert best.step_s <= min(torchs.step_s, single.step_s)
    assert torchs.step_s < default.step_s
    assert sum(best.sizes) == sum(default.sizes) == names["recorded"].total_bytes
    assert names["step"]["verdict"].iloc[0] == "faster"


def check_what_if(names):
    rates = names["table"]
    best = rates[rates["collective"] == "allreduce"]["algbw_bytes_per_s"].droplevel(1)
    assert best["4 nodes, a NIC less"] < best["4 nodes, a NIC at half its rate"] < best["4 nodes"]


def check_reading_nccl_tests(names):
    assert len(names["curves"]) == 2
    assert len(names["table"]) == 26


CHECKS = {
    "01_what_is_my_cluster": check_what_is_my_cluster,
    "02_why_this_plan": check_why_this_plan,
    "03_buckets_and_the_step": check_buckets_and_the_step,
    "04_what_if": check_what_if,
    "05_reading_nccl_tests": check_reading_nccl_tests,
}


def test_each_notebook_with_stored_data_is_checked():
    assert sorted(path.stem for path in NOTEBOOKS.glob("[0-9]*.py")) == list(CHECKS)


@pytest.fixture(autouse=True)
def stored_data_alone(monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(f"TOPOTUNE_{variable}", raising=False)


@pytest.mark.parametrize("name", CHECKS)
def test_a_notebook_runs_on_its_stored_data(name):
    CHECKS[name](runpy.run_path(str(NOTEBOOKS / f"{name}.py")))


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_a_notebook_runs_in_jupyter_and_shows_what_it_has(name):
    jupytext = pytest.importorskip("jupytext")
    nbclient = pytest.importorskip("nbclient")
    notebook = jupytext.read(NOTEBOOKS / f"{name}.py")
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(NOTEBOOKS)}}
    )
    client.execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in shown if output.output_type == "error"]
    kinds = {kind for output in shown for kind in output.get("data", {})}
    assert {"text/html", "application/vnd.plotly.v1+json"} <= kinds
    said = "".join(output.text for output in shown if output.output_type == "stream")
    assert said == ""


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.py")), ids=lambda path: path.stem)
def test_a_notebook_imports_calls_and_plots_only(path):
    text = path.read_text()
    assert text.startswith("# ---\n# jupyter:\n#   jupytext:\n")
    assert not re.search(r"^(def|class|while|for|with|try) ", text, re.MULTILINE)
