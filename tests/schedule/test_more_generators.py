import numpy as np
import pytest

from topotune.errors import UsageError
from topotune.schedule.interpret import interpret
from topotune.schedule.negabinary import bine, negabinary_partners, swing
from topotune.schedule.parameter_server import parameter_server
from topotune.schedule.torus import torus
from topotune.schedule.verify import verify

SIZES = [1, 2, 3, 4, 6, 7, 8, 12, 16, 31, 32]


def check(schedule):
    assert not verify(schedule)
    rng = np.random.default_rng(0)
    inputs = rng.integers(-50, 50, size=(schedule.num_ranks, 37))
    assert (interpret(schedule, inputs) == inputs.sum(axis=0)).all()


@pytest.mark.parametrize("generator", [swing, bine, parameter_server])
@pytest.mark.parametrize("num_ranks", SIZES)
def test_it_is_an_allreduce_for_any_number_of_ranks(generator, num_ranks):
    check(generator(num_ranks))


@pytest.mark.parametrize(
    ("num_ranks", "rows"), [(1, 1), (4, 2), (6, 2), (6, 3), (12, 3), (16, 4), (8, 1), (8, 8)]
)
def test_a_torus_of_any_shape_is_an_allreduce(num_ranks, rows):
    check(torus(num_ranks, rows=rows))


@pytest.mark.parametrize("servers", [[0], [2, 5], [6, 0, 3]])
def test_dedicated_servers_own_all_shares(servers):
    schedule = parameter_server(7, servers=servers)
    check(schedule)
    assert set(schedule.src[schedule.op == 0].tolist()) == set(servers)


def bytes_sent(schedule):
    """Share of the message that each rank sends."""
    return np.bincount(
        schedule.src, weights=schedule.chunk_fractions()[schedule.chunk], minlength=schedule.num_ranks
    )


@pytest.mark.parametrize(
    "schedule", [swing(16), torus(16, rows=4), parameter_server(16)], ids=["swing", "torus", "server"]
)
def test_every_rank_sends_what_a_ring_would(schedule):
    assert bytes_sent(schedule) == pytest.approx(2 * 15 / 16)


def test_partners_meet_each_other_and_swing_around_each_rank():
    levels = negabinary_partners(16)
    ranks = np.arange(16)
    for partner in levels:
        assert (partner[partner] == ranks).all()
    distances = [min((partner[0] - 0) % 16, (0 - partner[0]) % 16) for partner in levels]
    assert distances == [1, 1, 3, 5]


def crossing(schedule, size):
    """Share of the message over the boundary of consecutive groups of ranks, all together."""
    crosses = schedule.src // size != schedule.dst // size
    return schedule.chunk_fractions()[schedule.chunk[crosses]].sum()


def test_bine_sends_less_across_groups_than_recursive_doubling():
    from topotune.schedule.doubling import recursive_doubling

    for group in (3, 5, 6):
        assert crossing(bine(32), group) < crossing(recursive_doubling(32), group)


def test_a_torus_takes_rows_and_columns_steps_and_no_product():
    assert torus(16, rows=4).step.max() + 1 == 2 * (3 + 3)


def test_servers_are_not_sent_to_by_all_at_once():
    schedule = parameter_server(8)
    up = schedule.op == 1
    for step in set(schedule.step[up].tolist()):
        now = up & (schedule.step == step)
        assert len(set(schedule.src[now].tolist())) == 8, "each rank sends to another server"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: torus(8, rows=3), "3 rows do not divide 8 ranks"),
        (lambda: torus(8, rows=0), "rows is 0"),
        (lambda: parameter_server(4, servers=[4]), r"servers \[4\] are not among ranks 0 to 3"),
        (lambda: parameter_server(4, servers=[1, 1]), "name a rank twice"),
        (lambda: parameter_server(4, servers=[]), "servers"),
        (lambda: swing(0), "num_ranks is 0"),
        (lambda: bine(5000), "num_ranks is 5000"),
    ],
)
def test_what_cannot_be_is_refused_with_its_value(call, says):
    with pytest.raises(UsageError, match=says):
        call()
