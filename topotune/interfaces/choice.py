"""Which network interface each node shall use: who tries to reach whom, and what follows from it. Pure.

Theory of operation. A node's *candidates* are its interfaces that are up and have an address at which gloo
can listen. Nothing about one says for certain whether other nodes reach it, or how fast: names, kinds and
line rates lie (docker0 is up on every node and leads nowhere, a bridge may be the only way out, a management
port answers and is slow). So nodes try: each asks a few others, at each of their candidates (`peers`). A
candidate *contends* if everyone who tried it reached it. Where a node has several contenders, one of those
who reached them sends it data for a moment over each, and the fastest is taken; of equally fast ones the
plainest: hardware before bridges, the higher line rate, the way by which the kernel sends to rank 0's node.

With many nodes not all pairs are tried. Most clusters have one kind of node, and ring neighbours tell all;
a node that lacks an interface which most have would be seen by its neighbours alone. So nodes of the lesser
kinds try one of the largest kind too, and an interface that such a node reaches on nobody, while others reach
it, is no choice for any node.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from topotune.errors import RunError
from topotune.units import format_bit_rate

RING_PEERS: Final = 3
FULL_MESH_NODES: Final = 5
"""Up to so many nodes, each tries all others."""
AS_FAST: Final = 0.8
"""A rate of this share of the best is as good: a moment's rates on networks with other users differ so much
(choice of the author; a management port differs by 10)."""
_PLAIN_SOFTWARE: Final = frozenset({"bond", "vlan"})
_NAMES_SHOWN: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """An interface at which gloo could listen.

    Attributes:
        name: ``eth0``.
        address: the one that gloo takes, numeric.
        speed_bits_per_s: line rate; None where it is not known, and for software.
        software: what kind of software the interface is (``bridge``, ``veth``); None for hardware.
    """

    name: str
    address: str
    speed_bits_per_s: float | None = None
    software: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A place with interfaces of its own.

    Attributes:
        name: host name, unique.
        candidates: at most a few, in the kernel's order.
        forced_by: what names exactly these candidates (``GLOO_SOCKET_IFNAME``); None where all are free.
        routed: the interface by which the kernel sends to rank 0's node.
        default: the interface that gloo would take by itself.
    """

    name: str
    candidates: tuple[Candidate, ...]
    forced_by: str | None = None
    routed: str | None = None
    default: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One node at one candidate of another.

    Attributes:
        source, target: indices of nodes.
        candidate: index into the target's candidates.
        problem: why it was not reached; None if it was.
    """

    source: int
    target: int
    candidate: int
    problem: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What a node uses.

    Attributes:
        names: of the interfaces; more than one only where several were forced.
        why: in words.
        rates: what was measured, in bytes/s by interface; empty where nothing had to be.
        unreached: candidates that others did not reach.
    """

    names: tuple[str, ...]
    why: str
    rates: Mapping[str, float]
    unreached: tuple[str, ...]


def peers(nodes: Sequence[Node]) -> tuple[tuple[int, ...], ...]:
    """Whom each node tries to reach: a constant number, and each is tried by a constant number too.

    Nodes of the lesser kinds share those of the largest between them; only where they outnumber it is one of
    these tried by more.
    """
    count = len(nodes)
    ring = range(1, count if count <= FULL_MESH_NODES else RING_PEERS + 1)
    tries = [[(index + offset) % count for offset in ring] for index in range(count)]
    kinds = [tuple(candidate.name for candidate in node.candidates) for node in nodes]
    largest = Counter(kinds).most_common(1)[0][0]
    common = [index for index in range(count) if kinds[index] == largest]
    odd = [index for index in range(count) if kinds[index] != largest]
    for number, index in enumerate(odd):
        usual = common[number % len(common)]
        if usual not in tries[index]:
            tries[index].append(usual)
    return tuple(tuple(each) for each in tries)


def contenders(nodes: Sequence[Node], attempts: Iterable[Attempt]) -> tuple[tuple[int, ...], ...]:
    """Each node's candidates that serve, as indices; of a node with forced interfaces, all of them.

    Raises:
        RunError: a node has none, or one that is forced does not serve.
    """
    tried = list(attempts)
    by_candidate: dict[tuple[int, int], list[Attempt]] = defaultdict(list)
    for attempt in tried:
        by_candidate[attempt.target, attempt.candidate].append(attempt)
    shunned = _out_of_reach(nodes, tried)
    found, bad = [], []
    for index, node in enumerate(nodes):
        reached = tuple(
            candidate
            for candidate in range(len(node.candidates))
            if all(attempt.problem is None for attempt in by_candidate[index, candidate])
        )
        if not reached or (node.forced_by is not None and len(reached) < len(node.candidates)):
            bad.append(index)
        usual = tuple(each for each in reached if node.candidates[each].name not in shunned)
        found.append(reached if node.forced_by is not None else usual or reached)
    if bad:
        raise _unreachable(nodes, bad, tried)
    return tuple(found)


def _out_of_reach(nodes: Sequence[Node], attempts: Iterable[Attempt]) -> frozenset[str]:
    """Names of interfaces that some node reaches nowhere, though others reach those very ones."""
    outcomes: dict[tuple[str, int], list[Attempt]] = defaultdict(list)
    reached: set[tuple[int, int]] = set()
    for attempt in attempts:
        name = nodes[attempt.target].candidates[attempt.candidate].name
        outcomes[name, attempt.source].append(attempt)
        if attempt.problem is None:
            reached.add((attempt.target, attempt.candidate))
    return frozenset(
        name
        for (name, _), of_source in outcomes.items()
        if all(attempt.problem is not None for attempt in of_source)
        and any((attempt.target, attempt.candidate) in reached for attempt in of_source)
    )


def _unreachable(nodes: Sequence[Node], bad: Sequence[int], attempts: Sequence[Attempt]) -> RunError:
    """Blame a node that reaches nobody where others reach those that it tried, else the first of the bad."""
    bare = [nodes[index].name for index in bad if not nodes[index].candidates]
    if bare:
        return RunError(
            f"{_nodes(bare)}: no network interface that is up has an address for other nodes",
            hint="`ip address` shows them; gloo needs an IPv4 address, or an IPv6 one that is not link-local",
        )
    reached = {(attempt.target, attempt.candidate) for attempt in attempts if attempt.problem is None}
    deaf = {attempt.source for attempt in attempts} - {
        attempt.source for attempt in attempts if attempt.problem is None
    }
    for source in sorted(deaf):
        failed = [attempt for attempt in attempts if attempt.source == source]
        if any((attempt.target, attempt.candidate) in reached for attempt in failed):
            return RunError(
                f"{_nodes([nodes[source].name])} reaches no other node: tried {_tried(nodes, failed)}",
                hint="look at its interfaces, routes and firewall",
            )
    failed = [attempt for attempt in attempts if attempt.target in bad and attempt.problem is not None]
    at_each: dict[tuple[int, int], Attempt] = {}
    for attempt in failed:
        at_each.setdefault((attempt.target, attempt.candidate), attempt)
    sources = list(dict.fromkeys(nodes[attempt.source].name for attempt in failed))
    are, other = ("is", _and(sources)) if len(bad) == 1 else ("are", "other nodes")
    return RunError(
        f"{_nodes([nodes[index].name for index in bad])} {are} not reached from {other}: tried"
        f" {_tried(nodes, [at_each[key] for key in sorted(at_each)])}",
        hint="--interface NAME takes another interface; a firewall may close all ports but the launcher's",
    )


def _tried(nodes: Sequence[Node], failed: Sequence[Attempt]) -> str:
    """Addresses, and what went wrong at each."""
    words = []
    for attempt in failed[:_NAMES_SHOWN]:
        node = nodes[attempt.target]
        candidate = node.candidates[attempt.candidate]
        forced = f", forced by {node.forced_by}" if node.forced_by is not None else ""
        words.append(f"{candidate.name} of {node.name} at {candidate.address}{forced} ({attempt.problem})")
    return ", ".join(words)


def _nodes(names: Sequence[str]) -> str:
    return f"node {names[0]}" if len(names) == 1 else f"nodes {_and(names)}"


def senders(
    nodes: Sequence[Node], contending: Sequence[Sequence[int]], attempts: Iterable[Attempt]
) -> dict[int, int]:
    """Who sends data to each node that has a choice: node → source, of those that reached it.

    Each source sends to as few as can be, its ring successor first, so that what is measured at the same time
    does not meet on one link.
    """
    sources: dict[int, set[int]] = defaultdict(set)
    for attempt in attempts:
        sources[attempt.target].add(attempt.source)
    load: Counter[int] = Counter()
    found = {}
    for target in range(len(nodes)):
        if len(contending[target]) < 2 or nodes[target].forced_by is not None:
            continue
        found[target] = min(
            sources[target], key=lambda source: (load[source], (target - source) % len(nodes))
        )
        load[found[target]] += 1
    return found


def choose(
    nodes: Sequence[Node], contending: Sequence[Sequence[int]], rates: Mapping[tuple[int, int], float]
) -> tuple[Choice, ...]:
    """What each node uses.

    Args:
        nodes: all.
        contending: of `contenders`.
        rates: (node, candidate) → bytes/s, for nodes with several contenders; what is missing broke off.
    """
    return tuple(_choose(index, node, contending[index], rates) for index, node in enumerate(nodes))


def _choose(
    index: int, node: Node, contending: Sequence[int], rates: Mapping[tuple[int, int], float]
) -> Choice:
    names = [candidate.name for candidate in node.candidates]
    unreached = tuple(name for number, name in enumerate(names) if number not in contending)
    if node.forced_by is not None:
        return Choice(names=tuple(names), why=f"forced by {node.forced_by}", rates={}, unreached=())
    if len(contending) == 1:
        why = "the only one that others reach" if unreached else "the only one"
        return Choice(names=(names[contending[0]],), why=why, rates={}, unreached=unreached)
    measured = {number: rates.get((index, number), 0.0) for number in contending}
    fastest = max(measured.values())
    equal = [number for number in contending if measured[number] >= AS_FAST * fastest]
    speeds = [node.candidates[number].speed_bits_per_s for number in equal]

    def plainest_first(number: int) -> tuple[bool, float, bool, int]:
        candidate = node.candidates[number]
        is_odd = candidate.software is not None and candidate.software not in _PLAIN_SOFTWARE
        speed = 0.0 if None in speeds else candidate.speed_bits_per_s or 0.0
        return is_odd, -speed, candidate.name != node.routed, number

    return Choice(
        names=(names[min(equal, key=plainest_first)],),
        why="the fastest" if len(equal) == 1 else "none is faster",
        rates={names[number]: rate for number, rate in measured.items()},
        unreached=unreached,
    )


def describe(nodes: Sequence[Node], choices: Sequence[Choice]) -> tuple[str, ...]:
    """One line for each different choice, with the nodes that made it."""
    alike: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, choice in enumerate(choices):
        alike[choice.names, choice.why, tuple(choice.rates)].append(index)
    return tuple(
        f"{','.join(choices[indices[0]].names)} on {_and([nodes[index].name for index in indices])}"
        f" ({'; '.join(_reasons([choices[index] for index in indices]))})"
        for indices in alike.values()
    )


def _reasons(alike: Sequence[Choice]) -> Iterator[str]:
    """Why, what was measured (medians over the nodes), and what was not reached."""
    yield alike[0].why
    if alike[0].rates:
        medians = {name: statistics.median(choice.rates[name] for choice in alike) for name in alike[0].rates}
        yield ", ".join(
            f"{name} {format_bit_rate(rate) if rate else 'broke off'}" for name, rate in medians.items()
        )
    unreached = list(dict.fromkeys(name for choice in alike for name in choice.unreached))
    if unreached:
        yield f"{_and(unreached)} not reached"


def _and(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``; many are cut short."""
    shown = list(names[:_NAMES_SHOWN])
    if len(names) > _NAMES_SHOWN:
        return f"{', '.join(shown)} and {len(names) - _NAMES_SHOWN} more"
    return " and ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)


def common_interface(choices: Sequence[Choice]) -> str | None:
    """What all nodes use, as GLOO_SOCKET_IFNAME says it; None where they differ."""
    found = {",".join(choice.names) for choice in choices}
    return found.pop() if len(found) == 1 else None
