"""What NCCL's log says: what it ran for each call, and which of its kernels its own checks allow.

NCCL logs into a file of each process, where it is told so before the first communicator (`log_to`). It prints
a line for each call (subsystem TUNING), and when a communicator is made the table of costs that it chooses
from, both on that communicator's rank 0 alone.

Source: NCCL 2.20 to 2.30, ``ncclTopoTuneModel``, ``ncclGetAlgoInfo``; ``src/debug.cc``.
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from topotune.plan.nccl import NCCL_ALGOS, NCCL_PROTOS

LOGGED: Final[Mapping[str, str]] = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "TUNING,ENV"}
"""What makes NCCL print each call's choice, the table that it chooses from, and variables that are set; NCCL
reads it once, at its first communicator in a process."""

LOG_VARIABLE: Final = "NCCL_DEBUG_FILE"
_MAX_LOG_BYTES: Final = 2**24
_CHOICE: Final = re.compile(
    r"AllReduce: ([0-9]{1,19}) Bytes -> Algo ([A-Z_0-9]{2,16}) proto ([A-Z0-9]{2,8})"
    r" channel\{Lo\.\.Hi\}=\{([0-9]{1,3})\.\.([0-9]{1,3})\}"
)
_ALGO_HEAD: Final = re.compile(r"NCCL INFO +Algorithm +\|(.*)\|\s*$")
_ALLREDUCE_CELLS: Final = re.compile(r"NCCL INFO +AllReduce \|(.*)\|\s*$")
_PROTO_IS_SET: Final = "NCCL_PROTO set by environment"
_OLD_CHOICE: Final = re.compile(r"([0-9]{1,19}) Bytes -> Algo ([0-6]) proto ([0-2]) time")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """What NCCL's log says of one call.

    Attributes:
        message_bytes: of the call.
        algo, proto: by the names of plans.
        channels: how many; None where this version does not say.
    """

    message_bytes: int
    algo: str
    proto: str
    channels: int | None


def log_to(path: Path) -> None:
    """Have NCCL log what it runs; before this process's first communicator, since NCCL reads it once."""
    os.environ.update(LOGGED)
    os.environ[LOG_VARIABLE] = str(path)


def read_log(path: Path, start: int = 0) -> str:
    """The log from a byte on, within bounds; empty while there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(start)
        return file.read(_MAX_LOG_BYTES).decode("utf-8", "replace")


def ll128_allowed(text: str) -> tuple[str, ...]:
    """For which algorithms NCCL itself may use LL128 for allreduce, by the tables in its log.

    Args:
        text: the log of rank 0, from its first communicator to one of all ranks that was told nothing.

    Returns:
        Names of plans, of algorithms that have LL128 with a bandwidth above 0 in every table of the log, as
        it does not say whose table is whose. None where there is no table, where it reads otherwise than
        known ones, or where NCCL_PROTO was set: then the table is not that of NCCL's check.
    """
    if _PROTO_IS_SET in text:
        return ()
    verdicts: dict[str, list[bool]] = {}
    algos: list[str] = []
    for line in text.splitlines():
        head = _ALGO_HEAD.search(line)
        if head is not None:
            algos = [word.lower() for word in head[1].replace("|", " ").split()]
            continue
        row = _ALLREDUCE_CELLS.search(line)
        if row is None:
            continue
        cells = row[1].split("|")
        if len(cells) != len(NCCL_PROTOS) * len(algos):
            return ()
        for at, algo in enumerate(algos):
            cell = cells[len(NCCL_PROTOS) * at + NCCL_PROTOS.index("ll128")]
            verdicts.setdefault(algo, []).append(_has_bandwidth(cell))
    return tuple(name for name in NCCL_ALGOS if (found := verdicts.get(name.replace("_", ""))) and all(found))


def _has_bandwidth(cell: str) -> bool:
    """Whether ``latency/bandwidth`` has a bandwidth; one that reads otherwise has none."""
    _, slash, bandwidth = cell.partition("/")
    try:
        return bool(slash) and float(bandwidth) > 0
    except ValueError:
        return False


def parse_log(text: str) -> list[Ran]:
    """What NCCL ran, call by call, from its log; lines of anything else are passed over."""
    found = []
    for line in text.splitlines():
        match = _CHOICE.search(line)
        if match is not None:
            algo = _plan_name(match[2], NCCL_ALGOS)
            proto = _plan_name(match[3], NCCL_PROTOS)
            if algo is not None and proto is not None:
                channels = int(match[5]) - int(match[4]) + 1
                found.append(
                    Ran(message_bytes=int(match[1]), algo=algo, proto=proto, channels=max(1, channels))
                )
            continue
        old = _OLD_CHOICE.search(line)
        if old is not None:
            found.append(
                Ran(
                    message_bytes=int(old[1]),
                    algo=NCCL_ALGOS[int(old[2])],
                    proto=NCCL_PROTOS[int(old[3])],
                    channels=None,
                )
            )
    return found


def _plan_name(word: str, names: Iterable[str]) -> str | None:
    """``NVLS_TREE`` → ``nvls_tree``."""
    return next((name for name in names if name.replace("_", "") == word.lower().replace("_", "")), None)
