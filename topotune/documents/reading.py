"""The bytes of a file from outside: regular files only, up to a bound, without waiting."""

import itertools
import logging
import os
import stat
from typing import Final

from topotune.errors import InputFileError, did_you_mean

MAX_DOCUMENT_BYTES: Final = 16 * 2**20
MAX_MEASUREMENT_BYTES: Final = 64 * 2**20
"""For `read_document`: a measurement keeps every sample, and there are as many pairs as ranks squared."""

_LOOKED_AT: Final = 1000
"""Entries of a folder that are looked at for the file that was meant."""

_TOO_LARGE_HINT: Final = "it is another file than was meant, or was made for far more ranks than this is for"

_LOG: Final = logging.getLogger(__name__)


def read_bytes(
    path: str | os.PathLike[str],
    *,
    error: type[InputFileError] = InputFileError,
    max_bytes: int = MAX_DOCUMENT_BYTES,
) -> bytes:
    """The whole of a regular file of at most ``max_bytes``.

    Pipes and devices are refused without waiting for them.

    Raises:
        InputFileError: (or ``error``) no such file, no regular file, not readable, too large.
    """
    # One byte beyond the bound tells too large from just so, also where a file's size says 0 (/proc).
    size, data = _read_from_start(path, max_bytes + 1, error)
    if len(data) > max_bytes:
        raise error(
            os.fspath(path),
            f"has {max(size, len(data))} bytes, more than the {max_bytes} that such a document may have",
            hint=_TOO_LARGE_HINT,
        )
    _LOG.info("read %s, %d bytes", os.fspath(path), len(data))
    return data


def read_bytes_from_start(
    path: str | os.PathLike[str], num_bytes: int, *, error: type[InputFileError] = InputFileError
) -> bytes:
    """As much of the start of a regular file, or all of it; refusals as in `read_bytes`, but for size."""
    return _read_from_start(path, num_bytes, error)[1]


def _where_it_may_be(path: str | os.PathLike[str], error: type[InputFileError]) -> str | None:
    """Which file may have been meant, for a hint; None where the error's own hint says more."""
    folder, name = os.path.split(os.fspath(path))
    try:
        with os.scandir(folder or ".") as entries:
            found = [entry.name for entry in itertools.islice(entries, _LOOKED_AT) if entry.is_file()]
    except OSError:
        return f"there is no folder {folder}"
    looked_in = f"it was looked for in {os.path.abspath(folder)}" if error is InputFileError else None
    return did_you_mean(name, found) or looked_in


def _read_from_start(
    path: str | os.PathLike[str], num_bytes: int, error: type[InputFileError]
) -> tuple[int, bytes]:
    """The file's size as it says it, and its first bytes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as problem:
        raise error(os.fspath(path), "no such file", hint=_where_it_may_be(path, error)) from problem
    except (OSError, ValueError) as problem:
        hint = "a user who may read it must run this" if isinstance(problem, PermissionError) else None
        raise error(os.fspath(path), f"cannot be read: {_reason(problem)}", hint=hint) from problem
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise error(os.fspath(path), "is a folder, not a file", hint="name a file in it")
        if not stat.S_ISREG(status.st_mode):
            raise error(os.fspath(path), "is a pipe or device, not a file", hint="write it to a file first")
        with open(descriptor, "rb", closefd=False) as file:
            return status.st_size, file.read(num_bytes)
    except OSError as problem:
        raise error(os.fspath(path), f"cannot be read: {_reason(problem)}") from problem
    finally:
        os.close(descriptor)


def _reason(problem: OSError | ValueError) -> str:
    return (problem.strerror or str(problem)) if isinstance(problem, OSError) else str(problem)
