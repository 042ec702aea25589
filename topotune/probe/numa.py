"""NUMA nodes, from /sys/devices/system/node."""

import os
import re
from collections.abc import Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from topotune.probe.kernel_text import parse_cpulist, parse_mem_total
from topotune.probe.tree import Tree

NODES: Final = "sys/devices/system/node"
_NODE = re.compile(r"node([0-9]{1,5})")
_MAX_DISTANCE = 255  # ACPI SLIT has one byte per distance; 255 is "not reachable"


@dataclass(frozen=True, kw_only=True, slots=True)
class NumaNode:
    """One NUMA node.

    Attributes:
        index: its number.
        cpus: logical CPUs; None where the machine does not say, empty for memory alone.
        memory_bytes: None where the machine does not say.
        distances: to the node with each number, this one included; empty where the machine does not say.
    """

    index: int
    cpus: frozenset[int] | None
    memory_bytes: int | None
    distances: dict[int, int]


def read_numa(tree: Tree) -> tuple[NumaNode, ...]:
    """The NUMA nodes that have CPUs or memory, by number.

    Firmware may announce nodes with neither (room for devices, such as the slices of a GPU's memory): they
    are left out.
    """
    names = [match for match in map(_NODE.fullmatch, tree.children(NODES)) if match]
    indices = sorted(int(match[1]) for match in names)
    nodes = []
    for index in indices:
        folder = f"{NODES}/node{index}"
        node = NumaNode(
            index=index,
            cpus=tree.value(f"{folder}/cpulist", parse_cpulist),
            memory_bytes=tree.value(f"{folder}/meminfo", parse_mem_total),
            distances=tree.value(f"{folder}/distance", partial(parse_distances, indices=indices)) or {},
        )
        if node.cpus == frozenset() and not node.memory_bytes:
            continue
        nodes.append(node)
    return tuple(nodes)


def own_numa_node(root: Path = Path("/"), cpus: Set[int] | None = None) -> int | None:
    """The NUMA node that holds all CPUs on which this process may run; None where several do, or none says.

    Args:
        root: of the machine.
        cpus: on which it may run; None asks the kernel.
    """
    allowed = frozenset(os.sched_getaffinity(0) if cpus is None else cpus)
    homes = [node.index for node in read_numa(Tree(root)) if node.cpus and allowed <= node.cpus]
    return homes[0] if len(homes) == 1 else None


def parse_distances(text: str, indices: list[int]) -> dict[int, int]:
    """``"10 21"`` → distance by node number.

    Args:
        text: one figure for each node, in the order of their numbers.
        indices: those numbers, ascending.

    Raises:
        ValueError: no figures from 1 to 255, or as many as there are nodes.
    """
    words = text.split()
    if len(words) != len(indices):
        raise ValueError(f"{len(words)} distances for {len(indices)} NUMA nodes")
    distances = {}
    for index, word in zip(indices, words, strict=True):
        if not re.fullmatch(r"[0-9]{1,3}", word) or not 1 <= int(word) <= _MAX_DISTANCE:
            raise ValueError(f"{word!r} is no NUMA distance")
        distances[index] = int(word)
    return distances
