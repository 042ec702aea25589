"""The system graph that NCCL and RCCL print with ``NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH``.

    === System : maxBw 24.0 totalBw 24.0 ===
    CPU/1 (1/2/-1)                               architecture, vendor, model in NCCL's numbers
    + SYS[10.0] - CPU/0
    + PCI[24.0] - GPU/81000 (0)                  bus id without its separators; rank
    + PCI[24.0] - NIC/D1000
                  + NET[25.0] - NET/1 (guid/port/GB/s)

Figures are GB/s in one direction, as NCCL estimates them from link rates and widths. The device names of
``NET/IB : Using [0]mlx5_0:1/RoCE`` belong to the numbers of ``NET/…``. Each rank prints the graph, and may
have left out what it does not use: of each host, the first is read.

Source: NCCL, src/graph/topo.cc (ncclTopoPrint) and utils.cc (int64ToBusId), 2.16 to 2.30.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from topotune.errors import InputFileError
from topotune.probe.faults import Faults, shown
from topotune.topology.formats.capture import lines_of
from topotune.topology.formats.reading import THIS_NODE, Reader, Reading
from topotune.topology.formats.spelling import whole
from topotune.topology.model import Link, LinkKind, Vertex

_START = re.compile(r"=== System : max(?:Bw|Width) ([0-9.]{1,12}) total(?:Bw|Width) ([0-9.]{1,12}) ===")
_INFO = re.compile(r"(?:([\w.-]{1,64}):[0-9]{1,10}:[0-9]{1,10} \[[0-9]{1,4}\] )?NCCL INFO (.*)")
_NODE = re.compile(r"([A-Z]{3})/(?:([0-9a-fA-F]{1,16})-)?([0-9a-fA-F]{1,16})(?: \(([^)]{0,200})\))?\s*")
_EDGE = re.compile(r"( *)\+ ([A-Z0-9]{3})\[([0-9.]{1,12})\] - (.*)")
_USING = re.compile(r"NET/IB : Using (.*)")
_DEVICE = re.compile(r"\[([0-9]{1,4})\]([\w.+:-]{1,64}?):([0-9]{1,3})/(\w{1,12})")
_LOCAL_GB_PER_S = 5000.0  # NCCL's figure for "the same place"
_MAX_LINES_OF_A_GRAPH = 20_000
_MAX_DEPTH = 64
_DOWNWARD = ("PCI", "C2C", "NET")  # to what is below; the others lead to what has a place of its own


def _recognise(text: str) -> bool:
    return _START.search(text) is not None


@dataclass(slots=True)
class _Graph:
    """One print, as lines without their prefix."""

    host: str
    max_bw: str
    total_bw: str
    line: int
    lines: list[tuple[int, str]] = field(default_factory=list)
    whole: bool = False


def read(text: str, source: str) -> Reading:
    """A job's log → the graph of each host that printed one.

    Raises:
        InputFileError: no such print, or one with nothing in it.
    """
    faults = Faults()
    graphs, devices = _graphs(lines_of(text, source))
    if not graphs:
        raise InputFileError(source, "holds no graph (=== System : maxBw … ===)")
    vertices: list[Vertex] = []
    links: list[Link] = []
    ranks: dict[int, str] = {}
    facts: dict[str, str | int | float | bool | None] = {}
    for graph in graphs.values():
        if not graph.whole:
            faults.add(f"the graph of line {graph.line} ends early; what stands before was read")
        part = _Part(graph.host, devices.get(graph.host, {}), faults)
        part.read(graph.lines)
        vertices += part.vertices.values()
        links += part.links.values()
        ranks |= part.ranks
        for name, figure in (("max", graph.max_bw), ("total", graph.total_bw)):
            facts.setdefault(f"nccl_{name}_bw_bytes_per_s", _rate(figure))
    if not vertices:
        raise InputFileError(source, "holds a graph with nothing in it")
    complete = sorted(ranks) == list(range(len(ranks)))
    return Reading(
        vertices=tuple(vertices),
        links=tuple(links),
        ranks=tuple(ranks[rank] for rank in sorted(ranks)) if complete else (),
        facts=facts,
        warnings=faults.warnings(),
    )


def _graphs(lines: Sequence[str]) -> tuple[dict[str, _Graph], dict[str, dict[int, tuple[str, str]]]]:
    """Each host's first print, and what its network devices are called."""
    graphs: dict[str, _Graph] = {}
    devices: dict[str, dict[int, tuple[str, str]]] = {}
    now: _Graph | None = None
    prefix = ""
    for number, line in enumerate(lines, start=1):
        info = _INFO.search(line) if "NCCL INFO" in line else None
        host = (info[1] or THIS_NODE) if info else THIS_NODE
        said = info[2] if info else line
        using = _USING.match(said)
        if using is not None:
            for device in _DEVICE.finditer(using[1]):
                devices.setdefault(host, {})[int(device[1])] = (device[2], device[4])
        start = _START.search(said)
        if start is not None:
            now = None
            if host not in graphs:
                now = graphs[host] = _Graph(host, start[1], start[2], number)
                prefix = line[: line.index("NCCL INFO")] if info else ""
        elif now is not None and line.startswith(prefix):  # others of the same host print at the same time
            if said.startswith("====="):
                now.whole = True
                now = None
            elif len(now.lines) < _MAX_LINES_OF_A_GRAPH:
                now.lines.append((number, said))
    return graphs, devices


class _Part:
    """One host's graph while it is read."""

    def __init__(self, host: str, devices: dict[int, tuple[str, str]], faults: Faults) -> None:
        self.vertices: dict[str, Vertex] = {}
        self.links: dict[tuple[str, str, LinkKind], Link] = {}
        self.ranks: dict[int, str] = {}
        self._host = host
        self._devices = devices
        self._faults = faults
        self._above: dict[str, tuple[str, float | None]] = {}  # card -> what it hangs on, how fast

    def read(self, lines: Iterable[tuple[int, str]]) -> None:
        above: list[tuple[int, str]] = []
        numa: int | None = None
        for number, line in lines:
            edge = _EDGE.fullmatch(line)
            node = _NODE.fullmatch(edge[4] if edge else line)
            if node is None:
                if line.strip():
                    self._faults.add("left out, lines that are no part of the graph", f"line {number}")
                continue
            if edge is None:
                here = self._vertex(node, None, numa)
                numa = self.vertices[here].numa if here else None
                numa = self.vertices[here].index if here and self.vertices[here].kind == "numa" else numa
                above = [(-1, here)] if here else []
                continue
            depth = len(edge[1])
            while above and above[-1][0] >= depth:
                above.pop()
            if not above or len(above) > _MAX_DEPTH:
                self._faults.add("left out, lines that are no part of the graph", f"line {number}")
                continue
            is_below = edge[2] in _DOWNWARD
            here = self._vertex(node, above[-1][1], numa if is_below else None)
            if here is None:
                continue
            self._link(above[-1][1], here, edge[2], _rate(edge[3]))
            if is_below:
                above.append((depth, here))

    def _vertex(self, node: re.Match[str], upper: str | None, numa: int | None) -> str | None:
        """The vertex of a node of the graph, made where it is met first; None for what is no vertex."""
        kind, system, identifier, said = node[1], node[2] or "0", node[3], node[4] or ""
        host = self._host if system == "0" else f"{self._host or 'node'}-system{system}"
        here = f"{host}/{kind}/{identifier.lower()}"
        number = int(identifier, 16)
        if here in self.vertices:
            # Met before at the far end of a link, which may cross to another processor.
            known = self.vertices[here]
            if known.kind == "gpu" and known.numa is None:
                self.vertices[here] = replace(known, numa=numa)
            self._note_rank(here, kind, said)
            return here
        match kind:
            case "CPU":
                self.vertices[here] = Vertex(
                    id=here, kind="numa", node=host, index=number if number < 65_536 else None
                )
            case "GPU" | "PCI" | "NIC":
                address = _address(number)
                if number == 0 and kind == "NIC":
                    return upper  # no card of its own: its ports hang on what is above
                self.vertices[here] = Vertex(
                    id=here,
                    kind={"GPU": "gpu", "PCI": "pcie-switch", "NIC": "nic"}[kind],  # type: ignore[arg-type]
                    node=host,
                    pci_address=address,
                    numa=numa,
                )
                self._note_rank(here, kind, said)
            case "NVS":
                self.vertices[here] = Vertex(id=here, kind="nvswitch", node=host, name=f"NVS{identifier}")
            case "NET":
                return self._port(here, host, number, said, upper)
            case _:
                self._faults.add("left out, nodes of an unknown kind", f"{kind}/{identifier}")
                return None
        return here

    def _note_rank(self, here: str, kind: str, said: str) -> None:
        rank = whole(said.split("/")[0], 2**20) if kind == "GPU" else None
        if rank is not None:
            self.ranks[rank] = here

    def _port(self, here: str, host: str, number: int, said: str, upper: str | None) -> str:
        """A network port, which takes the place of the card it is on, or stands beside its first."""
        guid, _, rest = said.partition("/")
        port, _, rate = rest.partition("/")
        name, layer = self._devices.get(number, (None, None))
        speed = _rate(rate)
        card = self.vertices.get(upper) if upper else None
        figures = Vertex(
            id=here,
            kind="nic",
            node=host,
            index=whole(port),
            name=name,
            pci_address=card.pci_address if card and card.kind == "nic" else None,
            speed=None if speed is None else speed * 8,
            link_layer={"IB": "InfiniBand", "RoCE": "Ethernet"}.get(layer or ""),
            numa=card.numa if card else None,
            rdma_device=name,
            guid=f"0x{guid.lower()}" if re.fullmatch("[0-9a-fA-F]{2,16}", guid) else None,
            attributes={"nccl.net.dev": str(number)},
        )
        if card is not None and card.kind == "nic" and upper is not None:
            if "nccl.net.dev" not in card.attributes:
                del self.vertices[upper]
                self.vertices[upper] = replace(figures, id=upper)
                return upper
            above = self._above.get(upper)
            if above is not None:
                self._both(here, above[0], "pcie", above[1])
        self.vertices[here] = figures
        return here

    def _link(self, upper: str, here: str, kind: str, rate: float | None) -> None:
        if upper == here or "NET" in kind:
            return  # a port and its card are one vertex; the rate is the port's speed
        kinds: dict[str, LinkKind] = {"PCI": "pcie", "NVL": "nvlink", "C2C": "nvlink", "SYS": "numa"}
        if kind not in kinds:
            self._faults.add("left out, links of an unknown kind", shown(kind))
            return
        local = rate is None or rate >= _LOCAL_GB_PER_S * 1e9
        rate = None if local else rate
        if self.vertices[here].kind == "nic":
            self._above[here] = (upper, rate)
        self._both(upper, here, kinds[kind], rate)

    def _both(self, a: str, b: str, kind: LinkKind, rate: float | None) -> None:
        for src, dst in ((a, b), (b, a)):
            self.links.setdefault(
                (src, dst, kind),
                Link(
                    src=src,
                    dst=dst,
                    kind=kind,
                    bandwidth_bytes_per_s=rate,
                    origin="spec" if rate else "observed",
                ),
            )


def _rate(text: str) -> float | None:
    """GB/s → bytes/s."""
    try:
        rate = float(text)
    except ValueError:
        return None
    return rate * 1e9 if 0 < rate < 1e7 else None


def _address(number: int) -> str | None:
    """A bus id without its separators (0x81000) → ``0000:81:00.0``."""
    domain, bus, device, function = number >> 20, number >> 12 & 0xFF, number >> 4 & 0xFF, number & 0xF
    if domain > 0xFFFFFFFF or function > 7:
        return None
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


READER = Reader("nccl-log", "the system graph in an NCCL or RCCL log", _recognise, read)
