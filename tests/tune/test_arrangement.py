"""The order of a run, what it tries in it, and what it expects of it."""

import math
import time
from collections import Counter
from dataclasses import replace

import pytest

from topotune.bounds import CapacityGraph, graph_allreduce_bound, graph_from_links, with_equal_ways
from topotune.links.model import LinkCost, LinkModel, PairsAcross, SharedCapacity
from topotune.schedule.candidates import candidates
from topotune.schedule.catalog import build
from topotune.simulate import predict_candidate
from topotune.simulate.survey import survey
from topotune.tune.arrangement import Arrangement
from topotune.tune.journal import Journal, read_journal
from topotune.tune.shortlist import HOPELESS, HOPELESS_BYTES, LONG_CALL_S, MOST_VARIANTS, shortlist
from topotune.tune.trial import DEFAULT, Candidate

RATE = 25e6
SIZE = 2**23


def cluster(node_of_rank, racks=()):
    """Nodes of 25 MB/s each way, fast inside, and racks of half that."""
    num_ranks, ranks = len(node_of_rank), range(len(node_of_rank))
    node_sets = [frozenset(r for r in ranks if node_of_rank[r] == node) for node in set(node_of_rank)]
    sets = [*((members, RATE) for members in node_sets), *((frozenset(rack), RATE / 2) for rack in racks)]
    return LinkModel(
        num_ranks=num_ranks,
        classes=(
            LinkCost(from_bytes=(0,), alpha_s=(2e-5,), beta_s_per_byte=(1e-9,)),
            LinkCost(from_bytes=(0,), alpha_s=(1e-4,), beta_s_per_byte=(1 / RATE,)),
        ),
        pair_class=tuple(
            tuple(-1 if a == b else int(node_of_rank[a] != node_of_rank[b]) for b in ranks) for a in ranks
        ),
        class_names=("within a node", "between nodes"),
        node_of_rank=tuple(node_of_rank),
        shared=tuple(
            SharedCapacity(
                name=f"link {number}",
                capacity_bytes_per_s=rate,
                pairs=PairsAcross(members, num_ranks, leaving=leaving),
                is_limit=True,
            )
            for number, (members, rate) in enumerate(sets)
            for leaving in (True, False)
        ),
    )


BLOCK, SCATTERED = cluster([0, 0, 1, 1, 2, 2, 3, 3]), cluster([0, 1, 2, 3] * 2)


def test_a_scattered_cluster_in_its_order_is_expected_to_be_as_fast_as_one_in_blocks():
    block, scattered = Arrangement.of(BLOCK), Arrangement.of(SCATTERED)
    assert (block.rank_order, scattered.rank_order) == (None, (0, 4, 1, 5, 2, 6, 3, 7))
    in_blocks, in_order = block.predictor([SIZE]), scattered.predictor([SIZE])
    assert set(block.candidates()) == set(scattered.candidates()) - {Candidate("native_allreduce")}
    for candidate in block.candidates():
        assert in_order(candidate, SIZE) == pytest.approx(in_blocks(candidate, SIZE))


def test_the_default_is_expected_as_numbered():
    as_numbered = predict_candidate("default", {}, SCATTERED, [SIZE])[0]
    predicted_s = Arrangement.of(SCATTERED).predictor([SIZE])
    assert predicted_s(DEFAULT, SIZE) == as_numbered
    assert predicted_s(Candidate("native_allreduce"), SIZE) == pytest.approx(as_numbered / 2, rel=0.01)


def test_what_does_not_take_a_size_is_not_expected_to_end():
    predicted_s = Arrangement.of(BLOCK).predictor([1024])
    assert predicted_s(Candidate("native_allgather_reduce"), SIZE) == math.inf
    assert predicted_s(Candidate("native_allgather_reduce"), 2**17) < math.inf


def test_a_single_rank_has_nothing_to_arrange():
    alone = Arrangement.of(None)
    assert (alone.rank_order, alone.candidates(), alone.predictor([1])(DEFAULT, 1)) == (None, [], 0.0)


def test_numa_nodes_are_a_level_between_the_positions_of_the_order():
    arrangement = Arrangement.of(cluster([0, 1] * 4), (0, 0, 1, 1, 0, 0, 1, 1))
    assert arrangement.rank_order == (0, 4, 2, 6, 1, 5, 3, 7)
    assert arrangement.placement.numa_of_rank == (0, 0, 1, 1, 0, 0, 1, 1)
    three = {"groups": [[[0, 1], [2, 3]], [[4, 5], [6, 7]]], "across": "ring", "pieces": 2}
    assert Candidate.of("hierarchical", three) in arrangement.candidates()


def test_three_levels_are_expected_to_come_closest_to_the_limit_of_an_uplink():
    """8 MiB over an uplink of 12.5 MB/s: 671 ms at least; a flat ring and two levels stay well above."""
    model = cluster([0, 0, 1, 1, 2, 2, 3, 3], [{0, 1, 2, 3}, {4, 5, 6, 7}])
    arrangement = Arrangement.of(model)
    predicted_s = arrangement.predictor([SIZE])
    limit_s = SIZE / (RATE / 2)

    def share(algorithm, **params):
        return limit_s / predicted_s(Candidate.of(algorithm, params), SIZE)

    by_node, by_rack = [[0, 1], [2, 3], [4, 5], [6, 7]], [[0, 1, 2, 3], [4, 5, 6, 7]]
    nested = [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert share("ring", pieces=4, channels=1) == pytest.approx(4 / 7, rel=0.03)
    assert share("hierarchical", groups=by_node, across="ring", pieces=1) == pytest.approx(2 / 3, rel=0.03)
    assert share("hierarchical", groups=by_rack, across="ring", pieces=1) == pytest.approx(4 / 7, rel=0.03)
    assert share("hierarchical", groups=nested, across="ring", pieces=1) == pytest.approx(2 / 3, rel=0.03)
    assert share("hierarchical", groups=nested, across="ring", pieces=4) > 0.75
    listed = shortlist(arrangement.candidates(), predicted_s, SIZE)
    best = next(one for one in listed if "groups" in one.params)
    assert len(best.params["groups"][0][0]) == 2, best  # groups of groups


def degraded(slow_node, factor):
    """Four nodes of two ranks, the link of one slower by a factor."""
    model = cluster([0, 0, 1, 1, 2, 2, 3, 3])
    slow = LinkCost(from_bytes=(0,), alpha_s=(1e-4,), beta_s_per_byte=(factor / RATE,))
    crosses = [[a // 2 != b // 2 and slow_node in (a // 2, b // 2) for b in range(8)] for a in range(8)]
    return replace(
        model,
        classes=(*model.classes, slow),
        class_names=(*model.class_names, "to or from the slow node"),
        pair_class=tuple(
            tuple(2 if crosses[a][b] else model.pair_class[a][b] for b in range(8)) for a in range(8)
        ),
        shared=tuple(
            replace(one, capacity_bytes_per_s=RATE / factor)
            if number in (2 * slow_node, 2 * slow_node + 1)
            else one
            for number, one in enumerate(model.shared)
        ),
    )


def test_a_forest_is_expected_to_spare_a_slow_node():
    arrangement = Arrangement.of(degraded(2, 4))
    predicted_s = arrangement.predictor([SIZE])
    listed = shortlist(arrangement.candidates(), predicted_s, SIZE)
    best_equal_s = min(predicted_s(one, SIZE) for one in listed if one.algorithm != "forest")
    assert listed[0].algorithm == "forest"
    assert best_equal_s / predicted_s(listed[0], SIZE) > 1.3
    assert predicted_s(listed[0], SIZE) == pytest.approx(SIZE * 4 / RATE, rel=0.08)


@pytest.mark.parametrize("known", [[0], [8], [0, 8], [1, 2], list(range(12))])
def test_whatever_limits_were_seen_there_are_candidates_to_tune(known):
    """Nodes and racks of which only some links, or one way of them, are known as limits."""
    model = cluster([0, 0, 1, 1, 2, 2, 3, 3], [[0, 1, 2, 3], [4, 5, 6, 7]])
    seen = tuple(replace(one, is_limit=number in known) for number, one in enumerate(model.shared))
    names = {one.algorithm for one in Arrangement.of(replace(model, shared=seen)).candidates()}
    assert "hierarchical" in names


def test_a_limit_seen_one_way_is_taken_for_both():
    graph = CapacityGraph(
        capacities={("a", "s"): 10, ("s", "a"): 99, ("b", "s"): 99, ("s", "b"): 99},
        compute=("a", "b"),
        unlimited=frozenset({("s", "a"), ("b", "s"), ("s", "b")}),
    )
    even = with_equal_ways(graph)
    assert even.capacities["s", "a"] == 10
    assert even.unlimited == {("b", "s"), ("s", "b")}


def test_twelve_nodes_in_racks_have_a_forest_that_spares_the_slow_one():
    model = cluster(list(range(12)), [list(range(6)), list(range(6, 12))])
    slow = 4  # its link bears half of what the others' do, out and in
    shared = tuple(
        replace(one, capacity_bytes_per_s=RATE / 2) if number in (2 * slow, 2 * slow + 1) else one
        for number, one in enumerate(model.shared)
    )
    model = replace(model, shared=shared)
    found = [one for one in Arrangement.of(model).candidates() if one.algorithm == "forest"]
    assert [one.params["pieces"] for one in found] == [1, 4, 16, 32]
    params = build("forest", found[0].params, 12).params
    sent = Counter[int]()
    ways_up = params.get("up", params["down"])
    for weight, down, up in zip(params["weights"], params["down"], ways_up, strict=True):
        for rank in range(12):
            sent[rank] += weight * (down.count(rank) + (up[rank] >= 0))
    s_per_byte = graph_allreduce_bound(graph_from_links(model)).s_per_byte
    limits = [RATE / 2 if rank == slow else RATE for rank in range(12)]
    for rank, limit in enumerate(limits):
        assert sent[rank] / sum(params["weights"]) / limit <= s_per_byte * 1.01


def test_a_cluster_too_large_for_a_forest_has_none():
    names = {one.algorithm for one in Arrangement.of(cluster(list(range(33)))).candidates()}
    assert "ring" in names
    assert "forest" not in names


def test_a_shortlist_has_the_best_of_each_algorithm_and_few_of_the_rest():
    candidates = [Candidate.of("ring", {"pieces": number}) for number in range(1, 101)]
    candidates += [Candidate("slow"), Candidate("unable")]
    times_s = {one: 1 + number / 100 for number, one in enumerate(candidates)}
    times_s |= {Candidate("slow"): 50.0, Candidate("unable"): math.inf}
    found = shortlist(reversed(candidates), lambda one, _size: 1e-3 * times_s[one], 8)
    assert found == (*candidates[: MOST_VARIANTS - 1], Candidate("slow"))
    found = shortlist(candidates, lambda one, _size: 1e-3 * times_s[one] ** 9, 8)
    assert found[-1] == Candidate("slow")
    assert times_s[found[-2]] ** 9 <= HOPELESS < times_s[candidates[len(found) - 1]] ** 9


def test_where_bytes_decide_only_what_is_predicted_close_to_the_best_is_tried():
    times_s = {Candidate(name): LONG_CALL_S * factor for name, factor in (("a", 1), ("b", 1.9), ("c", 2.1))}
    assert HOPELESS_BYTES == 2.0
    assert shortlist(times_s, lambda one, _size: times_s[one], 8) == (Candidate("a"), Candidate("b"))
    assert len(shortlist(times_s, lambda one, _size: 0.9 * times_s[one], 8)) == 3


def test_a_survey_stands_in_the_order_that_tuning_would_take():
    document, block = survey(SCATTERED, [SIZE]), survey(BLOCK, [SIZE])
    assert (document["rank_order"], block["rank_order"]) == ([0, 4, 1, 5, 2, 6, 3, 7], None)
    in_blocks = {
        str((one["algorithm"], one["params"])): one["time_s"] for one in block["sizes"][0]["predictions"]
    }
    for prediction in document["sizes"][0]["predictions"]:
        key = str((prediction["algorithm"], prediction["params"]))
        factor = 2 if prediction["algorithm"] == "default" else 1
        if prediction["algorithm"] != "native_allreduce":
            assert prediction["time_s"] == pytest.approx(factor * in_blocks[key], rel=0.01)


def test_a_label_of_many_ranks_is_short():
    def label(groups):
        return Candidate.of("hierarchical", {"groups": groups, "pieces": 2}).label

    assert label([[0, 1], [2, 3]]) == "hierarchical groups=0 1 | 2 3 pieces=2"
    assert label([[[0, 1], [2]], [[3]]]) == "hierarchical groups=0 1 | 2 || 3 pieces=2"
    pairs = [[rank, rank + 1] for rank in range(0, 64, 2)]
    assert label(pairs) == "hierarchical groups=32 groups of 2 pieces=2"
    assert label([pairs[:12], pairs[12:]]) == "hierarchical groups=2 groups of 12 to 20 of 2 pieces=2"


PLANNED_WITHIN_S = 20  # of processor time: what else runs on the machine does not count


def thousand_nodes():
    """8,192 ranks, dealt round 1,024 nodes in racks of 32."""
    num_nodes = 1024
    nodes = [rank % num_nodes for rank in range(8 * num_nodes)]
    model = cluster([0])
    racks = [frozenset(r for r, node in enumerate(nodes) if node // 32 == rack) for rack in range(32)]
    return LinkModel(
        num_ranks=len(nodes),
        classes=model.classes,
        class_names=model.class_names,
        pair_class=[bytes(len(nodes))] * len(nodes),
        node_of_rank=tuple(nodes),
        shared=tuple(
            SharedCapacity(
                name=f"uplink {number}",
                capacity_bytes_per_s=RATE,
                pairs=PairsAcross(rack, len(nodes), leaving=leaving),
                is_limit=True,
            )
            for number, rack in enumerate(racks)
            for leaving in (True, False)
        ),
    )


def test_planning_on_a_thousand_nodes_takes_seconds(tmp_path):
    """Order, placement, candidates, all their predictions, and the record of a run that tries the best."""
    began_s = time.process_time()
    arrangement = Arrangement.of(thousand_nodes())
    assert arrangement.rank_order is not None
    predicted_s = arrangement.predictor([1024, SIZE])
    listed = shortlist(arrangement.candidates(), predicted_s, SIZE)
    assert 1 < len(listed) < len(candidates(arrangement.placement, is_reordered=True))  # one takes no 8 MiB
    assert listed[0].algorithm == "native_hierarchical"
    assert predicted_s(Candidate("native_allreduce"), SIZE) < predicted_s(DEFAULT, SIZE)
    assert time.process_time() - began_s < PLANNED_WITHIN_S

    began_s = time.process_time()
    path, arms = tmp_path / "plan.journal.jsonl", [arm.to_json() for arm in (DEFAULT, *listed)]
    trial = {"kind": "search", "message_bytes": SIZE, "arms": arms}
    outcome = {"times_s": [[0.1] * len(arms)] * 3, "num_missed": 0}
    with Journal(path, {"hosts": [f"node{number:04}" for number in range(1024)]}) as journal:
        journal.note("arrangement", {"rank_order": arrangement.rank_order})
        for _ in range(100):
            journal.end(journal.begin(trial), outcome)
    journal, contents = Journal.resume(path)
    journal.close()
    assert contents == read_journal(path)
    assert contents.notes[0]["rank_order"] == list(arrangement.rank_order)
    assert [(one.trial, one.outcome) for one in contents.finished] == [(trial, outcome)] * 100
    assert time.process_time() - began_s < PLANNED_WITHIN_S
