"""How tools spell PCI addresses, CPU masks and link rates, read leniently; None for what says nothing."""

import re
from collections.abc import Iterable

from topotune.probe.kernel_text import MAX_CPUS
from topotune.topology.rates import PCIE_WIDTHS, pcie_generation

_ADDRESS = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?")
_SHORT_ADDRESS = re.compile(r"([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
_SPEED = re.compile(r" *([0-9]{1,3}(?:\.[0-9]{1,2})?) ?GT/s")
_WORD = re.compile(r"[0-9a-fA-F]{1,8}")


def pci_address(text: str) -> str | None:
    """``00000000:17:00.0`` or ``17:00.0``, in either case → ``0000:17:00.0``, or None."""
    text = text.strip()
    match = _ADDRESS.fullmatch(text)
    if match is not None:
        domain = int(match[1], 16)
        return f"{domain:04x}:{match[2].lower()}:{match[3].lower()}.{match[4] or 0}"
    match = _SHORT_ADDRESS.fullmatch(text)
    return None if match is None else f"0000:{match[1].lower()}:{match[2].lower()}.{match[3]}"


def link_speed_gt_per_s(text: str) -> float | None:
    """``"16.0 GT/s PCIe"``, ``"16 GT/s"``, ``"32 GT/s PCIe/s"`` → 16.0 or 32.0; None for anything else."""
    match = _SPEED.match(text)
    speed = None if match is None else float(match[1])
    return speed if speed is not None and pcie_generation(speed) is not None else None


def link_width(text: str) -> int | None:
    """``"16"``, ``"x16"``, ``"16x"`` → 16; None for 0 and anything else that is no width."""
    digits = text.strip().lower().strip("x")
    width = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 3 else 0
    return width if width in PCIE_WIDTHS else None


def whole(text: str, maximum: int = 2**31 - 1) -> int | None:
    """A whole number from 0 to ``maximum``; None for anything else."""
    text = text.strip()
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) > maximum:
        return None
    return int(text)


def cpus_of_mask(mask: str) -> frozenset[int] | None:
    """``"0000ffff,ff000000"`` (words of 32 bits, the highest first) → CPU numbers.

    None for what is no such mask: a word of more than 8 digits, or of fewer anywhere but at the front (digits
    were lost, nobody knows which).
    """
    words = mask.strip().removeprefix("0x").split(",")
    if len(words) > MAX_CPUS // 32 or not all(_WORD.fullmatch(word) for word in words):
        return None
    if any(len(word) != 8 for word in words[1:]):
        return None
    bits = int("".join(word.rjust(8, "0") for word in words), 16)
    return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def mask_of_cpus(cpus: Iterable[int]) -> str:
    """The reverse of `cpus_of_mask`; words of 8 digits."""
    bits = sum(1 << cpu for cpu in set(cpus))
    words: list[str] = []
    while bits or not words:
        words.append(f"{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    return ",".join(reversed(words))
