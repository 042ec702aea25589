"""A fabric of which a file says which switch holds which: switches, their switches, and the hosts below.

Such files name hosts and not their adapters. So each host gets one adapter that stands for whichever of them
lead to the fabric; `fabric_adapters` puts a host's own in its place once another file tells of them. Kind and
rate of the links are open, as nobody states them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from topotune.errors import InputFileError
from topotune.probe.faults import Faults, shown
from topotune.probe.slurm import expand_node_list
from topotune.topology.formats.reading import Reading
from topotune.topology.model import Link, Vertex

STANDS_FOR: Final = "fabric.adapter"
"""Attribute of a NIC that stands for a host's adapters, whichever they are: ``any``."""

MAX_HOSTS: Final = 65_536
MAX_SWITCHES: Final = 65_536
MAX_LINKS: Final = 400_000
_MAX_NAMES = 2_000_000
_MAX_NAME = 256
_ROOTS_SHOWN = 8


@dataclass(slots=True)
class _Switch:
    place: str | None
    children: tuple[str, ...]
    hosts: tuple[str, ...]
    attributes: dict[str, str] = field(default_factory=dict)


class FabricTree:
    """Switches as they are read, one after the other.

    Raises:
        InputFileError: by `add`: a switch that is described twice, differently; too many; a list of names
            that is none.
    """

    def __init__(self, source: str, faults: Faults) -> None:
        self.faults = faults
        self._source = source
        self._switches: dict[str, _Switch] = {}
        self._hosts: dict[str, dict[str, str]] = {}  # name -> attributes
        self._num_links = 0
        self._num_names = 0

    def __len__(self) -> int:
        return len(self._switches)

    def expand(self, text: str, place: str | None) -> tuple[str, ...]:
        """``n[01-03],m1`` → names."""
        try:
            names = expand_node_list("".join(text.split()))
        except ValueError as problem:
            raise InputFileError(
                self._source, f"{shown(text)} is no list of names: {problem}", place=place
            ) from problem
        self._num_names += len(names)
        if self._num_names > _MAX_NAMES:
            raise InputFileError(
                self._source, f"has lists of more than {_MAX_NAMES} names in all", place=place
            )
        too_long = next((name for name in names if len(name) > _MAX_NAME), None)
        if too_long is not None:
            raise InputFileError(
                self._source, f"a name of more than {_MAX_NAME} characters: {shown(too_long)}", place=place
            )
        return names

    def add(
        self,
        name: str,
        *,
        place: str | None = None,
        children: Iterable[str] = (),
        hosts: Iterable[str] = (),
        attributes: dict[str, str] | None = None,
    ) -> None:
        """One switch: its switches and hosts by name."""
        switch = _Switch(place, tuple(dict.fromkeys(children)), tuple(dict.fromkeys(hosts)), attributes or {})
        before = self._switches.get(name)
        if before is not None:
            if (set(before.children), set(before.hosts)) != (set(switch.children), set(switch.hosts)):
                raise InputFileError(
                    self._source,
                    f"describes {shown(name)} twice, differently (before: {before.place})",
                    place=place,
                )
            return
        self._num_links += len(switch.children) + len(switch.hosts)
        if len(self._switches) >= MAX_SWITCHES or self._num_links > MAX_LINKS:
            raise InputFileError(
                self._source,
                f"has more than {MAX_SWITCHES} switches or {MAX_LINKS} links",
                place=place,
            )
        self._switches[name] = switch
        for host in switch.hosts:
            self.host(host, place=place)

    def host(self, name: str, attributes: dict[str, str] | None = None, place: str | None = None) -> None:
        """A host, also one without a switch."""
        if name not in self._hosts and len(self._hosts) >= MAX_HOSTS:
            raise InputFileError(self._source, f"has more than {MAX_HOSTS} hosts", place=place)
        self._hosts.setdefault(name, {}).update(attributes or {})

    def reading(self, facts: dict[str, str | int | float | bool | None] | None = None) -> Reading:
        """All of it.

        Raises:
            InputFileError: neither a switch nor a host.
        """
        if not self._switches and not self._hosts:
            raise InputFileError(self._source, "names no switch and no host")
        described = set(self._switches)
        children = {child for switch in self._switches.values() for child in switch.children}
        for missing in sorted(children - described):
            self.faults.add("switches that others name and nothing describes", missing)
            self._switches[missing] = _Switch(None, (), ())
        self._note_shape()
        roots = [name for name in self._switches if name not in children]
        rest = f" and {len(roots) - _ROOTS_SHOWN} more" if len(roots) > _ROOTS_SHOWN else ""
        found = {} if not roots else {"fabric_roots": ", ".join(roots[:_ROOTS_SHOWN])[:1000] + rest}
        vertices = [
            Vertex(id=f"switch {name}", kind="switch", name=name, attributes=switch.attributes)
            for name, switch in self._switches.items()
        ]
        vertices += [
            Vertex(
                id=f"host {name}/fabric", kind="nic", node=name, attributes={STANDS_FOR: "any", **attributes}
            )
            for name, attributes in self._hosts.items()
        ]
        links: dict[tuple[str, str], Link] = {}
        for name, switch in self._switches.items():
            below = [*(f"switch {child}" for child in switch.children if child != name)]
            below += [f"host {host}/fabric" for host in switch.hosts]
            for lower in below:
                for src, dst in ((f"switch {name}", lower), (lower, f"switch {name}")):
                    links.setdefault((src, dst), Link(src=src, dst=dst, kind="unknown"))
        return Reading(
            vertices=tuple(vertices),
            links=tuple(links.values()),
            facts={**found, **(facts or {})},
            warnings=self.faults.warnings(),
        )

    def _note_shape(self) -> None:
        """What no tree has: a switch in two others, switches that hold each other, hosts in two places."""
        above: dict[str, list[str]] = defaultdict(list)
        for name, switch in self._switches.items():
            for child in switch.children:
                above[child].append(name)
        for child, parents in above.items():
            if len(parents) > 1:
                self.faults.add("switches that stand below several others", child)
        waiting = {name: len(switch.children) for name, switch in self._switches.items()}
        ready = [name for name, number in waiting.items() if not number]
        while ready:
            for parent in above[ready.pop()]:
                waiting[parent] -= 1
                if not waiting[parent]:
                    ready.append(parent)
        for name in (name for name, number in waiting.items() if number):
            self.faults.add("switches that hold each other, or one that does", name)
        places = Counter(host for switch in self._switches.values() for host in switch.hosts)
        for host, number in places.items():
            if number > 1:
                self.faults.add("hosts that stand below several switches", host)
