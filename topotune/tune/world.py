"""The ranks that tune and compare: their groups, who shares a node with whom, and what they are."""

import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import torch.distributed as dist

from topotune.errors import TopotuneError
from topotune.execute import Communicator
from topotune.execute.communicator import end_waits
from topotune.interfaces.agreement import Network, join_network
from topotune.links.own_gpu import take_own_gpu
from topotune.links.same_node import NodeVerdict, same_node
from topotune.liveness.loss import Loss
from topotune.liveness.watch import Watch, watched_ranks
from topotune.train import ProcessGroupTopotune, use
from topotune.train.drift_record import RECORD
from topotune.train.usage import REPORT

TIMEOUT: Final = timedelta(seconds=120)
"""Of every wait: a rank that is lost or hangs ends the run."""

WAIT_LIMIT: Final = timedelta(seconds=60)
"""Of a candidate's wait: what no deadline can end (`topotune.train.allreduce`) ends before others give up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """The groups of one run.

    Attributes:
        planned: the ``topotune`` group of all ranks, with the plan in use or none.
        raw: a group of the same ranks on the library that is tuned: gloo, or nccl.
        private: gloo, for everything that is not timed.
        nodes: who shares a node with whom.
        network: the interfaces that the nodes use.
        watch: over all ranks; it ends this one's waits when another is lost.
        backend: the library that is tuned.
    """

    planned: ProcessGroupTopotune
    raw: dist.ProcessGroup
    private: Communicator
    nodes: NodeVerdict
    network: Network
    watch: Watch
    backend: str

    @property
    def rank(self) -> int:
        """This rank."""
        return self.private.rank

    def fresh_raw(self, groups: Sequence[Sequence[int]] = ()) -> dist.ProcessGroup:
        """One more raw group of all ranks, or this rank's of several. Collective over all ranks.

        Like the others it ends its waits on a loss.

        Args:
            groups: the ranks of each, this rank in one of them; none for one group of all.
        """
        members = groups or (range(self.num_ranks),)
        made = [dist.new_group(list(ranks), backend=self.backend, timeout=TIMEOUT) for ranks in members]
        own = [group for group, ranks in zip(made, members, strict=True) if self.rank in ranks]
        group: dist.ProcessGroup = own[0]
        known = weakref.ref(group)

        def end(_loss: Loss) -> None:
            if (standing := known()) is None:
                return
            if self.backend == "gloo":
                end_waits(standing)
            else:
                standing.abort()

        self.watch.on_loss(end)
        return group

    def fresh_planned(self, groups: Sequence[Sequence[int]] = ()) -> ProcessGroupTopotune:
        """One more ``topotune`` group of all ranks, or this rank's of several, as `fresh_raw`.

        It has the plan that the first one was made with, if any.
        """
        members = groups or (range(self.num_ranks),)
        with warnings.catch_warnings():
            # It was said of the first group; what a plan has no table for is said by those who compare.
            warnings.filterwarnings("ignore", message="topotune: (the )?plan", category=UserWarning)
            made = [dist.new_group(list(ranks), backend="topotune", timeout=TIMEOUT) for ranks in members]
        planned = next(group for group, ranks in zip(made, members, strict=True) if self.rank in ranks)
        assert isinstance(planned, ProcessGroupTopotune)
        planned.wait_limit = WAIT_LIMIT
        known = weakref.ref(planned)

        def end(_loss: Loss) -> None:
            if (standing := known()) is None:
                return
            standing.stop_planned()
            if self.backend == "gloo":
                end_waits(standing.wrapped)

        self.watch.on_loss(end)
        return planned

    @property
    def num_ranks(self) -> int:
        """How many there are."""
        return self.private.size


@contextmanager
def joined_world(
    plan_path: str | None,
    on_network: Callable[[str], None] = lambda line: None,
    say: Callable[[TopotuneError], None] = lambda _error: None,
    backend: str = "gloo",
) -> Iterator[World]:
    """Join all ranks, in the environment that torchrun gives, and watch over them.

    Args:
        plan_path: the plan that the ``topotune`` group shall use; None for none, whatever TOPOTUNE_PLAN says.
        on_network: called on rank 0 with each line about the network interfaces that the nodes use.
        say: gets the error of a lost rank where this process is ended because it waits for that rank in a
            native call that nothing ends.
        backend: the library that is tuned; with nccl each rank takes the GPU of its number on its node.

    Raises:
        UsageError: there is no NCCL, or no GPU for this rank.
        RankFailedError: on leaving the block, in place of what failed: a rank or node was lost.
        RunError: the ranks did not come together.
    """
    if backend == "nccl":
        take_own_gpu(os.environ)
    with watched_ranks(timeout=TIMEOUT, say=say) as (store, rank, size, watch):
        network = join_network(TIMEOUT)
        for line in network.lines:
            on_network(line)
        use(plan_path)
        RECORD.stay_silent()
        with warnings.catch_warnings():
            # What the ranks agreed on, and what is to be said about it, stands in the group's agreement.
            warnings.filterwarnings("ignore", message="topotune: plan", category=UserWarning)
            dist.init_process_group("topotune", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
        REPORT.stay_silent()
        planned = dist.group.WORLD
        assert isinstance(planned, ProcessGroupTopotune)
        planned.wait_limit = WAIT_LIMIT
        raw = dist.new_group(backend=backend, timeout=TIMEOUT)
        with Communicator(planned.private_store, rank, size, name="tuning", timeout=TIMEOUT) as private:
            watch.on_loss(lambda _loss: planned.stop_planned())
            if backend == "gloo":
                watch.on_loss(lambda _loss: end_waits(raw))
                watch.on_loss(lambda _loss: end_waits(planned.wrapped))
            else:
                watch.on_loss(lambda _loss: raw.abort())
            watch.on_loss(lambda _loss: private.abort())
            yield World(
                planned=planned,
                raw=raw,
                private=private,
                nodes=same_node(private.group),
                network=network,
                watch=watch,
                backend=backend,
            )
        dist.destroy_process_group()
