"""Gradients of known architectures, derived from their layers: where no job was recorded.

Order and times follow the backward: the last layer's gradients come first, and each layer takes time in
proportion to its multiplications. Biases and norms take none of their own.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from topotune.errors import UsageError
from topotune.step.gradients import ELEMENT_BYTES, Gradient, Gradients

_FEWEST_PARAMETERS, _MOST_PARAMETERS = 100_000, 10**13

_COUNT: Final = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([KMGBTkmgbt]?)\s*")
_COUNT_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12}

_VOCABULARY: Final = 50_257
_LEAST_VOCABULARY: Final = 256
_CONTEXT: Final = 1024
_EMBEDDING_SHARE: Final = 1 / 3
"""A small transformer with a large vocabulary would be all embedding: it gets a smaller one."""

_ASPECT: Final = 64
"""Width over depth that models between 10**8 and 10**11 parameters have, within a factor of two."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One parameter tensor of a model.

    Attributes:
        num_elements: of the parameter.
        work: multiplications of its layer for one input, which its gradient's time is in proportion to.
    """

    num_elements: int
    work: float = 0.0


def gradients_of_layers(layers: Sequence[Layer], source: str, dtype: str = "float32") -> Gradients:
    """The gradients of layers that are given in the order of the forward; times are proportions.

    Args:
        layers: first used first.
        source: what they are, in words.
        dtype: of the gradients.
    """
    total = sum(layer.work for layer in layers)
    done, gradients = 0.0, []
    for layer in reversed(layers):
        done += layer.work
        gradients.append(
            Gradient(
                num_bytes=layer.num_elements * ELEMENT_BYTES[dtype],
                dtype=dtype,
                ready_s=min(1.0, done / total),
            )
        )
    return Gradients(gradients=tuple(gradients), backward_s=1.0, timed=False, source=source)


def resnet50(dtype: str = "float32") -> Gradients:
    """ResNet-50 for 1000 classes and 224x224 images: 161 tensors, 25,557,032 parameters.

    Source: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, table 1; stride 2 in the 3x3
    convolution, as the common implementations have it.
    """
    return gradients_of_layers(list(_resnet50_layers()), "ResNet-50", dtype)


def _resnet50_layers() -> Iterator[Layer]:
    def convolution(channels_in: int, channels_out: int, kernel: int, side: int) -> Iterator[Layer]:
        """Without bias, and the two parameters of the batch norm behind it; ``side`` of the output."""
        weights = channels_in * channels_out * kernel**2
        yield Layer(num_elements=weights, work=float(weights * side**2))
        yield Layer(num_elements=channels_out)
        yield Layer(num_elements=channels_out)

    yield from convolution(3, 64, 7, 112)
    channels, side = 64, 56
    for stage, num_blocks in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(num_blocks):
            before, side = side, side // 2 if stage and not block else side
            yield from convolution(channels, width, 1, before)
            yield from convolution(width, width, 3, side)
            yield from convolution(width, 4 * width, 1, side)
            if not block:
                yield from convolution(channels, 4 * width, 1, side)
            channels = 4 * width
    yield Layer(num_elements=channels * 1000, work=float(channels * 1000))
    yield Layer(num_elements=1000)


def typical_transformer(num_parameters: int, dtype: str = "float32") -> Gradients:
    """A decoder of about so many parameters, as language models are: tied embeddings, four-fold feed-forward.

    Depth and width follow the usual proportions; the number of parameters is met within a few percent.

    Args:
        num_parameters: within 100 thousand and 10 trillion.
        dtype: of the gradients.

    Raises:
        UsageError: out of that range.
    """
    if not _FEWEST_PARAMETERS <= num_parameters <= _MOST_PARAMETERS:
        raise UsageError(
            f"a model of {num_parameters} parameters is none that a transformer is typical of",
            hint="write --params 350M; from 100K to 10T",
        )
    depth, width = min(
        ((depth, width) for depth in range(1, 161) for width in _widths(num_parameters, depth)),
        key=lambda shape: _misfit(num_parameters, *shape),
    )
    vocabulary = _vocabulary(num_parameters, width)
    layers = [Layer(num_elements=vocabulary * width), Layer(num_elements=_context(num_parameters) * width)]
    for _ in range(depth):
        layers += [
            Layer(num_elements=width),
            Layer(num_elements=width),
            *_linear(width, 3 * width),
            *_linear(width, width),
            Layer(num_elements=width),
            Layer(num_elements=width),
            *_linear(width, 4 * width),
            *_linear(4 * width, width),
        ]
    # The tied output layer works at the backward's start, but its weight is ready with the embedding, last.
    layers += [Layer(num_elements=width), Layer(num_elements=width, work=float(vocabulary * width))]
    name = f"a typical transformer of {_in_millions(sum(layer.num_elements for layer in layers))} parameters"
    return gradients_of_layers(layers, f"{name} ({depth} layers of width {width})", dtype)


def parse_parameters(text: str) -> int:
    """``"350M"``, ``"1.3B"``, ``"7000000000"`` → a number of parameters; units are decimal.

    Raises:
        UsageError: no such number.
    """
    match = _COUNT.fullmatch(text)
    if match is None:
        raise UsageError(f"{text[:60]!r} is no number of parameters", hint="write --params 350M or 1.3B")
    return round(float(match[1]) * _COUNT_UNITS[match[2].upper()])


def _linear(width_in: int, width_out: int) -> list[Layer]:
    weights = width_in * width_out
    return [Layer(num_elements=weights, work=float(weights)), Layer(num_elements=width_out)]


def _widths(num_parameters: int, depth: int) -> list[int]:
    """Multiples of 8 next to where blocks and embeddings together have so many parameters."""
    low, high = 1, 2**20
    while low < high:
        middle = (low + high + 1) // 2
        if _count(num_parameters, depth, 8 * middle) <= num_parameters:
            low = middle
        else:
            high = middle - 1
    return [8 * low, 8 * (low + 1)]


def _count(num_parameters: int, depth: int, width: int) -> int:
    blocks = depth * (12 * width**2 + 13 * width) + 2 * width
    return blocks + (_vocabulary(num_parameters, width) + _context(num_parameters)) * width


def _misfit(num_parameters: int, depth: int, width: int) -> float:
    """How far off the number of parameters is, and the proportions; the first weighs more."""
    count = _count(num_parameters, depth, width)
    off = abs(count - num_parameters) / num_parameters
    aspect = max(width / depth / _ASPECT, depth * _ASPECT / width)
    return off + 0.02 * max(0.0, aspect - 1.5)


def _vocabulary(num_parameters: int, width: int) -> int:
    return max(_LEAST_VOCABULARY, min(_VOCABULARY, int(_EMBEDDING_SHARE * num_parameters / width)))


def _context(num_parameters: int) -> int:
    return _CONTEXT if num_parameters >= 10**7 else 64


def _in_millions(count: int) -> str:
    return f"{count / 1e9:.3g} billion" if count >= 10**9 else f"{count / 1e6:.3g} million"
