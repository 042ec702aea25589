"""Which interface follows from who reached whom, and how fast."""

import pytest

from topotune.errors import RunError
from topotune.interfaces.choice import (
    Attempt,
    Candidate,
    Choice,
    Node,
    choose,
    common_interface,
    contenders,
    describe,
    peers,
    senders,
)

GBIT = 1e9 / 8


def candidate(name: str, host: int, **known) -> Candidate:
    networks = {"eth0": 1, "eth1": 2, "ib0": 3, "docker0": 17, "br0": 4}
    address = "172.17.0.1" if name == "docker0" else f"10.{networks[name]}.0.{host}"
    return Candidate(name=name, address=address, **known)


def cluster(*interfaces: str, **known) -> tuple[Node, ...]:
    """A node for each word of names with blanks between them: a, b, c, …"""
    return tuple(
        Node(
            name="abcdefghij"[index],
            candidates=tuple(candidate(name, index + 1) for name in names.split()),
            **known,
        )
        for index, names in enumerate(interfaces)
    )


def attempts(nodes, *unreached: str, problem: str = "no answer within 3 s"):
    """All that `peers` has tried; what is named as ``source>target:interface`` failed (``*``: any source)."""
    failed = set(unreached)
    found = []
    for source, targets in enumerate(peers(nodes)):
        for target in targets:
            for number, each in enumerate(nodes[target].candidates):
                names = {
                    f"{who}>{whom}:{each.name}"
                    for who in (nodes[source].name, "*")
                    for whom in (nodes[target].name, "*")
                }
                found.append(
                    Attempt(
                        source=source,
                        target=target,
                        candidate=number,
                        problem=problem if names & failed else None,
                    )
                )
    return found


def names_of(nodes, contending):
    return [[nodes[i].candidates[number].name for number in each] for i, each in enumerate(contending)]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_few_nodes_all_try_each_other(count):
    assert [sorted(each) for each in peers(cluster(*["eth0"] * count))] == [
        [other for other in range(count) if other != index] for index in range(count)
    ]


def test_of_many_nodes_each_tries_and_is_tried_by_a_constant_number():
    nodes = cluster("eth0", "eth0")[:1] * 1000
    tries = peers(nodes)
    assert {len(each) for each in tries} == {3}
    tried = [target for each in tries for target in each]
    assert {tried.count(index) for index in (0, 1, 499, 999)} == {3}
    assert all(index not in each for index, each in enumerate(tries))


def test_a_node_unlike_most_tries_one_of_those_that_most_are_like():
    usual, odd = cluster("eth0 eth1", "eth0")
    nodes = [usual] * 10 + [odd] * 10 + [usual] * 480
    tries = peers(nodes)
    assert all(any(nodes[target] is usual for target in tries[index]) for index in range(10, 20))
    assert {len(tries[index]) for index in range(10)} == {3}
    tried = [target for each in tries for target in each]
    assert max(tried.count(index) for index in range(500)) <= 4


def test_one_node_has_nobody_to_try():
    assert peers(cluster("eth0")) == ((),)


@pytest.mark.parametrize(
    ("interfaces", "unreached", "expected"),
    [
        (["eth0", "eth0"], [], [["eth0"], ["eth0"]]),
        (["docker0 eth0", "docker0 eth0"], ["*>*:docker0"], [["eth0"], ["eth0"]]),
        (["eth0 eth1", "eth0 eth1"], [], [["eth0", "eth1"], ["eth0", "eth1"]]),
        (["eth0 eth1"] * 3, ["c>a:eth1"], [["eth0"], ["eth0", "eth1"], ["eth0", "eth1"]]),
        (["br0", "eth0 br0"], ["*>b:eth0"], [["br0"], ["br0"]]),
    ],
    ids=[
        "one each",
        "docker0 leads nowhere",
        "two that serve",
        "reached by some only",
        "a bridge may be the only way",
    ],
)  # fmt: skip
def test_what_everyone_who_tried_reached_contends(interfaces, unreached, expected):
    nodes = cluster(*interfaces)
    assert names_of(nodes, contenders(nodes, attempts(nodes, *unreached))) == expected


def test_what_one_node_reaches_nowhere_though_others_do_is_no_choice_for_any():
    nodes = cluster(*["eth0 eth1"] * 9, "eth0")
    # j has no eth1, and tries some whose eth1 others reach; a's, which j did not try, is no better.
    found = names_of(nodes, contenders(nodes, attempts(nodes, "j>*:eth1")))
    assert found == [["eth0"]] * 10


def test_an_interface_that_is_broken_on_one_node_is_still_a_choice_for_others():
    nodes = cluster(*["eth0 eth1"] * 8)
    found = names_of(nodes, contenders(nodes, attempts(nodes, "*>c:eth1")))
    assert found == [["eth0", "eth1"]] * 2 + [["eth0"]] + [["eth0", "eth1"]] * 5


@pytest.mark.parametrize(
    ("nodes", "unreached", "message"),
    [
        (
            cluster("eth0", "docker0 eth0"), ["*>b:*"],
            "node b is not reached from a: tried docker0 of b at 172.17.0.1 (no answer within 3 s),"
            " eth0 of b at 10.1.0.2 (no answer within 3 s)",
        ),
        (
            cluster("eth0", "eth0", "eth0"), ["c>b:eth0"],
            "node b is not reached from c: tried eth0 of b at 10.1.0.2 (no answer within 3 s)",
        ),
        (
            cluster("eth0", "eth0"), ["*>*:eth0"],
            "nodes a and b are not reached from other nodes: tried eth0 of a at 10.1.0.1"
            " (no answer within 3 s), eth0 of b at 10.1.0.2 (no answer within 3 s)",
        ),
        (
            cluster("eth0", "eth0", "eth0", "eth0"), ["c>*:eth0"],
            "node c reaches no other node: tried eth0 of d at 10.1.0.4 (no answer within 3 s),"
            " eth0 of a at 10.1.0.1 (no answer within 3 s), eth0 of b at 10.1.0.2 (no answer within 3 s)",
        ),
        (
            cluster("eth0", "", ""), [],
            "nodes b and c: no network interface that is up has an address for other nodes",
        ),
        (
            cluster("eth0 eth1", "eth0 eth1", forced_by="--interface"), ["*>b:eth1"],
            "node b is not reached from a: tried eth1 of b at 10.2.0.2, forced by --interface"
            " (no answer within 3 s)",
        ),
    ],
    ids=["nobody", "not everybody", "nobody anybody", "the one that reaches nobody", "no address", "forced"],
)  # fmt: skip
def test_a_node_that_is_not_reached_is_named_with_what_was_tried(nodes, unreached, message):
    tried = attempts(nodes, *(name.replace(":*", f":{each.name}") for name in unreached
                              for each in nodes[1].candidates or nodes[0].candidates))  # fmt: skip
    with pytest.raises(RunError) as caught:
        contenders(nodes, tried)
    assert caught.value.message == message


def test_many_nodes_that_are_not_reached_make_no_long_message():
    nodes = cluster("eth0")[:1] * 300
    with pytest.raises(RunError) as caught:
        contenders(nodes, attempts(nodes, "*>*:eth0"))
    assert len(caught.value.message) < 700


def test_what_is_forced_contends_whole():
    nodes = cluster("eth0 eth1", "eth0 eth1", forced_by="--interface")
    assert contenders(nodes, attempts(nodes)) == ((0, 1), (0, 1))


def test_each_node_with_a_choice_is_sent_to_by_another_its_predecessor_first():
    nodes = cluster(*["eth0 eth1"] * 4)
    tried = attempts(nodes)
    assert senders(nodes, contenders(nodes, tried), tried) == {0: 3, 1: 0, 2: 1, 3: 2}


def test_nodes_without_a_choice_are_sent_nothing():
    nodes = cluster("eth0", "eth0 docker0", "eth0 eth1")
    tried = attempts(nodes, "*>*:docker0")
    assert senders(nodes, contenders(nodes, tried), tried) == {2: 1}
    forced = cluster("eth0 eth1", "eth0 eth1", forced_by="--interface")
    assert senders(forced, contenders(forced, attempts(forced)), attempts(forced)) == {}


def node(*candidates: Candidate, routed: str | None = None) -> Node:
    return Node(name="a", candidates=candidates, routed=routed)


def eth(number: int, gbit: float | None = None, software: str | None = None) -> Candidate:
    speed = None if gbit is None else gbit * 1e9
    return candidate(f"eth{number}", 1, speed_bits_per_s=speed, software=software)


@pytest.mark.parametrize(
    ("the_node", "gbit_per_s", "expected", "why"),
    [
        (node(eth(0), eth(1), routed="eth0"), (0.94, 9.4), "eth1", "the fastest"),
        (node(eth(0, 100), eth(1, 1), routed="eth0"), (0.5, 0.94), "eth1", "the fastest"),
        (node(eth(0), eth(1), routed="eth1"), (9.4, 9.1), "eth1", "none is faster"),
        (node(eth(0), eth(1), routed="ib0"), (9.1, 9.4), "eth0", "none is faster"),
        (node(eth(0, 100), eth(1, 200), routed="eth0"), (24, 23), "eth1", "none is faster"),
        (node(eth(0, 100), eth(1), routed="eth0"), (24, 23), "eth0", "none is faster"),
        (node(eth(0, software="bridge"), eth(1), routed="eth0"), (24, 23), "eth1", "none is faster"),
        (node(eth(0, software="bond"), eth(1), routed="eth0"), (24, 23), "eth0", "none is faster"),
        (node(eth(0, software="bridge"), eth(1), routed="eth0"), (24, 9), "eth0", "the fastest"),
        (node(eth(0), eth(1), routed="eth1"), (9.4, None), "eth0", "the fastest"),
        (node(eth(0), eth(1), routed="eth1"), (None, None), "eth1", "none is faster"),
    ],
    ids=[
        "the management port is slower",
        "a line rate is only a claim",
        "equal: the way to rank 0",
        "equal: the first",
        "equal: the higher line rate",
        "equal: one line rate is not known",
        "equal: hardware before a bridge",
        "equal: a bond counts as hardware",
        "a bridge that is faster",
        "one broke off",
        "all broke off",
    ],
)
def test_the_fastest_is_taken_and_of_equals_the_plainest(the_node, gbit_per_s, expected, why):
    rates = {(0, number): rate * GBIT for number, rate in enumerate(gbit_per_s) if rate is not None}
    (choice,) = choose([the_node], [(0, 1)], rates)
    assert (choice.names, choice.why) == ((expected,), why)
    assert set(choice.rates) == {"eth0", "eth1"}


def test_a_forced_choice_and_the_only_one_need_no_rates():
    nodes = cluster("eth0 eth1", forced_by="GLOO_SOCKET_IFNAME")
    assert choose(nodes, [(0, 1)], {}) == (
        Choice(names=("eth0", "eth1"), why="forced by GLOO_SOCKET_IFNAME", rates={}, unreached=()),
    )
    nodes = cluster("docker0 eth0")
    assert choose(nodes, [(1,)], {}) == (
        Choice(names=("eth0",), why="the only one that others reach", rates={}, unreached=("docker0",)),
    )


def test_equal_choices_make_one_line():
    nodes = cluster("eth0 eth1", "eth0 eth1 docker0", "eth0")
    rates = {(0, 0): 0.1 * GBIT, (0, 1): GBIT, (1, 0): 0.2 * GBIT, (1, 1): 0.9 * GBIT}
    choices = choose(nodes, [(0, 1), (0, 1), (0,)], rates)
    assert describe(nodes, choices) == (
        "eth1 on a and b (the fastest; eth0 150 Mbit/s, eth1 950 Mbit/s; docker0 not reached)",
        "eth0 on c (the only one)",
    )
    assert common_interface(choices) is None


def test_many_nodes_make_a_short_line():
    nodes = cluster(*["eth0"] * 10)
    choices = choose(nodes, [(0,)] * 10, {})
    assert describe(nodes, choices) == ("eth0 on a, b, c, d, e, f, g, h and 2 more (the only one)",)
    assert common_interface(choices) == "eth0"


def test_what_all_share_may_be_several_interfaces():
    nodes = cluster("eth0 eth1", "eth0 eth1", forced_by="--interface")
    assert common_interface(choose(nodes, [(0, 1), (0, 1)], {})) == "eth0,eth1"
