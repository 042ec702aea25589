"""Running the real command line, as a user does."""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

# Launchers' variables in the caller's environment would make topotune join ranks that do not exist.
_LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TOPOTUNE_PLAN")


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _LAUNCHER}


def topotune(*arguments: str, cwd: Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, forked from `command_server`."""
    request = {"arguments": arguments, "cwd": str(cwd), "environment": environment()}
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr, open(os.devnull) as stdin:
        code = _run(request, [stream.fileno() for stream in (stdin, stdout, stderr)], timeout_s)
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(arguments, code, stdout.read().decode(), stderr.read().decode())


def _run(request: dict, streams: list[int], timeout_s: float) -> int:
    connection, server = _server()
    process = None
    try:
        connection.settimeout(120)
        socket.send_fds(connection, [json.dumps(request).encode()], streams)
        process = _answer(connection)
        connection.settimeout(timeout_s)
        return os.waitstatus_to_exitcode(_answer(connection))
    except BaseException:
        # Its answers may still come, and the next command must not take them for its own.
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        server.kill()
        connection.close()
        _server.cache_clear()
        raise


@cache
def _server() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("command_server.py")), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment(),
        )

    def end() -> None:
        ours.close()
        server.wait(60)

    atexit.register(end)
    return ours, server


def _answer(connection: socket.socket) -> int:
    answer = connection.recv(64)
    assert answer, "the server of commands has ended"
    return int(answer)
