"""Captured trees made by hand: /sys, /proc and /etc of machines that cannot stand here."""

import os
from pathlib import Path
from types import SimpleNamespace

GIB = 2**30


class Capture:
    """A folder that is filled like a machine's root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "sys").mkdir(parents=True)
        (root / "proc").mkdir()

    def file(self, path: str, content: str | bytes) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() + b"\n" if isinstance(content, str) else content)
        return place

    def files(self, folder: str, **contents: object) -> None:
        for name, content in contents.items():
            if content is not None:
                self.file(f"{folder}/{name}", str(content))

    def link(self, path: str, target: str) -> None:
        """A relative link below the root, as the kernel makes them."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(self.root / target, place.parent))

    def host(self, *, name: str = "box", cpus: int = 4, sockets: int = 1, hypervisor: bool = False) -> None:
        self.file("proc/sys/kernel/hostname", name)
        self.file("proc/sys/kernel/osrelease", "6.8.0-31-generic")
        self.file("etc/os-release", 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04 LTS"')
        self.file("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1048576 kB")
        flags = "fpu vme hypervisor" if hypervisor else "fpu vme"
        per_socket = cpus // sockets
        self.file(
            "proc/cpuinfo",
            "\n\n".join(
                f"processor\t: {cpu}\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\n"
                f"physical id\t: {cpu // per_socket}\ncpu cores\t: {per_socket}\nflags\t\t: {flags}"
                for cpu in range(cpus)
            ),
        )
        self.file("sys/devices/system/cpu/online", f"0-{cpus - 1}")
        for cpu in range(cpus):
            first = cpu // per_socket * per_socket
            self.files(
                f"sys/devices/system/cpu/cpu{cpu}/topology",
                physical_package_id=cpu // per_socket,
                core_siblings_list=f"{first}-{first + per_socket - 1}",
            )

    def numa(self, *cpulists: str, gib_each: int = 8) -> None:
        for index, cpulist in enumerate(cpulists):
            distances = " ".join("10" if other == index else "21" for other in range(len(cpulists)))
            self.files(f"sys/devices/system/node/node{index}", cpulist=cpulist, distance=distances)
            self.file(
                f"sys/devices/system/node/node{index}/meminfo",
                f"Node {index} MemTotal:       {gib_each * 2**20} kB\nNode {index} MemFree:   100 kB",
            )

    def pci(
        self,
        way: str,
        *,
        kind: str,
        numa: int | None = 0,
        speed: str | None = "16.0 GT/s PCIe",
        width: int | str | None = 16,
        max_speed: str | None = "16.0 GT/s PCIe",
        max_width: int | str | None = 16,
        vendor: str | None = None,
        device: str = "0x20b2",
    ) -> str:
        """A function at ``pci0000:10/0000:10:01.0/…`` below sys/devices; returns its folder."""
        pci_class, default_vendor = {
            "bridge": ("0x060400", "0x1000"),
            "gpu": ("0x030200", "0x10de"),
            "amd": ("0x120000", "0x1002"),
            "vga": ("0x030000", "0x1a03"),
            "nic": ("0x020000", "0x15b3"),
            "ib": ("0x020700", "0x15b3"),
            "nvswitch": ("0x068000", "0x10de"),
            "disk": ("0x010802", "0x144d"),
        }[kind]
        folder = f"sys/devices/{way}"
        self.files(
            folder,
            **{"class": pci_class},
            vendor=vendor or default_vendor,
            device=device,
            numa_node=numa,
            current_link_speed=speed,
            current_link_width=width,
            max_link_speed=max_speed,
            max_link_width=max_width,
        )
        self.link(f"sys/bus/pci/devices/{way.rpartition('/')[2]}", folder)
        return folder

    def interface(
        self,
        name: str,
        device: str | None,
        *,
        speed: int | str | None = 100_000,
        state: str = "up",
        index: int = 2,
        peer: int | None = None,
        **more: object,
    ) -> None:
        """A network interface on a device folder; on none, it is software."""
        folder = f"{device}/net/{name}" if device else f"sys/devices/virtual/net/{name}"
        self.files(
            folder, operstate=state, type=1, ifindex=index, iflink=peer or index, dev_port=0, uevent=""
        )
        self.files(folder, speed=speed, **more)
        if device:
            self.link(f"{folder}/device", device)
        self.link(f"sys/class/net/{name}", folder)

    def rdma(
        self,
        name: str,
        device: str,
        *,
        state: str = "4: ACTIVE",
        rate: str = "400 Gb/sec (4X NDR)",
        link_layer: str = "InfiniBand",
        ports: int = 1,
    ) -> None:
        folder = f"{device}/infiniband/{name}"
        self.files(folder, hca_type="MT4129")
        for port in range(1, ports + 1):
            self.files(f"{folder}/ports/{port}", state=state, rate=rate, link_layer=link_layer)
        self.link(f"{folder}/device", device)
        self.link(f"sys/class/infiniband/{name}", folder)


def hgx(root: Path) -> Capture:
    """Two sockets; four PCI Express switches with two GPUs and two InfiniBand adapters each; six NVSwitches.

    Host bridge k (0x10 + 0x20·k) - root port - switch - four downstream ports. The first two are on
    NUMA node 0.
    """
    capture = Capture(root)
    capture.host(name="hgx-01", cpus=8, sockets=2)
    capture.numa("0-3", "4-7")
    for k in range(4):
        numa, bus = k // 2, 0x10 + 0x20 * k
        trunk = f"pci0000:{bus:02x}/0000:{bus:02x}:01.0"
        capture.pci(trunk, kind="bridge", numa=numa)
        switch = f"{trunk}/0000:{bus + 1:02x}:00.0"
        capture.pci(switch, kind="bridge", numa=numa, device="0xc010")
        for slot in range(4):
            port = f"{switch}/0000:{bus + 2:02x}:{slot:02x}.0"
            capture.pci(port, kind="bridge", numa=numa)
            address = f"0000:{bus + 3 + slot:02x}:00.0"
            if slot < 2:
                capture.pci(f"{port}/{address}", kind="gpu", numa=numa)
            else:
                folder = capture.pci(f"{port}/{address}", kind="ib", numa=numa, device="0x1021")
                number = 2 * k + slot - 2
                capture.rdma(f"mlx5_{number}", folder)
                capture.interface(f"ib{number}", folder, speed=400_000, index=number + 2)
    capture.pci("pci0000:c0/0000:c0:01.0", kind="bridge", numa=1)
    for number in range(6):
        capture.pci(
            f"pci0000:c0/0000:c0:01.0/0000:c1:{number:02x}.0",
            kind="nvswitch", numa=1, speed="2.5 GT/s PCIe", width=2, max_speed="2.5 GT/s PCIe", max_width=2,
        )  # fmt: skip
    capture.pci("pci0000:00/0000:00:1f.0", kind="vga", numa=0)
    capture.interface("lo", None, speed=None, state="unknown", index=1, type=772)
    return capture


def small(root: Path) -> Capture:
    """One of everything, each with few files: for fuzzing and for single faults."""
    capture = Capture(root)
    capture.host(cpus=2)
    capture.numa("0-1")
    capture.file(".dockerenv", "")
    capture.pci("pci0000:00/0000:00:01.0", kind="bridge")
    gpu = "pci0000:00/0000:00:01.0/0000:01:00.0"
    capture.pci(gpu, kind="gpu")
    capture.file(
        "proc/driver/nvidia/gpus/0000:01:00.0/information",
        "Model: \t\t NVIDIA A100-SXM4-80GB\nGPU UUID: \t GPU-8f3a1c2d-0000-1111-2222-333344445555",
    )
    capture.pci("pci0000:00/0000:00:02.0", kind="bridge")
    nic = capture.pci("pci0000:00/0000:00:02.0/0000:02:00.0", kind="nic", device="0x1021")
    capture.interface("eth0", nic)
    capture.rdma("mlx5_0", nic, rate="100 Gb/sec (4X EDR)", link_layer="Ethernet")
    capture.interface("lo", None, speed=None, state="unknown", index=1, type=772)
    return capture


class RecordedNvml:
    """Answers of the driver of the HGX machine above: every GPU has two NVLinks to each of six NVSwitches.

    It has the names of ``pynvml`` that a probe uses, and refuses as that does.
    """

    class NVMLError(Exception):
        pass

    class NVMLError_FunctionNotFound(NVMLError):
        pass

    NVML_SUCCESS = 0
    NVML_FEATURE_ENABLED = 1
    NVML_NVLINK_MAX_LINKS = 18
    NVML_NVLINK_DEVICE_TYPE_GPU = 0
    NVML_NVLINK_DEVICE_TYPE_SWITCH = 2
    NVML_AFFINITY_SCOPE_NODE = 0
    NVML_FI_DEV_NVLINK_GET_SPEED = 164

    def __init__(
        self,
        addresses: list[str],
        *,
        links: dict[tuple[int, int], str] | None = None,
        speed_mb_per_s: int = 25_000,
        version: int = 4,
        down: frozenset[tuple[int, int]] = frozenset(),
        init_error: str | None = None,
        broken: frozenset[str] = frozenset(),
        affinity: int | None = None,
    ) -> None:
        """Args: links: (GPU, link) → PCI address of the far end; broken: functions that this driver lacks."""
        self.addresses = addresses
        self.links = links or {}
        self.speed_mb_per_s = speed_mb_per_s
        self.version = version
        self.down = down
        self.init_error = init_error
        self.broken = broken
        self.affinity = affinity
        self.open = 0

    def __getattribute__(self, name: str):
        if name.startswith("nvml") and name in object.__getattribute__(self, "broken"):

            def refuse(*_arguments: object) -> None:
                raise self.NVMLError_FunctionNotFound("Function Not Found")

            return refuse
        return object.__getattribute__(self, name)

    def nvmlInit(self):
        if self.init_error:
            raise self.NVMLError(self.init_error)
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlSystemGetDriverVersion(self):
        return "570.86.15"

    def nvmlDeviceGetCount(self):
        return len(self.addresses)

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetPciInfo(self, handle):
        return SimpleNamespace(busId=f"0000{self.addresses[handle].upper()}".encode())

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-0000000{handle}"

    def nvmlDeviceGetName(self, handle):
        return b"NVIDIA A100-SXM4-80GB"

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(total=80 * GIB)

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle):
        return 1

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle):
        return 4

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle):
        return 16

    nvmlDeviceGetMaxPcieLinkWidth = nvmlDeviceGetCurrPcieLinkWidth

    def nvmlDeviceGetMemoryAffinity(self, handle, words, scope):
        if self.affinity is None:
            raise self.NVMLError("Not Supported")
        return [self.affinity] + [0] * (words - 1)

    def nvmlDeviceGetNvLinkState(self, handle, link):
        if (handle, link) not in self.links:
            raise self.NVMLError("Invalid Argument")
        return 0 if (handle, link) in self.down else 1

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle, link):
        far = self.links[handle, link]
        return (
            self.NVML_NVLINK_DEVICE_TYPE_GPU if far in self.addresses else self.NVML_NVLINK_DEVICE_TYPE_SWITCH
        )

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle, link):
        return SimpleNamespace(busId=f"0000{self.links[handle, link].upper()}")

    def nvmlDeviceGetNvLinkVersion(self, handle, link):
        return self.version

    def nvmlDeviceGetFieldValues(self, handle, ids):
        status = self.NVML_SUCCESS if self.speed_mb_per_s else 3
        return [
            SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(uiVal=self.speed_mb_per_s)) for _ in ids
        ]


HGX_GPUS = [f"0000:{0x13 + 0x20 * k + slot:02x}:00.0" for k in range(4) for slot in range(2)]
HGX_NVLINKS = {(gpu, link): f"0000:c1:{link // 2:02x}.0" for gpu in range(8) for link in range(12)}
