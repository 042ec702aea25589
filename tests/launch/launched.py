"""Starting processes as launchers do: each with an environment of its own, none left behind."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
DRIVER = (sys.executable, str(HERE / "launch_driver.py"))
TOPOTUNE = (sys.executable, "-m", "topotune")
# By its own name: an environment that has MPICH may hide it.
OPEN_MPIRUN = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
# MPICH's wheel, which the tests bring, has it beside the interpreter.
HYDRA = shutil.which("mpiexec.hydra", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec.hydra")

# What launchers set; a test must not find those of the process that runs it.
_PREFIXES = ("OMPI_", "PMI", "SLURM", "PET_", "SM_", "AZ_", "AZUREML_", "TORCHELASTIC_")
_NAMES = {
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "NODE_RANK",
}
_NAMES |= {"MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "TOPOTUNE_LAUNCHER", "TOPOTUNE_PLAN"}


def bare_environment():
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _NAMES and not name.startswith(_PREFIXES)
    }


def free_port():
    """A port that nobody has now; below those that the kernel gives to connections, so that none takes it."""
    for port in range(20_000 + os.getpid() % 5_000, 32_000):
        try:
            socket.create_server(("", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("no port is free")


class Started:
    """Processes of one run, by their order."""

    def __init__(self):
        self.processes = []

    def start(self, command, environment, **options):
        process = subprocess.Popen(
            command,
            env=bare_environment() | {"PYTHONPATH": str(HERE)} | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )
        self.processes.append(process)
        return process

    def end(self, timeout_s=120):
        """Exit code, stdout and stderr of each, once all have ended."""
        said = [process.communicate(timeout=timeout_s) for process in self.processes]
        return [(process.returncode, *texts) for process, texts in zip(self.processes, said, strict=True)]

    def kill(self):
        for process in self.processes:
            process.kill()
            process.communicate()
