"""Bytes, seconds and rates: the only place that turns text into numbers and numbers into text.

Inside topotune everything is SI (bytes, seconds, bytes/s). Sizes are written in KiB/MiB/GiB (1024), rates in
GB/s = 1e9 bytes/s, times in µs/ms/s. When reading, bare ``K``, ``M``, ``G`` are binary, as in nccl-tests.
"""

import math
import re

from topotune.errors import UsageError

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4

_BYTE_UNITS = {
    "": 1, "b": 1,
    "k": KIB, "m": MIB, "g": GIB, "t": TIB,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip
_SECOND_UNITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "us": 1e-6, "µs": 1e-6}
_NUMBER = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([A-Za-zµ]{0,4})\s*")
MAX_MESSAGE_BYTES = 2**50
MAX_SIZES = 64
MAX_SECONDS = 7 * 86400.0


def parse_bytes(text: str) -> int:
    """``"64M"``, ``"1KiB"``, ``"4096"`` → bytes.

    Raises:
        UsageError: no such number, no such unit, a fraction of a byte, or more than 2**50 bytes.
    """
    match = _NUMBER.fullmatch(text)
    unit = _BYTE_UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise UsageError(f"{text!r} is no size in bytes", hint="write 4096, 64K, 8M, 1.5GiB")
    value = float(match[1]) * unit if "." in match[1] else int(match[1]) * unit
    if value != int(value):
        raise UsageError(f"{text!r} is {value} bytes, not a whole number")
    if value > MAX_MESSAGE_BYTES:
        raise UsageError(f"{text!r} is more than {format_bytes(MAX_MESSAGE_BYTES)}")
    return int(value)


def parse_sizes(text: str) -> tuple[int, ...]:
    """``"256K,8M"`` or ``"1K:64M"`` (doubling) or ``"1K:64M:4"`` (times 4) → sizes, ascending, each once.

    Raises:
        UsageError: not a list or range of sizes, a size of 0, more than 64 sizes.
    """
    sizes: set[int] = set()
    for part in text.split(","):
        bounds = part.split(":")
        if len(bounds) == 1:
            sizes.add(parse_bytes(part))
            continue
        if len(bounds) > 3:
            raise UsageError(
                f"{part!r} is no range of sizes", hint="write FROM:TO or FROM:TO:FACTOR, as in 1K:64M:4"
            )
        first, last = parse_bytes(bounds[0]), parse_bytes(bounds[1])
        factor = 2
        if len(bounds) == 3:
            if not re.fullmatch(r"[0-9]{1,6}", bounds[2]) or int(bounds[2]) < 2:
                raise UsageError(f"{part!r}: the factor {bounds[2]!r} is no whole number of at least 2")
            factor = int(bounds[2])
        if not 0 < first <= last:
            raise UsageError(f"{part!r} is an empty range of sizes: it runs from {first} to {last} bytes")
        while first <= last:
            sizes.add(first)
            first *= factor
    if 0 in sizes:
        raise UsageError(f"{text!r} has a size of 0 bytes", hint="the smallest message is 1 byte")
    if len(sizes) > MAX_SIZES:
        raise UsageError(f"{text!r} gives {len(sizes)} sizes, more than {MAX_SIZES}")
    return tuple(sorted(sizes))


def parse_seconds(text: str) -> float:
    """``"60s"``, ``"2m"``, ``"500ms"``, ``"1.5h"``, ``"90"`` → seconds, above 0.

    Raises:
        UsageError: no such duration, not above 0, or more than 7 days.
    """
    match = _NUMBER.fullmatch(text)
    unit = _SECOND_UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise UsageError(f"{text!r} is no duration", hint="write 60s, 2m, 500ms")
    value = float(match[1]) * unit
    if not value > 0:
        raise UsageError(f"{text!r} is no duration above 0", hint="write 60s, 2m, 500ms")
    if value > MAX_SECONDS:
        raise UsageError(f"{text!r} is more than 7 days", hint="write 60s, 2m, 1.5h")
    return value


def parse_bit_rate(text: str) -> float:
    """``"100Gbit"``, ``"25G"``, ``"200 Mbit/s"`` → bits/s, above 0; units are decimal, as networks are sold.

    Raises:
        UsageError: no such rate, or not above 0.
    """
    match = _NUMBER.fullmatch(re.sub(r"(?:bit(?:/s)?|bps)$", "", text.strip(), flags=re.IGNORECASE))
    unit = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}.get(match[2].lower()) if match else None
    if match is None or unit is None or not float(match[1]) > 0:
        raise UsageError(f"{text!r:.100} is no rate of a network", hint="write 25Gbit, 200Mbit, 1.5Tbit/s")
    return float(match[1]) * unit


def format_bytes(num_bytes: float) -> str:
    """Bytes as people write them: ``"64 MiB"``, ``"1.5 KiB"``, ``"100 B"``."""
    value, name = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if round(value) < KIB:  # rounded, or the largest size below 1 MiB would be 1024 KiB
            break
        value, name = value / KIB, larger
    return f"{_short(value)} {name}"


def format_seconds(seconds: float) -> str:
    """Seconds in the unit that fits: ``"512 µs"``, ``"1.23 ms"``, ``"2.5 s"``."""
    magnitude = abs(seconds)
    if magnitude < 0.9995e-3:  # what three digits round up to 1 ms is one
        return f"{_short(seconds * 1e6)} µs"
    if magnitude < 0.9995:
        return f"{_short(seconds * 1e3)} ms"
    return f"{_short(seconds)} s"


def format_rate(bytes_per_s: float) -> str:
    """A rate in GB/s = 1e9 bytes/s, or MB/s below 0.1 GB/s."""
    if bytes_per_s < 1e8:
        return f"{_short(bytes_per_s / 1e6)} MB/s"
    return f"{_short(bytes_per_s / 1e9)} GB/s"


def format_line_rate(bits_per_s: float) -> str:
    """The rate of a network port as its label says it: ``"400 Gbit/s"``, ``"200 Mbit/s"``."""
    if bits_per_s < 1e9:
        return f"{_short(bits_per_s / 1e6)} Mbit/s"
    return f"{_short(bits_per_s / 1e9)} Gbit/s"


def format_bit_rate(bytes_per_s: float) -> str:
    """A rate as networks are sold: ``"200 Mbit/s"``, ``"25 Gbit/s"``."""
    bits_per_s = 8 * bytes_per_s
    if bits_per_s < 1e9:
        return f"{_short(bits_per_s / 1e6)} Mbit/s"
    return f"{_short(bits_per_s / 1e9)} Gbit/s"


def _short(value: float) -> str:
    """Three significant digits, never in exponent form, no trailing zeros."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
