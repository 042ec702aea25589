"""Which of NCCL's settings are tried where, what makes NCCL use them, and what its log proves."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topotune.errors import UsageError
from topotune.plan import check_params
from topotune.plan.nccl import NCCL_ALGOS, NCCL_PROTOS
from topotune.tune.nccl_log import Ran, ll128_allowed, parse_log
from topotune.tune.nccl_settings import (
    NcclPlace,
    NcclSetting,
    environment_of,
    not_as_set,
    setting_problem,
    settings_for,
    why_no_settings,
)

H100 = NcclPlace(
    version=(2, 27), num_nodes=1, ranks_per_node=8, capability=(9, 0), has_nvswitch=True, is_efa=None
)
PLACES = st.builds(
    NcclPlace,
    version=st.tuples(st.just(2), st.integers(18, 40)),
    num_nodes=st.integers(1, 64),
    ranks_per_node=st.integers(1, 16),
    capability=st.sampled_from([(7, 0), (8, 0), (9, 0), (10, 0)]),
    has_nvswitch=st.booleans(),
    is_efa=st.sampled_from([True, False, None]),
    ll128=st.sampled_from([(), ("ring",), ("tree", "ring"), NCCL_ALGOS]),
)
SETTINGS = st.builds(
    NcclSetting,
    algo=st.sampled_from(NCCL_ALGOS),
    proto=st.sampled_from(NCCL_PROTOS),
    channels=st.none() | st.integers(-1, 100),
)


def test_on_one_node_of_a_switched_machine_rings_trees_and_nvls_are_tried():
    found = settings_for(H100)
    assert {(each.algo, each.proto) for each in found} == {
        ("ring", "ll"),
        ("ring", "simple"),
        ("tree", "ll"),
        ("tree", "simple"),
        ("nvls", "simple"),
    }
    assert {each.channels for each in found if (each.algo, each.proto) == ("ring", "simple")} == {
        None,
        2,
        8,
        32,
    }


def is_safe(variables, setting, place):
    """By the rules of the page, told once more: EFA, and what NCCL's own check allows."""
    if "LL128" in variables["NCCL_PROTO"] and (place.is_efa or setting.algo not in place.ll128):
        return False
    return place.num_nodes == 1 or place.is_efa is False


@given(place=PLACES)
def test_no_setting_that_is_tried_is_dangerous_and_each_is_a_row_of_plans(place):
    for setting in settings_for(place):
        variables = environment_of(setting, place)
        assert set(variables) == {"NCCL_ALGO", "NCCL_PROTO"}
        assert is_safe(variables, setting, place)
        assert "^" not in "".join(variables.values())
        candidate = setting.candidate
        num_ranks = place.num_nodes * place.ranks_per_node
        assert check_params(candidate.algorithm, candidate.params, num_ranks) is None
        assert NcclSetting.of(candidate) == setting


@given(place=PLACES, setting=SETTINGS)
def test_a_setting_is_refused_in_words_or_becomes_variables_without_danger(place, setting):
    if setting_problem(setting, place) is not None:
        with pytest.raises(UsageError, match=f"nccl {setting.algo} {setting.proto}: "):
            environment_of(setting, place)
        return
    assert is_safe(environment_of(setting, place), setting, place)


@pytest.mark.parametrize("is_efa", [True, None])
def test_nothing_is_told_to_nccl_between_nodes_where_the_network_is_efa_or_not_known(is_efa):
    place = replace(H100, num_nodes=2, is_efa=is_efa)
    assert settings_for(place) == []
    assert "can corrupt data silently" in why_no_settings(place)
    with pytest.raises(UsageError, match="a check that AWS EFA needs"):
        environment_of(NcclSetting(algo="ring", proto="simple"), place)


def test_ll128_is_tried_where_nccls_own_check_allows_it_and_nowhere_else():
    ll128 = {"ring": NcclSetting(algo="ring", proto="ll128"), "tree": NcclSetting(algo="tree", proto="ll128")}
    for setting in ll128.values():
        with pytest.raises(UsageError, match="NCCL's own table does not allow it here"):
            environment_of(setting, H100)
    allowed = replace(H100, ll128=("ring",))
    assert ll128["ring"] in settings_for(allowed)
    assert ll128["tree"] not in settings_for(allowed)
    assert environment_of(ll128["ring"], allowed) == {
        "NCCL_ALGO": "allreduce:Ring",
        "NCCL_PROTO": "allreduce:LL128",
    }


@pytest.mark.parametrize("num_nodes", [1, 2])
def test_ll128_is_never_set_on_efa_whatever_the_table_says(num_nodes):
    place = replace(H100, num_nodes=num_nodes, is_efa=True, ll128=("tree", "ring"))
    assert not any(setting.proto == "ll128" for setting in settings_for(place))
    with pytest.raises(UsageError, match="AWS EFA"):
        environment_of(NcclSetting(algo="ring", proto="ll128"), place)


def test_from_2_24_on_lists_go_by_collective_so_that_others_keep_ring():
    tree = NcclSetting(algo="tree", proto="simple", channels=8)
    assert environment_of(tree, H100) == {"NCCL_ALGO": "allreduce:Tree", "NCCL_PROTO": "allreduce:Simple"}
    older = replace(H100, version=(2, 23))
    assert environment_of(tree, older) == {"NCCL_ALGO": "Tree", "NCCL_PROTO": "Simple"}


def test_older_cards_and_machines_without_nvswitch_have_no_nvls():
    for place in (replace(H100, capability=(8, 0)), replace(H100, has_nvswitch=False)):
        assert not any(each.algo.startswith("nvls") for each in settings_for(place))
    two_nodes = replace(H100, num_nodes=2, is_efa=False)
    assert {each.algo for each in settings_for(two_nodes)} == {"ring", "tree", "nvls_tree"}


def test_one_rank_has_nothing_to_try_and_says_so():
    place = replace(H100, ranks_per_node=1)
    assert settings_for(place) == []
    assert why_no_settings(place) == "a single rank exchanges nothing"
    assert why_no_settings(H100) is None


def test_an_nccl_that_nobody_has_looked_at_is_refused():
    with pytest.raises(UsageError, match=r"NCCL 2\.17: its settings are known from 2\.18 on"):
        settings_for(replace(H100, version=(2, 17)))


LOG = """\
host:1:2 [0] NCCL INFO AllReduce: 8388608 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}
host:1:2 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..0}
host:1:2 [0] NCCL INFO Broadcast: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
host:1:2 [0] NCCL INFO AllReduce: 1 Bytes -> Algo NEWTON proto SIMPLE channel{Lo..Hi}={0..0}
host:1:2 [0] NCCL INFO 1024 Bytes -> Algo 0 proto 1 time 12.345
nonsense
"""


def test_the_log_of_both_kinds_is_read():
    assert parse_log(LOG) == [
        Ran(message_bytes=8388608, algo="ring", proto="simple", channels=16),
        Ran(message_bytes=4096, algo="nvls_tree", proto="simple", channels=1),
        Ran(message_bytes=1024, algo="tree", proto="ll128", channels=None),
    ]


def table(**ll128_gb_per_s):
    """What NCCL prints of its model, three algorithms to a block: this for LL128, 9.9 for others."""
    blocks = [("Tree", "Ring", "CollNetDirect"), ("CollNetChain", "NVLS", "NVLSTree"), ("PAT",)]
    lines = []
    for block in blocks:
        lines.append("  Algorithm   |" + "".join(f" {'':14}   {algo:>14}   {'':14} |" for algo in block))
        lines.append("  Protocol    |" + "".join(f" {name:>14} |" for name in ("LL", "LL128", "Simple") * 3))
        for collective in ("Broadcast", "AllReduce"):
            rates = [ll128_gb_per_s.get(algo, 0.0) if collective == "AllReduce" else 9.9 for algo in block]
            cells = [f"{8.4:8.1f}/{rate:6.1f} |" for ll128 in rates for rate in (9.9, ll128, 9.9)]
            lines.append(f"{collective:>13} |" + "".join(cells))
    return "".join(f"host:1:2 [0] NCCL INFO {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (table(Tree=20.1, Ring=36.7), ("tree", "ring")),
        (table(Ring=36.7), ("ring",)),
        (table(Ring=36.7, NVLSTree=1.0), ("ring", "nvls_tree")),
        (table(), ()),
        (table(Tree=20.1, Ring=36.7) + table(Ring=36.7), ("ring",)),
        ("host:1:2 [0] NCCL INFO NCCL_PROTO set by environment to LL128\n" + table(Ring=36.7), ()),
        (table().replace("AllReduce |     8.4/   9.9 |", "AllReduce |"), ()),
        (table(Ring=36.7).replace("/  36.7 |", "|"), ()),
        (table(Ring=36.7).replace("/  36.7 |", "/     ? |"), ()),
        (table(Ring=36.7).replace("Algorithm", "Algorithms"), ()),
        (LOG, ()),
        ("", ()),
    ],
    ids=[
        "both",
        "rings",
        "any name",
        "none",
        "of two tables",
        "set",
        "fewer cells",
        "no bandwidth",
        "no number",
        "other heads",
        "calls",
        "empty",
    ],
)
def test_where_ll128_is_allowed_is_read_from_nccls_own_table(text, allowed):
    assert ll128_allowed(text) == allowed


@given(text=st.text(max_size=200))
def test_no_log_is_too_odd_to_read(text):
    parse_log(text)
    ll128_allowed(text)
    ll128_allowed(table(Ring=1.0).replace("9.9", text))


@pytest.mark.parametrize(
    ("setting", "size", "said"),
    [
        (NcclSetting(algo="ring", proto="simple"), 8388608, None),
        (NcclSetting(algo="ring", proto="simple", channels=16), 8388608, None),
        (
            NcclSetting(algo="ring", proto="simple", channels=8),
            8388608,
            "NCCL ran it on 16 channels, not on 8",
        ),
        (NcclSetting(algo="tree", proto="simple"), 8388608, "NCCL ran ring simple in its place"),
        (NcclSetting(algo="tree", proto="simple"), 5, "NCCL's log does not say what it ran"),
    ],
)
def test_a_setting_that_the_log_does_not_confirm_was_not_measured(setting, size, said):
    assert not_as_set(setting, parse_log(LOG), size) == said
