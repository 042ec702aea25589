"""Made-up gradients and curves."""

from hypothesis import strategies as st

from topotune.step.curve import Curve
from topotune.step.gradients import ELEMENT_BYTES, Gradient, Gradients


def gradients(sizes, ready_s=None, *, backward_s=None, dtypes=None):
    ready_s = ready_s or [float(index + 1) for index in range(len(sizes))]
    dtypes = dtypes or ["float32"] * len(sizes)
    return Gradients(
        gradients=tuple(
            Gradient(num_bytes=size, dtype=dtype, ready_s=ready)
            for size, dtype, ready in zip(sizes, dtypes, ready_s, strict=True)
        ),
        backward_s=backward_s or max(ready_s),
        timed=True,
        source="made up",
    )


@st.composite
def made_up_gradients(draw, max_size=9, dtypes=("float32",)):
    kinds = draw(st.lists(st.sampled_from(dtypes), min_size=1, max_size=max_size))
    sizes = [draw(st.integers(1, 300)) * ELEMENT_BYTES[kind] for kind in kinds]
    gaps = [draw(st.floats(0, 3)) for _ in kinds]
    ready_s = [sum(gaps[: index + 1]) for index in range(len(gaps))]
    return gradients(sizes, ready_s, backward_s=max(ready_s) + 0.5, dtypes=kinds)


@st.composite
def curves(draw):
    sizes = draw(st.lists(st.integers(1, 1500), min_size=1, max_size=5, unique=True).map(sorted))
    return Curve(tuple(sizes), tuple(draw(st.floats(0.01, 5)) for _ in sizes))
