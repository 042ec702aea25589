"""How the ranks of a tool agree on network interfaces, before gloo is initialised. Collective.

The lowest rank of each place (`topotune.interfaces.roll_call`) acts for its node. Rank 0 hears what all nodes
have, says who tries whom, hears what came of it, and decides (`topotune.interfaces.choice`). On one node, or
where interfaces are forced on it, nothing is tried: gloo's own choice, or the forced one, stands. Where each
node has one candidate, trying takes milliseconds, and tells a node that nobody reaches by its name instead of
by a timeout of gloo's.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

from topotune import __version__
from topotune.errors import RunError, TopotuneError, UsageError
from topotune.interfaces.choice import (
    Attempt,
    Candidate,
    Node,
    choose,
    common_interface,
    contenders,
    describe,
    peers,
    senders,
)
from topotune.interfaces.own import (
    GLOO_VARIABLE,
    gloo_default,
    interface_towards,
    read_candidates,
    read_forced,
)
from topotune.interfaces.reach import SEND_FOR_S, Door, knock, send_for_a_moment
from topotune.interfaces.roll_call import RollCall, by_place, own_place
from topotune.topology.gather import unique_names

_TIMEOUT: Final = timedelta(seconds=120)
_DOORS_WITHIN_S: Final = 10.0
_ATTEMPTS_WITHIN_S: Final = 10.0
_RATES_WITHIN_S: Final = 60.0
_MAX_CALLS: Final = 32
_PAUSE_S: Final = 0.1
"""Between two sendings, beyond their own time: sources start together, and drain at their own pace."""
_TOPICS: Final = ("tries", "sends", "verdict")
_MAX_FACT_CHARS: Final = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """What was agreed.

    Attributes:
        interfaces: of this node; none where gloo chooses by itself.
        lines: the choice in words, a line for each different one; on rank 0 alone.
        common: what all nodes use, as GLOO_SOCKET_IFNAME says it; None where they differ, or gloo chooses.
        differs: some node's gloo would have taken another by itself.
        call: keeps the store that rank 0 may serve; hold it until the groups are made.
    """

    interfaces: tuple[str, ...]
    lines: tuple[str, ...]
    common: str | None
    differs: bool
    call: RollCall

    @property
    def facts(self) -> dict[str, str]:
        """What a result says about it."""
        return {"interface": "; ".join(self.lines)[:_MAX_FACT_CHARS]} if self.lines else {}


def join_network(timeout: timedelta = _TIMEOUT) -> Network:
    """Agree on interfaces with all ranks, and have this process's gloo groups use them. Collective.

    Args:
        timeout: until all ranks must have come.

    Raises:
        UsageError: a forced interface that a node does not have; nodes with different versions of topotune.
        RunError: ranks that did not come, or a node that others do not reach. The same on every rank.
    """
    call = RollCall("interface", timeout=timeout)
    words: dict[str, Any] = {
        "version": __version__,
        "place": own_place(),
        "host": socket.gethostname(),
        "routed": interface_towards(os.environ["MASTER_ADDR"]),
        "default": gloo_default(),
    }
    try:
        forced = read_forced()
        words["forced"] = None if forced is None else [forced.by, *forced.names]
        words["candidates"] = [asdict(candidate) for candidate in read_candidates(forced)]
    except UsageError as problem:
        words["problem"] = [problem.message, problem.hint]
    call.say("here", words)
    guide = _Guide(call) if call.rank == 0 else None
    within_s = timeout.total_seconds()
    if guide is not None:
        guide.share(lambda: guide.assign(within_s))
    tries = call.told("tries", 2 * within_s)
    if tries is None:
        if guide is not None:
            guide.share(guide.decide_without_trying)
        verdict = call.told("verdict", within_s)
    else:
        with Door([candidate["address"] for candidate in words["candidates"]]) as door:
            call.say("door", {"secret": door.secret, "ports": door.ports})
            doors = call.hear("door", [rank for rank, _ in tries], _DOORS_WITHIN_S)
            call.say("attempts", _knock_at_all(tries, doors))
            if guide is not None:
                guide.share(guide.ask_for_rates)
            sends = call.told("sends", within_s)
            call.say("rates", _send_to_all(sends, doors))
            if guide is not None:
                guide.share(guide.decide)
            verdict = call.told("verdict", within_s)
    interfaces = tuple(verdict["interfaces"])
    if interfaces:
        os.environ[GLOO_VARIABLE] = ",".join(interfaces)
    return Network(
        interfaces=interfaces,
        lines=tuple(verdict["lines"]),
        common=verdict["common"],
        differs=verdict["differs"],
        call=call,
    )


def _knock_at_all(tries: Sequence[tuple[int, list[str]]], doors: Mapping[int, Any]) -> list[list[str | None]]:
    """Try all addresses of some nodes at once.

    Args:
        tries: rank that acts for a node, and the node's addresses.
        doors: by rank; missing where that rank went silent.

    Returns:
        by node and address: None, or why it was not reached.
    """
    if not tries:
        return []
    with ThreadPoolExecutor(max_workers=_MAX_CALLS) as pool:
        outcomes = [
            [
                pool.submit(knock, address, port, doors[rank]["secret"])
                for address, port in zip(addresses, doors[rank]["ports"], strict=True)
            ]
            if rank in doors
            else None
            for rank, addresses in tries
        ]
        return [
            [f"rank {rank} went silent"] * len(addresses)
            if outcome is None
            else [each.result() for each in outcome]
            for (rank, addresses), outcome in zip(tries, outcomes, strict=True)
        ]


def _send_to_all(sends: Sequence[tuple[int, int, str]], doors: Mapping[int, Any]) -> list[float]:
    """Rates to some doors in turn: rank, index of its address, address; in bytes/s."""
    start_s = time.monotonic()
    rates = []
    for turn, (rank, number, address) in enumerate(sends):
        time.sleep(max(0.0, start_s + turn * (SEND_FOR_S + _PAUSE_S) - time.monotonic()))
        door = doors[rank]
        rates.append(send_for_a_moment(address, door["ports"][number], door["secret"]))
    return rates


class _Guide:
    """Rank 0's part: what it has heard, in the order in which it is heard."""

    def __init__(self, call: RollCall) -> None:
        self._call = call
        self._places: tuple[tuple[int, ...], ...] = ()
        self._nodes: tuple[Node, ...] = ()
        self._tries: tuple[tuple[int, ...], ...] = ()
        self._contending: tuple[tuple[int, ...], ...] = ()
        self._sends: dict[int, list[tuple[int, int]]] = {}  # source → (node, candidate)

    def share(self, step: Callable[[], None]) -> None:
        """Take a step; an error of it is told to all ranks, this one included."""
        try:
            step()
        except TopotuneError as problem:
            self._call.tell_failure(_TOPICS, problem)

    def assign(self, within_s: float) -> None:
        """Hear who is there, and say who tries whom."""
        here = self._call.hear_all("here", within_s)
        _check_versions(here)
        self._places = by_place([words["place"] for words in here])
        for ranks in self._places:
            _check_forced(ranks, here)
        names = unique_names([here[ranks[0]]["host"] for ranks in self._places])
        self._nodes = tuple(
            _node(name, here[ranks[0]]) for name, ranks in zip(names, self._places, strict=True)
        )
        tell: dict[int, Any] = dict.fromkeys(range(self._call.size))
        if len(self._nodes) > 1:
            self._tries = peers(self._nodes)
            for index, targets in enumerate(self._tries):
                tell[self._places[index][0]] = [
                    (self._places[target][0], self._addresses(target)) for target in targets
                ]
        self._call.tell("tries", tell)

    def _addresses(self, index: int) -> list[str]:
        return [candidate.address for candidate in self._nodes[index].candidates]

    def decide_without_trying(self) -> None:
        """One node: what is forced on it, else gloo's own choice."""
        (node,) = self._nodes
        if node.forced_by is None:
            self._tell_verdict([()], (), None)
            return
        choices = choose(self._nodes, [range(len(node.candidates))], {})
        self._tell_verdict(
            [choice.names for choice in choices], describe(self._nodes, choices), common_interface(choices)
        )

    def ask_for_rates(self) -> None:
        """Hear who reached whom, and say who sends to whom."""
        heard = self._call.hear(
            "attempts", [ranks[0] for ranks in self._places], _DOORS_WITHIN_S + _ATTEMPTS_WITHIN_S
        )
        self._check_all_spoke(heard)
        attempts = [
            Attempt(source=source, target=target, candidate=number, problem=problem)
            for source, targets in enumerate(self._tries)
            for target, outcomes in zip(targets, heard[self._places[source][0]], strict=True)
            for number, problem in enumerate(outcomes)
        ]
        self._contending = contenders(self._nodes, attempts)
        for target, source in senders(self._nodes, self._contending, attempts).items():
            self._sends.setdefault(source, []).extend((target, number) for number in self._contending[target])
        self._call.tell(
            "sends",
            {
                ranks[0]: [
                    (self._places[target][0], number, self._nodes[target].candidates[number].address)
                    for target, number in self._sends.get(index, ())
                ]
                for index, ranks in enumerate(self._places)
            },
        )

    def _check_all_spoke(self, heard: Mapping[int, Any]) -> None:
        silent = [index for index, ranks in enumerate(self._places) if ranks[0] not in heard]
        if silent:
            index = silent[0]
            raise RunError(
                f"node {self._nodes[index].name} went silent (rank {self._places[index][0]})",
                hint="look at what it printed last",
            )

    def decide(self) -> None:
        """Hear the rates, and say what each node uses."""
        heard = self._call.hear("rates", [ranks[0] for ranks in self._places], _RATES_WITHIN_S)
        self._check_all_spoke(heard)
        rates = {
            (target, number): rate
            for source, sent in self._sends.items()
            for (target, number), rate in zip(sent, heard[self._places[source][0]], strict=True)
        }
        choices = choose(self._nodes, self._contending, rates)
        self._tell_verdict(
            [choice.names for choice in choices], describe(self._nodes, choices), common_interface(choices)
        )

    def _tell_verdict(
        self, interfaces: Sequence[tuple[str, ...]], lines: tuple[str, ...], common: str | None
    ) -> None:
        differs = any(
            bool(names) and names != (node.default,)
            for node, names in zip(self._nodes, interfaces, strict=True)
        )
        tell = {
            rank: {
                "interfaces": names,
                "lines": lines if rank == 0 else (),
                "common": common,
                "differs": differs,
            }
            for ranks, names in zip(self._places, interfaces, strict=True)
            for rank in ranks
        }
        self._call.tell("verdict", tell)


def _node(name: str, words: Mapping[str, Any]) -> Node:
    return Node(
        name=name,
        candidates=tuple(Candidate(**candidate) for candidate in words["candidates"]),
        forced_by=None if words["forced"] is None else words["forced"][0],
        routed=words["routed"],
        default=words["default"],
    )


def _check_versions(here: Sequence[Mapping[str, Any]]) -> None:
    for words in here:
        if words["version"] != here[0]["version"]:
            raise UsageError(
                f"node {here[0]['host']} runs topotune {here[0]['version']}, node {words['host']} runs"
                f" {words['version']}",
                hint="install one version on all nodes",
            )


def _check_forced(ranks: Sequence[int], here: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a forced interface that is not there, and ranks of one node on which different ones are."""
    first = here[ranks[0]]
    for rank in ranks:
        if "problem" in here[rank]:
            message, hint = here[rank]["problem"]
            raise UsageError(message, hint=hint)
        if here[rank]["forced"] != first["forced"]:
            ours, theirs = (
                "nothing" if forced is None else f"{','.join(forced[1:])} ({forced[0]})"
                for forced in (first["forced"], here[rank]["forced"])
            )
            raise UsageError(
                f"different network interfaces are forced on ranks of node {first['host']}:"
                f" {ours} on rank {ranks[0]}, {theirs} on rank {rank}",
                hint="--interface NAME forces one on all",
            )
