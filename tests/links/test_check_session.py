"""`check` on ranks: every node looks at itself, rank 0 has what was found."""

import pytest
from gloo_world import run_world


def checked(rank, num_ranks, _store, payload):
    from topotune.links.check_session import check_worker

    shares = []
    return check_worker(payload, shares.append), shares


@pytest.mark.gloo
def test_without_measuring_rank_0_has_what_the_nodes_saw_and_nothing_was_timed():
    (document, shares), others = run_world(2, checked, {"profile": None, "measure": False})
    assert others == (None, [])
    assert shares == []
    assert document["schema"] == "topotune/check"
    assert document["num_ranks"] is None
    assert len(document["node_names"]) == 1


@pytest.mark.gloo
def test_with_measuring_the_links_findings_stand_beside_them():
    payload = {"profile": None, "measure": True, "budget_s": 0.5, "seed": 0}
    (document, shares), others = run_world(2, checked, payload)
    assert others[0] is None
    assert document["num_ranks"] == 2
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
