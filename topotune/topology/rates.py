"""What a PCI Express or NVLink connection can carry, by its specification."""

# Rate per lane in GT/s -> (generation, share of the bits that carry packets).
# Source: PCI-SIG, PCI Express Base Specification: 1.x and 2.x encode 8b/10b, 3.0 to 5.0 128b/130b; 6.0 sends
# flits of 256 bytes, of which 242 hold transaction and data-link packets (8 are CRC, 6 are FEC).
_PCIE_RATES = {
    2.5: (1, 8 / 10),
    5.0: (2, 8 / 10),
    8.0: (3, 128 / 130),
    16.0: (4, 128 / 130),
    32.0: (5, 128 / 130),
    64.0: (6, 242 / 256),
}
_PCIE_RATE_OF_GENERATION = {generation: rate for rate, (generation, _) in _PCIE_RATES.items()}
PCIE_WIDTHS = (1, 2, 4, 8, 12, 16, 32)

# NVML's number for an NVLink version (nvml.h, NVML_NVLINK_VERSION_*) -> bytes/s of one link in one direction.
# Source: NVIDIA's architecture papers: P100 20 GB/s, V100 and A100 and H100 25 GB/s, B200 50 GB/s. Versions
# whose links differ from product to product (3.1) are left out.
_NVLINK_BYTES_PER_S = {1: 20e9, 2: 25e9, 3: 25e9, 4: 25e9, 6: 25e9, 7: 50e9}

# Compute capability × 10 (as NCCL's ``sm``) -> bytes/s of one NVLink in one direction.
# Source: as above; the bridges of Turing's and Ampere's workstation cards: NVIDIA, product briefs of RTX 8000
# (100 GB/s over 2 links, both directions) and RTX A6000 (112.5 GB/s over 4 links, both directions).
_NVLINK_BYTES_PER_S_OF_SM = {
    60: 20e9, 70: 25e9, 75: 25e9, 80: 25e9, 86: 14.0625e9, 90: 25e9, 100: 50e9, 103: 50e9,
}  # fmt: skip


def pcie_bandwidth_bytes_per_s(speed_gt_per_s: float, width: int) -> float:
    """Bytes/s in one direction of a PCI Express link, after line encoding, before packet headers.

    Args:
        speed_gt_per_s: per lane: 2.5, 5, 8, 16, 32 or 64.
        width: lanes.

    Raises:
        ValueError: a rate that no generation has, or no lanes.
    """
    if speed_gt_per_s not in _PCIE_RATES:
        raise ValueError(f"{speed_gt_per_s} GT/s is the rate of no PCI Express generation")
    if width < 1:
        raise ValueError(f"a PCI Express link with {width} lanes")
    _, efficiency = _PCIE_RATES[speed_gt_per_s]
    return speed_gt_per_s * 1e9 * width * efficiency / 8


def pcie_generation(speed_gt_per_s: float) -> int | None:
    """The generation with this rate per lane (GT/s), or None."""
    known = _PCIE_RATES.get(speed_gt_per_s)
    return None if known is None else known[0]


def pcie_speed_gt_per_s(generation: int) -> float | None:
    """The rate per lane (GT/s) of a generation, or None."""
    return _PCIE_RATE_OF_GENERATION.get(generation)


def nvlink_bandwidth_bytes_per_s(nvml_version: int | None) -> float | None:
    """Bytes/s of one NVLink in one direction.

    Args:
        nvml_version: as ``nvmlDeviceGetNvLinkVersion`` numbers them (6 is NVLink 4.0).

    Returns:
        None for a version that is not known.
    """
    return None if nvml_version is None else _NVLINK_BYTES_PER_S.get(nvml_version)


def nvlink_bandwidth_of_sm(sm: int | None) -> float | None:
    """Bytes/s of one NVLink in one direction, by the GPU's compute capability × 10; None where not known."""
    return None if sm is None else _NVLINK_BYTES_PER_S_OF_SM.get(sm)
