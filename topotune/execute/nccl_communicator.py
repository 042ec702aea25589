"""A private NCCL group of some ranks, one GPU each, that may be made with settings of its own.

Theory of operation. As `topotune.execute.communicator`, on CUDA: a bare ``dist.ProcessGroup`` on a
``ProcessGroupNCCL`` that torch's tables know nothing of. Torch makes NCCL's communicator at the first
collective; here that is a sum of one element while the group is made, so that all settings that NCCL reads
when a communicator is made are those that this one was asked for. NCCL_ALGO and NCCL_PROTO are such settings
(read for every communicator by ncclTopoTuneModel, NCCL 2.18 to 2.30), and are in the environment for that
long alone; the number of channels goes by the communicator's own configuration, since NCCL keeps
NCCL_MAX_CTAS for a whole process. Whether a version kept to it is read back from its log
(`topotune.tune.nccl_settings`).

Everything is ordered by streams: a ``wait`` makes the current stream wait and returns. So what runs here can
be captured in a CUDA graph, once it has run outside of one: connections and scratch are made by the first
call.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from topotune.errors import RunError
from topotune.execute.communicator import Communicator, Messages, cause_in_words
from topotune.units import format_seconds

_MAKING: Final = threading.Lock()
"""The environment belongs to the whole process: one communicator at a time is made with settings in it."""


class NcclCommunicator(Communicator):
    """Ranks joined by NCCL, each on its process's current CUDA device; see `Communicator`.

    Args:
        store, rank, size, name, timeout, connect_within: as for `Communicator`.
        environment: variables that NCCL reads while a communicator is made, for that long.
        max_ctas: channels at most; None leaves them to NCCL.

    Raises:
        RunError: not all members joined in time, or NCCL could not be set up.
    """

    library = "nccl"

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        name: str,
        timeout: timedelta = timedelta(minutes=30),
        connect_within: timedelta | None = None,
        environment: Mapping[str, str] | None = None,
        max_ctas: int | None = None,
    ) -> None:
        self._environment = dict(environment or {})
        self._max_ctas = max_ctas
        super().__init__(store, rank, size, name=name, timeout=timeout, connect_within=connect_within)

    def _connect(self) -> dist.ProcessGroup:
        self.device = torch.device("cuda", torch.cuda.current_device())
        options: Any = dist.ProcessGroupNCCL.Options()
        options._timeout = self.timeout
        options.global_ranks_in_group = list(range(self.size))
        options.group_name = self.name
        if self._max_ctas is not None:
            options.config.max_ctas = self._max_ctas
        try:
            group = dist.ProcessGroup(self._store, self.rank, self.size)
            backend = dist.ProcessGroupNCCL(self._store, self.rank, self.size, options)
            group._set_default_backend(dist.ProcessGroup.BackendType.NCCL)
            group._register_backend(torch.device("cuda"), dist.ProcessGroup.BackendType.NCCL, backend)
            with in_environment(self._environment):
                group.allreduce([torch.zeros(1, device=self.device)], dist.AllreduceOptions()).wait()
                torch.cuda.current_stream(self.device).synchronize()
        except RuntimeError as error:
            raise RunError(
                f"communicator {self.name!r}: rank {self.rank} could not join the {self.size} ranks by NCCL "
                f"within {format_seconds(self.timeout.total_seconds())}: {cause_in_words(error)}",
                hint="NCCL_DEBUG=INFO says why",
            ) from error
        return group

    def _of_members(self, rank: int, size: int, name: str) -> "NcclCommunicator":
        return NcclCommunicator(
            self._store, rank, size, name=name, timeout=self.timeout, connect_within=self.connect_within
        )

    def exchange(self, sends: Messages, receives: Messages) -> None:
        """All messages as one group of NCCL's; the current stream waits for them, not the caller."""
        if not sends and not receives:
            return
        group = self.group
        group._start_coalescing(self.device)
        for part, peer in sends:
            group.send([part], peer, 0)
        for part, peer in receives:
            group.recv([part], peer, 0)
        group._end_coalescing(self.device).wait()

    def _end_waits(self, group: dist.ProcessGroup) -> None:
        group.abort()

    def _close(self) -> None:
        if self._group is not None and self._failure is None:
            self._group.shutdown()
        super()._close()


@contextmanager
def in_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Have variables in this process's environment for the length of a block; all else as before after it."""
    with _MAKING:
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
