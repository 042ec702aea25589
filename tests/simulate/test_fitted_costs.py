import pytest

from topotune.simulate.consistency import contradictions

SIZES = (1024, 2048, 8192)


@pytest.mark.parametrize(
    ("curves", "lines"),
    [
        pytest.param({"ring": (1e-4, 2e-4, 8e-4)}, [], id="proportional"),
        pytest.param({"ring": (1e-4, 1e-4, 1e-4)}, [], id="flat"),
        pytest.param({"ring": (1e-4, 0.99e-4, 1e-4)}, [], id="within the error of a fit"),
        pytest.param(
            {"ring": (4e-4, 2e-4, 8e-4), "swing": (1e-4, 2e-4, 1.5e-4)},
            [
                "fitted costs make a larger message faster: ring takes 400 µs at 1 KiB and 200 µs at 2 KiB"
                " (1 more algorithm)"
            ],
            id="falling",
        ),
        pytest.param(
            {"ring": (1e-4, 3e-4, 8e-4)},
            [
                "fitted costs make one message slower than two of half the size: ring takes 100 µs at 1 KiB"
                " and 300 µs at 2 KiB"
            ],
            id="more than doubling",
        ),
        pytest.param({"ring": (0.0, 0.0, 0.0)}, [], id="no time at all"),
    ],
)
def test_what_contradicts_itself_is_said_once_a_rule(curves, lines):
    assert contradictions(curves, SIZES) == lines


def test_one_size_contradicts_nothing():
    assert contradictions({"ring": (1.0,)}, (1024,)) == []
    assert contradictions({}, ()) == []
