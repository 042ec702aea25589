"""From a machine's profile to topologies of any number of such nodes. Pure.

Two views of the same machines. `machine_topology` is what a probe would find: sockets, NUMA nodes, the PCI
tree, NVLinks, adapters, and the fabric between them. `machine_network` is what collectives use of it: where
NVLinks join all GPUs of a node, libraries exchange over them and pass PCI Express on the way to adapters
alone, so that the PCI tree shrinks to the link of each adapter to the GPUs that share its place. Optima on it
are those of the literature; on the first view they are a little higher, by what PCI Express could add.

Nodes are called n0, n1, …, and so begin the ids of their vertices. The fabric is one switch that is no limit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from topotune.errors import UsageError
from topotune.topology.model import Link, LinkKind, PcieLink, Source, Topology, Vertex
from topotune.topology.profile import MachineProfile, PcieRate, Place
from topotune.topology.what_if import MAX_NODES, MAX_VERTICES

FABRIC = "fabric"
_HUB = "pci"


@dataclass(frozen=True, slots=True)
class _Graph:
    """A topology under construction."""

    vertices: list[Vertex] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    def join(
        self, a: str, b: str, kind: LinkKind, *, lanes: int | None = None, bytes_per_s: float | None = None
    ) -> None:
        """A link each way."""
        for src, dst in ((a, b), (b, a)):
            self.links.append(
                Link(
                    src=src, dst=dst, kind=kind, lanes=lanes, bandwidth_bytes_per_s=bytes_per_s, origin="spec"
                )
            )


def machine_topology(profile: MachineProfile, num_nodes: int | None = None) -> Topology:
    """Such nodes as a probe would find them.

    Args:
        profile: what they are.
        num_nodes: 1 to 4096; None: as many as the profile itself has.

    Raises:
        UsageError: no such number, too many vertices, or nodes that nothing joins.
    """
    return _with_pci_tree(profile, _checked(profile, num_nodes), join_unknown=False)


def _with_pci_tree(profile: MachineProfile, num_nodes: int, *, join_unknown: bool) -> Topology:
    graph = _Graph()
    for number in range(num_nodes):
        node = f"n{number}"
        _add_cpus(graph, profile, node)
        _add_devices(graph, profile, node)
        _add_pci_tree(graph, profile, node, join_unknown=join_unknown)
    _add_nvlinks(graph, profile, num_nodes, fold_switches=False)
    _add_fabric(graph, profile, num_nodes)
    return _topology(graph, profile, num_nodes)


def machine_network(profile: MachineProfile, num_nodes: int | None = None) -> Topology:
    """What collectives use of such nodes; arguments and errors as of `machine_topology`.

    Raises:
        UsageError: more than one node, and nobody says how fast their adapters are.
    """
    num_nodes = _checked(profile, num_nodes)
    if num_nodes > 1 and profile.nic is not None and profile.nic.bits_per_s is None:
        raise UsageError(
            f"{profile.name}: no source says how fast its adapters are, without which nothing follows for "
            f"{num_nodes} nodes",
            hint=f"--profile takes a .json file too: {profile.name}.json with bits_per_s in its nic, say",
        )
    if not profile.nvlinks_join_all:
        unknown = any(place.path is None or place.numa is None for place in profile.layout.places)
        return _with_pci_tree(profile, num_nodes, join_unknown=unknown)
    graph = _Graph()
    for number in range(num_nodes):
        _add_devices(graph, profile, f"n{number}")
        if num_nodes > 1:
            _join_nics_to_gpus(graph, profile, f"n{number}")
    _add_nvlinks(graph, profile, num_nodes, fold_switches=True)
    _add_fabric(graph, profile, num_nodes)
    return _topology(graph, profile, num_nodes)


def _checked(profile: MachineProfile, num_nodes: int | None) -> int:
    count = profile.num_nodes if num_nodes is None else num_nodes
    if not 1 <= count <= MAX_NODES:
        raise UsageError(f"{count} nodes: there can be 1 to {MAX_NODES}", hint="--nodes says how many")
    per_node = 3 * (profile.num_gpus + profile.num_nics) + 2 * (profile.layout.num_numa or 1) + 64
    if count * per_node > MAX_VERTICES:
        raise UsageError(f"{count} nodes {profile.name} are more than {MAX_VERTICES} vertices")
    if profile.nic is None and count > _nodes_per_domain(profile):
        raise UsageError(f"{profile.name} has no adapter that could join {count} nodes")
    return count


def _nodes_per_domain(profile: MachineProfile) -> int:
    return 1 if profile.nvlinks is None else profile.nvlinks.nodes_per_domain


def _topology(graph: _Graph, profile: MachineProfile, num_nodes: int) -> Topology:
    facts: dict[str, str | int | float | bool | None] = {"profile": profile.name, "title": profile.title}
    if profile.cpu is not None:
        facts["cpu_model"] = profile.cpu.model
    return Topology(
        vertices=tuple(graph.vertices),
        links=tuple(graph.links),
        source=Source(kind="profile", facts=facts),
        ranks=tuple(f"n{node}/gpu{gpu}" for node in range(num_nodes) for gpu in range(profile.num_gpus)),
        warnings=tuple(f"{profile.name}: not known: {line}" for line in profile.unknown),
    )


def _add_cpus(graph: _Graph, profile: MachineProfile, node: str) -> None:
    num_sockets, num_numa = profile.layout.num_sockets or 0, profile.layout.num_numa or 0
    for socket in range(num_sockets):
        graph.vertices.append(Vertex(id=f"{node}/cpu{socket}", kind="cpu", node=node, index=socket))
    for numa in range(num_numa):
        graph.vertices.append(Vertex(id=f"{node}/numa{numa}", kind="numa", node=node, index=numa))
        if num_sockets:
            graph.join(f"{node}/numa{numa}", f"{node}/cpu{numa * num_sockets // num_numa}", "numa")
        for other in range(numa):
            graph.join(f"{node}/numa{numa}", f"{node}/numa{other}", "numa")


def _add_devices(graph: _Graph, profile: MachineProfile, node: str) -> None:
    numa_of_gpu = {gpu: place.numa for place in profile.layout.places for gpu in place.gpus}
    gpus = tuple(
        Vertex(
            id=f"{node}/gpu{gpu}",
            kind="gpu",
            node=node,
            index=gpu,
            model=profile.gpu.models[0],
            memory_bytes=profile.gpu.memory_bytes,
            numa=numa_of_gpu[gpu],
            pcie=_best(profile.gpu.pcie),
        )
        for gpu in range(profile.num_gpus)
    )
    graph.vertices.extend(gpus)
    for place, nics in _nics_by_place(profile):
        for nic in nics:
            assert profile.nic is not None
            graph.vertices.append(
                Vertex(
                    id=f"{node}/nic{nic}",
                    kind="nic",
                    node=node,
                    index=nic,
                    name=f"nic{nic}",
                    speed=profile.nic.bits_per_s,
                    link_layer="InfiniBand" if profile.nic.kind == "infiniband" else "Ethernet",
                    numa=place.numa,
                    pcie=_best(profile.nic.pcie),
                )
            )


def _best(rate: PcieRate | None) -> PcieLink | None:
    return None if rate is None else PcieLink(max_speed_gt_per_s=rate.gt_per_s, max_width=rate.width)


def _nics_by_place(profile: MachineProfile) -> Iterator[tuple[Place, range]]:
    """Each place with the numbers of its adapters."""
    first = 0
    for place in profile.layout.places:
        yield place, range(first, first + place.num_nics)
        first += place.num_nics


def _add_pci_tree(graph: _Graph, profile: MachineProfile, node: str, *, join_unknown: bool) -> None:
    """The ways from devices to their NUMA nodes.

    Args:
        graph: takes them.
        profile: says them.
        node: begins their ids.
        join_unknown: what no source says the place of hangs on one vertex with all else, as if nothing but
            its own link limited it; else it hangs nowhere.
    """
    hub = f"{node}/{_HUB}"
    made: set[str] = set()

    def add(kind: Literal["pcie-root", "pcie-switch"], name: str, numa: int | None) -> str:
        vertex_id = f"{node}/{name}"
        graph.vertices.append(Vertex(id=vertex_id, kind=kind, node=node, name=name, numa=numa))
        made.add(vertex_id)
        return vertex_id

    def add_root(name: str, numa: int | None) -> str:
        root = f"{node}/{name}"
        if root not in made:
            add("pcie-root", name, numa)
            if numa is not None:
                graph.join(root, f"{node}/numa{numa}", "pcie")
            if join_unknown:
                graph.join(root, hub, "pcie")
        return root

    def hang(device: str, upper: str, rate: PcieRate | None) -> None:
        graph.join(device, upper, "pcie", lanes=_width(rate), bytes_per_s=_bandwidth(rate))

    if join_unknown:
        add("pcie-root", _HUB, None)
    for number, (place, nics) in enumerate(_nics_by_place(profile)):
        devices = [(f"{node}/gpu{gpu}", profile.gpu.pcie) for gpu in place.gpus]
        devices += [(f"{node}/nic{nic}", profile.nic.pcie if profile.nic else None) for nic in nics]
        if place.path is None:
            for device, rate in devices if join_unknown else ():
                hang(device, hub, rate)
            continue
        if place.path == "NODE":
            for at, (device, rate) in enumerate(devices):
                hang(device, add_root(f"root{number}.{at}", place.numa), rate)
            continue
        bridge = f"root{number}" if place.host_bridge is None else f"bridge{place.host_bridge}"
        if place.upper_switch is None:
            upper = add_root(bridge, place.numa)
        else:
            upper = f"{node}/upper{place.upper_switch}"
            if upper not in made:
                root = add_root(bridge, place.numa)
                add("pcie-switch", f"upper{place.upper_switch}", place.numa)
                hang(upper, root, None)
        if place.path != "PHB":
            above, upper = upper, add("pcie-switch", f"switch{number}", place.numa)
            hang(upper, above, place.uplink)
        for at, (device, rate) in enumerate(devices):
            if place.path == "PXB":
                lower = add("pcie-switch", f"switch{number}.{at}", place.numa)
                hang(lower, upper, rate)
                hang(device, lower, rate)
            else:
                hang(device, upper, rate)


def _width(rate: PcieRate | None) -> int | None:
    return None if rate is None else rate.width


def _bandwidth(rate: PcieRate | None) -> float | None:
    return None if rate is None else rate.bandwidth_bytes_per_s


def _join_nics_to_gpus(graph: _Graph, profile: MachineProfile, node: str) -> None:
    """Each adapter to GPUs of its place: dealt in turn where it has more adapters than GPUs, else shared out.

    An adapter without GPUs beside it serves all of the node.
    """
    for place, nics in _nics_by_place(profile):
        for at, nic in enumerate(nics):
            if not place.gpus:
                served = tuple(range(profile.num_gpus))
            elif len(nics) >= len(place.gpus):
                served = (place.gpus[at % len(place.gpus)],)
            else:
                served = place.gpus[at :: len(nics)]
            assert profile.nic is not None
            slots = (_bandwidth(profile.gpu.pcie), _bandwidth(profile.nic.pcie))
            port = profile.nic.bytes_per_s
            narrowest = min((rate for rate in (port, *slots) if rate is not None), default=None)
            # All that one GPU sends to an adapter of its own goes on through the port, which limits it alone.
            # Where GPUs share it, the limit keeps them from exchanging through it beside their NVLinks.
            limit = None if len(served) == 1 and narrowest == port else narrowest
            for gpu in served:
                graph.join(f"{node}/gpu{gpu}", f"{node}/nic{nic}", "pcie", bytes_per_s=limit)


def _add_nvlinks(graph: _Graph, profile: MachineProfile, num_nodes: int, *, fold_switches: bool) -> None:
    links = profile.nvlinks
    if links is None:
        return
    for first in range(0, num_nodes, links.nodes_per_domain):
        nodes = range(first, min(first + links.nodes_per_domain, num_nodes))
        owner = f"n{first}" if links.nodes_per_domain == 1 else None
        prefix = owner if owner else f"domain{first // links.nodes_per_domain}"
        num_switches = min(links.num_switches, 1) if fold_switches else links.num_switches
        for switch in range(num_switches):
            here = f"{prefix}/nvswitch{switch}"
            graph.vertices.append(Vertex(id=here, kind="nvswitch", node=owner, index=switch))
            for node in nodes:
                for gpu in range(profile.num_gpus):
                    assert links.links_per_gpu is not None
                    share = (links.links_per_gpu + num_switches - 1 - switch) // num_switches
                    if share:
                        rate = share * links.bytes_per_s_per_link
                        graph.join(f"n{node}/gpu{gpu}", here, "nvlink", lanes=share, bytes_per_s=rate)
        for node in nodes:
            for a, b, count in links.pairs:
                rate = count * links.bytes_per_s_per_link
                graph.join(f"n{node}/gpu{a}", f"n{node}/gpu{b}", "nvlink", lanes=count, bytes_per_s=rate)


def _add_fabric(graph: _Graph, profile: MachineProfile, num_nodes: int) -> None:
    if num_nodes == 1 or profile.nic is None:
        return
    graph.vertices.append(Vertex(id=FABRIC, kind="switch", name="a switch that is no limit"))
    for node in range(num_nodes):
        for nic in range(profile.num_nics):
            graph.join(f"n{node}/nic{nic}", FABRIC, profile.nic.kind, bytes_per_s=profile.nic.bytes_per_s)
