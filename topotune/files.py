"""Files that topotune writes: whole or not at all, and never over something that nobody asked to lose.

A file is written beside its place under a temporary name, brought to the disk, and renamed; a reader sees the
old file or the new one, also after a crash. Standard library only.
"""

import logging
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from topotune.documents import MAX_DOCUMENT_BYTES, parse_json
from topotune.errors import InputFileError, OutputFileError

_LOG = logging.getLogger(__name__)


def check_writable(path: str | os.PathLike[str], *, force: bool = False, renews: str | None = None) -> Path:
    """Whether `write_whole` may and can write there; to be asked before the work whose result it is.

    Args:
        path: the file; a symbolic link stands for the file it leads to.
        force: an existing file may be replaced.
        renews: the ``schema`` of documents that may be replaced without ``force``: ``tune -o`` renews a plan.

    Returns:
        The file itself, links followed.

    Raises:
        OutputFileError: no such folder, a folder that cannot be written to, something that is no regular
            file, or an existing file that may not be replaced.
    """
    if os.fspath(path) == "-":
        raise OutputFileError("-: is no file", hint="leave the option out and use --json to print on stdout")
    try:
        target = Path(os.path.realpath(path))
        status = target.stat() if target.exists() else None
        folder_exists = target.parent.is_dir()
    except (OSError, ValueError) as problem:
        raise _refusal(path, "cannot be written", problem) from problem
    if not folder_exists:
        raise OutputFileError(
            f"{os.fspath(path)}: the folder {target.parent} does not exist", hint=f"mkdir -p {target.parent}"
        )
    if status is not None:
        _check_replaceable(path, target, status, force, renews)
    try:
        # Only writing shows that a folder is writable: permissions say nothing to root on a read-only mount.
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as problem:
        raise _refusal(path, f"the folder {target.parent} is not writable", problem) from problem
    return target


def write_whole(
    path: str | os.PathLike[str],
    data: bytes | Iterable[bytes],
    *,
    force: bool = False,
    renews: str | None = None,
) -> None:
    """Write a file whole or not at all; arguments and refusals as in `check_writable`.

    ``data`` may come in blocks, which are made while the file is written. A new file has the permissions that
    the umask leaves; a replaced one keeps its own.

    Raises:
        OutputFileError: refused, or the disk would not take it; what stood there before still does.
    """
    target = check_writable(path, force=force, renews=renews)
    temporary = target.with_name(f".topotune-{secrets.token_hex(8)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if target.exists():
                    os.fchmod(descriptor, stat.S_IMODE(target.stat().st_mode))
                file.writelines((data,) if isinstance(data, bytes) else data)
                file.flush()
                os.fsync(descriptor)
                num_bytes = file.tell()
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(target.parent)
        _LOG.info("wrote %s, %d bytes", target, num_bytes)
    except OSError as problem:
        raise _refusal(path, "cannot be written", problem) from problem


def _check_replaceable(
    path: str | os.PathLike[str], target: Path, status: os.stat_result, force: bool, renews: str | None
) -> None:
    shown = os.fspath(path)
    if stat.S_ISDIR(status.st_mode):
        raise OutputFileError(f"{shown}: is a folder", hint=f"name a file in it: {target}/NAME")
    if not stat.S_ISREG(status.st_mode):
        raise OutputFileError(
            f"{shown}: is a pipe or device, not a file",
            hint="leave the option out and use --json to print on stdout",
        )
    if force:
        return
    if renews is None:
        raise OutputFileError(f"{shown}: exists already", hint="--force overwrites it")
    if not _is_document(target, renews):
        raise OutputFileError(f"{shown}: exists and is no {renews}", hint="--force overwrites it")
    if not os.access(target, os.W_OK):
        raise OutputFileError(f"{shown}: exists and is read-only", hint="--force overwrites it")


def _is_document(target: Path, schema: str) -> bool:
    """Whether a file is a document of this kind, of whatever version and contents."""
    try:
        if target.stat().st_size > MAX_DOCUMENT_BYTES:
            # Of ours only what is written in blocks, with the schema first, is so large.
            with open(target, "rb") as file:
                return file.read(200).split(b",")[0].split() == [b"{", b'"schema":', f'"{schema}"'.encode()]
        document = parse_json(target.read_bytes(), str(target)).raw
    except (OSError, InputFileError):
        return False
    return isinstance(document, dict) and document.get("schema") == schema


def _sync_folder(folder: Path) -> None:
    """Bring the rename itself to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refusal(path: str | os.PathLike[str], what: str, problem: OSError | ValueError) -> OutputFileError:
    reason = (problem.strerror or str(problem)) if isinstance(problem, OSError) else str(problem)
    return OutputFileError(f"{os.fspath(path)}: {what}: {reason}")
