"""Telling all ranks of an mpiexec (Hydra) start one text, through the process manager that started them.

Hydra, which MPICH, Intel MPI and MVAPICH use, gives each process an open connection to its manager
(``PMI_FD``) and speaks lines of words there: the simple wire form of PMI-1. The manager keeps a store of keys
and a barrier over all ranks; no library of any MPI is needed.

Source: MPICH, src/pmi/src (wire form) and the PMI-1 description in doc/pmi; seen on the wire of flux-core.
"""

import os
from collections.abc import Mapping
from typing import Final

from topotune.errors import RunError

_KEY: Final = "topotune-meeting"
_MAX_VALUE: Final = 1024  # what Hydra keeps
_MAX_LINE: Final = 4096


def tell_all(environment: Mapping[str, str], rank: int, text: str | None) -> str | None:
    """Give all ranks what rank 0 says. Collective over the ranks of one mpiexec.

    Args:
        environment: with ``PMI_FD``.
        rank: this one's number.
        text: what rank 0 says, up to 1024 characters without blanks; others leave it.

    Returns:
        What rank 0 says; None where the manager left no connection.

    Raises:
        RunError: the manager answers in another way than PMI-1's.
    """
    descriptor = environment.get("PMI_FD", "")
    if not descriptor.isascii() or not descriptor.isdigit():
        return None
    manager = _Manager(int(descriptor))
    manager.ask("init pmi_version=1 pmi_subversion=1", "response_to_init")
    store = manager.ask("get_my_kvsname", "my_kvsname").get("kvsname", "")
    if rank == 0:
        assert text is not None
        assert len(text) <= _MAX_VALUE
        assert text.split() == [text]
        manager.ask(f"put kvsname={store} key={_KEY} value={text}", "put_result")
    manager.ask("barrier_in", "barrier_out")
    said = manager.ask(f"get kvsname={store} key={_KEY}", "get_result").get("value", "")
    # Without this, Hydra takes the end of the first process for a crash and ends the others.
    manager.ask("finalize", "finalize_ack")
    return said


class _Manager:
    """The connection to the process manager."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._pending = b""

    def ask(self, command: str, answer: str) -> dict[str, str]:
        """Send one line; the words of the answer."""
        try:
            os.write(self._descriptor, f"cmd={command}\n".encode())
            line = self._line()
        except OSError as problem:
            raise RunError(f"mpiexec's connection (PMI_FD={self._descriptor}) failed: {problem}") from problem
        words = dict(word.partition("=")[::2] for word in line.split())
        if words.get("cmd") != answer or words.get("rc", "0") != "0":
            raise RunError(
                f"mpiexec answered {line[:200]!r} to cmd={command.split()[0]}, asked where rank 0 is",
                hint="mpiexec -genv MASTER_ADDR HOST topotune …, with the host of rank 0, asks nothing",
            )
        return words

    def _line(self) -> str:
        while b"\n" not in self._pending:
            more = os.read(self._descriptor, _MAX_LINE)
            if not more or len(self._pending) > _MAX_LINE:
                raise OSError("it was closed" if not more else "its line has no end")
            self._pending += more
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode(errors="replace")
