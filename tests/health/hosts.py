"""A healthy HGX host as a captured tree with all that a check looks at, and ways to break it."""

from pathlib import Path
from struct import pack

from probe.sysfs_trees import HGX_GPUS, HGX_NVLINKS, Capture, RecordedNvml, hgx

from topotune.health import examine
from topotune.probe import probe

LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max cpu time              unlimited            unlimited            seconds   \n"
    "Max locked memory         {limit}            unlimited            bytes     "
)
ROUTE_HEADING = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"


class Nvml(RecordedNvml):
    """Answers of the driver of that host; ``states`` and ``mig`` by GPU."""

    states: dict[int, int] = {}  # noqa: RUF012
    mig: frozenset[int] = frozenset()

    def nvmlDeviceGetPerformanceState(self, handle):
        return self.states.get(handle, 8)

    def nvmlDeviceGetMigMode(self, handle):
        return [int(handle in self.mig)] * 2


class Host:
    """One HGX host. Each method changes what it is."""

    def __init__(self, folder: Path) -> None:
        self.capture: Capture = hgx(folder / "root")
        self.nvml_options: dict = {}
        self.states: dict[int, int] = {}
        self.mig: frozenset[int] = frozenset()
        self.limits("unlimited")
        self.status(cpus="0-7", capabilities=0)
        self.mounts("tmpfs /dev/shm tmpfs rw,nosuid,nodev,size=8388608k 0 0")
        self.kernel_module(open_module=False)
        self.file("sys/module/nvidia_peermem/refcnt", "0")
        for number in range(8):
            self.file(f"dev/infiniband/uverbs{number}", "")

    def file(self, path: str, content: str | bytes) -> None:
        self.capture.file(path, content)

    def limits(self, memlock: str) -> None:
        self.file("proc/self/limits", LIMITS.format(limit=memlock))

    def status(self, *, cpus: str, capabilities: int) -> None:
        self.file(
            "proc/self/status", f"Name:\tpython\nCapEff:\t{capabilities:016x}\nCpus_allowed_list:\t{cpus}"
        )

    def mounts(self, line: str) -> None:
        self.file("proc/self/mounts", f"proc /proc proc rw 0 0\n{line}")

    def kernel_module(self, *, open_module: bool) -> None:
        kind = "UNIX Open Kernel Module for x86_64" if open_module else "UNIX x86_64 Kernel Module"
        self.file("proc/driver/nvidia/version", f"NVRM version: NVIDIA {kind}  570.86.15  Release Build")

    def routes(self, *rows: tuple[str, str, str, int]) -> None:
        """Each: interface, destination, mask (as /proc/net/route writes them), flags."""
        lines = [
            f"{name}\t{to}\t00000000\t{flags:04X}\t0\t0\t0\t{mask}\t0\t0\t0" for name, to, mask, flags in rows
        ]
        self.file("proc/net/route", "\n".join([ROUTE_HEADING, *lines]))

    def device(self, address: str) -> str:
        """A function's folder."""
        return (
            (self.capture.root / "sys/bus/pci/devices" / address)
            .resolve()
            .relative_to(self.capture.root.resolve())
            .as_posix()
        )

    def gpu(self, index: int) -> str:
        return self.device(HGX_GPUS[index])

    def nic(self, number: int) -> str:
        return self.device(f"0000:{0x15 + 0x20 * (number // 2) + number % 2:02x}:00.0")

    def port(self, number: int, **contents: str) -> None:
        for name, content in contents.items():
            self.file(f"{self.nic(number)}/infiniband/mlx5_{number}/ports/1/{name}", content)

    def topology(self):
        nvml = Nvml(HGX_GPUS, **{"links": HGX_NVLINKS, **self.nvml_options})
        nvml.states, nvml.mig = self.states, self.mig
        return probe(self.capture.root, nvml=nvml)

    def findings(self, **options):
        return examine(self.topology(), **options).findings


def grave(findings) -> set[str]:
    """Codes of what is more than information."""
    return {finding.code for finding in findings if finding.severity != "info"}


def by_code(findings, code: str):
    (found,) = [finding for finding in findings if finding.code == code]
    return found


def acs(control: int) -> bytes:
    """A bridge's configuration space with one extended capability: ACS."""
    return bytes(256) + pack("<IHH", 0x0001_000D, 0x5F, control) + bytes(64)
