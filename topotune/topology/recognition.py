"""Which known machine a topology shows: by what names it, and by its shape. Pure.

Two kinds of evidence. Something may *name* the machine: the firmware's tables, an instance type in the
metadata of a job, a topology file that only one vendor's image sets. And its *shape* may fit: how many GPUs
of which model and memory, how many NVLinks each, how many adapter ports of which rate. What a topology does
not say is no evidence either way.

A name counts whatever the shape, since a machine with a fault is what one looks for; where it differs from
the profile is said. Without a name all known parts of the shape must fit, and no other profile's may.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from topotune.topology.catalog import shipped_profiles
from topotune.topology.model import Topology, Vertex
from topotune.topology.overview import by_node
from topotune.topology.profile import MachineProfile

HintKind = Literal["instance type", "NCCL topology file"]

# An 80 GB card has 79 to 85e9 bytes, by driver; the next size of any card is at least a quarter away.
_MEMORY_TOLERANCE = 0.15


@dataclass(frozen=True, kw_only=True, slots=True)
class Hint:
    """Something outside the topology that may name the machine.

    Attributes:
        kind: what it is.
        value: ``p4d.24xlarge``, ``/opt/microsoft/ndv4/topo.xml``.
        where: the variable or file that says it.
    """

    kind: HintKind
    value: str
    where: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A profile that the machine may be of.

    Attributes:
        profile: it.
        named_by: what names it, one phrase each.
        fits: in what the shape agrees, one phrase each.
        differs: in what it does not, with both values.
    """

    profile: MachineProfile
    named_by: tuple[str, ...]
    fits: tuple[str, ...]
    differs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recognition:
    """What a topology was taken for.

    Attributes:
        profile: the one that it is, or None where none or several would do.
        text: that, with the evidence, in one line.
        candidates: likeliest first; without any that neither is named nor has such GPUs.
    """

    profile: MachineProfile | None
    text: str
    candidates: tuple[Candidate, ...]


def recognise(
    topology: Topology, hints: Sequence[Hint] = (), profiles: Sequence[MachineProfile] | None = None
) -> Recognition:
    """The known machine that a topology shows.

    Args:
        topology: of one node or several; the first that has GPUs stands for all.
        hints: what else was found (`topotune.probe.instance_type.read_hints`).
        profiles: those to choose from; None: the shipped ones.
    """
    known = shipped_profiles() if profiles is None else profiles
    shape = _shape(topology)
    found = [
        candidate
        for profile in known
        if (candidate := _candidate(profile, topology, shape, hints)) is not None
    ]
    found.sort(key=lambda each: (not each.named_by, len(each.differs), -len(each.fits), each.profile.name))
    return _chosen(found, shape)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shape:
    """One node, counted.

    Attributes:
        num_nodes: of the topology.
        gpus: its GPUs.
        nvlinks: of each GPU where the topology tells of NVLinks at all, else empty.
        nics: its adapters whose rate is known.
    """

    num_nodes: int
    gpus: tuple[Vertex, ...]
    nvlinks: tuple[int, ...]
    nics: tuple[Vertex, ...]

    def num_ports(self, profile: MachineProfile) -> int:
        """Ports with the rate and, where it is known, the link layer of a profile's."""
        assert profile.nic is not None
        layer = "InfiniBand" if profile.nic.kind == "infiniband" else "Ethernet"
        others = {"InfiniBand", "Ethernet"} - {layer}
        return sum(nic.speed == profile.nic.bits_per_s and nic.link_layer not in others for nic in self.nics)


def _shape(topology: Topology) -> _Shape:
    nodes = {vertex.node for vertex in topology.vertices if vertex.node is not None}
    by_host = by_node(topology, "gpu")
    node, gpus = next(iter(by_host.items()), (None, []))
    nics = by_node(topology, "nic").get(node, [])
    return _Shape(
        num_nodes=len(nodes),
        gpus=tuple(gpus),
        nvlinks=_nvlinks(topology, gpus),
        nics=tuple(nic for nic in nics if nic.speed is not None),
    )


def _nvlinks(topology: Topology, gpus: Sequence[Vertex]) -> tuple[int, ...]:
    lanes: Counter[str] = Counter()
    processors = {vertex.id for vertex in topology.vertices if vertex.kind in ("numa", "cpu")}
    for link in topology.links:
        if link.kind == "nvlink" and link.dst not in processors:  # NVLink-C2C joins these
            if link.lanes is None:
                return ()  # nobody counted them
            lanes[link.src] += link.lanes
    counted = tuple(lanes[gpu.id] if gpu.nvlink_ports is None else len(gpu.nvlink_ports) for gpu in gpus)
    return counted if any(counted) else ()


def _candidate(
    profile: MachineProfile, topology: Topology, shape: _Shape, hints: Sequence[Hint]
) -> Candidate | None:
    named_by = tuple(_names(profile, topology, hints))
    fits: list[str] = []
    differs: list[str] = []
    for phrase, agrees in (*_compare_makers(profile, topology), *_compare(profile, shape)):
        (fits if agrees else differs).append(phrase)
    gpus_fit = bool(shape.gpus) and all(_is_model(profile, gpu) for gpu in shape.gpus)
    if not named_by and not gpus_fit:
        return None
    return Candidate(profile=profile, named_by=named_by, fits=tuple(fits), differs=tuple(differs))


def _names(profile: MachineProfile, topology: Topology, hints: Sequence[Hint]) -> Iterator[str]:
    if profile.marks is None:
        return
    vendor, product = _firmware(topology)
    for mark in profile.marks.dmi:
        if mark.product is None or mark.vendor.lower() not in vendor.lower():
            continue
        if re.match(re.escape(mark.product.lower()) + r"(?![a-z0-9])", product.lower()):
            yield f"the firmware says {vendor} {product}"
    types = {name.lower() for name in profile.marks.instance_types}
    for hint in hints:
        if hint.kind == "instance type" and hint.value.lower() in types:
            yield f"{hint.where} says {hint.value}"
        elif hint.kind == "NCCL topology file" and any(
            hint.value.endswith(end) for end in profile.marks.nccl_topo_files
        ):
            yield f"{hint.where} names {hint.value}"


def _firmware(topology: Topology) -> tuple[str, str]:
    """Vendor and product by the firmware's tables; "" where nobody looked or they say nothing."""
    vendor, product = (str(topology.source.facts.get(key) or "") for key in ("dmi_vendor", "dmi_product"))
    return vendor, product


def _compare_makers(profile: MachineProfile, topology: Topology) -> Iterator[tuple[str, bool]]:
    vendor, _ = _firmware(topology)
    if vendor and profile.marks is not None and profile.marks.dmi:
        fits = any(mark.vendor.lower() in vendor.lower() for mark in profile.marks.dmi)
        yield f"made by {vendor}" if fits else f"made by {vendor}, not {profile.marks.dmi[0].vendor}", fits


def _compare(profile: MachineProfile, shape: _Shape) -> Iterator[tuple[str, bool]]:
    """What the topology says of the shape, as a phrase and whether the profile says so too."""
    if not shape.gpus:
        return
    wanted = profile.num_gpus
    yield _phrase(len(shape.gpus), wanted, "GPU")
    models = {gpu.model for gpu in shape.gpus if gpu.model is not None}
    if models:
        fits = all(_is_model(profile, gpu) for gpu in shape.gpus if gpu.model is not None)
        seen = ", ".join(sorted(models))
        yield (seen if fits else f"GPUs are {seen}, not {profile.gpu.models[0]}"), fits
    memory = {gpu.memory_bytes for gpu in shape.gpus if gpu.memory_bytes is not None}
    if memory:
        fits = all(_near(each, profile.gpu.memory_bytes) for each in memory)
        seen = "/".join(f"{each / 1e9:.0f}" for each in sorted(memory))
        expected = f"{profile.gpu.memory_bytes / 1e9:.0f} GB"
        yield (f"{expected} each" if fits else f"GPUs have {seen} GB, not {expected}"), fits
    if shape.nvlinks:
        seen_links, known_links = sorted(shape.nvlinks), sorted(profile.nvlinks_per_gpu)
        fits = seen_links == known_links or (
            len(seen_links) != len(known_links) and set(seen_links) <= set(known_links)
        )
        seen, expected = _counts(shape.nvlinks), _counts(profile.nvlinks_per_gpu)
        yield (f"{seen} NVLinks a GPU" if fits else f"{seen} NVLinks a GPU, not {expected}"), fits
    if profile.nic is not None and profile.nic.bits_per_s is not None and shape.nics:
        ports = shape.num_ports(profile)
        names = {"infiniband": "InfiniBand", "roce": "RoCE", "efa": "EFA", "ethernet": "Ethernet"}
        plural = "" if ports == 1 else "s"
        what = f"{names[profile.nic.kind]} port{plural} of {profile.nic.bits_per_s / 1e9:g} Gbit/s"
        # More are no contradiction: storage and management have ports of their own.
        fits = ports >= profile.num_nics
        yield (f"{ports} {what}" if fits else f"{ports} {what}, not {profile.num_nics}"), fits
    if profile.num_nodes > 1:
        yield _phrase(shape.num_nodes, profile.num_nodes, "node")


def _phrase(seen: int, expected: int, what: str) -> tuple[str, bool]:
    counted = f"{seen} {what}" if seen == 1 else f"{seen} {what}s"
    return (counted, True) if seen == expected else (f"{counted}, not {expected}", False)


def _counts(numbers: Sequence[int]) -> str:
    return "/".join(map(str, sorted(set(numbers), reverse=True)))


def _near(seen: int, expected: int) -> bool:
    return abs(seen - expected) <= _MEMORY_TOLERANCE * expected


def _is_model(profile: MachineProfile, gpu: Vertex) -> bool:
    if gpu.model is None:
        return False
    words = _words(gpu.model)
    return any(_contains(words, _words(model)) for model in profile.gpu.models)


def _words(model: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", model.lower())


def _contains(words: list[str], part: list[str]) -> bool:
    return any(words[at : at + len(part)] == part for at in range(len(words) - len(part) + 1))


def _chosen(found: list[Candidate], shape: _Shape) -> Recognition:
    named = [each for each in found if each.named_by]
    alike = _most_alike([each for each in named or found if not each.differs], shape)
    # A name counts even where the machine is not as it should be.
    pool = alike or named
    if len(pool) == 1:
        best = pool[0]
        return Recognition(profile=best.profile, text=_told(best), candidates=tuple(found))
    if pool:
        names = " and ".join(each.profile.name for each in pool)
        text = f"the machine could be {names}, and nothing found here tells them apart"
    elif found:
        nearest = found[0]
        text = (
            f"no known machine fits; {nearest.profile.name} comes nearest, but: {'; '.join(nearest.differs)}"
        )
    elif shape.gpus:
        models = sorted({gpu.model for gpu in shape.gpus if gpu.model is not None})
        text = f"no known machine has such GPUs: {len(shape.gpus)} × {', '.join(models)}"
        if not models:
            text = "what model the GPUs are is not known, and nothing names the machine"
    else:
        text = "no known machine fits: no GPU was found, and nothing names the machine"
    return Recognition(profile=None, text=text, candidates=tuple(found))


def _most_alike(pool: list[Candidate], shape: _Shape) -> list[Candidate]:
    """Of those that nothing speaks against: with just as many ports, if any; of these, with most agreements.

    A machine may have more ports than its profile, for storage; but then it is not likelier than one that has
    just these. Agreements differ where a profile knows its maker, or is of a rack.
    """
    exact = [
        each
        for each in pool
        if each.profile.nic is not None and shape.num_ports(each.profile) == each.profile.num_nics
    ]
    pool = exact or pool
    most = max((len(each.fits) for each in pool), default=0)
    return [each for each in pool if len(each.fits) == most]


def _told(candidate: Candidate) -> str:
    if not candidate.named_by:
        return f"{candidate.profile.name}, by its shape: {'; '.join(candidate.fits)}"
    told = f"{candidate.profile.name}: {'; '.join(candidate.named_by)}"
    return f"{told}; but {'; '.join(candidate.differs)}" if candidate.differs else told
