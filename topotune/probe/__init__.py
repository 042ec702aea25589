"""What this machine is: GPUs, NVLink, PCI, NUMA, CPUs, network, RDMA, read below a root folder."""

from topotune.probe.machine import probe

__all__ = ["probe"]
