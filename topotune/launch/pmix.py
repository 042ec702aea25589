"""Telling all ranks of an Open MPI start one text, through the PMIx server that started them.

PMIx is what Open MPI's daemons (and PRRTE's) serve to the processes that they start: a store of keys over the
daemons' own connections, which stand before any rank runs. So it works wherever mpirun does, also where rank
0 is not on mpirun's node. Its C interface is called here, from the library that Open MPI itself uses; Open
MPI 4 can be built with one of its own inside, and then there is none to call.

Source: PMIx Standard 4.1, chapters 5 (Put, Commit, Fence, Get) and 8 (Init, Finalize); the interface has been
the same since version 2.
"""

import ctypes
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from topotune.errors import RunError

_NAME: Final = "libpmix.so.2"
_SUCCESS: Final = 0
_GLOBAL: Final = 3  # the scope of a key that ranks on all nodes may read
_STRING: Final = 3  # the type of a value
_KEY: Final = b"topotune.meeting"
_KEY_BYTES: Final = 512


class _Process(ctypes.Structure):
    """``pmix_proc_t``."""

    _fields_ = (("nspace", ctypes.c_char * 256), ("rank", ctypes.c_uint32))


class _Value(ctypes.Structure):
    """``pmix_value_t`` of type string; the union is as long as its longest member."""

    _fields_ = (("type", ctypes.c_uint16), ("string", ctypes.c_char_p), ("rest", ctypes.c_char * 32))


def tell_all(rank: int, text: str | None) -> str | None:
    """Give all ranks what rank 0 says. Collective over the ranks of one mpirun.

    Args:
        rank: this one's number.
        text: what rank 0 says; others leave it.

    Returns:
        What rank 0 says; None where there is no PMIx library, or it does not speak this server's language.

    Raises:
        RunError: the exchange itself failed.
    """
    library = _load()
    if library is None:
        return None
    me = _Process()
    if library.PMIx_Init(ctypes.byref(me), None, ctypes.c_size_t(0)) != _SUCCESS:
        return None
    try:
        key = ctypes.create_string_buffer(_KEY, _KEY_BYTES)
        if rank == 0:
            assert text is not None
            value = _Value(type=_STRING, string=text.encode())
            _check(library.PMIx_Put(ctypes.c_uint8(_GLOBAL), key, ctypes.byref(value)), "PMIx_Put")
            _check(library.PMIx_Commit(), "PMIx_Commit")
        _check(library.PMIx_Fence(None, ctypes.c_size_t(0), None, ctypes.c_size_t(0)), "PMIx_Fence")
        found = ctypes.POINTER(_Value)()
        first = _Process(nspace=me.nspace, rank=0)
        none = ctypes.c_size_t(0)
        _check(
            library.PMIx_Get(ctypes.byref(first), key, None, none, ctypes.byref(found)), "PMIx_Get of rank 0"
        )
        if found.contents.type != _STRING:
            raise RunError(f"PMIx gave a value of type {found.contents.type} for rank 0's address")
        return bytes(found.contents.string).decode()
    finally:
        library.PMIx_Finalize(None, ctypes.c_size_t(0))


def _check(status: int, call: str) -> None:
    if status != _SUCCESS:
        raise RunError(
            f"{call} failed with status {status}, asking mpirun where rank 0 is",
            hint="mpirun -x MASTER_ADDR=HOST topotune …, with the host of rank 0, needs no PMIx",
        )


def _load() -> ctypes.CDLL | None:
    for name in _places():
        try:
            return ctypes.CDLL(name)
        except OSError:  # not there, or not loadable
            continue
    return None


def _places() -> Iterator[str]:
    """Beside the Open MPI that runs this first: the system may have another version."""
    mpirun = shutil.which("mpirun")
    homes = [
        os.environ.get("OPAL_PREFIX"),
        None if mpirun is None else str(Path(mpirun).resolve().parents[1]),
    ]
    for home in homes:
        if home is not None:
            yield str(Path(home) / "lib" / _NAME)
    yield _NAME
