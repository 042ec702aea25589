"""Notebooks are executed on the data that is stored beside them."""

import re
import runpy
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.mark.parametrize("name", ["01_what_is_my_cluster", "04_what_if", "05_reading_nccl_tests"])
def test_a_notebook_runs_on_its_stored_data(name, monkeypatch):
    for variable in ("TOPOTUNE_LINKS", "TOPOTUNE_BENCHMARK"):
        monkeypatch.delenv(variable, raising=False)
    names = runpy.run_path(str(NOTEBOOKS / f"{name}.py"))
    if name == "01_what_is_my_cluster":
        assert "slow-node" in set(names["findings"]["code"])
        assert len(names["bandwidth"].outliers) > 0
    elif name == "04_what_if":
        rates = names["table"]
        best = rates[rates["collective"] == "allreduce"]["algbw_bytes_per_s"].droplevel(1)
        assert best["4 nodes, a NIC less"] < best["4 nodes, a NIC at half its rate"] < best["4 nodes"]
    else:
        assert len(names["curves"]) == 2
        assert len(names["table"]) == 26


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.py")), ids=lambda path: path.stem)
def test_a_notebook_imports_calls_and_plots_only(path):
    text = path.read_text()
    assert text.startswith("# ---\n# jupyter:\n#   jupytext:\n")
    assert not re.search(r"^(def|class|while|for|with|try) ", text, re.MULTILINE)
