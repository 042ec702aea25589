"""Open MPI's library through its C interface, for benchmarks that put its ``MPI_Allreduce`` beside others.

No Python package is needed: handles are addresses of objects in the library. The algorithms of the component
``tuned`` are chosen per communicator: a communicator keeps what ``coll_tuned_allreduce_algorithm`` said when
it was made, and MPI's tools interface sets that (MPI 3.1, section 14.3.6). This needs a job started with
``coll_tuned_use_dynamic_rules``, under which algorithm 0 is the library's own fixed decision.
"""

import ctypes
import ctypes.util
import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.distributed as dist

FLOAT: Final = torch.float32
ALGORITHMS: Final = (
    "default",
    "basic_linear",
    "nonoverlapping",
    "recursive_doubling",
    "ring",
    "segmented_ring",
    "rabenseifner",
)
"""Of ``tuned`` in Open MPI 4.1, by number."""

_MPIRUN: Final = shutil.which("mpirun.openmpi") or shutil.which("mpirun")  # MPICH's may hide the latter
_ALGORITHM: Final = b"coll_tuned_allreduce_algorithm"
_THREAD_SINGLE: Final = 0
_IN_PLACE: Final = 1


class OpenMpi:
    """The library, initialised in a process that ``mpirun`` has started."""

    def __init__(self) -> None:
        library = ctypes.CDLL(ctypes.util.find_library("mpi"), mode=ctypes.RTLD_GLOBAL)
        library.MPI_Init(None, None)
        self._library = library
        self._allreduce = library.MPI_Allreduce
        self._allreduce.argtypes = (
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int),
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
        )
        self._float, self._sum, self._world = (
            ctypes.addressof(ctypes.c_byte.in_dll(library, name))
            for name in ("ompi_mpi_float", "ompi_mpi_op_sum", "ompi_mpi_comm_world")
        )

    def communicators(self) -> dict[str, "Allreduce"]:
        """A communicator of all ranks for each of ``ALGORITHMS``, by name; collective."""
        library, index, count = self._library, ctypes.c_int(), ctypes.c_int()
        handle = ctypes.c_void_p()
        _check(library.MPI_T_init_thread(_THREAD_SINGLE, ctypes.byref(ctypes.c_int())), "MPI_T_init_thread")
        _check(library.MPI_T_cvar_get_index(_ALGORITHM, ctypes.byref(index)), "MPI_T_cvar_get_index")
        _check(
            library.MPI_T_cvar_handle_alloc(index, None, ctypes.byref(handle), ctypes.byref(count)),
            "MPI_T_cvar_handle_alloc",
        )
        made = {}
        for number, name in enumerate(ALGORITHMS):
            chosen = ctypes.c_int(number)
            _check(library.MPI_T_cvar_write(handle, ctypes.byref(chosen)), "MPI_T_cvar_write")
            communicator = ctypes.c_void_p()
            _check(
                library.MPI_Comm_dup(ctypes.c_void_p(self._world), ctypes.byref(communicator)),
                "MPI_Comm_dup",
            )
            assert communicator.value is not None
            made[name] = Allreduce(self, communicator.value)
        return made

    def allreduce_(self, flat: torch.Tensor, communicator: int | None = None) -> None:
        """Sum in place over all ranks.

        Args:
            flat: float32, contiguous.
            communicator: its handle; None for all ranks' own.
        """
        assert flat.dtype == FLOAT, f"{flat.dtype} is not {FLOAT}"
        assert flat.is_contiguous(), f"stride {flat.stride()} is not contiguous"
        where = self._world if communicator is None else communicator
        failed = self._allreduce(_IN_PLACE, flat.data_ptr(), flat.numel(), self._float, self._sum, where)
        _check(failed, "MPI_Allreduce")

    def close(self) -> None:
        """Leave MPI; collective."""
        self._library.MPI_Finalize()


class Allreduce:
    """``MPI_Allreduce`` on one communicator."""

    def __init__(self, mpi: OpenMpi, communicator: int) -> None:
        self._mpi, self._communicator = mpi, communicator

    def __call__(self, flat: torch.Tensor) -> None:
        self._mpi.allreduce_(flat, self._communicator)


def check_sum(name: str, allreduce_: Callable[[torch.Tensor], Any], message_bytes: int) -> None:
    """Refuse an arm whose sums are not exact; collective over the default group."""
    pattern = torch.arange(message_bytes // FLOAT.itemsize, dtype=torch.int64) % 1000
    flat = (pattern * (dist.get_rank() + 1)).to(FLOAT)
    allreduce_(flat)
    size = dist.get_world_size()
    assert torch.equal(flat, (pattern * (size * (size + 1) // 2)).to(FLOAT)), f"{name} is wrong"


def open_mpi() -> str:
    """Its version; "" where it is not installed."""
    if _MPIRUN is None or ctypes.util.find_library("mpi") is None:
        return ""
    said = subprocess.run([_MPIRUN, "--version"], stdout=subprocess.PIPE, text=True).stdout
    return said.splitlines()[0].removeprefix("mpirun (").replace(")", "") if "Open MPI" in said else ""


def mpirun(*options: str) -> list[str]:
    """The beginning of a command line: ranks are not bound, and root may run them."""
    allowed = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [_MPIRUN or "mpirun", "--oversubscribe", "--bind-to", "none", *allowed, *options]


def _check(failed: int, call: str) -> None:
    assert not failed, f"{call}: error {failed}"
