"""Lab profiles: what an emulated cluster is made of (``topotune/lab``), and where the shipped ones are.

| schema_version | change |
| --- | --- |
| 1 | first |
"""

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from topotune import documents
from topotune.documents import Value
from topotune.errors import InputFileError, UsageError
from topotune.shipped import shipped_profile_files

SCHEMA: Final = "topotune/lab"
SCHEMA_VERSION: Final = 1
DEFAULT_BURST_BYTES: Final = 32768

MAX_NODES: Final = 64
MAX_RANKS_PER_NODE: Final = 64
MAX_LATENCY_S: Final = 1.0
_MAX_PROFILE_BYTES: Final = 2**20
# A burst must hold one packet of the lab's links (9014 bytes), or the bucket drops them all.
_MIN_BURST_BYTES: Final = 16384
_MAX_BURST_BYTES: Final = 16 * 2**20
# The kernel's token bucket counts a rate below 2**32 bytes/s.
_MIN_BITS_PER_S: Final = 1_000_000
_MAX_BITS_PER_S: Final = 32_000_000_000
_HOST_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")

Placement = Literal["block", "round-robin"]


@dataclass(frozen=True, kw_only=True)
class LabNode:
    """One emulated host.

    Attributes:
        name: its host name, in lower case; names also resolve to addresses inside the lab.
        ranks: ranks on it, at least 1.
        bits_per_s: rate of its link, in each direction.
        rack: the rack its link goes to, or None in a lab without racks.
        latency_s: one-way delay that its link adds, in each direction.
    """

    name: str
    ranks: int
    bits_per_s: int
    rack: str | None = None
    latency_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class LabRack:
    """A bridge that joins nodes, and its link to the spine.

    Attributes:
        name: as nodes name it.
        uplink_bits_per_s: rate of its link to the spine, in each direction.
    """

    name: str
    uplink_bits_per_s: int


@dataclass(frozen=True, kw_only=True)
class LabProfile:
    """An emulated cluster.

    Attributes:
        name: of a shipped profile, or the file's name without its ending.
        nodes: at least 1, with different names.
        racks: empty (one bridge joins all nodes), or each node names one of them and none is empty.
        burst_bytes: what the token bucket of every shaped link lets pass at once.
        placement: ``block``: ranks 0, 1, … fill the first node, then the next; ``round-robin``: ranks are
            dealt to the nodes in turn, full ones left out.
    """

    name: str
    nodes: tuple[LabNode, ...]
    racks: tuple[LabRack, ...] = ()
    burst_bytes: int = DEFAULT_BURST_BYTES
    placement: Placement = "block"

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem:
            raise UsageError(problem)

    @property
    def num_ranks(self) -> int:
        """Ranks of the whole cluster."""
        return sum(node.ranks for node in self.nodes)

    @property
    def has_latency(self) -> bool:
        """Whether any link adds a delay."""
        return any(node.latency_s > 0 for node in self.nodes)

    def ranks_of_nodes(self) -> tuple[tuple[int, ...], ...]:
        """Per node its ranks, in the order of their local ranks."""
        ranks: list[list[int]] = [[] for _ in self.nodes]
        if self.placement == "block":
            order = [index for index, node in enumerate(self.nodes) for _ in range(node.ranks)]
        else:
            rounds = range(max(node.ranks for node in self.nodes))
            order = [index for turn in rounds for index, node in enumerate(self.nodes) if turn < node.ranks]
        for rank, index in enumerate(order):
            ranks[index].append(rank)
        return tuple(tuple(of_node) for of_node in ranks)


def _problem(profile: LabProfile) -> str | None:
    """What contradicts itself between the parts of a profile, in words; each part alone is right already."""
    if not profile.nodes:
        return "it has no nodes"
    for what, names in (
        ("nodes", [node.name for node in profile.nodes]),
        ("racks", [rack.name for rack in profile.racks]),
    ):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            return f"two {what} have the name {twice!r}"
    known = {rack.name for rack in profile.racks}
    for node in profile.nodes:
        if node.rack is None and known:
            return f"node {node.name!r} names no rack, though there are {len(known)}"
        if node.rack is not None and node.rack not in known:
            return f"node {node.name!r} is in rack {node.rack!r}, which is not among the racks"
    empty = next((name for name in known if all(node.rack != name for node in profile.nodes)), None)
    return None if empty is None else f"rack {empty!r} has no nodes"


def read_profile(name_or_file: str | os.PathLike[str]) -> LabProfile:
    """A shipped profile by its name (``2x4``), or one of the user's own by its file (``./mine.json``).

    A text with a slash or the ending ``.json`` is a file; any other is a name.

    Raises:
        UsageError: no such shipped profile.
        InputFileError: no such file, or one that is no lab profile.
    """
    text = os.fspath(name_or_file)
    if "/" in text or text.endswith(".json"):
        return profile_from_bytes(documents.read_bytes(text, max_bytes=_MAX_PROFILE_BYTES), text)
    shipped = shipped_profile_files("lab")
    if text not in shipped:
        near = difflib.get_close_matches(text[:100], shipped, n=1)
        raise UsageError(
            f"there is no lab profile {text!r}",
            hint=(f"did you mean {near[0]}? " if near else "")
            + f"shipped are {', '.join(shipped)}; write a file of your own with a slash, as ./{text}.json",
        )
    return profile_from_bytes(shipped[text].read_bytes(), f"{text}.json")


def list_profiles() -> tuple[LabProfile, ...]:
    """The shipped profiles, by name."""
    return tuple(
        profile_from_bytes(entry.read_bytes(), entry.name) for entry in shipped_profile_files("lab").values()
    )


def profile_from_bytes(data: bytes, source: str) -> LabProfile:
    """JSON text → profile.

    Args:
        data: the document.
        source: its path; names the profile and stands in errors.

    Raises:
        InputFileError: not JSON, not a lab profile, a newer one, or one whose parts contradict each other.
    """
    document = documents.document_of(
        documents.parse_json(data, source, max_bytes=_MAX_PROFILE_BYTES), SCHEMA, SCHEMA_VERSION
    )
    members = document.members(
        ("schema", "schema_version", "nodes"), ("racks", "burst_bytes", "placement", "latency_s")
    )
    latency_s = _latency_s(members["latency_s"]) if "latency_s" in members else 0.0
    racks = members["racks"].items(MAX_NODES, what="racks") if "racks" in members else []
    burst_bytes, placement = members.get("burst_bytes"), members.get("placement")
    try:
        return LabProfile(
            name=Path(source).stem,
            nodes=tuple(
                _node(item, latency_s)
                for item in members["nodes"].items(MAX_NODES, min_items=1, what="nodes")
            ),
            racks=tuple(_rack(item) for item in racks),
            burst_bytes=burst_bytes.integer(_MIN_BURST_BYTES, _MAX_BURST_BYTES)
            if burst_bytes
            else DEFAULT_BURST_BYTES,
            placement=_placement(placement) if placement else "block",
        )
    except InputFileError:
        raise
    except UsageError as problem:
        raise InputFileError(source, problem.message) from problem


def _node(value: Value, default_latency_s: float) -> LabNode:
    members = value.members(("name", "ranks", "bits_per_s"), ("rack", "latency_s"))
    return LabNode(
        name=_host_name(members["name"]),
        ranks=members["ranks"].integer(1, MAX_RANKS_PER_NODE),
        bits_per_s=members["bits_per_s"].integer(_MIN_BITS_PER_S, _MAX_BITS_PER_S),
        rack=_host_name(members["rack"]) if "rack" in members else None,
        latency_s=_latency_s(members["latency_s"]) if "latency_s" in members else default_latency_s,
    )


def _rack(value: Value) -> LabRack:
    members = value.members(("name", "uplink_bits_per_s"))
    return LabRack(
        name=_host_name(members["name"]),
        uplink_bits_per_s=members["uplink_bits_per_s"].integer(_MIN_BITS_PER_S, _MAX_BITS_PER_S),
    )


def _host_name(value: Value) -> str:
    name = value.text(max_length=63)
    if not _HOST_NAME.fullmatch(name) or name == "localhost":
        value.fail(f"{name!r} is no host name", hint="small letters, digits and inner hyphens, as in node-3")
    return name


def _latency_s(value: Value) -> float:
    return value.number(0.0, MAX_LATENCY_S)


def _placement(value: Value) -> Placement:
    return "block" if value.text(one_of=("block", "round-robin")) == "block" else "round-robin"
