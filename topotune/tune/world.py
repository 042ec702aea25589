"""The ranks that tune and compare: their groups, who shares a node with whom, and what they are."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import torch.distributed as dist

from topotune.execute import Communicator
from topotune.links.same_node import NodeVerdict, same_node
from topotune.train import ProcessGroupTopotune, use
from topotune.train.usage import REPORT

_TIMEOUT: Final = timedelta(seconds=120)
"""Of every wait: a rank that is lost or hangs ends the run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """The groups of one run.

    Attributes:
        planned: the ``topotune`` group of all ranks, with the plan in use or none.
        raw: a gloo group of the same ranks.
        private: gloo, for everything that is not timed.
        nodes: who shares a node with whom.
    """

    planned: ProcessGroupTopotune
    raw: dist.ProcessGroup
    private: Communicator
    nodes: NodeVerdict

    @property
    def rank(self) -> int:
        """This rank."""
        return self.private.rank

    @property
    def num_ranks(self) -> int:
        """How many there are."""
        return self.private.size


@contextmanager
def joined_world(plan_path: str | None) -> Iterator[World]:
    """Join all ranks, in the environment that torchrun gives.

    Args:
        plan_path: the plan that the ``topotune`` group shall use; None for none, whatever TOPOTUNE_PLAN says.
    """
    use(plan_path)
    with warnings.catch_warnings():
        # What the ranks agreed on, and what is to be said about it, stands in the group's agreement.
        warnings.filterwarnings("ignore", message="topotune: plan", category=UserWarning)
        dist.init_process_group("topotune", timeout=_TIMEOUT)
    REPORT.stay_silent()
    planned = dist.group.WORLD
    assert isinstance(planned, ProcessGroupTopotune)
    raw = dist.new_group(backend="gloo", timeout=_TIMEOUT)
    with Communicator(
        planned.private_store, planned.rank(), planned.size(), name="tuning", timeout=_TIMEOUT
    ) as private:
        yield World(planned=planned, raw=raw, private=private, nodes=same_node(private.group))
    dist.destroy_process_group()
