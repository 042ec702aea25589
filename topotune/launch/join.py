"""Joining as one rank of a per-rank launcher: afterwards the environment is the one that torchrun gives.

torch meets by ``env://``: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. torchrun sets them. Slurm says who the
first node is, and MPI's launchers do not say where rank 0 runs: it serves a store, and tells the others where
through the launcher's own channel (`topotune.launch.pmix`, `topotune.launch.pmi`). Where Open MPI has no
such channel, rank 0 is taken to be on mpirun's own node, whose address stands in the environment.
"""

import contextlib
import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn
from zlib import crc32

import torch.distributed as dist

from topotune.errors import UsageError
from topotune.launch import pmi, pmix
from topotune.launch.meeting import Address, find, interface_for, is_here, own_addresses, serve
from topotune.probe.membership import TITLES, PerRank

_LEFT: Final = "topotune/left"
_LEAVE_S: Final = 10.0
_POLL_S: Final = 0.05
_FIRST_PORT: Final = 15_000
_NUM_PORTS: Final = 15_000


@contextmanager
def joined(member: PerRank) -> Iterator[None]:
    """Be a rank: inside, ``env://`` finds the other ranks, whatever launcher started them.

    The environment stays changed. Rank 0 of a launcher that has no store of its own serves one, and stays
    until the others have left (those that fail do not say so: then it leaves after 10 s).

    Args:
        member: what the launcher says.

    Raises:
        UsageError: the launcher does not say where rank 0 is.
        RunError: rank 0 could not be found, or cannot listen.
    """
    store = complete_environment(member)
    yield
    if store is None:
        return
    deadline_s = time.monotonic() + _LEAVE_S
    with contextlib.suppress(dist.DistError):  # rank 0 has waited for long, and left
        left = store.add(_LEFT, 1)
        while member.rank == 0 and left < member.world_size and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
            left = store.add(_LEFT, 0)


def complete_environment(member: PerRank) -> Any:
    """Set what torchrun would; the store that was made or found for it, None where the launcher has one.

    The caller keeps rank 0's store as long as ranks need it.

    Raises:
        UsageError: the launcher does not say where rank 0 is.
        RunError: rank 0 could not be found, or cannot listen.
    """
    numbers = {
        "RANK": member.rank,
        "WORLD_SIZE": member.world_size,
        "LOCAL_RANK": member.local_rank,
        "LOCAL_WORLD_SIZE": member.local_size,
        "GROUP_RANK": member.node_index,
        "GROUP_WORLD_SIZE": member.num_nodes,
        "MASTER_PORT": member.master_port,
    }
    os.environ.update({name: str(number) for name, number in numbers.items() if number is not None})
    if member.launcher in ("torchrun", "environment"):
        return None
    store, (address, port) = _meet(member)
    os.environ.update(
        MASTER_ADDR=address,
        MASTER_PORT=str(port),
        # Ranks, rank 0 too, are clients of a store that is already there.
        TORCHELASTIC_USE_AGENT_STORE="True",
        TORCHELASTIC_RESTART_COUNT="0",
    )
    return store


def _meet(member: PerRank) -> tuple[Any, Address]:
    if member.master_address is not None and member.master_port is not None:
        return _at(member, [member.master_address], member.master_port)
    if member.world_size == 1:
        return _at(member, ["127.0.0.1"], 0)
    told = _through_launcher(member)
    if told is not None:
        return told
    if member.local_size == member.world_size:
        return _at(member, ["127.0.0.1"], _port_of(member))
    if not member.launcher_addresses:
        _refuse(member, "it does not say where rank 0 is")
    if member.rank == 0 and not any(map(is_here, member.launcher_addresses)):
        _refuse(member, f"rank 0 does not run on its node ({', '.join(member.launcher_addresses)})")
    return _at(member, member.launcher_addresses, _port_of(member))


def _through_launcher(member: PerRank) -> tuple[Any, Address] | None:
    """Meet by what rank 0 tells all through the launcher; None where that has no channel."""
    store, said = None, None
    if member.rank == 0:
        token = secrets.token_hex(8)
        store = serve(0, token)
        said = json.dumps(
            {"port": store.port, "token": token, "hosts": _own_places(member)}, separators=(",", ":")
        )
    if member.launcher == "openmpi":
        heard = pmix.tell_all(member.rank, said)
    else:
        heard = pmi.tell_all(os.environ, member.rank, said)
    if heard is None:
        return None
    meeting = json.loads(heard)
    places = [(host, meeting["port"]) for host in meeting["hosts"]]
    if store is not None:
        return store, ("127.0.0.1", store.port)
    return find(places, meeting["token"], what="rank 0")


def _own_places(member: PerRank) -> list[str]:
    """Addresses of rank 0's machine, those first by which mpirun's daemons reach it; as many as PMI takes."""
    if member.local_size == member.world_size:
        return ["127.0.0.1"]
    own = own_addresses()
    known = [address for address in member.launcher_addresses if address in own]
    return [*known, *(address for address in own if address not in known)][:16]


def _at(member: PerRank, hosts: Sequence[str], port: int) -> tuple[Any, Address]:
    """Meet at a port that all ranks know."""
    token = member.job or "topotune"
    if member.rank == 0:
        store = serve(
            port,
            token,
            interface=interface_for(hosts[0]),
            port_hint="export MASTER_PORT with one that is free",
        )
        return store, (hosts[0], store.port)
    return find([(host, port) for host in hosts], token, what=f"rank 0 ({TITLES[member.launcher]})")


def _port_of(member: PerRank) -> int:
    """The same for all ranks of one start, and most likely another for other starts."""
    return _FIRST_PORT + crc32((member.job or "").encode()) % _NUM_PORTS


def _refuse(member: PerRank, problem: str) -> NoReturn:
    raise UsageError(
        f"started by {TITLES[member.launcher]}, but {problem}",
        hint="mpirun -x MASTER_ADDR=HOST topotune … (mpiexec -genv MASTER_ADDR HOST): rank 0's host",
    )
