"""One rank of an MPI job whose allreduce algorithm is to be found out. Standard library only; a script.

Theory of operation. No MPI library says which allreduce algorithm it ran, but each runs the operation that
the user defined, and must: how often a rank is called, and on how many elements, is the algorithm's
signature. Recursive doubling calls every rank log2(n) times on the whole message, ring n - 1 times on n-th
parts, Rabenseifner on a half, a quarter, …. So this allreduces bytes with an operation that notes the length
of each call. Bytes make every message size possible. Calls are compared as a digest over all ranks.

The library is called by its C interface through ctypes, since neither a compiler nor mpi4py need be there.
Open MPI's handles are addresses of global objects, those of MPICH and its relatives are numbers.

Arguments: ``openmpi`` or ``mpich``, the library, how often to time each size, sizes in bytes. Rank 0 prints
one line of JSON behind MARK: for each size the digest, and of each timed call the slowest rank's seconds.
"""

import ctypes
import hashlib
import json
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any

MARK = "topotune-watched "
_OPERATION = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int), ctypes.c_void_p
)
_MPICH_HANDLES = {"world": 0x44000000, "byte": 0x4C00010D, "bxor": 0x5800000A}
_OPENMPI_HANDLES = {"world": "ompi_mpi_comm_world", "byte": "ompi_mpi_byte", "bxor": "ompi_mpi_op_bxor"}
_WARM_UP = 3


def main(arguments: Sequence[str]) -> None:
    """Take part in the job."""
    kind, library, repetitions = arguments[0], arguments[1], int(arguments[2])
    sizes = [int(size) for size in arguments[3:]]
    mpi = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    handles = {name: _handle(mpi, kind, name) for name in _MPICH_HANDLES}
    world = handles["world"]
    _call(mpi.MPI_Init, None, None)
    rank, num_ranks = ctypes.c_int(), ctypes.c_int()
    _call(mpi.MPI_Comm_rank, world, ctypes.byref(rank))
    _call(mpi.MPI_Comm_size, world, ctypes.byref(num_ranks))
    lengths: list[int] = []

    def operation(_source: int, _target: int, length: Any, _datatype: int) -> None:
        lengths.append(length[0])

    watching = _OPERATION(operation)
    watched = ctypes.c_void_p() if kind == "openmpi" else ctypes.c_int()
    _call(mpi.MPI_Op_create, watching, 1, ctypes.byref(watched))
    results = []
    for size in sizes:
        source, target = ((ctypes.c_char * max(size, 1))() for _ in range(2))

        def allreduce(reduction: Any, size: int = size, source: Any = source, target: Any = target) -> None:
            _call(mpi.MPI_Allreduce, source, target, size, handles["byte"], reduction, world)

        lengths.clear()
        allreduce(watched)
        mine = hashlib.sha256(struct.pack(f"<{len(lengths)}q", *lengths)).digest()
        digests = _gather(mpi, handles, mine, num_ranks.value)
        times = []
        for turn in range(_WARM_UP + repetitions):
            _call(mpi.MPI_Barrier, world)
            begin = time.perf_counter()
            allreduce(handles["bxor"])
            if turn >= _WARM_UP:
                times.append(time.perf_counter() - begin)
        form = struct.Struct(f"<{repetitions}d")
        of_ranks = form.iter_unpack(_gather(mpi, handles, form.pack(*times), num_ranks.value))
        results.append(
            {
                "bytes": size,
                "digest": hashlib.sha256(digests).hexdigest(),
                "times_s": [max(call) for call in zip(*of_ranks, strict=True)],
            }
        )
    if rank.value == 0:
        sys.stdout.write(f"{MARK}{json.dumps({'num_ranks': num_ranks.value, 'results': results})}\n")
        sys.stdout.flush()
    _call(mpi.MPI_Finalize)


def _handle(mpi: ctypes.CDLL, kind: str, name: str) -> Any:
    if kind == "mpich":
        return _MPICH_HANDLES[name]
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, _OPENMPI_HANDLES[name])))


def _gather(mpi: ctypes.CDLL, handles: dict[str, Any], mine: bytes, num_ranks: int) -> bytes:
    """All ranks' bytes, in the order of ranks, on every rank."""
    whole = (ctypes.c_char * (len(mine) * num_ranks))()
    byte = handles["byte"]
    _call(mpi.MPI_Allgather, mine, len(mine), byte, whole, len(mine), byte, handles["world"])
    return bytes(whole)


def _call(function: Any, *arguments: Any) -> None:
    status = function(*arguments)
    if status != 0:  # MPI aborts by itself, unless told not to
        raise RuntimeError(f"{function.__name__} returned {status}")


if __name__ == "__main__":
    main(sys.argv[1:])
