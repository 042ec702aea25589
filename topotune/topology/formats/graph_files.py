"""A topology as a graph for other programs: DOT (Graphviz) and GraphML (networkx, Gephi, yEd)."""

import io
from collections.abc import Iterator

from topotune.topology.model import Link, Topology, Vertex
from topotune.units import format_rate

_SHAPES = {"gpu": "box", "nic": "house", "switch": "hexagon", "nvswitch": "hexagon", "pcie-switch": "diamond"}


def write_dot(topology: Topology) -> str:
    """DOT, one cluster for each node; links that run both ways alike are drawn once."""
    lines = ["graph topology {", "  node [shape=ellipse];"]
    nodes = dict.fromkeys(vertex.node for vertex in topology.vertices)
    for number, node in enumerate(nodes):
        inside = [vertex for vertex in topology.vertices if vertex.node == node]
        indent = "  "
        if node is not None:
            lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(node)};"]
            indent = "    "
        for vertex in inside:
            shape = _SHAPES.get(vertex.kind)
            style = f", shape={shape}" if shape else ""
            lines.append(f"{indent}{_quoted(vertex.id)} [label={_quoted(_label(vertex))}{style}];")
        if node is not None:
            lines.append("  }")
    lines += [
        f"  {_quoted(link.src)} -- {_quoted(link.dst)} [label={_quoted(_link_label(link))}{direction}];"
        for link, direction in _drawn(topology)
    ]
    return "\n".join([*lines, "}"]) + "\n"


def write_graphml(topology: Topology) -> str:
    """GraphML: a directed multigraph whose nodes and edges have the topology's fields as attributes."""
    import networkx

    graph = networkx.MultiDiGraph()
    for vertex in topology.vertices:
        graph.add_node(_xml_text(vertex.id), **_attributes(vertex))
    for link in topology.links:
        graph.add_edge(_xml_text(link.src), _xml_text(link.dst), key=link.kind, **_attributes(link))
    out = io.BytesIO()
    networkx.write_graphml_xml(graph, out)
    return out.getvalue().decode()


def _drawn(topology: Topology) -> Iterator[tuple[Link, str]]:
    by_ends = {(link.src, link.dst, link.kind): link for link in topology.links}
    for link in topology.links:
        back = by_ends.get((link.dst, link.src, link.kind))
        alike = back is not None and _link_label(back) == _link_label(link)
        if not alike:
            yield link, ", dir=forward"
        elif link.src < link.dst:
            yield link, ""


def _label(vertex: Vertex) -> str:
    number = "" if vertex.index is None else f" {vertex.index}"
    lines = [f"{vertex.kind}{number}", vertex.name, vertex.model, vertex.pci_address]
    return "\n".join(line for line in lines if line)


def _link_label(link: Link) -> str:
    lanes = "" if link.lanes is None else f" x{link.lanes}"
    rate = "" if link.bandwidth_bytes_per_s is None else f"\n{format_rate(link.bandwidth_bytes_per_s)}"
    return f"{link.kind}{lanes}{rate}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _attributes(value: Vertex | Link) -> dict[str, str | int | float | bool]:
    """Fields that say something, those with parts under ``field.part``."""
    found: dict[str, str | int | float | bool] = {}
    for name in value.__dataclass_fields__:
        if name in ("id", "src", "dst"):
            continue
        field = getattr(value, name)
        if name == "pcie" and field is not None:
            parts = {part: getattr(field, part) for part in field.__dataclass_fields__}
            found |= {f"pcie.{part}": figure for part, figure in parts.items() if figure is not None}
        elif name == "nvlink_ports" and field is not None:
            found["nvlink_ports"] = len(field)
            found["nvlink_ports_active"] = sum(port.active for port in field)
        elif name == "attributes":
            found |= {_xml_text(key): _xml_text(text) for key, text in field.items()}
        elif isinstance(field, str):
            found[name] = _xml_text(field)
        elif isinstance(field, tuple):
            found[name] = _xml_text(", ".join(field))
        elif field is not None:
            found[name] = field
    return found


def _xml_text(text: str) -> str:
    """Without the few characters that XML cannot hold."""
    return "".join(
        each
        if each in "\t\n\r" or " " <= each <= "\ud7ff" or "\ue000" <= each <= "\ufffd" or each > "\uffff"
        else "\ufffd"
        for each in text
    )
