"""The ranks that tune and compare: their groups, who shares a node with whom, and what they are."""

import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import torch.distributed as dist

from topotune.errors import TopotuneError
from topotune.execute import Communicator
from topotune.execute.communicator import end_waits
from topotune.interfaces.agreement import Network, join_network
from topotune.links.same_node import NodeVerdict, same_node
from topotune.liveness.loss import Loss
from topotune.liveness.watch import Watch, watched_ranks
from topotune.train import ProcessGroupTopotune, use
from topotune.train.usage import REPORT

_TIMEOUT: Final = timedelta(seconds=120)
"""Of every wait: a rank that is lost or hangs ends the run."""

_WAIT_LIMIT: Final = timedelta(seconds=60)
"""Of a candidate's wait: what no deadline can end (`topotune.train.allreduce`) ends before others give up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """The groups of one run.

    Attributes:
        planned: the ``topotune`` group of all ranks, with the plan in use or none.
        raw: a gloo group of the same ranks.
        private: gloo, for everything that is not timed.
        nodes: who shares a node with whom.
        network: the interfaces that the nodes use.
        watch: over all ranks; it ends this one's waits when another is lost.
    """

    planned: ProcessGroupTopotune
    raw: dist.ProcessGroup
    private: Communicator
    nodes: NodeVerdict
    network: Network
    watch: Watch

    @property
    def rank(self) -> int:
        """This rank."""
        return self.private.rank

    def fresh_raw(self) -> dist.ProcessGroup:
        """One more gloo group of the same ranks; like the others it ends its waits on a loss. Collective."""
        group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=_TIMEOUT)
        known = weakref.ref(group)

        def end(_loss: Loss) -> None:
            if (standing := known()) is not None:
                end_waits(standing)

        self.watch.on_loss(end)
        return group

    @property
    def num_ranks(self) -> int:
        """How many there are."""
        return self.private.size


@contextmanager
def joined_world(
    plan_path: str | None,
    on_network: Callable[[str], None] = lambda line: None,
    say: Callable[[TopotuneError], None] = lambda _error: None,
) -> Iterator[World]:
    """Join all ranks, in the environment that torchrun gives, and watch over them.

    Args:
        plan_path: the plan that the ``topotune`` group shall use; None for none, whatever TOPOTUNE_PLAN says.
        on_network: called on rank 0 with each line about the network interfaces that the nodes use.
        say: gets the error of a lost rank where this process is ended because it waits for that rank in a
            native call that nothing ends.

    Raises:
        RankFailedError: on leaving the block, in place of what failed: a rank or node was lost.
        RunError: the ranks did not come together.
    """
    with watched_ranks(timeout=_TIMEOUT, say=say) as (store, rank, size, watch):
        network = join_network(_TIMEOUT)
        for line in network.lines:
            on_network(line)
        use(plan_path)
        with warnings.catch_warnings():
            # What the ranks agreed on, and what is to be said about it, stands in the group's agreement.
            warnings.filterwarnings("ignore", message="topotune: plan", category=UserWarning)
            dist.init_process_group("topotune", store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
        REPORT.stay_silent()
        planned = dist.group.WORLD
        assert isinstance(planned, ProcessGroupTopotune)
        planned.wait_limit = _WAIT_LIMIT
        raw = dist.new_group(backend="gloo", timeout=_TIMEOUT)
        with Communicator(planned.private_store, rank, size, name="tuning", timeout=_TIMEOUT) as private:
            watch.on_loss(lambda _loss: planned.stop_planned())
            watch.on_loss(lambda _loss: end_waits(raw))
            watch.on_loss(lambda _loss: end_waits(planned.wrapped))
            watch.on_loss(lambda _loss: private.abort())
            yield World(
                planned=planned,
                raw=raw,
                private=private,
                nodes=same_node(private.group),
                network=network,
                watch=watch,
            )
        dist.destroy_process_group()
