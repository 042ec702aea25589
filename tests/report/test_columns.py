import pytest
from hypothesis import given
from hypothesis import strategies as st

from topotune.report.columns import align, shown_on

HEADER = ["links", "latency", "bandwidth", "fit error"]
ROWS = [["within a node", "70.8 µs", "2.6 GB/s", "16 %"], ["between nodes", "1 ms", "25 MB/s", "3 %"]]


def test_columns_stand_under_their_header():
    assert align(HEADER, ROWS).splitlines() == [
        "  links          latency  bandwidth  fit error",
        "  within a node  70.8 µs   2.6 GB/s       16 %",
        "  between nodes     1 ms    25 MB/s        3 %",
    ]


def test_columns_that_a_terminal_has_no_room_for_stand_below():
    with shown_on(40):
        assert align(HEADER, ROWS).splitlines() == [
            "  links          latency  bandwidth",
            "  within a node  70.8 µs   2.6 GB/s",
            "  between nodes     1 ms    25 MB/s",
            "  links          fit error",
            "  within a node       16 %",
            "  between nodes        3 %",
        ]
    assert len(align(HEADER, ROWS).splitlines()) == 3


def test_a_text_that_alone_is_too_wide_is_folded():
    with shown_on(30):
        assert align(
            ["target", ""], [["torch", "arguments of DDP and of init"]], left=(0, 1)
        ).splitlines() == [
            "  target",
            "  torch   arguments of DDP and",
            "          of init",
        ]


def test_a_first_column_that_leaves_no_room_is_folded_too():
    with shown_on(34):
        assert align(
            ["algorithm", "predicted"], [["hierarchical, across ring, pieces 4", "258 ms"]]
        ).splitlines() == [
            "  algorithm              predicted",
            "  hierarchical, across      258 ms",
            "  ring, pieces 4",
        ]


@given(
    columns=st.integers(30, 120),
    rows=st.lists(st.lists(st.integers(0, 10**13).map(str), min_size=6, max_size=6), min_size=1, max_size=4),
)
def test_no_line_is_wider_than_the_terminal_and_no_cell_is_lost(columns, rows):
    with shown_on(columns):
        text = align(list("uvwxyz"), rows)
    assert all(len(line) <= columns for line in text.splitlines())
    assert set(text.split()) == {*"uvwxyz", *(cell for row in rows for cell in row)}


@pytest.mark.parametrize("columns", [30, 80])
def test_a_table_of_nothing_is_its_header(columns):
    with shown_on(columns):
        assert align(["a", "b"], []) == "  a  b"
