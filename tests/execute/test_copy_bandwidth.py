"""What stands beside an allreduce on one host, where no link bounds it: copies of as many bytes, at once."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas
import pytest

from topotune.lab import read_profile

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark_module(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_four_ranks_that_copy_a_message_each_copy_four_messages(benchmark_module):
    copies = benchmark_module("copy_bandwidth").Copies(
        num_ranks=4, message_bytes=16_000_000, median_s=8e-3, num_samples=40
    )
    assert copies.copied_bytes_per_s == pytest.approx(8e9)
    assert copies.percent_of(10e-3) == pytest.approx(80.0)
    assert copies.percent_of(5e-3) == pytest.approx(160.0), "caches may let an allreduce be faster: no bound"


def test_copies_stand_beside_one_host_alone_and_are_timed_once(benchmark_module, monkeypatch, tmp_path):
    lab = benchmark_module("lab")
    timed = []

    def measure(num_ranks, sizes):
        timed.append((num_ranks, sizes))
        return [
            lab.Copies(num_ranks=num_ranks, message_bytes=size, median_s=1e-3, num_samples=40)
            for size in sizes
        ]

    monkeypatch.setattr(lab, "measure", measure)
    comparison = tmp_path / "1x4.comparison.json"
    comparison.write_text(json.dumps({"rows": [{"message_bytes": 4096}, {"message_bytes": 1 << 20}]}))
    for _ in range(2):
        copies = lab.copies_of(read_profile("1x4"), comparison)
        assert {size: one.num_ranks for size, one in copies.items()} == {4096: 4, 1 << 20: 4}
    assert timed == [(4, [4096, 1 << 20])]
    assert lab.copies_of(read_profile("2x4"), comparison) == {}


def test_the_table_calls_copies_what_they_are_beside_no_limit(benchmark_module):
    lab = benchmark_module("lab")
    row = SimpleNamespace(copy_s=5.1e-3, copied_bytes_per_s=13.2e9, copy_percent_of_plan=49.6)
    assert lab.copies_cells(row) == ("none; copies 5.1 ms (13.2 GB/s)", "copies take 50 % of it")
    assert lab.copies_cells(SimpleNamespace(copy_s=pandas.NA)) == ("none", "")


@pytest.mark.gloo
@pytest.mark.timeout(120)
def test_copies_of_all_ranks_at_once_are_timed():
    command = [sys.executable, str(BENCHMARKS / "copy_bandwidth.py"), "--ranks", "2", "--sizes", "64K,1M"]
    done = subprocess.run(
        [*command, "--rounds", "3", "--json"], check=True, stdout=subprocess.PIPE, timeout=100
    )
    found = json.loads(done.stdout)
    assert [(one["num_ranks"], one["message_bytes"], one["num_samples"]) for one in found] == [
        (2, 64 << 10, 3),
        (2, 1 << 20, 3),
    ]
    assert all(0 < one["median_s"] < 10 for one in found)
