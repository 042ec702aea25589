"""topotune's own tuner plugin for NCCL: the plan's table, and the library that reads it.

NCCL's stock example plugin cannot leave a call alone (it runs all that its file does not name on one
channel), so the plan comes with a plugin of its own, one C file (``nccl_tuner.c``) that the user's compiler
builds; it needs no headers of NCCL or CUDA. Text and library are two files side by side.
"""

import logging
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Final

from topotune.errors import RunError, UsageError
from topotune.plan.exports.nccl_rows import NcclRow, nccl_tables, provenance, version_of, version_warnings
from topotune.plan.exports.nccl_table import NcclTable, read, write
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.model import Plan

_LOG: Final = logging.getLogger(__name__)
OLDEST: Final = (2, 21)
FLAGS: Final = ("-std=c99", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
COMPILE_TIMEOUT_S: Final = 300.0


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """The plan's table; where it names none of NCCL's algorithms, an empty one, which changes nothing."""
    version = version_of(plan, options, oldest=OLDEST)
    tables = nccl_tables(plan)
    warnings = list(tables.warnings)
    if tables.rows:
        warnings += version_warnings(plan, version)
        unserved = sum(not _is_for_v2(row) for row in tables.rows)
        if version == OLDEST and unserved:
            warnings.append(
                f"NCCL 2.21 does not check what a tuner tells it: {unserved} of {len(tables.rows)} rows are "
                "left to NCCL there, all but those of ring and tree with simple, on one node also with ll"
            )
    return Translated(document=NcclTable(plan=provenance(plan), rows=tables.rows), warnings=tuple(warnings))


def _is_for_v2(row: NcclRow) -> bool:
    return row.algo in ("ring", "tree") and (
        row.proto == "simple" or (row.proto == "ll" and row.num_nodes == 1)
    )


def files(table: NcclTable, path: Path) -> Mapping[Path, bytes]:
    """The library for ``path``, and beside it the table; of a path that ends in ``.table``, the table alone.

    Raises:
        UsageError: no C compiler.
        RunError: it failed.
    """
    text = write(table).encode()
    if path.suffix == ".table":
        return {path: text}
    return {table_path(path): text, path: compiled()}


def table_path(library: Path) -> Path:
    """Where a library looks for its table: its own name with ``.table`` in place of the last ``.so``."""
    name, suffix, _ = library.name.rpartition(".so")
    return library.with_name((name if suffix else library.name) + ".table")


def compiled(flags: tuple[str, ...] = FLAGS) -> bytes:
    """The plugin, built by the compiler that CC names, else cc, gcc or clang.

    Raises:
        UsageError: there is no C compiler.
        RunError: it failed, or did not end within minutes.
    """
    command = _compiler()
    with (
        resources.as_file(resources.files("topotune.plan.exports") / "nccl_tuner.c") as source,
        tempfile.TemporaryDirectory(prefix="topotune-") as folder,
    ):
        library = Path(folder) / "libnccl-tuner-topotune.so"
        command = [*command, *flags, str(source), "-o", str(library), "-ldl"]
        _LOG.info("runs %s", shlex.join(command))
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=COMPILE_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as expired:
            raise RunError(f"{shlex.join(command)}: not done after {expired.timeout:g} s") from None
        except OSError as problem:
            raise RunError(f"{command[0]}: {problem.strerror}") from problem
        if done.returncode != 0 or not library.is_file():
            said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["it said nothing"]
            errors = [line for line in said if "error" in line]
            raise RunError(
                f"{command[0]} does not build the plugin (exit code {done.returncode}): "
                f"{(errors or said)[0][:300]}",
                hint="CC names another C compiler",
            )
        return library.read_bytes()


def _compiler() -> list[str]:
    named = shlex.split(os.environ.get("CC", ""))
    if named:
        if shutil.which(named[0]) is None:
            raise UsageError(f"CC={shlex.join(named)}: there is no such program", hint="CC=gcc, or unset it")
        return named
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found is not None:
            return [found]
    raise UsageError(
        "the plugin needs a C compiler: neither CC nor cc, gcc or clang is there",
        hint="install gcc, or export with -o NAME.table, and build the plugin on another machine",
    )


def how_to_use(place: str) -> str:
    """What the job's environment must say."""
    path = shlex.quote(os.path.abspath(place))
    if place.endswith(".table"):
        return f"export TOPOTUNE_NCCL_TABLE={path}  # on all nodes, with the plugin"
    return (
        f"export NCCL_TUNER_PLUGIN={path}  # on all nodes, its .table beside it\n"
        "# to see it act: NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ENV,TUNING"
    )


TARGET: Final = Target(
    name="nccl-tuner",
    summary="tuner plugin for NCCL, built here, with the plan's algorithms, protocols and channels by size",
    versions="NCCL 2.21 to 2.30",
    from_plan=from_plan,
    write=write,
    read=read,
    files=files,
    how_to_use=how_to_use,
)
