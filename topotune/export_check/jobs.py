"""Starting an MPI job of `watched` ranks and taking what it saw."""

import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from topotune.errors import RunError
from topotune.export_check import watched

REPETITIONS: Final = 11
"""How often each size is timed."""

_LOG: Final = logging.getLogger(__name__)
_TIMEOUT_S: Final = 300.0
_VERSION_TIMEOUT_S: Final = 60.0
_LAUNCHERS_PREFIXES: Final = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "HYDRA_", "HYDI_", "MPIR_CVAR_")
_KEPT_PREFIXES: Final = ("OMPI_MCA_",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """An MPI library's mpirun.

    Attributes:
        kind: ``openmpi`` or ``mpich``, as `watched` takes it.
        command: the program with what every job needs.
        library: libmpi, as the dynamic linker takes it.
        version: as it says it.
        environment: beside the caller's.
    """

    kind: str
    command: tuple[str, ...]
    library: str
    version: str
    environment: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """What one job saw.

    Attributes:
        digests: size → digest of the operation's calls on all ranks.
        times_s: size → of each timed call, the slowest rank's time.
    """

    digests: dict[int, str]
    times_s: dict[int, tuple[float, ...]]


def version_said(program: str, *arguments: str) -> str:
    """What a program prints about itself; "" where it is not there or does not end well."""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def library_near(program: str, names: Sequence[str]) -> str:
    """The first of these libraries beside a program (``bin/…``, ``lib/…``); else the first, by its name."""
    path = shutil.which(program)
    if path is not None:
        for folder in ("lib", "lib64"):
            for name in names:
                library = Path(path).parent.parent / folder / name
                if library.is_file():
                    return str(library)
    return names[0]


def run_watched(
    launcher: Launcher,
    num_ranks: int,
    sizes: Sequence[int],
    *,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Watched:
    """One job over these sizes.

    Args:
        launcher: the MPI library's.
        num_ranks: to start.
        sizes: in bytes.
        options: of the launcher.
        environment: beside the launcher's.

    Raises:
        RunError: the job failed, took more than 5 minutes, or said nothing.
    """
    command = [
        *launcher.command,
        *("-np", str(num_ranks)),
        *options,
        *(sys.executable, "-I", "-S", watched.__file__),
        *(launcher.kind, launcher.library, str(REPETITIONS)),
        *map(str, sizes),
    ]
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_KEPT_PREFIXES) or not name.startswith(_LAUNCHERS_PREFIXES)
    }
    _LOG.info("runs %s", shlex.join(command))
    job = subprocess.Popen(
        command,
        env={**kept, **launcher.environment, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        printed, complained = job.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired as problem:
        raise RunError(
            f"{launcher.version}: the self-test's job did not end within {_TIMEOUT_S:g} s",
            hint="does mpirun itself work here?",
        ) from problem
    finally:
        _end(job)
    said = [line for line in printed.decode(errors="replace").splitlines() if line.startswith(watched.MARK)]
    if job.returncode != 0 or not said:
        last = complained.decode(errors="replace").strip().splitlines()
        tail = next((line for line in last if "rror" in line), last[-1] if last else "it printed nothing")
        raise RunError(f"{launcher.version}: a job failed (exit code {job.returncode}): {tail.strip()[:300]}")
    results = json.loads(said[-1].removeprefix(watched.MARK))["results"]
    return Watched(
        digests={result["bytes"]: result["digest"] for result in results},
        times_s={result["bytes"]: tuple(result["times_s"]) for result in results},
    )


def _end(job: "subprocess.Popen[bytes]") -> None:
    """End what a job left, also when this process is interrupted; its ranks are in its session."""
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGTERM)
        try:
            job.wait(10.0)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
