"""What is published: an sdist that holds the whole project, and a wheel of it that runs by itself."""

import json
import os
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARE_IN = (
    "CHANGELOG.md", "LICENSE", "README.md", "constraints.txt", "pyproject.toml",
    "docs/default-plan-optimum.svg", "docs/make_picture.py", "docs/reference/python.md",
    "notebooks/02_why_this_plan.py", "notebooks/data/2x4.plan.json", "profiles/lab/2x4.json",
    "profiles/machines/dgx-a100.json", "tests/conftest.py", "tests/test_distribution.py", "topotune/py.typed",
)  # fmt: skip

pytestmark = pytest.mark.slow


def run(*command, cwd, **environment):
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that was built from it alone."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-P", "-m", "build", "--no-isolation", "-o", folder, ROOT, cwd=folder)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """A new environment with the wheel; what it depends on is taken from where these tests run."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    install = ("install", "--no-index", "--no-deps", "--no-compile", "--quiet", built[1])
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, *install, cwd=folder)
    (own,) = folder.glob("lib/python*/site-packages")
    # Behind its own: a topotune that these tests run from is not what it finds.
    (own / "dependencies.pth").write_text("".join(f"{one}\n" for one in site.getsitepackages()))
    return folder / "bin"


def names_in(sdist):
    with tarfile.open(sdist) as archive:
        return {one.name.partition("/")[2] for one in archive if one.isfile()}


def test_the_sdist_holds_the_whole_project(built):
    names = names_in(built[0])
    assert [name for name in ARE_IN if name not in names] == []
    assert not [name for name in names if ".git/" in name or "__pycache__" in name or name.endswith(".pyc")]


def test_the_wheel_holds_every_file_of_the_package_and_the_profiles(built):
    sdist, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if name.startswith("topotune/")}
    names = names_in(sdist)
    package = {name for name in names if name.startswith("topotune/")}
    profiles = {f"topotune/{name}" for name in names if name.startswith("profiles/")}
    assert found == package | profiles


def test_the_wheel_says_what_it_needs_and_what_it_brings(built):
    with zipfile.ZipFile(built[1]) as archive:
        texts = {Path(name).name: archive.read(name) for name in archive.namelist() if ".dist-info/" in name}
    metadata = texts["METADATA"].decode()
    assert "Provides-Extra: report" in metadata
    assert "plotly>=6.0; extra == 'report'" in metadata
    entries = texts["entry_points.txt"].decode()
    assert "topotune = topotune.__main__:main" in entries
    assert "topotune = topotune.torch_backend:register" in entries


def test_what_was_installed_runs(installed, tmp_path):
    topotune = installed / "topotune"
    where = run(installed / "python", "-c", "import topotune; print(topotune.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed.parent)
    assert "topotune tune" in run(topotune, "tune", "--help", cwd=tmp_path)
    run(topotune, "probe", "-o", "machine.json", cwd=tmp_path)
    assert "A100" in run(topotune, "show", "--profile", "dgx-a100", cwd=tmp_path)
    predicted = run(
        topotune, "simulate", "--profile", "dgx-a100", "--nodes", "2", "--sizes", "1M", "--json", cwd=tmp_path
    )
    (tmp_path / "prediction.json").write_text(predicted)
    run(topotune, "report", "machine.json", "prediction.json", "-o", "report.html", cwd=tmp_path)
    assert "Prediction" in (tmp_path / "report.html").read_text()


def test_torch_finds_the_backend_of_what_was_installed(installed, tmp_path):
    script = (
        "import json, sys, torch, torch.distributed as dist;"
        "print(json.dumps(['topotune' in dist.Backend.backend_list, sys.modules['topotune'].__file__]))"
    )
    known, where = json.loads(run(installed / "python", "-c", script, cwd=tmp_path))
    assert known
    assert Path(where).is_relative_to(installed.parent)
