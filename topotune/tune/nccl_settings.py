"""Which of NCCL's own settings are worth trying, what makes NCCL use one, and whether its log confirms it.

Theory of operation. A setting is an algorithm, a protocol and a number of channels. NCCL takes the first two
from NCCL_ALGO and NCCL_PROTO when a communicator is made, the third from that communicator's configuration;
so each setting is a communicator of its own, and all of them can be timed in turns with the default. A plan's
row says the same to a job through NCCL's tuner interface.

What is dangerous is not tried, whatever it might gain:

- LL128 where NCCL itself would not use it. Any list of NCCL_PROTO that holds it, also one that excludes
  others, switches off NCCL's check that the machine keeps the order of writes, without which data are
  corrupted silently. So it is named only for algorithms that NCCL has it for on a communicator of the same
  ranks that was told nothing: NCCL prints that table when a communicator is made, and a pair that its check
  does not allow has no bandwidth there. Never on AWS EFA, nor where somebody else has set NCCL_PROTO.
- NCCL_PROTO at all where the network may be AWS EFA, or is not known: there it switches off the like check of
  the network's plugin.
- A list of algorithms without Ring, from NCCL 2.24 on: it is named for allreduce alone, so that other
  collectives keep all of theirs.

NCCL prints what it runs for each call (`topotune.tune.nccl_log`). A setting that the log does not confirm was
not measured, and is left out.

Source: NCCL 2.18 to 2.30, ``ncclTopoTuneModel`` (LL128: NVLink within a node, at most PCI switches on the way
to the network's adapters, equal GPUs from Volta on or any from Hopper on), ``parseList``; user guide,
"Environment Variables".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from topotune.errors import UsageError
from topotune.plan.nccl import (
    MAX_NCCL_CHANNELS,
    NCCL,
    NCCL_ALGOS,
    NCCL_PROTOS,
    nccl_collective_problem,
    nccl_pair_problem,
)
from topotune.tune.nccl_log import Ran
from topotune.tune.trial import Candidate

Version = tuple[int, int]

BY_FUNCTION: Final[Version] = (2, 24)
"""The first NCCL whose NCCL_ALGO names collectives."""

_OLDEST: Final[Version] = (2, 18)
_WORDS: Final[Mapping[str, str]] = {
    "tree": "Tree",
    "ring": "Ring",
    "collnet_direct": "CollnetDirect",
    "collnet_chain": "CollnetChain",
    "nvls": "NVLS",
    "nvls_tree": "NVLSTree",
}
_PROTO_WORDS: Final[Mapping[str, str]] = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}
_CHANNELS: Final = (2, 8, 32)
"""Beside NCCL's own number, for rings and trees with Simple: a fourth of what machines have, and more."""

_NVLS_SINCE_CAPABILITY: Final = (9, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class NcclPlace:
    """What NCCL would run on, as far as settings depend on it.

    Attributes:
        version: of NCCL.
        num_nodes: that the ranks lie on.
        ranks_per_node: the most on one node.
        capability: the least compute capability of all GPUs.
        has_nvswitch: GPUs of a node hang on NVSwitches.
        is_efa: the network is AWS's EFA; None where nobody knows.
        ll128: algorithms that NCCL's own check allows LL128 for between these ranks (`ll128_allowed`).
    """

    version: Version
    num_nodes: int
    ranks_per_node: int
    capability: tuple[int, int]
    has_nvswitch: bool
    is_efa: bool | None
    ll128: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class NcclSetting:
    """One setting of NCCL's, by the names of plans.

    Attributes:
        channels: at most; None leaves them to NCCL.
    """

    algo: str
    proto: str
    channels: int | None = None

    @property
    def candidate(self) -> Candidate:
        """The candidate that a plan's row would name."""
        params: dict[str, Any] = {"algo": self.algo, "proto": self.proto}
        return Candidate.of(NCCL, params if self.channels is None else params | {"channels": self.channels})

    @classmethod
    def of(cls, candidate: Candidate) -> "NcclSetting":
        """The setting of a candidate of algorithm ``nccl``."""
        return cls(**candidate.params)


def settings_for(place: NcclPlace) -> list[NcclSetting]:
    """What is worth trying there, safe settings alone; none where NCCL has no choice, or may not be told.

    Raises:
        UsageError: an NCCL that nobody has looked at.
    """
    if place.version < _OLDEST:
        raise UsageError(
            f"NCCL {place.version[0]}.{place.version[1]}: its settings are known from "
            f"{_OLDEST[0]}.{_OLDEST[1]} on",
            hint="a newer PyTorch brings a newer NCCL",
        )
    if place.num_nodes * place.ranks_per_node == 1:
        return []
    algos = ["ring", "tree"]
    if place.has_nvswitch and place.capability >= _NVLS_SINCE_CAPABILITY and place.ranks_per_node > 1:
        algos.append("nvls" if place.num_nodes == 1 else "nvls_tree")
    found = []
    for algo in algos:
        for proto in NCCL_PROTOS:
            setting = NcclSetting(algo=algo, proto=proto)
            if setting_problem(setting, place) is not None:
                continue
            found.append(setting)
            if algo in ("ring", "tree") and proto == "simple":
                found += [NcclSetting(algo=algo, proto=proto, channels=number) for number in _CHANNELS]
    return found


def is_proto_safe(place: NcclPlace) -> bool:
    """Whether NCCL_PROTO may be set there: on one node, or on networks that are known not to be EFA."""
    return place.num_nodes == 1 or place.is_efa is False


def why_no_settings(place: NcclPlace) -> str | None:
    """Why nothing is tried there, in words; None where something is."""
    if place.num_nodes * place.ranks_per_node == 1:
        return "a single rank exchanges nothing"
    if not is_proto_safe(place):
        network = "is AWS EFA" if place.is_efa else "is not known"
        return (
            f"the network between nodes {network}: NCCL_PROTO there can corrupt data silently, so none of "
            "NCCL's settings was tried"
        )
    return None


def environment_of(setting: NcclSetting, place: NcclPlace) -> dict[str, str]:
    """The variables by which a communicator that is made now uses the setting for allreduce.

    Raises:
        UsageError: it is dangerous there, or NCCL has no such kernel.
    """
    problem = setting_problem(setting, place)
    if problem is not None:
        raise UsageError(f"nccl {setting.algo} {setting.proto}: {problem}")
    algo, proto = _WORDS[setting.algo], _PROTO_WORDS[setting.proto]
    if place.version >= BY_FUNCTION:
        return {"NCCL_ALGO": f"allreduce:{algo}", "NCCL_PROTO": f"allreduce:{proto}"}
    # Before, a list is for all collectives, and NCCL falls back to Ring where it serves none of them.
    return {"NCCL_ALGO": algo, "NCCL_PROTO": proto}


def setting_problem(setting: NcclSetting, place: NcclPlace) -> str | None:
    """Why a setting is not used there, in words; None where it may be."""
    if setting.algo not in NCCL_ALGOS or setting.proto not in NCCL_PROTOS:
        return "NCCL has nothing of that name"
    problem = nccl_pair_problem(setting.algo, setting.proto) or nccl_collective_problem(
        "allreduce", setting.algo
    )
    if problem is not None:
        return problem
    if not is_proto_safe(place):
        return "NCCL_PROTO switches off a check that AWS EFA needs, and the network may be that"
    if setting.proto == "ll128" and (place.is_efa or setting.algo not in place.ll128):
        return "NCCL_PROTO with LL128 switches off NCCL's check that the machine can do it, and " + (
            "there is AWS EFA" if place.is_efa else "NCCL's own table does not allow it here"
        )
    if setting.channels is not None and not 1 <= setting.channels <= MAX_NCCL_CHANNELS:
        return f"{setting.channels} channels are not from 1 to {MAX_NCCL_CHANNELS}"
    return None


def not_as_set(setting: NcclSetting, ran: Iterable[Ran], message_bytes: int) -> str | None:
    """What NCCL's log has against a setting at a size, in words; None where it ran as it was set.

    Args:
        setting: what was asked for.
        ran: what the log says of the calls that were made with it.
        message_bytes: of these calls.
    """
    calls = [call for call in ran if call.message_bytes == message_bytes]
    if not calls:
        return "NCCL's log does not say what it ran"
    for call in calls:
        if (call.algo, call.proto) != (setting.algo, setting.proto):
            return f"NCCL ran {call.algo} {call.proto} in its place"
        if setting.channels is not None and call.channels is not None and call.channels > setting.channels:
            return f"NCCL ran it on {call.channels} channels, not on {setting.channels}"
    return None
