"""NVIDIA GPUs, their NVLinks and what pairs of them may do, from the driver's library (``import pynvml``).

A machine without a driver has no GPUs that could be used, and `NvmlReading.absent` says why.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final, Literal

from topotune.probe.driver_library import DriverLibrary, address_of, opened
from topotune.probe.faults import Faults
from topotune.topology.model import PcieLink
from topotune.topology.rates import PCIE_WIDTHS, pcie_speed_gt_per_s

_MAX_GPUS = 1024
_AFFINITY_WORDS = 16  # of 64 bits: 1,024 NUMA nodes
_CPU_WORDS = 64  # 4,096 CPUs
_MAX_PEERS = 64
"""GPUs up to which pairs are asked about; a machine has 16."""
_MEGABYTE: Final = 1e6
_NUM_STATES: Final = 16  # P0 to P15; NVML answers 32 for what it does not know

# Names of ours for what NVML numbers from 0 on (nvml.h; its bindings have some of the constants as tuples).
ERROR_COUNTERS: Final = ("replay", "recovery", "crc_flit", "crc_data")
"""What an NVLink counts (nvmlNvLinkErrorCounter_t)."""

_CAPABILITIES: Final = ("read", "write", "nvlink", "atomics")
"""What a GPU may do to another's memory (nvmlGpuP2PCapsIndex_t)."""

_STATUSES: Final = ("OK", "CNS", "GNS", "TNS", "DR", "NS", "U")
"""nvmlGpuP2PStatus_t in nvidia-smi's words (``nvidia-smi topo -p2p``, legend)."""

_CLOCK_SM: Final = 1

_CLOCK_REASONS: Final = (
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "thermal"),
    (0x40, "hardware thermal"),
    (0x80, "power brake"),
)
"""Bits of NVML's reasons (nvmlClocksEventReason…); at rest and clocks that somebody set are left out."""

RemoteKind = Literal["gpu", "nvswitch", "other"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NvlinkEnd:
    """One NVLink of a GPU that is up.

    Attributes:
        link: its number on the GPU.
        remote: what it leads to.
        remote_address: PCI address of that; None where the driver hides it.
        version: as NVML numbers them (6 is NVLink 4.0).
        bytes_per_s: line rate in one direction, as the driver reports it.
        errors: what it counts, by the names of `ERROR_COUNTERS`; empty where the driver does not say.
    """

    link: int
    remote: RemoteKind
    remote_address: str | None
    version: int | None
    bytes_per_s: float | None
    errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class NvmlGpu:
    """One GPU as the driver describes it.

    Attributes:
        pcie: what GPU and slot can do together.
        nvlinks: those that are up.
        inactive_nvlinks: numbers of those that are not.
        nvlinks_listed: both are all that there are; else nobody asked.
        near_cpus: that the driver calls near; inside a job's allocation, of these.
        near_numa: NUMA nodes, likewise.
        power_limit_w: that it may draw now.
        power_default_w: that it may draw unless somebody changed it.
        clock_limits: what holds its clocks down now; None where the driver does not say.
    """

    index: int
    pci_address: str | None
    uuid: str | None
    model: str | None
    memory_bytes: int | None
    numa: int | None
    pcie: PcieLink
    nvlinks: tuple[NvlinkEnd, ...]
    inactive_nvlinks: tuple[int, ...]
    nvlinks_listed: bool = False
    mig: bool | None = None
    performance_state: int | None = None
    near_cpus: frozenset[int] = frozenset()
    near_numa: frozenset[int] = frozenset()
    power_limit_w: float | None = None
    power_default_w: float | None = None
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    clock_limits: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NvmlPeers:
    """What two GPUs may do to each other's memory.

    Attributes:
        a, b: NVML's indices, a < b.
        p2p: ``read``, ``write``, ``nvlink``, ``atomics`` → status in nvidia-smi's words; the worse of the two
            directions.
    """

    a: int
    b: int
    p2p: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class NvmlReading:
    """All GPUs of the driver; ``absent`` says why it could not be asked, else None.

    Attributes:
        cuda_version: the newest that the driver runs (``12.8``).
    """

    gpus: tuple[NvmlGpu, ...] = ()
    peers: tuple[NvmlPeers, ...] = ()
    driver_version: str | None = None
    cuda_version: str | None = None
    absent: str | None = None


def format_errors(errors: Mapping[str, int]) -> str:
    """``replay 3, crc_flit 12``: the counters that are not 0; empty where there are none."""
    return ", ".join(f"{name} {count}" for name, count in errors.items() if count)


def load_nvml() -> Any | None:
    """The bindings, or None where they are not installed."""
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


def read_nvml(nvml: Any | None, faults: Faults) -> NvmlReading:
    """All that the driver says about its GPUs.

    Args:
        nvml: the module ``pynvml``, or what stands for it; None where it is not installed.
        faults: where to note GPUs that do not answer.
    """
    if nvml is None:
        return NvmlReading(absent="the NVML bindings (nvidia-ml-py) are not installed")
    with opened(nvml.nvmlInit, nvml.nvmlShutdown, nvml.NVMLError) as absent:
        if absent is not None:
            return NvmlReading(absent=absent)
        driver = DriverLibrary(nvml, nvml.NVMLError, nvml.NVMLError_FunctionNotFound)
        return _Reader(driver, faults).read()


@dataclass(frozen=True)
class _Reader:
    driver: DriverLibrary
    faults: Faults

    @property
    def nvml(self) -> Any:
        """The bindings, for their constants."""
        return self.driver.bindings

    def read(self) -> NvmlReading:
        count = self.ask("nvmlDeviceGetCount")
        if count is None:
            self.faults.add("NVML does not say how many GPUs there are")
        gpus = []
        handles = {}
        for index in range(min(count or 0, _MAX_GPUS)):
            handle = self.ask("nvmlDeviceGetHandleByIndex", index)
            if handle is None:
                self.faults.add("left out, a GPU that NVML cannot open", f"GPU {index}")
                continue
            handles[index] = handle
            gpus.append(self.gpu(index, handle))
        return NvmlReading(
            gpus=tuple(gpus),
            peers=tuple(self.peers(handles)) if len(handles) <= _MAX_PEERS else (),
            driver_version=self.word("nvmlSystemGetDriverVersion"),
            cuda_version=self.cuda_version(),
        )

    def gpu(self, index: int, handle: Any) -> NvmlGpu:
        memory = self.ask("nvmlDeviceGetMemoryInfo", handle)
        ends, inactive = self.nvlinks(index, handle)
        near = self.near_numa(handle)  # several mean "this socket" or "this allocation", not its own node
        return NvmlGpu(
            index=index,
            pci_address=self.address("nvmlDeviceGetPciInfo", handle),
            uuid=self.word("nvmlDeviceGetUUID", handle),
            model=self.word("nvmlDeviceGetName", handle),
            memory_bytes=None if memory is None else int(memory.total),
            numa=next(iter(near)) if len(near) == 1 else None,
            pcie=PcieLink(
                speed_gt_per_s=self.pcie_speed("nvmlDeviceGetCurrPcieLinkGeneration", handle),
                width=self.pcie_width("nvmlDeviceGetCurrPcieLinkWidth", handle),
                max_speed_gt_per_s=self.pcie_speed("nvmlDeviceGetMaxPcieLinkGeneration", handle),
                max_width=self.pcie_width("nvmlDeviceGetMaxPcieLinkWidth", handle),
            ),
            nvlinks=ends,
            inactive_nvlinks=inactive,
            nvlinks_listed=True,
            mig=self.mig(handle),
            performance_state=self.performance_state(handle),
            near_cpus=_bits(self.ask("nvmlDeviceGetCpuAffinity", handle, _CPU_WORDS)),
            near_numa=near,
            power_limit_w=self.watts("nvmlDeviceGetEnforcedPowerLimit", handle),
            power_default_w=self.watts("nvmlDeviceGetPowerManagementDefaultLimit", handle),
            sm_clock_mhz=self.sm_clock("nvmlDeviceGetClockInfo", handle),
            max_sm_clock_mhz=self.sm_clock("nvmlDeviceGetMaxClockInfo", handle),
            clock_limits=self.clock_limits(handle),
        )

    def nvlinks(self, index: int, handle: Any) -> tuple[tuple[NvlinkEnd, ...], tuple[int, ...]]:
        ends, inactive = [], []
        for link in range(self.nvml.NVML_NVLINK_MAX_LINKS):
            state = self.ask("nvmlDeviceGetNvLinkState", handle, link)
            if state is None:  # a link that this GPU does not have
                continue
            if state != self.nvml.NVML_FEATURE_ENABLED:
                inactive.append(link)
                continue
            remote: RemoteKind
            match self.ask("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link):
                case self.nvml.NVML_NVLINK_DEVICE_TYPE_GPU:
                    remote = "gpu"
                case self.nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                    remote = "nvswitch"
                case _:
                    remote = "other"
            ends.append(
                NvlinkEnd(
                    link=link,
                    remote=remote,
                    remote_address=self.address("nvmlDeviceGetNvLinkRemotePciInfo", handle, link),
                    version=self.ask("nvmlDeviceGetNvLinkVersion", handle, link),
                    bytes_per_s=self.nvlink_speed(handle, link),
                    errors=self.nvlink_errors(handle, link),
                )
            )
        return tuple(ends), tuple(inactive)

    def nvlink_speed(self, handle: Any, link: int) -> float | None:
        # The field is in MB/s and tells the line rate, 26.6 GB/s where the data sheet says 25 (nvml.h,
        # NVML_FI_DEV_NVLINK_GET_SPEED: "NVLink Speed in MBps"); it is what `nvidia-smi nvlink -s` prints.
        values = self.ask(
            "nvmlDeviceGetFieldValues", handle, [(self.nvml.NVML_FI_DEV_NVLINK_GET_SPEED, link)]
        )
        if values is None or values[0].nvmlReturn != self.nvml.NVML_SUCCESS:
            return None
        megabytes = values[0].value.uiVal
        return megabytes * _MEGABYTE if megabytes > 0 else None

    def nvlink_errors(self, handle: Any, link: int) -> dict[str, int]:
        counts = {
            name: self.ask("nvmlDeviceGetNvLinkErrorCounter", handle, link, number)
            for number, name in enumerate(ERROR_COUNTERS)
        }
        return {name: int(count) for name, count in counts.items() if count is not None}

    def peers(self, handles: Mapping[int, Any]) -> Iterator[NvmlPeers]:
        for a, b in combinations(handles, 2):
            p2p = {}
            for number, capability in enumerate(_CAPABILITIES):
                statuses = [
                    self.ask("nvmlDeviceGetP2PStatus", handles[one], handles[other], number)
                    for one, other in ((a, b), (b, a))
                ]
                known = (status for status in statuses if status is not None)
                words = [_STATUSES[status] for status in known if status in range(len(_STATUSES))]
                if words:
                    p2p[capability] = max(words, key=lambda word: word != "OK")
            if p2p:
                yield NvmlPeers(a=a, b=b, p2p=p2p)

    def cuda_version(self) -> str | None:
        version = self.ask("nvmlSystemGetCudaDriverVersion")  # 12080 is 12.8
        return f"{version // 1000}.{version % 1000 // 10}" if version else None

    def near_numa(self, handle: Any) -> frozenset[int]:
        return _bits(
            self.ask(
                "nvmlDeviceGetMemoryAffinity", handle, _AFFINITY_WORDS, self.nvml.NVML_AFFINITY_SCOPE_NODE
            )
        )

    def watts(self, question: str, handle: Any) -> float | None:
        milliwatts = self.ask(question, handle)
        return milliwatts / 1000 if milliwatts else None

    def sm_clock(self, question: str, handle: Any) -> int | None:
        return self.ask(question, handle, _CLOCK_SM) or None

    def clock_limits(self, handle: Any) -> tuple[str, ...] | None:
        # The newer name; drivers before 535 know the older one alone.
        reasons = self.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:
            reasons = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return None if reasons is None else tuple(word for bit, word in _CLOCK_REASONS if reasons & bit)

    def mig(self, handle: Any) -> bool | None:
        modes = self.ask("nvmlDeviceGetMigMode", handle)  # now, and after the next reset
        return None if modes is None else bool(modes[0])

    def performance_state(self, handle: Any) -> int | None:
        state: int | None = self.ask("nvmlDeviceGetPerformanceState", handle)
        return state if state in range(_NUM_STATES) else None

    def pcie_speed(self, question: str, handle: Any) -> float | None:
        generation = self.ask(question, handle)
        return None if generation is None else pcie_speed_gt_per_s(generation)

    def pcie_width(self, question: str, handle: Any) -> int | None:
        width: int | None = self.ask(question, handle)
        return width if width in PCIE_WIDTHS else None

    def address(self, question: str, *arguments: Any) -> str | None:
        info = self.ask(question, *arguments)
        return None if info is None else address_of(info.busId)

    def word(self, question: str, *arguments: Any) -> str | None:
        return self.driver.word(question, *arguments)

    def ask(self, question: str, *arguments: Any) -> Any | None:
        return self.driver.ask(question, *arguments)


def _bits(words: Sequence[int] | None) -> frozenset[int]:
    """Numbers of the bits that are set in words of 64."""
    numbered = enumerate(words or ())
    return frozenset(64 * at + bit for at, word in numbered for bit in range(64) if word >> bit & 1)
