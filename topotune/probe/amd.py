"""AMD GPUs as their driver describes them, from its own library (``import amdsmi``), where it is there.

The bindings come with ROCm, and their version must be that of the driver, so they are no dependency: a
machine without them still shows its AMD GPUs on the PCI bus. Each GPU is found there by its address; what
amdsmi adds is its name, UUID, power limit and partition, and which pairs xGMI joins and what they may do.

Source: ROCm 6.0 to 7.0, ``amdsmi_interface.py``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

from topotune.probe.driver_library import DriverLibrary, address_of, opened, word_of
from topotune.probe.faults import Faults

_MAX_GPUS: Final = 64
_MAX_WATTS: Final = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class AmdGpu:
    """One GPU; None for what the driver does not say.

    Attributes:
        power_limit_w: that it may draw now.
        power_default_w: that it may draw unless somebody changed it.
        partition: how it shows itself (``SPX`` whole, ``CPX`` in as many parts as it has dies).
    """

    pci_address: str
    model: str | None = None
    uuid: str | None = None
    numa: int | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    partition: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AmdPeers:
    """Two GPUs, by PCI address.

    Attributes:
        xgmi: such links join them.
        hops: over how many links; None where the driver does not say.
        p2p: ``any`` and ``atomics`` → status in nvidia-smi's words (``OK``, ``NS``).
    """

    a: str
    b: str
    xgmi: bool
    hops: int | None
    p2p: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class AmdReading:
    """All GPUs of the driver; ``absent`` says why it could not be asked, else None."""

    gpus: tuple[AmdGpu, ...] = ()
    peers: tuple[AmdPeers, ...] = ()
    driver_version: str | None = None
    absent: str | None = "not asked"


def load_amdsmi() -> Any | None:
    """The bindings, or None where they are not installed or find no library of theirs."""
    try:
        import amdsmi  # type: ignore[import-not-found]
    except (ImportError, OSError, AttributeError, KeyError):  # its library is missing, or another version's
        return None
    return amdsmi


def read_amd(amdsmi: Any | None, faults: Faults) -> AmdReading:
    """All that the driver says about AMD GPUs.

    Args:
        amdsmi: the module ``amdsmi``, or what stands for it; None where it is not installed.
        faults: where to note GPUs that do not answer.
    """
    if amdsmi is None:
        return AmdReading(absent="the AMD SMI bindings (amdsmi, of ROCm) are not installed")
    with opened(amdsmi.amdsmi_init, amdsmi.amdsmi_shut_down, amdsmi.AmdSmiException) as absent:
        if absent is not None:
            return AmdReading(absent=absent)
        return _Reader(DriverLibrary(amdsmi, amdsmi.AmdSmiException), faults).read()


@dataclass(frozen=True)
class _Reader:
    driver: DriverLibrary
    faults: Faults

    def read(self) -> AmdReading:
        handles: dict[str, Any] = {}
        listed = self.ask("amdsmi_get_processor_handles") or []
        for number, handle in enumerate(listed[:_MAX_GPUS]):
            address = address_of(self.ask("amdsmi_get_gpu_device_bdf", handle))
            if address is None:
                self.faults.add("left out, an AMD GPU without a PCI address", f"GPU {number}")
            else:
                handles.setdefault(address, handle)  # the parts of a partitioned GPU share one
        driver = self.ask("amdsmi_get_gpu_driver_info", listed[0]) if listed else None
        return AmdReading(
            gpus=tuple(self.gpu(address, handle) for address, handle in handles.items()),
            peers=tuple(self.peers(handles)),
            driver_version=_word(driver, "driver_version"),
            absent=None,
        )

    def gpu(self, address: str, handle: Any) -> AmdGpu:
        asic = self.ask("amdsmi_get_gpu_asic_info", handle)
        power = self.ask("amdsmi_get_power_cap_info", handle)
        numa = self.ask("amdsmi_topo_get_numa_node_number", handle)
        return AmdGpu(
            pci_address=address,
            model=_word(asic, "market_name"),
            uuid=self.driver.word("amdsmi_get_gpu_device_uuid", handle),
            numa=numa if isinstance(numa, int) and 0 <= numa < 2**16 else None,
            power_limit_w=_watts(power, "power_cap"),
            power_default_w=_watts(power, "default_power_cap"),
            partition=self.driver.word("amdsmi_get_gpu_compute_partition", handle),
        )

    def peers(self, handles: Mapping[str, Any]) -> Iterator[AmdPeers]:
        for a, b in combinations(handles, 2):
            ends = handles[a], handles[b]
            link = self.ask("amdsmi_topo_get_link_type", *ends)
            accessible = self.ask("amdsmi_is_P2P_accessible", *ends)
            status = self.ask("amdsmi_topo_get_p2p_status", *ends)
            p2p = {} if accessible is None else {"any": "OK" if accessible else "NS"}
            if isinstance(status, dict) and isinstance(status.get("cap"), dict):
                wide = status["cap"].get("is_iolink_atomics_64bit")
                if wide in (0, 1):  # 255 is "not known"
                    p2p["atomics"] = "OK" if wide else "NS"
            hops = link.get("hops") if isinstance(link, dict) else None
            is_xgmi = isinstance(link, dict) and link.get("type") == self.xgmi
            if p2p or is_xgmi:
                yield AmdPeers(a=a, b=b, xgmi=is_xgmi, hops=hops if isinstance(hops, int) else None, p2p=p2p)

    @property
    def xgmi(self) -> int:
        """What this version numbers xGMI by."""
        return int(self.driver.bindings.AmdSmiLinkType.AMDSMI_LINK_TYPE_XGMI)

    def ask(self, question: str, *arguments: Any) -> Any | None:
        return self.driver.ask(question, *arguments)


def _word(answer: Any, key: str) -> str | None:
    """The name under a key of an answer."""
    return word_of(answer.get(key)) if isinstance(answer, dict) else None


def _watts(answer: Any, key: str) -> float | None:
    """Watts of a figure, which is µW by amdsmi's header, and W where it is too small to be that."""
    value = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(value, int) or value <= 0:
        return None
    return value / 1e6 if value > _MAX_WATTS else float(value)
