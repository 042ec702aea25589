import pytest
from hypothesis import given
from hypothesis import strategies as st

from topotune.bounds.maxflow import _by_dinic, _by_scipy, min_cut


@st.composite
def flow_problems(draw):
    num_vertices = draw(st.integers(2, 8))
    vertices = st.integers(0, num_vertices - 1)
    arcs = draw(
        st.dictionaries(
            st.tuples(vertices, vertices).filter(lambda arc: arc[0] != arc[1]), st.integers(1, 50), min_size=1
        )
    )
    source = draw(vertices)
    sink = draw(vertices.filter(lambda vertex: vertex != source))
    return num_vertices, arcs, source, sink


@given(flow_problems())
def test_both_solvers_agree_and_their_cut_has_the_value(problem):
    _, arcs, source, sink = problem
    value, side = _by_dinic(*problem)
    assert value == _by_scipy(*problem)[0]
    for found in (side, _by_scipy(*problem)[1]):
        assert source in found
        assert sink not in found
        assert value == sum(c for (a, b), c in arcs.items() if a in found and b not in found)


@pytest.mark.parametrize("factor", [1, 10**12, 2**40 + 1])
def test_capacities_of_any_size_scale_the_cut(factor):
    arcs = {(0, 1): 3 * factor, (1, 2): 2 * factor, (0, 2): factor}
    assert min_cut(3, arcs, 0, 2) == (3 * factor, frozenset({0, 1}))


def test_large_coprime_capacities_are_exact():
    big, other = 2**61 - 1, 2**59 - 55
    assert (
        min_cut(4, {(0, 1): big, (0, 2): other, (1, 3): big - 2, (2, 3): other}, 0, 3)[0] == big - 2 + other
    )
