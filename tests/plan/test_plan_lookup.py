from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_example import example
from plan_strategies import algorithms, tables

from topotune.plan import (
    FingerprintVerdict,
    GroupShape,
    compare_fingerprints,
    find_group,
    find_row,
    plan_from_document,
)

PLAN = plan_from_document(example(), "plan.json")


@pytest.mark.parametrize(
    ("message_bytes", "index"), [(0, 0), (1023, 0), (1024, 1), (1048575, 1), (1048576, 2), (2**60, 2)]
)
def test_ranges_are_half_open(message_bytes, index):
    rows = PLAN.groups[0].allreduce
    assert find_row(rows, message_bytes) is rows[index]


@given(rows=tables(algorithms(4)), message_bytes=st.integers(0, 2**60))
def test_every_size_has_the_row_whose_range_holds_it(rows, message_bytes):
    row = find_row(rows, message_bytes)
    assert row.min_bytes <= message_bytes
    assert row.max_bytes is None or message_bytes < row.max_bytes


def test_a_group_is_found_by_its_whole_shape():
    assert find_group(PLAN, PLAN.groups[1].shape) is PLAN.groups[1]
    assert find_group(PLAN, GroupShape(num_ranks=2, num_nodes=2, ranks_per_node=1, stride=2)) is None


def live(hard=None, soft=None):
    fingerprint = PLAN.fingerprint
    return replace(
        fingerprint,
        hard=replace(fingerprint.hard, **(hard or {})),
        soft=replace(fingerprint.soft, **(soft or {})),
    )


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (live(), FingerprintVerdict(hard=(), soft=())),
        (
            live(hard={"world_size": 8, "ranks_per_node": (4, 4)}),
            FingerprintVerdict(
                hard=(
                    "world size: 4 in the plan, 8 here",
                    "ranks per node: 2 on each of 2 nodes in the plan, 4 on each of 2 nodes here",
                ),
                soft=(),
            ),
        ),
        (
            live(hard={"backend": "nccl", "collective_library": "nccl 2.27"}),
            FingerprintVerdict(
                hard=(
                    "backend: gloo in the plan, nccl here",
                    "collective library: gloo (torch 2.13) in the plan, nccl 2.27 here",
                ),
                soft=(),
            ),
        ),
        (
            live(soft={"driver": "580.95", "torch": "2.13.1"}),
            FingerprintVerdict(
                hard=(),
                soft=(
                    "driver: unknown in the plan, 580.95 here",
                    "torch: 2.13.0+cpu in the plan, 2.13.1 here",
                ),
            ),
        ),
        (
            live(soft={"hosts": ("a", "b", "c", "d", "e")}),
            FingerprintVerdict(
                hard=(), soft=("hosts: a, b in the plan, a, b, c, d, … (5 in all) here",), same_hosts=False
            ),
        ),
    ],
    ids=["same", "world", "backend", "soft", "hosts"],
)
def test_differences_are_told_with_both_values(found, verdict):
    assert compare_fingerprints(PLAN.fingerprint, found) == verdict
