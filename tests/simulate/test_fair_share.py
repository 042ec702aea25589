import numpy as np
import pytest

from topotune.simulate.fair_share import finish_times


def times(flows, bandwidth, counts=None):
    """``flows``: (bytes, links) each."""
    rows = [(number, link) for number, (_, links) in enumerate(flows) for link in links]
    flow, link = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return finish_times(
        np.array([size for size, _ in flows], dtype=np.float64),
        np.array(counts or [1] * len(flows), dtype=np.int64),
        flow,
        link,
        np.ones(len(flow)),
        np.array(bandwidth, dtype=np.float64),
    ).tolist()


def test_a_flow_alone_has_its_narrowest_link():
    assert times([(12, [0, 1])], [3, 4]) == [4]


def test_flows_share_a_link_equally_and_take_over_what_one_leaves():
    # 1 byte/s each; when the short one has ended after 1 s, the other has both for its last byte.
    assert times([(1, [0]), (3, [0])], [2]) == pytest.approx([1, 2])


def test_a_flow_held_back_elsewhere_leaves_its_share_to_others():
    # Links of 1 and 10; the long way gets 0.5 of the first, the others the rest of theirs.
    assert times([(1, [0, 1]), (1, [0]), (19, [1])], [1, 10]) == pytest.approx([2, 2, 2])


def test_equal_flows_take_as_long_as_the_fullest_link():
    rng = np.random.default_rng(3)
    flows = [(1.0, rng.choice(12, size=3, replace=False).tolist()) for _ in range(80)]
    bandwidth = rng.uniform(1, 5, size=12)
    load = np.bincount([link for _, links in flows for link in links], minlength=12)
    assert max(times(flows, bandwidth)) == pytest.approx((load / bandwidth).max())


def test_counted_flows_are_as_many_alike():
    assert times([(1, [0]), (2, [0])], [6], counts=[4, 1]) == pytest.approx(
        times([(1, [0])] * 4 + [(2, [0])], [6])[-2:]
    )


def test_no_link_carries_more_than_it_can_and_time_is_never_too_short_with_many_different_flows():
    rng = np.random.default_rng(5)
    flows = [(float(size), [0]) for size in rng.uniform(1, 100, size=300)]
    ends = times(flows, [2.0])
    assert max(ends) >= sum(size for size, _ in flows) / 2 * (1 - 1e-9)


def test_what_no_link_limits_takes_no_time():
    assert times([(5, [0])], [np.inf]) == [0]
