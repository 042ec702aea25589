"""Runs of verbs with real ranks, each made once for all tests that look at what came of it."""

import pytest
from command_line import topotune


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    """A folder with a measurement of two ranks, and what ``measure`` said; it was to write a network, too."""
    folder = tmp_path_factory.mktemp("measured")
    options = ("--nproc-per-node", "2", "--budget", "1s", "-o", "links.json", "--topology", "network.json")
    return folder, topotune("measure", *options, cwd=folder)


@pytest.fixture(scope="session")
def tuned(tmp_path_factory):
    """A folder with a plan for two ranks, and what ``tune --json`` printed when it was made."""
    folder = tmp_path_factory.mktemp("tuned")
    options = ("--nproc-per-node", "2", "--budget", "2s", "--sizes", "1K,64K", "--json", "-o", "plan.json")
    done = topotune("tune", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder, done
