from topotune.links.joined_stamps import join_exchanges, join_ping_pongs
from topotune.links.timing import node_names
from topotune.links.timing_plan import ExchangeGroup, TimingPlan

PLAN = TimingPlan(
    groups=(),
    slice_s=0.0,
    exchange_bytes=(64,),
    exchanges=(ExchangeGroup(pairs=((0, 1), (2, 3)), slice_s=0.0),),
    ping_pong_s=0.0,
)


def leader(stamps_s, num_warmups, error_s=0.0):
    return {
        "pair": [0, 1],
        "size": 64,
        "stamps_s": stamps_s,
        "num_warmups": num_warmups,
        "num_concurrent": 1,
        "clock_error_s": error_s,
    }


def test_each_direction_gets_its_own_times_and_both_the_half_round_trip():
    reports = [
        [leader([(10.0, 10.9), (11.0, 11.4)], 1, 0.01), leader([(20.0, 20.5), (21.0, 21.6)], 1, 0.02)],
        [leader([(10.6,), (11.1,)], 0, 0.03), leader([(20.2,), (21.4,)], 0, 0.001)],
    ]
    there, back = join_ping_pongs(reports)
    assert (there.src, there.dst, back.src, back.dst) == (0, 1, 1, 0)
    assert there.one_way_s == (0.1, 0.4)
    assert back.one_way_s == (0.3, 0.2)
    assert there.half_round_trip_s == back.half_round_trip_s == (0.2, 0.3)
    assert there.warmup_s == (0.6, 0.2)
    assert back.warmup_s == (0.3, 0.3)
    assert there.clock_error_s == 0.04  # the worse sweep's, of both clocks together


def exchanges(led, stamps_s):
    return [{"group": 0, "size": 64, "led": led, "stamps_s": stamps_s}]


def test_only_exchanges_during_which_all_pairs_were_at_it_count():
    slow = [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]
    fast = [(0.5, 0.7), (0.7, 1.1), (1.1, 1.5), (1.5, 2.5)]
    reports = [exchanges([1], slow), exchanges([], slow), exchanges([3], fast), exchanges([], fast)]
    first, second = join_exchanges(reports, PLAN)
    assert (first.a, first.b, first.num_concurrent) == (0, 1, 2)
    assert first.samples_s == (1.0,)  # from 1 to 2: before it the others began, after it they ended
    assert second.samples_s == (0.4, 0.4, 1.0)


def test_nodes_of_one_host_name_are_told_apart():
    assert node_names([0, 0, 1, 2], ["vm", "vm", "vm", "db"]) == ("vm", "vm#2", "db")
