"""Running the real command line, as a user does."""

import os
import subprocess
import sys
from pathlib import Path

# Launchers' variables in the caller's environment would make topotune join ranks that do not exist.
_LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TOPOTUNE_PLAN")


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _LAUNCHER}


def topotune(*arguments: str, cwd: Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "topotune", *arguments],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
