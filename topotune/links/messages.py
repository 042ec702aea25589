"""Plain messages between the ranks of a private group: what timing, clock, handshake are made of."""

import json
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch

from topotune.errors import RunError

_TAG = 0  # the group is private: nobody else's messages can be mistaken for these


class Work(Protocol):
    """What torch returns for a started operation."""

    def wait(self) -> Any:
        """Block until done; raises RuntimeError where it failed."""
        ...


class GroupLike(Protocol):
    """The part of ``torch.distributed.ProcessGroup`` (or of its gloo backend) that is used here."""

    def rank(self) -> int: ...  # noqa: D102
    def size(self) -> int: ...  # noqa: D102
    def send(self, tensors: list[torch.Tensor], dst: int, tag: int, /) -> Any: ...  # noqa: D102
    def recv(self, tensors: list[torch.Tensor], src: int, tag: int, /) -> Any: ...  # noqa: D102
    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], /) -> Any:  # noqa: D102
        ...


class Messages:
    """Blocking and started messages over one private group. All tensors are contiguous CPU tensors.

    Args:
        group: its maker must keep it; this does not.
    """

    def __init__(self, group: GroupLike) -> None:
        # Weak: its maker destroys it, with care for gloo's threads, and not whoever forgets this last.
        self._group_reference = weakref.ref(group)
        self.rank: int = group.rank()
        self.size: int = group.size()

    @property
    def _group(self) -> GroupLike:
        group = self._group_reference()
        if group is None:
            raise RunError(f"rank {self.rank}: the process group of these messages was closed")
        return group

    def start_send(self, tensor: torch.Tensor, dst: int) -> Work:
        """Start sending ``tensor`` to ``dst``; it must not change until the work is done."""
        work: Work = self._group.send([tensor], dst, _TAG)
        return work

    def start_recv(self, tensor: torch.Tensor, src: int) -> Work:
        """Start receiving into ``tensor`` from ``src``, whose messages arrive in the order it sent them."""
        work: Work = self._group.recv([tensor], src, _TAG)
        return work

    def gather_numbers(self, *values: float) -> list[list[float]]:
        """Every rank's numbers, by rank; all pass equally many. Collective. Exact for integers to 2**53."""
        outputs = self._allgather(torch.tensor(values, dtype=torch.float64))
        return [output.tolist() for output in outputs]

    def gather(self, value: Any) -> list[Any]:
        """Every rank's JSON value on every rank, by rank. Collective."""
        data = json.dumps(value, separators=(",", ":")).encode()
        lengths = [int(length) for (length,) in self.gather_numbers(float(len(data)))]
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        outputs = self._allgather(padded)
        return [
            json.loads(bytes(out[:length].tolist())) for out, length in zip(outputs, lengths, strict=True)
        ]

    def barrier(self) -> None:
        """Return once every rank has come here. Collective."""
        self.gather_numbers(0.0)

    def _allgather(self, mine: torch.Tensor) -> list[torch.Tensor]:
        outputs = [torch.empty_like(mine) for _ in range(self.size)]
        with self._failing_with("a rank did not answer", "exchanging results"):
            self._group.allgather([outputs], [mine]).wait()
        return outputs

    def talking_to(self, peer: int, doing: str) -> AbstractContextManager[None]:
        """Name the peer where a message to or from it fails.

        Raises:
            RunError: torch reported a lost connection or a timeout.
        """
        return self._failing_with(f"no answer from rank {peer}", doing)

    @contextmanager
    def _failing_with(self, problem: str, doing: str) -> Iterator[None]:
        try:
            yield
        except RunError:
            raise
        except RuntimeError as error:
            cause = (str(error).strip().splitlines() or ["no reason given"])[0]
            raise RunError(
                f"rank {self.rank}: {problem} while {doing}: {cause}",
                hint="look at what the other ranks printed last",
            ) from error
