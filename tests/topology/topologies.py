"""Made-up topologies, for examples and for properties."""

from dataclasses import replace

from hypothesis import strategies as st

from topotune.topology import Link, PcieLink, Source, Topology, Vertex

TEXT = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=["Cc", "Cs"]), max_size=12
)
FIGURE = st.floats(min_value=1e-6, max_value=1e15, allow_nan=False, allow_infinity=False)
SPEED = st.none() | st.sampled_from([2.5, 5.0, 8.0, 16.0, 32.0, 64.0])


def maybe(strategy):
    return st.none() | strategy


@st.composite
def topologies(draw):
    ids = draw(st.lists(TEXT, min_size=1, max_size=8, unique=True))
    node = maybe(st.sampled_from(["a", "b"]))
    pcie = st.builds(
        PcieLink,
        speed_gt_per_s=SPEED,
        width=maybe(st.sampled_from([1, 8, 16])),
        max_speed_gt_per_s=SPEED,
        max_width=maybe(st.sampled_from([8, 16])),
    )
    vertices = tuple(
        draw(
            st.builds(
                Vertex,
                id=st.just(each),
                kind=st.sampled_from(
                    ["gpu", "cpu", "numa", "pcie-switch", "pcie-root", "nvswitch", "nic", "switch"]
                ),
                node=node,
                index=maybe(st.integers(0, 1000)),
                name=maybe(TEXT),
                model=maybe(TEXT),
                speed=maybe(FIGURE),
                state=maybe(TEXT),
                link_layer=maybe(st.sampled_from(["InfiniBand", "Ethernet"])),
                numa=maybe(st.integers(0, 7)),
                cpus=maybe(st.sampled_from(["0-3", ""])),
                memory_bytes=maybe(st.integers(0, 2**45)),
                pcie=maybe(pcie),
                rdma_device=maybe(TEXT),
            )
        )
        for each in ids
    )
    ends = [
        (a, b, kind) for a in ids for b in ids if a != b for kind in ("nvlink", "pcie", "numa", "ethernet")
    ]
    chosen = draw(st.lists(st.sampled_from(ends), unique=True, max_size=16)) if ends else []
    links = tuple(
        draw(
            st.builds(
                Link,
                src=st.just(a),
                dst=st.just(b),
                kind=st.just(kind),
                lanes=maybe(st.integers(1, 64)),
                bandwidth_bytes_per_s=maybe(FIGURE),
                latency_s=maybe(FIGURE),
                distance=maybe(st.integers(10, 255)),
                origin=st.sampled_from(["spec", "observed", "inferred", "measured"]),
            )
        )
        for a, b, kind in chosen
    )
    facts = st.dictionaries(
        TEXT, st.none() | st.booleans() | st.integers(-(2**40), 2**40) | FIGURE | TEXT, max_size=4
    )
    return Topology(
        vertices=vertices,
        links=links,
        source=Source(
            kind=draw(TEXT), path=draw(maybe(TEXT)), created=draw(maybe(TEXT)),
            topotune_version=draw(maybe(TEXT)), facts=draw(facts),
        ),
        ranks=tuple(draw(st.lists(st.sampled_from(ids), max_size=4))),
        warnings=tuple(draw(st.lists(TEXT, max_size=3))),
    )  # fmt: skip


def both_ways(a, b, kind, **figures):
    return [Link(src=a, dst=b, kind=kind, **figures), Link(src=b, dst=a, kind=kind, **figures)]


def cluster(num_nodes: int, *, model: str = "H100") -> Topology:
    """Nodes of two GPUs on one switch, two more on host bridges of their own, one adapter; no NVLink."""
    vertices, links = [], []
    for number in range(num_nodes):
        node = f"n{number}"
        for numa in range(2):
            vertices += [
                Vertex(
                    id=f"{node}/numa{numa}",
                    kind="numa",
                    node=node,
                    index=numa,
                    cpus=f"{numa}",
                    memory_bytes=2**30,
                ),
                Vertex(id=f"{node}/cpu{numa}", kind="cpu", node=node, index=numa, model="EPYC"),
                Vertex(id=f"{node}/root{numa}", kind="pcie-root", node=node, numa=numa),
            ]
            links += both_ways(f"{node}/numa{numa}", f"{node}/cpu{numa}", "numa")
            links += both_ways(f"{node}/root{numa}", f"{node}/numa{numa}", "pcie")
        links += both_ways(f"{node}/numa0", f"{node}/numa1", "numa", distance=21)
        vertices.append(Vertex(id=f"{node}/sw", kind="pcie-switch", node=node))
        links += both_ways(f"{node}/sw", f"{node}/root0", "pcie")
        for gpu, above in enumerate(("sw", "sw", "root0", "root1")):
            vertices.append(Vertex(id=f"{node}/gpu{gpu}", kind="gpu", node=node, index=gpu, model=model))
            links += both_ways(f"{node}/gpu{gpu}", f"{node}/{above}", "pcie", lanes=16)
        vertices.append(
            Vertex(id=f"{node}/nic", kind="nic", node=node, name="ib0", speed=400e9, state="ACTIVE")
        )
        links += both_ways(f"{node}/nic", f"{node}/sw", "pcie", lanes=16)
    return Topology(vertices=tuple(vertices), links=tuple(links), source=Source(kind="made up"))


def relabelled(topology: Topology, names: dict[str, str], order: list[int]) -> Topology:
    """The same machine under other ids, its vertices in another order."""
    moved = [replace(vertex, id=names[vertex.id]) for vertex in topology.vertices]
    return replace(
        topology,
        vertices=tuple(moved[at] for at in order),
        links=tuple(
            replace(link, src=names[link.src], dst=names[link.dst]) for link in reversed(topology.links)
        ),
        ranks=tuple(names[each] for each in topology.ranks),
        servers=tuple(names[each] for each in topology.servers),
    )
