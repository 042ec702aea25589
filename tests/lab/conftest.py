"""Labs for tests: a registry folder of their own, and a skip with its reason where labs cannot be."""

import subprocess
import sys
from pathlib import Path

import pytest

from topotune.errors import TopotuneError
from topotune.lab import Cluster, LabNode, LabProfile

# What `topotune lab` does, with the registry in a folder of the test.
DRIVER = """
import sys
from pathlib import Path
from topotune import lab
from topotune.errors import TopotuneError

root, profile, flags, *command = sys.argv[1:]
flags = {flag: True for flag in flags.split(",") if flag}
try:
    sys.exit(lab.run(profile, command, **flags, root=Path(root),
                     report=lambda line: print(line, file=sys.stderr, flush=True)))
except TopotuneError as error:
    print(f"error: {error.message}", file=sys.stderr)
    sys.exit(error.exit_code)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture(scope="session")
def namespaces(tmp_path_factory):
    """Skips where this process may not, or this kernel cannot, build a lab."""
    one = LabProfile(name="one", nodes=(LabNode(name="a", ranks=1, bits_per_s=10**8),))
    try:
        with Cluster(one, root=tmp_path_factory.mktemp("probe") / "topotune" / "labs"):
            pass
    except TopotuneError as problem:
        pytest.skip(f"no lab here: {problem.message}")


@pytest.fixture
def root(namespaces, tmp_path):
    """Where the labs of a test are registered; nothing may be left there."""
    folder = tmp_path / "run" / "topotune" / "labs"
    folder.parent.parent.mkdir()
    yield folder
    assert list(folder.parent.parent.iterdir()) == []


@pytest.fixture
def start_lab(root):
    """Starts the driver: ``start_lab(profile, flags, *command)`` → Popen with text pipes."""
    started: list[subprocess.Popen[str]] = []

    def start(
        profile: str,
        flags: str,
        *command: str,
        stderr: int = subprocess.PIPE,
        cwd: Path = Path(__file__).parent,
    ) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(root), profile, flags, *command],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=cwd,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
