"""Why a run of several ranks cannot go on: which rank was lost, how, and which others with it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from topotune.errors import RankFailedError
from topotune.liveness.connection import SILENT_S

How = Literal["ended", "silent", "orphaned", "terminated", "failed", "absent"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """Why the run cannot go on: the first rank that was lost, and those that went with it.

    Attributes:
        rank: the first.
        host: its node's host name.
        how: its process ended, its node is silent, its launcher ended, SIGTERM came, it failed and said so,
            or it never came.
        why: what it said, or "".
        others: ranks lost with it, as (rank, host), in the order in which they were seen.
    """

    rank: int
    host: str
    how: How
    why: str = ""
    others: tuple[tuple[int, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Its JSON form."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """What ``to_json`` wrote."""
        others = tuple((int(rank), str(host)) for rank, host in document["others"])
        return cls(**{**document, "others": others})

    def error(self) -> RankFailedError:
        """The error that ends the run, the same on all ranks."""
        return RankFailedError(self.rank, self._words())

    def _words(self) -> str:
        on_node = f"on node {self.host}" if self.host else "on a node that is not known"
        words = {
            "ended": f"its process {on_node} ended without a word",
            "silent": f"its node {self.host} has not answered for {SILENT_S} s",
            "orphaned": f"its launcher {on_node} ended",
            "terminated": f"its process {on_node} was ended by SIGTERM",
            "failed": f"{on_node}: {self.why}",
            "absent": self.why,
        }[self.how]
        hosts = dict.fromkeys(host for _, host in self.others)
        with_it = [
            f"{_ranks([rank for rank, own in self.others if own == host])}"
            + ("" if not host else " of that node" if host == self.host else f" on node {host}")
            for host in hosts
        ]
        return f"{words}, and with it {' and '.join(with_it)}" if with_it else words


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
