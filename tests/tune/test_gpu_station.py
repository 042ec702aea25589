"""Timing NCCL's settings beside the default: all but NCCL itself, whose place gloo takes here.

The engine below makes one gloo communicator for each setting, and writes the log that NCCL would.
"""

import os
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from gloo_world import run_world

from topotune.errors import UsageError
from topotune.execute import Communicator
from topotune.links.own_gpu import take_own_gpu
from topotune.tune.gpu_station import GpuStation, log_to
from topotune.tune.nccl_place import combined_place, nccl_candidates
from topotune.tune.nccl_settings import NcclSetting
from topotune.tune.timing import TorchBench
from topotune.tune.trial import DEFAULT, Block, Candidate
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
        bench.end()
        station.close()
        return [check.problem for check in checks], [
            (one.times_s.shape, one.broken, int((one.times_s <= 0).sum())) for one in times
        ]


@pytest.mark.gloo
def test_settings_are_timed_in_turns_with_the_default_and_count_only_as_the_log_confirms_them():
    (problems, times), _ = run_world(2, measure)
    assert problems == [None, "NCCL ran ring simple in its place", None]
    assert times == [((2, 3), None, 0)] * 3


FACTS = {"version": [2, 27], "capability": [9, 0], "has_nvswitch": True, "is_efa": False}


def test_a_place_is_the_least_of_what_ranks_see_and_any_danger():
    nodes = (0, 0, 1, 1)
    place = combined_place([FACTS, FACTS, FACTS, FACTS | {"capability": [8, 0], "version": [2, 26]}], nodes)
    assert (place.version, place.capability, place.num_nodes, place.ranks_per_node) == ((2, 26), (8, 0), 2, 2)
    assert place.is_efa is False
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
    assert os.environ["NCCL_DEBUG_SUBSYS"] == "TUNING"
    assert Path(os.environ["NCCL_DEBUG_FILE"]) == tmp_path / "log"


def test_ranks_without_a_gpu_of_their_own_are_refused_with_the_reason():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UsageError, match=r"is built without NCCL|2 ranks on this node and 0 GPUs"):
        take_own_gpu({"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "0"})
