"""All benchmarks that can be read. A new one is a module beside this with its ``READER``, and a line here."""

from typing import Final

from topotune.links.foreign import (
    nccl_tests,
    nccl_tests_json,
    nvbandwidth,
    osu,
    p2p_bandwidth,
    perftest,
    perftest_json,
)
from topotune.links.foreign.reading import FigureReader

READERS: Final[tuple[FigureReader, ...]] = (
    nccl_tests_json.READER,
    nvbandwidth.JSON_READER,
    perftest_json.READER,
    nccl_tests.READER,
    nvbandwidth.READER,
    p2p_bandwidth.READER,
    osu.READER,
    perftest.READER,
)
"""In the order in which they are tried."""


def recognised(head: str) -> tuple[FigureReader, ...]:
    """The benchmarks whose outputs stand in a text; none where there are none."""
    return tuple(reader for reader in READERS if reader.recognise(head))


def reader_named(name: str) -> FigureReader | None:
    """A benchmark by its name."""
    return next((reader for reader in READERS if reader.name == name), None)
