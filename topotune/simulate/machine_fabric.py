"""A known machine many times over on a fat tree or on rails, where its network is regular. Pure."""

from typing import Final

from topotune.bounds.bound import Bound
from topotune.errors import UsageError
from topotune.simulate.fabrics import switched_nodes
from topotune.simulate.network import GPU_CALL_OVERHEAD_S, LATENCY_S, Network
from topotune.topology.profile import MachineProfile
from topotune.units import format_rate

DEFAULT_NODES_PER_LEAF: Final = 32
MAX_RANKS: Final = 2**17


def machine_fabric(
    profile: MachineProfile,
    num_nodes: int,
    *,
    nodes_per_leaf: int | None = None,
    oversubscription: float = 1.0,
    rails: bool = False,
) -> tuple[Network, Bound]:
    """Nodes whose NVSwitches join all GPUs, with an adapter for each, under leaf switches and a spine.

    Args:
        profile: of such a node.
        num_nodes: 2 or more.
        nodes_per_leaf: under one leaf, or with ``rails`` under one for each adapter; None: 32, or all.
        oversubscription: what adapters below a leaf carry, over what its uplink carries.
        rails: whether adapters of one place share a leaf.

    Returns:
        The network, and the bound of allreduce on it.

    Raises:
        UsageError: the machine is another, or the nodes do not fill the leaves.
    """
    nvlinks, nic = profile.nvlinks, profile.nic
    places = profile.layout.places
    num_gpus = sum(len(place.gpus) for place in places)
    num_nics = sum(place.num_nics for place in places)
    if nvlinks is None or not nvlinks.num_switches or nvlinks.nodes_per_domain > 1 or num_nics != num_gpus:
        raise UsageError(
            f"{profile.name}: fabrics are of nodes whose NVSwitches join all GPUs, with an adapter for each; "
            f"this one has {num_gpus} GPUs, {num_nics} adapters",
            hint="--profile dgx-h100; without a fabric, up to 2,048 ranks are simulated on any machine",
        )
    assert nic is not None
    assert nvlinks.links_per_gpu is not None
    outside = nic.bytes_per_s
    if outside is None:
        raise UsageError(f"{profile.name}: no source says how fast its adapters are")
    if not 2 <= num_nodes <= MAX_RANKS // num_gpus:
        raise UsageError(f"--nodes {num_nodes}: a fabric is of 2 to {MAX_RANKS // num_gpus} such nodes")
    if nodes_per_leaf is None:
        nodes_per_leaf = min(num_nodes, DEFAULT_NODES_PER_LEAF)
    inside = nvlinks.links_per_gpu * nvlinks.bytes_per_s_per_link
    network = switched_nodes(
        num_nodes,
        num_gpus,
        inside_bytes_per_s=inside,
        nic_bytes_per_s=outside,
        nodes_per_leaf=nodes_per_leaf,
        oversubscription=oversubscription,
        rails=rails,
        outside_latency_s=LATENCY_S[nic.kind],
        call_overhead_s=GPU_CALL_OVERHEAD_S,
    )
    return network, _bound(num_nodes, num_gpus, inside, outside, nodes_per_leaf, oversubscription, rails)


def _bound(
    num_nodes: int,
    num_gpus: int,
    inside: float,
    outside: float,
    nodes_per_leaf: int,
    oversubscription: float,
    rails: bool,
) -> Bound:
    """The tightest of what each level must send: 2(k-1)/k of the message for each of k equal parts.

    Nodes on rails reach every rail inside, so that those below one group of leaves form a part together.
    """
    num_leaves = num_nodes // nodes_per_leaf

    def s_per_byte(parts: int, rate: float) -> float:
        return 2 * (parts - 1) / parts / rate

    of_node = num_gpus * outside
    of_leaf = nodes_per_leaf * of_node / oversubscription
    levels = [
        (
            s_per_byte(num_nodes * num_gpus, inside + outside),
            f"the links of each GPU, {format_rate(inside + outside)}",
        ),
        (
            s_per_byte(num_nodes, of_node),
            f"the {num_gpus} adapters of each node, {format_rate(of_node)} together",
        ),
    ]
    if num_leaves > 1:
        place = "the uplinks of each group of rails" if rails else "the uplink of each leaf"
        levels.append((s_per_byte(num_leaves, of_leaf), f"{place}, {format_rate(of_leaf)}"))
    # Ties go to the wider level: it is what a faster adapter would not mend.
    slowest_s, text = max(reversed(levels), key=lambda level: level[0])
    return Bound(s_per_byte=slowest_s, text=text, cut=())
