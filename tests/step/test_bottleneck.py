"""What bounds a step, in one line with figures."""

import pytest

from topotune.step.bottleneck import bound_of_step
from topotune.step.curve import Curve
from topotune.units import MIB

FAST_START = Curve((1024, 10 * MIB), (0.0001, 1.0))
SLOW_START = Curve((1024, 10 * MIB), (0.1, 0.3))

CASES = {
    "compute": (
        (1.02, [1.0, 0.99], (MIB, MIB), FAST_START),
        "compute-bound: a step of 1.02 s hides all but 20 ms of 200 ms of exchange",
    ),
    "skew": (
        (1.5, [0.9, 1.4, 1.2], (MIB,), FAST_START),
        "skew-bound: ranks wait 500 ms of a step of 1.5 s for the slowest backward (900 ms to 1.4 s)",
    ),
    "launch": (
        (1.5, [1.0], (1024,) * 10, SLOW_START),
        "launch-bound: the exchange adds 500 ms to a backward of 1 s; 10 buckets cost 100 ms each however "
        "small, 1 s of 1 s of exchange",
    ),
    "tail-bucket": (
        (1.5, [1.0], (MIB, 5 * MIB), FAST_START),
        "tail-bucket-bound: the exchange adds 500 ms to a backward of 1 s; the last bucket of 5 MiB alone "
        "takes 500 ms",
    ),
    # Most of the bytes are in the last bucket, but no other buckets would make the step much shorter.
    "wire, with a large tail": (
        (2.5, [0.5], (MIB, 16 * MIB), FAST_START),
        "wire-bound: the exchange adds 2 s to a backward of 500 ms; 17 MiB in 2 buckets take 1.7 s, "
        "10.5 MB/s",
    ),
    # One size says nothing of what a call costs.
    "wire, one size measured": (
        (4.0, [1.0], (10 * MIB, 10 * MIB), Curve((10 * MIB,), (1.0,))),
        "wire-bound: the exchange adds 3 s to a backward of 1 s; 20 MiB in 2 buckets take 2 s, 10.5 MB/s",
    ),
    "wire": (
        (4.0, [1.0], (9 * MIB,) * 4, FAST_START),
        "wire-bound: the exchange adds 3 s to a backward of 1 s; 36 MiB in 4 buckets take 3.6 s, 10.5 MB/s",
    ),
}


@pytest.mark.parametrize(("given", "text"), CASES.values(), ids=CASES)
def test_a_step_is_bound_by_one_thing_with_figures(given, text):
    bound = bound_of_step(*given)
    assert bound.text == text
    assert text.startswith(f"{bound.kind}-bound")
