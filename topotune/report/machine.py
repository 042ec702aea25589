"""A known machine for people: its parts, what counts as healthy, what was measured, and who says so."""

import textwrap
from collections.abc import Iterator

from topotune.topology.profile import MachineProfile, PublishedAllreduce, Threshold
from topotune.units import format_bytes, format_line_rate, format_rate

_MIN_WIDTH = 40
_LABEL = 11
_NICS = {"infiniband": "InfiniBand", "roce": "RoCE", "efa": "EFA", "ethernet": "Ethernet"}
_THRESHOLDS = {
    "allreduce_busbw": "allreduce busbw",
    "nic_rdma": "RDMA through one port",
    "host_to_device": "copy from host to GPU",
    "device_to_host": "copy from GPU to host",
}


def describe_profile(profile: MachineProfile, *, width: int) -> str:
    """Lines of at most ``width`` columns (40 at least).

    Of a table of measurements the largest size is shown; ``show --json`` has all. Sources are numbered in the
    order of their use.
    """
    sources: list[str] = []

    def cited(text: str, source: str) -> str:
        if source not in sources:
            sources.append(source)
        return f"{text} [{sources.index(source) + 1}]"

    rows = [(label, cited(text, source)) for label, text, source in _facts(profile)]
    rows += [("not known", line) for line in profile.unknown]
    lines = [profile.name, *_wrapped(profile.title, width, "  ", "  ")]
    before = None
    for label, text in rows:
        shown = label if label != before else ""
        lines += _wrapped(text, width, f"  {shown:<{_LABEL}}", " " * (_LABEL + 2))
        before = label
    lines += ["", "sources"]
    for number, source in enumerate(sources, 1):
        lines += _wrapped(source, width, f"  [{number}] ", "      ")
    return "\n".join(lines)


def _wrapped(text: str, width: int, first: str, further: str) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, _MIN_WIDTH),
        initial_indent=first,
        subsequent_indent=further,
        break_on_hyphens=False,
    )


def _facts(profile: MachineProfile) -> Iterator[tuple[str, str, str]]:
    """Label, text and source of each thing that a profile says."""
    of_each = " a node" if profile.num_nodes > 1 else ""
    if profile.num_nodes > 1:
        yield "nodes", str(profile.num_nodes), profile.layout.source
    gpu = profile.gpu
    slot = f", PCI Express {gpu.pcie.gt_per_s:g} GT/s x{gpu.pcie.width}" if gpu.pcie else ""
    memory = f"{gpu.memory_bytes / 1e9:g} GB"
    yield "GPUs", f"{profile.num_gpus} × {gpu.models[0]}{of_each}, {memory}{slot}", gpu.source
    if profile.cpu is not None:
        yield "CPUs", profile.cpu.model, profile.cpu.source
    if profile.nvlinks is not None:
        links = profile.nvlinks
        counts = "/".join(map(str, sorted(set(profile.nvlinks_per_gpu), reverse=True)))
        way = f"over {links.num_switches} switches" if links.num_switches else "straight to other GPUs"
        rate = format_rate(links.bytes_per_s_per_link)
        yield "NVLinks", f"{counts} a GPU, {rate} each and direction, {way}", links.source
    if profile.nic is None:
        yield "adapters", "none that is part of it", profile.layout.source
    else:
        nic = profile.nic
        rdma = "with RDMA" if nic.rdma else "without RDMA"
        ports = f"{profile.num_nics} {_NICS[nic.kind]} port{'s' if profile.num_nics > 1 else ''}{of_each}"
        rate = "a rate that no source says" if nic.bits_per_s is None else format_line_rate(nic.bits_per_s)
        yield "adapters", f"{ports} of {rate}, {rdma}", nic.source
    yield "places", _places(profile), profile.layout.source
    for threshold in profile.thresholds:
        yield "healthy", _threshold(threshold), threshold.source
    for run in profile.allreduce:
        yield "measured", _measured(run), run.source
    if profile.marks is not None:
        names = ", ".join((*profile.marks.instance_types, *_firmware(profile)))
        yield "known as", names, profile.marks.source


def _places(profile: MachineProfile) -> str:
    layout = profile.layout
    counts = [
        f"{count} {what}{'s' if count > 1 else ''}"
        for count, what in ((layout.num_sockets, "socket"), (layout.num_numa, "NUMA node"))
        if count is not None
    ]
    return ", ".join((*counts, f"{len(layout.places)} groups of devices in the PCI tree"))


def _threshold(threshold: Threshold) -> str:
    nodes = f" on {threshold.num_nodes} nodes" if threshold.num_nodes > 1 else ""
    size = f" at {format_bytes(threshold.message_bytes)}" if threshold.message_bytes else ""
    return f"{_THRESHOLDS[threshold.what]}{nodes} from {format_rate(threshold.min_bytes_per_s)}{size}"


def _measured(run: PublishedAllreduce) -> str:
    largest = run.points[-1]
    rate, size = format_rate(run.busbw_bytes_per_s(largest)), format_bytes(largest.message_bytes)
    nodes = f"{run.num_nodes} node{'s' if run.num_nodes > 1 else ''}"
    return f"allreduce of {run.num_ranks} GPUs on {nodes}: busbw {rate} at {size} ({run.setting})"


def _firmware(profile: MachineProfile) -> tuple[str, ...]:
    marks = profile.marks.dmi if profile.marks is not None else ()
    return tuple(f"{mark.vendor} {mark.product or '(any product)'} in the firmware" for mark in marks)
