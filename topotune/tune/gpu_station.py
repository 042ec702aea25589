"""One rank's part in measurements on GPUs: NCCL's own settings beside compositions and schedules on NCCL.

Theory of operation. As `topotune.tune.timing`, with messages on this rank's GPU: a sample ends when the
device has the result, on every arm alike. The default is timed on a raw NCCL group. A setting of NCCL's is a
communicator of its own, made with that setting, so that all of them and the default are timed in turns in
one process; what its log says that it ran decides whether the setting counts. Compositions and schedules run
on the ``topotune`` group, as a job runs them. All arms are called by ``dist.all_reduce``, so that its own
cost is in all of them.

A call that does not end is cut off by aborting its communicator, which ends the kernel on the device.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist

from topotune.errors import RunError
from topotune.execute import Communicator
from topotune.execute.nccl_communicator import NcclCommunicator
from topotune.plan.nccl import NCCL
from topotune.train.deadline import DEADLINES
from topotune.train.process_group import ProcessGroupTopotune
from topotune.tune.nccl_log import parse_log, read_log
from topotune.tune.nccl_settings import NcclPlace, NcclSetting, environment_of, not_as_set
from topotune.tune.points import ELEMENT_BYTES
from topotune.tune.timing import Station
from topotune.tune.trial import DEFAULTS, Candidate, Condition

_MADE_WITHIN: Final = timedelta(seconds=60)


class Engine(Protocol):
    """What runs settings: NCCL, or in tests something that needs no GPU.

    Attributes:
        device: where messages are.
    """

    device: torch.device

    def make(self, setting: NcclSetting) -> Communicator:
        """A communicator of all ranks with this setting. Collective.

        Raises:
            UsageError: the setting is dangerous here.
            RunError: it could not be made.
        """
        ...

    def synchronize(self) -> None:
        """Return when the device is done with all that was called."""
        ...

    def log_size(self) -> int:
        """Bytes of the log so far."""
        ...

    def log_from(self, start: int) -> str:
        """What was logged since."""
        ...


class NcclEngine:
    """NCCL on this process's current GPU.

    Args:
        communicator: of all ranks, whose store the communicators of settings meet in.
        place: what NCCL runs on; the same on all ranks.
        log: NCCL's log of this process (`topotune.tune.nccl_log`).
    """

    def __init__(self, communicator: Communicator, place: NcclPlace, log: Path) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._communicator = communicator
        self._place = place
        self._log = log
        self._num_made = 0

    def make(self, setting: NcclSetting) -> Communicator:
        """A fresh NCCL communicator that was told the setting, and nobody else was."""
        self._num_made += 1
        return NcclCommunicator(
            self._communicator.store,
            self._communicator.rank,
            self._communicator.size,
            name=f"setting {self._num_made}",
            timeout=_MADE_WITHIN,
            environment=environment_of(setting, self._place),
            max_ctas=setting.channels,
        )

    def synchronize(self) -> None:
        """Wait for the current stream of this GPU."""
        torch.cuda.current_stream(self.device).synchronize()

    def log_size(self) -> int:
        """Bytes in the log; 0 while there is none."""
        return self._log.stat().st_size if self._log.exists() else 0

    def log_from(self, start: int) -> str:
        """The log from there on, within bounds; empty while there is none."""
        return read_log(self._log, start)


class GpuStation(Station):
    """A `Station` whose messages are on a device.

    Args:
        planned, raw, private, node_of_rank, fresh_raw: as for `Station`; ``raw`` does collectives on the
            device.
        engine: that runs settings.
    """

    def __init__(
        self,
        planned: ProcessGroupTopotune,
        raw: dist.ProcessGroup,
        private: Communicator,
        node_of_rank: tuple[int, ...],
        fresh_raw: Callable[[], dist.ProcessGroup],
        *,
        engine: Engine,
    ) -> None:
        super().__init__(planned, raw, private, node_of_rank, fresh_raw)
        self.device = engine.device
        self._engine = engine
        self._limit_s: float | None = None
        self._of_settings: dict[Candidate, Communicator] = {}
        self._device_tensor = torch.zeros(0, device=engine.device)

    def close(self) -> None:
        """Drop the communicators of settings."""
        for communicator in self._of_settings.values():
            communicator.close()
        self._of_settings.clear()

    def _check(self, arm: Candidate, message_bytes: int, limit_s: float | None) -> dict[str, Any]:
        start = self._engine.log_size()
        found = super()._check(arm, message_bytes, limit_s)
        if arm.algorithm != NCCL or found["problem"] is not None or found["broken"] is not None:
            return found
        problem = None
        if self.messages.rank == 0:  # NCCL logs what it chooses on its rank 0 alone
            ran = parse_log(self._engine.log_from(start))
            problem = not_as_set(NcclSetting.of(arm), ran, message_bytes)
        return found | {"problem": self.messages.gather(problem)[0]}

    def _choose(self, arm: Candidate, limit_s: float | None) -> None:
        self._limit_s = limit_s
        if arm.algorithm != NCCL:
            super()._choose(arm, limit_s)

    def _build_arm(self, arm: Candidate) -> None:
        if arm.algorithm == NCCL:
            self._of_settings[arm] = self._engine.make(NcclSetting.of(arm))
        else:
            self._planned.build_override(on_cuda=self.device.type == "cuda")

    def _renew_planned(self) -> None:
        super()._renew_planned()
        for communicator in self._of_settings.values():
            communicator.abort()
        self.close()

    def _call(self, arm: Candidate, tensor: torch.Tensor, condition: Condition, batch: int) -> None:
        with self._cut_off(arm):
            super()._call(arm, tensor, condition, batch)
            self._engine.synchronize()

    def _reduce(self, arm: Candidate, flat: torch.Tensor, op: Any) -> None:
        on_device = flat.to(self.device)
        with self._cut_off(arm):
            dist.all_reduce(on_device, op=op, group=self._group_of(arm))
            self._engine.synchronize()
        flat.copy_(on_device)

    def _group_of(self, arm: Candidate) -> dist.ProcessGroup:
        if arm in self._of_settings:
            return self._of_settings[arm].group
        return super()._group_of(arm)

    @contextmanager
    def _cut_off(self, arm: Candidate) -> Iterator[None]:
        """End a candidate's call after its limit, by aborting what it runs on.

        Raises:
            RunError: it had to be.
        """
        if self._limit_s is None or arm in DEFAULTS:
            yield
            return
        communicator = self._of_settings.get(arm)
        abort = self._planned.stop_planned if communicator is None else communicator.abort
        with DEADLINES.within(self._limit_s, abort) as expiry:
            yield
        if expiry.passed:
            raise RunError(f"a call had not ended after {self._limit_s:.3g} s")

    def _buffer(self, message_bytes: int) -> torch.Tensor:
        num_elements = message_bytes // ELEMENT_BYTES
        if len(self._device_tensor) < num_elements:
            self._device_tensor = torch.zeros(num_elements, device=self.device)
        return self._device_tensor[:num_elements]
