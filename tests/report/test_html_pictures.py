import json
import re
import runpy
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from result_files import cluster, measurement, write_all

from topotune.plan import load_plan
from topotune.report.compose import compose
from topotune.report.pictures.cluster import MAX_CARDS, cluster_drawing
from topotune.report.pictures.curves import (
    Curve,
    Point,
    crossovers,
    group_curves,
    optimum_curves,
    plan_curves,
    prediction_curves,
    table_curves,
    time_chart,
)
from topotune.report.pictures.folded import fold
from topotune.report.pictures.matrices import MAX_CELLS_A_SIDE, matrix_chart, pair_matrices
from topotune.report.pictures.schedules import sending_chart
from topotune.report.pictures.steps import Way, ready_chart, step_chart
from topotune.report.pictures.tuning import ratios_chart, trials_chart
from topotune.report.words import certificate_in_words, plan_commands
from topotune.results import ResultFile, read_result
from topotune.schedule.ring import ring
from topotune.step.timeline import Timeline
from topotune.topology.model import Source, Topology, Vertex

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    paths = write_all(tmp_path_factory.mktemp("results"))
    return {kind: read_result(path).value for kind, path in paths.items()}


def test_equal_nodes_and_switches_are_folded():
    folded = fold(cluster(1024))
    assert [len(group.nodes) for group in folded.nodes] == [1024]
    assert [(len(group.names), group.tier) for group in folded.switches] == [(32, 1), (1, 2)]
    assert [len(trunk.wires) for trunk in folded.trunks] == [1024, 32]


def test_a_node_with_a_slow_link_stands_apart():
    folded = fold(cluster(8, slow=("a 5/nic",)))
    assert [group.nodes for group in folded.nodes][1] == ("a 5",)
    slow = [wire for trunk in folded.trunks for wire in trunk.wires if wire.is_slow]
    assert [(wire.a, wire.share) for wire in slow] == [("a 5/nic", 0.5)]


def test_the_drawing_of_a_thousand_nodes_is_small_and_well_formed():
    drawing = cluster_drawing(cluster(1000, slow=("a 7/nic",)))
    assert len(drawing.svg) < 20_000
    root = ET.fromstring(drawing.svg)
    assert [one.text for one in root.iter("text") if one.get("class") == "title"] == [
        "999 nodes alike: a 0 … a 999",
        "a 7",
    ]
    assert len(
        [one for one in root.iter("path") if "slow" in one.get("class") and one.find("title") is not None]
    )
    assert drawing.alt == "1000 nodes of 2 kinds, 33 fabric switches"


def test_many_kinds_of_nodes_are_drawn_up_to_a_bound():
    vertices = tuple(
        Vertex(id=f"{node}/{gpu}", kind="gpu", node=f"n{node}", index=gpu)
        for node in range(40)
        for gpu in range(node + 1)
    )
    drawing = cluster_drawing(Topology(vertices=vertices, links=(), source=Source(kind="test")))
    titles = re.findall(r'<text class="title"', drawing.svg)
    assert len(titles) == MAX_CARDS
    assert "and 24 more kinds of nodes (24 nodes), in the table" in drawing.svg


def test_boxes_of_a_row_do_not_overlap():
    root = ET.fromstring(cluster_drawing(cluster(2)).svg)
    rects = [
        [float(group.find("rect").get(name)) for name in ("x", "y", "width")]
        for group in root.iter("g")
        if (group.get("class") or "").startswith("v ")
    ]
    for number, (x, y, width) in enumerate(rects):
        for other_x, other_y, _ in rects[number + 1 :]:
            assert other_y != y or abs(other_x - x) >= width


def test_an_empty_topology_has_no_drawing():
    assert cluster_drawing(Topology(vertices=(), links=(), source=Source(kind="test"))) is None


def test_pairs_of_a_slow_node_are_the_outliers():
    bandwidth, latency = pair_matrices(measurement(4, 2, slow_node=2))
    expected = {(s, d) for s in range(8) for d in range(8) if (s in (4, 5)) != (d in (4, 5))}
    assert set(bandwidth.outliers) == expected
    assert latency.outliers == ()


def test_equal_links_have_no_outliers():
    assert [matrix.outliers for matrix in pair_matrices(measurement(3, 2))] == [(), ()]


def test_many_ranks_are_folded_to_nodes_and_an_outlier_still_shows():
    bandwidth, _ = pair_matrices(measurement(33, 2, slow_node=7))
    assert bandwidth.values.shape == (33, 33)
    assert bandwidth.folded == "node"
    assert {row for row, column in bandwidth.outliers if column != 7} == {7}


def test_a_chart_of_a_matrix_can_be_written_as_json():
    for matrix in pair_matrices(measurement(3, 1)):
        chart = matrix_chart(matrix)
        assert json.loads(json.dumps(chart.figure, allow_nan=False))["data"][0]["type"] == "heatmap"
        assert chart.figure["data"][0]["z"][0][0] is None


def test_cells_of_a_side_are_bounded():
    _, latency = pair_matrices(measurement(130, 1))
    assert len(latency.names) == 65 <= MAX_CELLS_A_SIDE


def test_the_interval_of_the_plan_follows_from_that_of_the_ratio(results):
    planned = next(curve for curve in plan_curves(results["plan"], "f") if curve.role == "plan")
    assert planned.points[0].interval_s == pytest.approx((0.0012 / 1.3, 0.0012 / 1.1))


def test_each_algorithm_is_one_curve_of_its_best_and_the_optimum_is_another(results):
    curves = prediction_curves(results["prediction"], "f")
    assert [curve.name for curve in curves] == [
        "tree, predicted",
        "ring, predicted",
        "a, predicted",
        "optimum",
    ]


def test_an_optimum_without_sizes_stands_at_those_of_the_others(results):
    optimum, flat = optimum_curves(results["optimum"], "f", [1000, 2**20])
    assert [(point.message_bytes, point.time_s) for point in optimum.points] == [
        (1000, 1e-5),
        (2**20, 2**20 / 1e9),
    ]
    assert flat.points[1].time_s == 2**20 / 5e8


def test_busbw_is_counted_as_by_nccl_tests(results):
    curve = plan_curves(results["plan"], "f")[0]
    point = curve.points[0]
    assert curve.busbw_bytes_per_s(point, 0.001) == point.message_bytes / 0.001 * 1.5


def test_times_stand_on_logarithmic_axes_with_units(results):
    layout = time_chart(plan_curves(results["plan"], "f")).figure["layout"]
    assert layout["xaxis"]["type"] == layout["yaxis"]["type"] == "log"
    assert all(text.endswith("B") for text in layout["xaxis"]["ticktext"])


def test_a_ring_sends_an_equal_share_in_every_step():
    rows = sending_chart(ring(4)).figure["data"][0]["z"]
    assert rows == [[25.0] * 6] * 4


def test_a_schedule_of_many_ranks_is_folded():
    rows = sending_chart(ring(300)).figure["data"][0]["z"]
    assert len(rows) == 150
    assert len(rows[0]) <= 256


def test_sizes_at_which_the_plan_changes_algorithms_are_marked(results):
    plan = results["plan"]
    assert crossovers(plan) == [(1024, "ring"), (2**20, "hierarchical")]
    shapes = time_chart(plan_curves(plan, "f"), crossovers(plan)).figure["layout"]["shapes"]
    assert [shape["x0"] for shape in shapes] == []  # one point alone: none lies within
    marks = [(1, "ring"), (2048, "<b>"), (2048, "tree")]
    layout = time_chart(prediction_curves(results["prediction"], "f"), marks).figure["layout"]
    assert [shape["x0"] for shape in layout["shapes"]] == [2048]
    assert [(one["text"], 10 ** one["x"]) for one in layout["annotations"]] == [
        ("→ &lt;b&gt;, tree", pytest.approx(2048))
    ]


def test_a_curve_of_many_points_is_thinned():
    curve = Curve(
        name="a",
        source="f",
        role="benchmark",
        num_ranks=4,
        points=tuple(Point(n, 1e-3) for n in range(1, 5000)),
    )
    assert len(time_chart([curve]).figure["data"][0]["x"]) <= 500


def test_a_trial_that_never_ended_is_drawn_to_the_end_of_the_run(results):
    bars = {bar["name"]: bar for bar in trials_chart(results["journal"]).figure["data"]}
    assert bars["a"]["base"] == [5.0]
    assert bars["search: candidates in turn with the default"]["x"] == [1.0]


def test_ratios_are_drawn_at_the_ends_of_their_trials(results):
    points = ratios_chart(results["journal"]).figure["data"][0]
    assert points["x"] == [2.0, 4.0]
    assert points["y"] == pytest.approx([2.05, 2.05])


def test_the_certificate_says_in_plain_words_how_far_to_trust(results):
    first, control, method = certificate_in_words(results["plan"])
    assert "above 1.02. 6 comparisons were made and corrected for their number (holm)" in first
    assert "tuned against itself" in control
    assert method == "Method: a."


def test_commands_quote_the_name_of_the_plan(results):
    commands = [text for _, text in plan_commands(results["plan"], "my plan's.json")]
    assert "topotune compare 'my plan'\"'\"'s.json'" in commands
    assert 'model.register_comm_hook(None, topotune.ddp_comm_hook("my plan\'s.json"))' in commands


def bars(chart):
    return {trace["name"]: list(zip(trace["y"], trace["base"], trace["x"], strict=True)) for trace in chart}


def test_an_exchange_is_cut_where_the_backward_ends(results):
    step = results["comparison"].step
    chart = step_chart([Way(name="default", timeline=step.default_timeline, measured_s=0.17)])
    *drawn, measured = chart.figure["data"]
    assert bars(drawn) == {
        "backward": [("default: backward", 0.0, 0.1)],
        "exchange beside the backward": [("default: exchange", 0.02, pytest.approx(0.02))],
        "exposed tail": [("default: exchange", 0.1, pytest.approx(0.06))],
    }
    assert measured["x"] == [0.17]
    assert chart.figure["layout"]["legend"]["title"]["text"] == "bars: the model; mark: measured"
    assert "60 ms lie behind the backward" in chart.alt


def test_a_bucket_across_the_end_of_the_backward_is_hidden_in_part(results):
    chart = step_chart([Way(name="plan", timeline=results["comparison"].step.plan_timeline)])
    drawn = bars(chart.figure["data"])
    assert drawn["exchange beside the backward"][1][1:] == (0.07, pytest.approx(0.03))
    assert drawn["exposed tail"] == [("plan: exchange", 0.1, pytest.approx(0.03))]
    assert "none was timed inside a step; no step was measured here" in chart.alt


def test_other_collectives_and_groups_have_curves_with_their_own_bus_bandwidth(results):
    table = results["comparison"].tables[0]
    default, planned = table_curves(table, "f")
    assert [curve.collective for curve in (default, planned)] == ["allgather"] * 2
    assert [point.time_s for point in planned.points] == [one.plan_median_s for one in table.sizes]
    assert planned.busbw_bytes_per_s(planned.points[0], 1.0) == 512  # half of 1 KiB, from the other rank


def test_a_plans_tables_of_groups_have_pictures_where_something_was_measured(results):
    plan = results["plan"]
    world, group = plan.groups
    measured_rows = tuple(replace(row, params={}, algorithm="ring") for row in world.allreduce)
    measured = replace(plan, groups=(world, replace(group, reduce_scatter=measured_rows)))
    (section,) = (
        one
        for one in compose([ResultFile(path="plan.json", kind="plan", value=measured)]).sections
        if one.title == "Plan"
    )
    assert [chart.title for chart in section.pictures] == [
        "reduce_scatter, 2 ranks on 1 node: time against message size",
        "reduce_scatter, 2 ranks on 1 node: bus bandwidth against message size",
    ]
    planned = next(
        one for one in group_curves(measured.groups[1], "reduce_scatter", "f") if one.role == "plan"
    )
    assert planned.num_ranks == 2
    (point,) = planned.points
    assert planned.busbw_bytes_per_s(point, 1.0) == point.message_bytes / 2
    assert group_curves(group, "allgather", "f") == []  # its row is the default, unmeasured


def test_many_buckets_are_drawn_together():
    times = tuple(0.001 * number for number in range(5000))
    line = Timeline(
        sizes=(4,) * 5000,
        complete_s=times,
        starts_s=times,
        ends_s=tuple(t + 0.001 for t in times),
        backward_s=9,
    )
    chart = step_chart([Way(name="x", timeline=line)])
    (_, first_s, length_s), *more = bars(chart.figure["data"])["exchange beside the backward"]
    assert (first_s, length_s) == (0.0, pytest.approx(0.013))
    assert len(more) < 400


def test_gradients_are_ready_in_steps_up_to_all_of_them(results):
    (trace,) = ready_chart(results["gradients"]).figure["data"]
    assert (trace["x"][0], trace["y"][0]) == (0.0, 0.0)
    assert (trace["x"][-1], trace["y"][-1]) == (0.1, 100.0)
    assert trace["y"][5] == pytest.approx(50.0)


def test_the_optimum_of_a_plan_follows_from_the_share_that_it_reaches(results):
    found = {curve.role: curve for curve in plan_curves(results["plan"], "f")}
    share = results["plan"].groups[0].allreduce[-1].percent_of_optimum / 100
    assert found["optimum"].points[0].time_s == pytest.approx(share * found["plan"].points[0].time_s)


def test_the_readmes_picture_is_what_its_command_draws():
    script = runpy.run_path(str(ROOT / "docs" / "make_picture.py"))
    data = ROOT / "notebooks" / "data"
    comparison = read_result(data / "2x4.comparison.json").value
    drawn = script["picture"](load_plan(data / "2x4.plan.json"), comparison, script["HEADING"])
    assert drawn == (ROOT / "docs" / "default-plan-optimum.svg").read_text()
    ET.fromstring(drawn)
