"""NVIDIA GPUs and their NVLinks, from the driver's management library (``import pynvml``).

No library, no driver, or a driver too old for a question are ordinary: the answer is then not known. A
machine without a driver has no GPUs that could be used, and `NvmlReading.absent` says why.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from topotune.probe.faults import Faults
from topotune.probe.kernel_text import parse_word
from topotune.probe.pci import normalise_address
from topotune.topology.model import PcieLink
from topotune.topology.rates import PCIE_WIDTHS, pcie_speed_gt_per_s

_MAX_GPUS = 1024
_AFFINITY_WORDS = 16  # of 64 bits: 1,024 NUMA nodes
_MEGABYTE: Final = 1e6
_NUM_STATES: Final = 16  # P0 to P15; NVML answers 32 for what it does not know

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
    """

    link: int
    remote: RemoteKind
    remote_address: str | None
    version: int | None
    bytes_per_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NvmlGpu:
    """One GPU as the driver describes it.

    Attributes:
        pcie: what GPU and slot can do together.
        nvlinks: those that are up.
        inactive_nvlinks: numbers of those that are not.
        nvlinks_listed: both are all that there are; else nobody asked.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class NvmlReading:
    """All GPUs of the driver; ``absent`` says why it could not be asked, else None."""

    gpus: tuple[NvmlGpu, ...] = ()
    driver_version: str | None = None
    absent: str | None = None


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
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as problem:
        return NvmlReading(absent=str(problem))
    try:
        return _Reader(nvml, faults).read()
    finally:
        nvml.nvmlShutdown()


@dataclass(frozen=True)
class _Reader:
    nvml: Any
    faults: Faults
    # Questions by name that the whole driver cannot answer: asked once, not once for every link.
    unanswered: set[str] = field(default_factory=set)

    def read(self) -> NvmlReading:
        count = self.ask("nvmlDeviceGetCount")
        if count is None:
            self.faults.add("NVML does not say how many GPUs there are")
        gpus = []
        for index in range(min(count or 0, _MAX_GPUS)):
            handle = self.ask("nvmlDeviceGetHandleByIndex", index)
            if handle is None:
                self.faults.add("left out, a GPU that NVML cannot open", f"GPU {index}")
                continue
            gpus.append(self.gpu(index, handle))
        return NvmlReading(gpus=tuple(gpus), driver_version=self.word("nvmlSystemGetDriverVersion"))

    def gpu(self, index: int, handle: Any) -> NvmlGpu:
        memory = self.ask("nvmlDeviceGetMemoryInfo", handle)
        ends, inactive = self.nvlinks(index, handle)
        return NvmlGpu(
            index=index,
            pci_address=self.address("nvmlDeviceGetPciInfo", handle),
            uuid=self.word("nvmlDeviceGetUUID", handle),
            model=self.word("nvmlDeviceGetName", handle),
            memory_bytes=None if memory is None else int(memory.total),
            numa=self.numa(handle),
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

    def numa(self, handle: Any) -> int | None:
        words = self.ask(
            "nvmlDeviceGetMemoryAffinity", handle, _AFFINITY_WORDS, self.nvml.NVML_AFFINITY_SCOPE_NODE
        )
        if words is None:
            return None
        nodes = [64 * at + bit for at, word in enumerate(words) for bit in range(64) if word >> bit & 1]
        # Several nodes mean "this socket" or "this allocation", not the GPU's own node.
        return nodes[0] if len(nodes) == 1 else None

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
        if info is None:
            return None
        text = info.busId
        address = normalise_address(text.decode("ascii", "replace") if isinstance(text, bytes) else text)
        # A virtual machine's driver answers with all ones for what it must not show.
        return None if address is None or address.startswith("ffff") else address

    def word(self, question: str, *arguments: Any) -> str | None:
        answer = self.ask(question, *arguments)
        if isinstance(answer, bytes):
            answer = answer.decode("utf-8", "replace")
        return parse_word(answer) if isinstance(answer, str) and answer.isprintable() else None

    def ask(self, question: str, *arguments: Any) -> Any | None:
        """The answer of one NVML function; None where this driver or device has none."""
        if question in self.unanswered:
            return None
        function: Callable[..., Any] | None = getattr(self.nvml, question, None)
        if function is None:  # bindings older than the question
            self.unanswered.add(question)
            return None
        try:
            return function(*arguments)
        except self.nvml.NVMLError_FunctionNotFound:
            self.unanswered.add(question)
            return None
        except (self.nvml.NVMLError, UnicodeDecodeError):
            return None
