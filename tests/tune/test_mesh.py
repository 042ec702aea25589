import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from topotune.errors import UsageError
from topotune.tune.mesh import GroupSet, check_syntax, read_groups


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_a_mesh_has_the_groups_of_torchs_device_mesh(sizes):
    num_ranks = int(np.prod(sizes))
    text = ",".join(f"d{axis}={size}" for axis, size in enumerate(sizes))
    mesh = torch.arange(num_ranks).reshape(sizes)
    wanted = tuple(
        GroupSet(name=f"d{axis}", groups=tuple(map(tuple, mesh.movedim(axis, -1).reshape(-1, size).tolist())))
        for axis, size in enumerate(sizes)
        if size > 1
    )
    assert read_groups(text, num_ranks) == wanted


def test_ranks_are_ranges_and_lists_and_sets_are_parted():
    first, second = read_groups("0-3;4-7/0,4;5,1;2,6;3,7", 8)
    assert first == GroupSet(name="ranks 0, 1, 2, 3", groups=((0, 1, 2, 3), (4, 5, 6, 7)))
    assert second == GroupSet(name="ranks 0, 4", groups=((0, 4), (1, 5), (2, 6), (3, 7)))
    assert second.group_of(5) == (1, 5)
    assert read_groups("0;1;2", 3) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp=2,tp=2", "--groups dp=2,tp=2: a mesh of 4 ranks, but there are 8"),
        ("0-3;4-6", "--groups '0-3;4-6': rank 7 is in no group"),
        ("0-3;3-7", "--groups '0-3;3-7': rank 3 stands there twice"),
        ("0-3;4-8", "--groups '0-3;4-8': there is no rank 8 among 8"),
        ("0-2;3-7", "--groups '0-2;3-7': groups of 3 and of 5 ranks do not exchange alike"),
    ],
)
def test_groups_of_other_ranks_are_refused(text, message):
    check_syntax(text)
    with pytest.raises(UsageError) as refused:
        read_groups(text, 8)
    assert refused.value.message == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp=2,dp=4", "--groups 'dp=2,dp=4': 'dp=4' is no new dimension"),
        ("dp=0", "--groups 'dp=0': 'dp=0' is no new dimension"),
        ("dp=x", "--groups 'dp=x': 'dp=x' is no new dimension"),
        (",".join(f"a{n}=1" for n in range(9)), "--groups has 9 dimensions, more than 8"),
        ("", "--groups: '' is no rank and no range of ranks"),
        ("0-3;-1", "--groups: '-1' is no rank and no range of ranks"),
        ("3-0", "--groups: '3-0' is no rank and no range of ranks"),
        ("0-9999999", "--groups: '0-9999999' is no rank and no range of ranks"),
    ],
)
def test_what_says_no_groups_is_refused_before_anything_starts(text, message):
    with pytest.raises(UsageError) as refused:
        check_syntax(text)
    assert refused.value.message == message
