"""Which ranks share a node: those that can reach each other's shared memory, proved by doing it.

Host names lie (containers share or invent them) and so do addresses. What algorithms need to know is
whether two ranks can share memory, so that is what is tried: each rank puts a random secret into a segment
in /dev/shm, readable by its own user only; every rank reads what it can open; all tell each other what they
read. Two ranks are mutual if each read the other's secret, and a node is a set of ranks with the same
mutual ranks.

Nothing is left behind. A segment stands for the milliseconds of the handshake. Its names are agreed before
any is created, so that if a rank dies in between, the others remove its segment; if all die at once, the
next handshake of the same user does: a segment is locked for as long as its maker lives.
"""

import fcntl
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from topotune.links.messages import GroupLike, Messages

SHM = Path("/dev/shm")
PREFIX = "topotune-node-"
_SECRET_CHARS = 64
_ABANDONED_AFTER_S = (
    60.0  # a segment has its lock long before; this only keeps clear of one that is being made
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeVerdict:
    """Who shares a node with whom; equal on all ranks.

    Attributes:
        node_of_rank: node number of each rank, 0-based, numbered by their lowest rank.
        warnings: what stood in the way, one line each.
    """

    node_of_rank: tuple[int, ...]
    warnings: tuple[str, ...] = ()


def same_node(group: GroupLike, *, shm: Path = SHM) -> NodeVerdict:
    """Find out by a shared-memory handshake which ranks share a node. Collective.

    A rank that cannot use ``shm`` is a node of its own, with a warning.

    Raises:
        RunError: a rank did not answer; no segment is left.
    """
    messages = Messages(group)
    names: list[str] = messages.gather(PREFIX + secrets.token_hex(16))
    secret = secrets.token_hex(_SECRET_CHARS // 2)
    remove_abandoned(shm)
    descriptor: int | None = None
    try:
        descriptor, problem = _create(shm / names[messages.rank], secret)
        messages.barrier()
        read = [_read(shm / name) for name in names]
        reports = messages.gather({"secret": secret, "read": read, "problem": problem})
    finally:
        # Also the others' segments: their makers may be dead, and if they live they have been read or never
        # will be.
        for name in names:
            _remove(shm / name)
        if descriptor is not None:
            os.close(descriptor)
    seen = [
        [report["read"][peer] == reports[peer]["secret"] for peer in range(messages.size)]
        for report in reports
    ]
    node_of_rank, warnings = nodes_from_sight(seen)
    warnings += [
        f"rank {rank} counts as a node of its own: {report['problem']}"
        for rank, report in enumerate(reports)
        if report["problem"]
    ]
    return NodeVerdict(node_of_rank=tuple(node_of_rank), warnings=tuple(warnings))


def nodes_from_sight(seen: Sequence[Sequence[bool]]) -> tuple[list[int], list[str]]:
    """Nodes out of who read whose secret.

    One-sided sight counts for nothing, and ranks share a node only if they see exactly the same ranks: an
    equivalence relation in which all ranks of a node see each other.

    Args:
        seen: ``seen[i][j]``: rank i read the secret of rank j.

    Returns:
        node number of each rank, and warnings where sight was not mutual or not transitive.
    """
    num_ranks = len(seen)
    mutual = [
        frozenset(j for j in range(num_ranks) if i == j or (seen[i][j] and seen[j][i]))
        for i in range(num_ranks)
    ]
    numbers: dict[frozenset[int], int] = {}
    node_of_rank = [numbers.setdefault(peers, len(numbers)) for peers in mutual]
    odd = [
        (i, j)
        for i in range(num_ranks)
        for j in range(num_ranks)
        if i != j and seen[i][j] and node_of_rank[i] != node_of_rank[j]
    ]
    warnings = []
    if odd:
        pairs = ", ".join(f"{i} sees {j}" for i, j in odd[:4])
        warnings.append(
            f"shared memory is visible one-sidedly or in part ({pairs}{', …' if len(odd) > 4 else ''}): "
            "those ranks count as different nodes"
        )
    return node_of_rank, warnings


def remove_abandoned(shm: Path) -> None:
    """Remove this user's handshake segments whose maker is dead."""
    try:
        candidates = [path for path in shm.iterdir() if path.name.startswith(PREFIX)]
    except OSError:
        return
    for path in candidates:
        try:
            # A young one is not even opened: to close it would drop the record locks of this process, whose
            # own segment of another group it may be.
            if not _is_old(path.lstat()):
                continue
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # gone already, or somebody else's
            continue
        try:
            # In this order: the lock of one that is being made is its maker's, who does not wait for it.
            if _is_old(os.fstat(descriptor)):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
        except OSError:  # its maker lives, or nothing can be locked here
            pass
        finally:
            os.close(descriptor)


def _is_old(status: os.stat_result) -> bool:
    return time.time() - status.st_mtime > _ABANDONED_AFTER_S


def _create(path: Path, secret: str) -> tuple[int | None, str | None]:
    """Make and lock this rank's segment: its descriptor, or what was in the way."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return None, f"cannot make a segment in {path.parent}: {error.strerror}"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, secret.encode())
    except OSError as error:
        os.close(descriptor)
        _remove(path)
        return None, f"cannot write to {path.parent}: {error.strerror}"
    return descriptor, None


def _read(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # another node's, another user's, or never made
        return None
    try:
        return os.read(descriptor, _SECRET_CHARS).decode("ascii", "replace")
    except OSError:  # one rank that cannot read must not fail alone: the others wait for its report
        return None
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError:  # removed by another rank, on another node, or never made
        return
