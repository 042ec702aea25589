"""All formats that can be read. A new one is a module beside this with its ``READER``, and a line here."""

from typing import Final

from topotune.errors import InputFileError, UsageError
from topotune.topology.formats import (
    amd_smi_topology,
    aws_topology,
    hwloc_xml,
    iblinkinfo,
    ibnetdiscover,
    ibstat,
    ibstatus,
    ibv_devinfo,
    lspci,
    lspci_tree,
    nccl_log,
    nccl_xml,
    netq_graph,
    nvidia_smi_nvlink,
    nvidia_smi_p2p,
    nvidia_smi_query,
    nvidia_smi_topo,
    own_json,
    rocm_smi_topo,
    slurm_topology,
    slurm_yaml,
    sysfs_infiniband,
    topograph_model,
)
from topotune.topology.formats.capture import Capture
from topotune.topology.formats.reading import Reader

READERS: Final[tuple[Reader, ...]] = (
    own_json.READER,
    nccl_xml.READER,
    hwloc_xml.READER,
    nccl_log.READER,
    nvidia_smi_topo.READER,
    nvidia_smi_p2p.READER,
    nvidia_smi_nvlink.READER,
    nvidia_smi_query.READER,
    rocm_smi_topo.READER,
    amd_smi_topology.READER,
    ibstat.READER,
    ibstatus.READER,
    ibstatus.NETDEV_READER,
    ibv_devinfo.READER,
    sysfs_infiniband.READER,
    lspci.READER,
    lspci_tree.READER,
    ibnetdiscover.READER,
    iblinkinfo.READER,
    slurm_topology.READER,
    slurm_yaml.READER,
    aws_topology.READER,
    topograph_model.READER,
    netq_graph.READER,
)
"""In the order in which they are tried."""


def reader_named(name: str) -> Reader:
    """A format by its name.

    Raises:
        UsageError: no such format.
    """
    for reader in READERS:
        if reader.name == name:
            return reader
    raise UsageError(f"--format {name}: no such format", hint=f"there are: {_names()}")


def known_in(capture: Capture) -> tuple[Reader, ...]:
    """The formats that a text holds: one that takes up a whole file, or all whose outputs stand in it."""
    head = capture.head
    found = tuple(reader for reader in READERS if reader.recognise(head))
    return next(((reader,) for reader in found if reader.whole), found)


def recognised(capture: Capture) -> tuple[Reader, ...]:
    """As `known_in`, where there are any.

    Raises:
        InputFileError: none.
    """
    found = known_in(capture)
    if not found:
        raise InputFileError(
            capture.source,
            "is in no format that topotune reads",
            hint="it looks like a document of topotune's own: topotune show takes it, or says what does"
            if capture.head.lstrip().startswith("{") and '"topotune/' in capture.head
            else f"--format forces one of: {_names()}",
        )
    return found


def _names() -> str:
    return ", ".join(reader.name for reader in READERS)
