import math

import pytest
from result_files import KINDS, cluster, measurement, write_all, write_journal

from topotune import frames
from topotune.frames.catalog import frames_of
from topotune.report.tables import TITLES
from topotune.results import read_result

UNITS = ("_s", "_bytes", "_bytes_per_s", "_bits_per_s", "_gt_per_s", "_percent")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    paths = write_all(tmp_path_factory.mktemp("results"))
    return {kind: read_result(path) for kind, path in paths.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_result_is_read_and_has_frames(results, kind):
    assert results[kind].kind == kind
    found = frames_of(results[kind].value)
    assert any(len(frame) for frame in found.values())
    assert all(name in frames.__all__ and name in TITLES for name in found)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_figures_name_their_unit(results, kind):
    plain = (
        "ratio", "num_", "index", "number", "numa", "step", "src", "dst", "chunk", "channel", "group", "a",
        "b", "lanes", "distance", "nvlinks", "test", "run", "pcie_width", "pcie_max_width", "ranks_per_node",
    )  # fmt: skip
    for frame in frames_of(results[kind].value).values():
        for column in frame.columns:
            stem = column.removesuffix("_low").removesuffix("_high")
            if frame[column].dtype.kind in "if" and frame[column].notna().any():
                assert stem.endswith(UNITS) or stem.startswith(plain), column


def test_names_of_the_room_are_all_there():
    assert sorted(frames.__all__) == frames.__all__
    assert all(callable(getattr(frames, name)) for name in frames.__all__)


def test_a_pair_timing_has_its_bandwidth_and_nodes():
    frame = frames.pair_timings(measurement(2, 2))
    row = frame[(frame["src"] == 0) & (frame["dst"] == 2) & (frame["message_bytes"] == 2**20)].iloc[0]
    assert row["bandwidth_bytes_per_s"] == 2**20 / row["median_s"]
    assert (row["src_node"], row["dst_node"]) == ("a 0", "a 1")


def test_a_plan_row_has_its_evidence_and_the_last_has_no_end(results):
    frame = frames.plan_rows(results["plan"].value)
    assert list(frame["algorithm"]) == ["default", "ring", "hierarchical", "default"]
    assert frame["ratio"].iloc[1] == 1.2
    assert frame["ratio_low"].iloc[1] == 1.1
    assert math.isnan(frame["ratio"].iloc[0])
    assert math.isnan(frame["max_bytes"].iloc[2])


def test_trials_have_the_ratio_to_the_default_of_their_own_rounds(results):
    frame = frames.trials(results["journal"].value)
    assert list(frame["number"]) == [0, 0, 1, 1, 2, 2]
    assert frame["ratio"].iloc[1] == pytest.approx(2.05)
    assert math.isnan(frame["ratio"].iloc[0])
    assert math.isnan(frame["end_s"].iloc[5])


def test_a_verdict_says_whether_its_candidate_was_a_finalist(results):
    row = frames.verdicts(results["journal"].value).iloc[0]
    assert (row["candidate"], row["verdict"], row["finalist"]) == ("a pieces=2", "complete", True)
    assert row["ratio"] == pytest.approx(math.exp(0.7))


def test_a_frame_without_rows_has_its_columns():
    assert "bandwidth_bytes_per_s" in frames.link_figures(measurement(1, 2)).columns
    assert len(frames.device_pairs(cluster(1))) == 0


def test_a_run_that_did_not_end_has_no_plan(tmp_path):
    write_journal(tmp_path / "plan.journal.jsonl", "a", ends=False)
    run = read_result(tmp_path / "plan.journal.jsonl").value
    assert run.plan is None
    assert run.num_ranks == 4


def test_a_decision_says_what_was_found_what_is_chosen_and_why(results):
    frame = frames.decisions(results["journal"].value)
    assert list(frame["message_bytes"]) == [65536]
    row = frame.iloc[0]
    assert (row["num_timed"], row["best"], row["finalist"]) == (1, "a pieces=2", "a pieces=2")
    assert row["ratio_in_search"] == pytest.approx(math.exp(0.7))
    assert row["ratio_confirmed"] == pytest.approx(2.05)
    assert row["chosen"].startswith("ring")
    assert row["why"] == "in the range of an algorithm that was confirmed at both ends of it"


def test_a_run_that_did_not_end_has_decided_nothing(tmp_path):
    write_journal(tmp_path / "plan.journal.jsonl", "a", ends=False)
    row = frames.decisions(read_result(tmp_path / "plan.journal.jsonl").value).iloc[0]
    assert (row["chosen"], row["why"]) == (None, "the run ended before its decision")


def test_buckets_say_what_of_their_exchange_lies_behind_the_backward(results):
    frame = frames.step_buckets(results["comparison"].value)
    assert list(frame["way"]) == ["default", "default", "plan", "plan"]
    assert list(frame["exposed_s"]) == pytest.approx([0.0, 0.06, 0.0, 0.03])


def test_each_size_of_another_collective_is_a_row(results):
    frame = frames.compared_tables(results["comparison"].value)
    assert list(frame["collective"]) == ["allgather"] * 3 + ["reduce_scatter"] * 3
    assert set(frame["num_ranks"]) == {2}
    assert frame["ratio"].iloc[0] == 2.0


def test_the_buckets_of_a_plan_have_their_caps(results):
    frame = frames.plan_buckets(results["plan"].value)
    ddp = results["plan"].value.ddp
    assert list(frame["bucket_bytes"]) == list(ddp.layout_bytes)
    assert frame["cap_bytes"].iloc[0] == ddp.bucket_caps_mb[0] * 2**20
    assert len(frames.plan_step(results["plan"].value)) == 1
