"""What ranks tell rank 0, and it tells them, at the store where they meet: before there is any group.

Theory of operation. Which network a group shall use must be agreed before the group is made, and looking at
all nodes needs no group at all. What every rank can reach is the rendezvous store that its launcher names
(MASTER_ADDR, MASTER_PORT). There each rank *says* a value under a topic, a rank *hears* those of others, and
rank 0 *tells* each rank its answer, or all of them what failed. Every rank writes and reads a few keys,
whatever the number of ranks; rank 0 alone reads one for each.

Ranks share a *place* if they are on one machine and see the same network interfaces. Neither a machine's boot
identifier nor a host name tells machines apart for certain (copies of a virtual machine share both), so their
addresses count as well.
"""

import hashlib
import json
import os
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import psutil
from torch.distributed import DistStoreError, PrefixStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from topotune.errors import RunError, TopotuneError, UsageError

MAX_WORD_BYTES: Final = 16 * 2**20
_KEYS_AT_ONCE: Final = 256
_POLL_S: Final = 0.02
_PARTING_S: Final = 3.0
_CALLS: Final[Counter[str]] = Counter()


class RollCall:
    """All ranks of a launcher's environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) at their store.

    Making one is collective. Rank 0 may serve the store itself: it keeps this for as long as others read.

    Args:
        name: what it is for, the same on all ranks.
        timeout: until the store must have been reached.

    Raises:
        RunError: it was not.
    """

    def __init__(self, name: str, *, timeout: timedelta) -> None:
        try:
            store, self.rank, self.size = next(rendezvous("env://", timeout=timeout))
        except (RuntimeError, ValueError) as problem:
            where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
            words = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
            raise RunError(
                f"rank {os.environ.get('RANK')} did not reach the store of all ranks at {where}: {words}",
                hint="MASTER_ADDR and MASTER_PORT must name the node of rank 0; a firewall may stand between",
            ) from problem
        # Every rank makes them in the same order: the number tells a second one from the first.
        _CALLS[name] += 1
        self._store: Any = PrefixStore(f"topotune/{name}/{_CALLS[name]}", store)

    def say(self, topic: str, value: Any) -> None:
        """Leave this rank's JSON value, once a topic."""
        with self._reaching_the_store():
            self._store.set(f"{topic}/{self.rank}", _text(value))

    def hear(self, topic: str, ranks: Sequence[int], within_s: float) -> dict[int, Any]:
        """The values of some ranks, by rank; those that say nothing in time are missing from it."""
        keys = {rank: f"{topic}/{rank}" for rank in ranks}
        return self._read(self._awaited(keys, within_s))

    def hear_all(self, topic: str, within_s: float) -> list[Any]:
        """Every rank's value.

        Raises:
            RunError: not all have said one in time; it names those that have not.
        """
        heard = self.hear(topic, range(self.size), within_s)
        if len(heard) < self.size:
            missing = [rank for rank in range(self.size) if rank not in heard]
            raise RunError(
                f"{in_words(missing)} of {self.size} did not come within {within_s:g} s",
                hint="look at what they printed last; a launcher may start fewer ranks than it says",
            )
        return [heard[rank] for rank in range(self.size)]

    def tell(self, topic: str, values: Mapping[int, Any]) -> None:
        """Leave a JSON value for each of some ranks."""
        self._tell(topic, {rank: {"value": value} for rank, value in values.items()})

    def tell_failure(self, topics: Iterable[str], problem: TopotuneError) -> None:
        """Have every rank raise this error where it would be told a value under one of these topics."""
        words = {
            "wrong_use": isinstance(problem, UsageError),
            "message": problem.message,
            "hint": problem.hint,
        }
        for topic in topics:
            self._tell(topic, {rank: {"failure": words} for rank in range(self.size)})

    def told(self, topic: str, within_s: float) -> Any:
        """The value that was left for this rank.

        Raises:
            RunError: none was, in time.
            UsageError, RunError: the failure that was told instead, once all ranks have heard it, or soon.
        """
        found = self._read(self._awaited({0: f"to/{topic}/{self.rank}"}, within_s))
        if not found:
            raise RunError(
                f"rank {self.rank} heard nothing from rank 0 within {within_s:g} s",
                hint="look at what rank 0 printed last",
            )
        if "failure" in found[0]:
            self._part()
            failure = found[0]["failure"]
            raise (UsageError if failure["wrong_use"] else RunError)(failure["message"], hint=failure["hint"])
        return found[0]["value"]

    def _tell(self, topic: str, values: Mapping[int, Any]) -> None:
        keys = [f"to/{topic}/{rank}" for rank in values]
        texts = [_text(value) for value in values.values()]
        with self._reaching_the_store():
            for start in range(0, len(keys), _KEYS_AT_ONCE):
                part = slice(start, start + _KEYS_AT_ONCE)
                self._store.multi_set(keys[part], texts[part])

    def _part(self) -> None:
        """Have rank 0 stay until the others have heard it too: the store may go with its process."""
        with self._reaching_the_store():
            self._store.add("parting", 1)
            give_up_s = time.monotonic() + _PARTING_S
            while (
                self.rank == 0 and self._store.add("parting", 0) < self.size and time.monotonic() < give_up_s
            ):
                time.sleep(_POLL_S)

    def _awaited(self, keys: Mapping[int, str], within_s: float) -> dict[int, str]:
        """The keys that are there, once all are or the time is over."""
        try:
            self._store.wait(list(keys.values()), timedelta(seconds=within_s))
        except DistStoreError:
            with self._reaching_the_store():
                return {rank: key for rank, key in keys.items() if self._store.check([key])}
        except RuntimeError as problem:
            raise self._lost() from problem
        return dict(keys)

    def _read(self, keys: Mapping[int, str]) -> dict[int, Any]:
        names = list(keys.values())
        found: list[bytes] = []
        with self._reaching_the_store():
            for start in range(0, len(names), _KEYS_AT_ONCE):
                found += self._store.multi_get(names[start : start + _KEYS_AT_ONCE])
        return {rank: json.loads(data) for rank, data in zip(keys, found, strict=True)}

    @contextmanager
    def _reaching_the_store(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as problem:
            raise self._lost() from problem

    def _lost(self) -> RunError:
        return RunError(
            f"rank {self.rank} lost the store at which the ranks meet",
            hint="the process that serves it ended: look at what rank 0 and its launcher printed last",
        )


def own_place() -> str:
    """What ranks that share a machine and its network interfaces have in common, and no others have."""
    parts = []
    for read in (_boot_identifier, _network_namespace):
        try:
            parts.append(read())
        except OSError:  # hidden, in a hardened container: the addresses remain
            parts.append("")
    families = (psutil.AF_LINK, socket.AF_INET)  # addresses of IPv6 come and go by themselves
    for name, addresses in sorted(psutil.net_if_addrs().items()):
        parts += [f"{name} {each.address}" for each in addresses if each.family in families]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def _boot_identifier() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _network_namespace() -> str:
    return str(os.stat("/proc/self/ns/net").st_ino)


def by_place(places: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Ranks of each place, ascending; places in the order of their lowest ranks.

    Args:
        places: by rank.
    """
    found: dict[str, list[int]] = {}
    for rank, place in enumerate(places):
        found.setdefault(place, []).append(rank)
    return tuple(tuple(ranks) for ranks in found.values())


def _text(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":")).encode()
    assert len(text) <= MAX_WORD_BYTES, f"{len(text)} bytes for the store"
    return text


def in_words(ranks: Sequence[int]) -> str:
    """``rank 3``, ``ranks 3, 5``; many are cut short."""
    shown = ", ".join(map(str, ranks[:8]))
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}{more}"
