"""Serves `command_line`: forks a process for each command from one that has imported what commands need.

What starts is a process of its own, with its own arguments, folder, environment, streams and exit code; what
is saved is importing the same libraries for each of some hundred commands. Starts from nothing are tested
where they are the point (runs on a terminal, interrupted runs, the documentation).

Over a socket it takes a message of JSON with three file descriptors, and answers with the process's id, and
then with its status as of ``os.waitpid``.
"""

import contextlib
import gc
import importlib
import json
import os
import socket
import sys

PRELOADED = (
    "scipy.special",
    "topotune.cli",
    "topotune.links.check",
    "topotune.report.text",
    "topotune.schedule",
    "topotune.simulate",
    "topotune.topology.formats.importing",
    "topotune.tune.journal",
    "topotune.tune.options",
)


def serve(connection: socket.socket) -> tuple[dict, list[int]] | None:
    """Answer requests until the tests have ended. In the process of a command, what it is to become."""
    while True:
        data, streams, _, _ = socket.recv_fds(connection, 2**20, 3)
        if not data:
            return None
        process = os.fork()
        if process == 0:
            connection.close()
            return json.loads(data), streams
        for stream in streams:
            os.close(stream)
        connection.send(str(process).encode())
        _, status = os.waitpid(process, 0)
        connection.send(str(status).encode())


def become(request: dict, streams: list[int]) -> None:
    """In the new process: what the request says, and then the command, which leaves by SystemExit."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["topotune", *request["arguments"]]
    from topotune.__main__ import main

    main()


if __name__ == "__main__":
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()  # a process that ends looks through all objects, and would copy their pages to do so
    command = None
    # Ctrl-C on the terminal that the tests are run on; tests that no longer wait for an answer.
    with contextlib.suppress(KeyboardInterrupt, ConnectionError):
        command = serve(socket.socket(fileno=int(sys.argv[1])))
    if command is not None:
        become(*command)
