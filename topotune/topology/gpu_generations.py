"""The generation of a GPU by the name of its model."""

from collections.abc import Mapping
from typing import Final

_CAPABILITIES: Final[Mapping[str, int]] = {
    "GB300": 103,
    "B300": 103,
    "GB200": 100,
    "B200": 100,
    "GH200": 90,
    "H200": 90,
    "H100": 90,
    "H800": 90,
    "H20": 90,
    "A100": 80,
    "A800": 80,
    "A30": 80,
    "A6000": 86,
    "A3000": 86,
    "A10G": 86,
    "A10": 86,
    "A40": 86,
    "3090": 86,
    "4090": 89,
    "L40S": 89,
    "L40": 89,
    "L4": 89,
    "V100": 70,
    "P100": 60,
    "T4": 75,
}
NVLS_CAPABILITY: Final = 90
"""From here on GPUs and their NVSwitches add and copy inside the switch (NVLink SHARP)."""


def compute_capability(model: str) -> int | None:
    """CUDA's compute capability × 10 of an NVIDIA GPU; None where the name says none that is known here.

    Of names that are part of each other the longest counts. Source: NVIDIA, "CUDA GPU compute capability".
    """
    known = [name for name in _CAPABILITIES if name in model.upper()]
    return _CAPABILITIES[max(known, key=len)] if known else None
