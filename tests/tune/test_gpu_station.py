"""Timing NCCL's settings beside the default: all but NCCL itself, whose place gloo takes here.

The engine below makes one gloo communicator for each setting, and writes the log that NCCL would.
"""

import os
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from gloo_world import run_world

from topotune.errors import UsageError, WrongResultError
from topotune.execute import Communicator
from topotune.links.own_gpu import take_own_gpu
from topotune.plan.model import Row
from topotune.tune.compare import arm_of, compare_plan
from topotune.tune.gpu_station import GpuStation
from topotune.tune.nccl_log import log_to
from topotune.tune.nccl_place import combined_place, nccl_candidates
from topotune.tune.nccl_settings import NcclSetting
from topotune.tune.options import CompareOptions
from topotune.tune.sampling import Sampling
from topotune.tune.timing import TorchBench
from topotune.tune.trial import DEFAULT, TWIN, WRAPPED, Block, Candidate
from topotune.tune.world import joined_world

RING = NcclSetting(algo="ring", proto="simple").candidate
TREE = NcclSetting(algo="tree", proto="ll").candidate
COMPOSED = Candidate.of("native_reduce_scatter_allgather", {})


class GlooEngine:
    """Settings on gloo; of rings it logs that they ran, of anything else that a ring did."""

    device = torch.device("cpu")

    def __init__(self, communicator):
        self._communicator = communicator
        self._num_made = 0
        self.log = ""

    def make(self, setting):
        self._num_made += 1
        engine = self

        class Logging(Communicator):
            @property
            def group(self):
                for size in (1024, 4096):
                    engine.log += (
                        f"AllReduce: {size} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..1}}\n"
                    )
                return super().group

        return Logging(
            self._communicator.store,
            self._communicator.rank,
            self._communicator.size,
            name=f"setting {self._num_made}",
            timeout=timedelta(seconds=60),
        )

    def synchronize(self):
        pass

    def log_size(self):
        return len(self.log)

    def log_from(self, start):
        return self.log[start:]


def compare_on(bench, candidate):
    """A plan of one row against the default, at 4 KiB."""
    row = Row(min_bytes=0, max_bytes=None, algorithm="nccl", params=candidate.params)
    (compared,), _ = compare_plan(
        Sampling(bench=bench, rng=np.random.default_rng(0)),
        [row],
        CompareOptions(plan_path="plan.json", sizes=(4096,), budget_s=1.0, backend="nccl"),
        algorithm_at=lambda _size: row.algorithm,
        arm_at=lambda _size: arm_of(row),
    )
    return compared


def measure(rank, num_ranks, store):
    with joined_world(None) as world:
        engine = GlooEngine(world.private)
        nodes = world.nodes.node_of_rank
        station = GpuStation(world.planned, world.raw, world.private, nodes, world.fresh_raw, engine=engine)
        if rank != 0:
            error = station.follow()
            station.close()
            return error
        bench = TorchBench(station, started_s=time.perf_counter())
        checks = [bench.check(one, 1024, limit_s=30.0) for one in (RING, TREE, COMPOSED)]
        arms = (DEFAULT, RING, COMPOSED)
        times = [
            bench.run(
                Block(
                    message_bytes=4096,
                    arms=arms,
                    orders=((0, 1, 2), (2, 1, 0)),
                    expected_s=(0.05, 0.05, 0.05),
                    warmups=(1, 1, 1),
                    limits_s=(None, 30.0, 30.0),
                    condition=condition,
                )
            )
            for condition in ("idle", "backward", "busy")
        ]
        own = Block(
            message_bytes=4096,
            arms=(DEFAULT, TWIN, WRAPPED),
            orders=((0, 1, 2),),
            expected_s=(0.05, 0.05, 0.05),
            warmups=(1, 1, 1),
            limits_s=(None, None, None),
        )
        counted = world.planned.calls
        times.append(bench.run(own))
        assert world.planned.calls == counted, "a default on whatever connections went by the plan"
        compared = compare_on(bench, RING)
        assert (compared.algorithm, compared.plan_median_s > 0) == ("nccl", True)
        with pytest.raises(WrongResultError, match="4 KiB by nccl: NCCL ran ring simple in its place"):
            compare_on(bench, TREE)
        bench.end()
        station.close()
        return [check.problem for check in checks], [
            (one.times_s.shape, one.broken, int((one.times_s <= 0).sum())) for one in times
        ]


@pytest.mark.gloo
def test_settings_are_timed_in_turns_with_the_default_and_count_only_as_the_log_confirms_them():
    (problems, times), _ = run_world(2, measure)
    assert problems == [None, "NCCL ran ring simple in its place", None]
    assert times == [((2, 3), None, 0)] * 3 + [((1, 3), None, 0)]


FACTS = {"version": [2, 27], "capability": [9, 0], "has_nvswitch": True, "is_efa": False}


def test_a_place_is_the_least_of_what_ranks_see_and_any_danger():
    nodes = (0, 0, 1, 1)
    place = combined_place([FACTS, FACTS, FACTS, FACTS | {"capability": [8, 0], "version": [2, 26]}], nodes)
    assert (place.version, place.capability, place.num_nodes, place.ranks_per_node) == ((2, 26), (8, 0), 2, 2)
    assert place.is_efa is False
    assert place.ll128 == ()
    table_of_rank_0 = [FACTS | {"ll128": ["ring"]}, FACTS | {"ll128": []}]
    assert combined_place(table_of_rank_0, (0, 1)).ll128 == ("ring",)
    assert combined_place([FACTS, FACTS | {"is_efa": None}], (0, 1)).is_efa is None
    assert combined_place([FACTS | {"is_efa": None}, FACTS | {"is_efa": True}], (0, 1)).is_efa is True


def test_settings_compositions_and_schedules_are_candidates_and_nothing_of_the_hosts_memory():
    place = combined_place([FACTS] * 4, (0, 0, 1, 1))
    named = {candidate.algorithm for candidate in nccl_candidates(place, (0, 0, 1, 1))}
    assert {"nccl", "native_hierarchical", "native_reduce_scatter_allgather", "ring"} <= named
    assert not any(name.startswith("shm") for name in named)
    assert nccl_candidates(replace(place, num_nodes=1, ranks_per_node=1), (0,)) == []
    many = tuple(rank // 8 for rank in range(128))
    large = {candidate.algorithm for candidate in nccl_candidates(place, many)}
    assert "ring" not in large
    assert "native_hierarchical" in large


def test_nccl_is_told_to_log_into_a_file_of_the_run(monkeypatch, tmp_path):
    for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"):
        monkeypatch.setenv(name, "")  # so that it is as before after the test
    log_to(tmp_path / "log")
    assert os.environ["NCCL_DEBUG"] == "INFO"
    assert os.environ["NCCL_DEBUG_SUBSYS"] == "TUNING,ENV"
    assert Path(os.environ["NCCL_DEBUG_FILE"]) == tmp_path / "log"


def test_ranks_without_a_gpu_of_their_own_are_refused_with_the_reason():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UsageError, match=r"is built without NCCL|2 ranks on this node and 0 GPUs"):
        take_own_gpu({"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "0"})
