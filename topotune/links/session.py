"""``topotune measure`` on one rank: join the others, time the links, hand rank 0 the document."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist

from topotune.errors import TopotuneError
from topotune.execute import Communicator
from topotune.execute.communicator import end_waits
from topotune.interfaces.agreement import join_network
from topotune.links.device_session import SHARE as DEVICES_SHARE
from topotune.links.device_session import any_devices, with_devices
from topotune.links.document import to_document
from topotune.links.flow_plan import split_budget
from topotune.links.messages import Messages
from topotune.links.own_gpu import take_own_gpu
from topotune.links.same_node import same_node
from topotune.links.timing import Progress, measure_links
from topotune.liveness.watch import watched_ranks

_TIMEOUT: Final = timedelta(seconds=120)


def measure_worker(
    payload: Mapping[str, Any],
    on_progress: Progress | None = None,
    on_network: Callable[[str], None] = lambda line: None,
    say: Callable[[TopotuneError], None] = lambda _error: None,
) -> dict[str, Any] | None:
    """Measure on this rank, together with all others of the environment that torchrun gives.

    Args:
        payload: ``budget_s`` in seconds, of which a part goes to flows where there are several nodes, and one
            to copies where there are GPUs; ``seed`` of what is drawn at random, and ``backend``: with nccl
            each rank takes a GPU, and NCCL is timed between nodes. Both may be left out.
        on_progress: called with the share that is done, 0 to 1.
        on_network: called on rank 0 with each line about the network interfaces that the nodes use.
        say: gets the error of a lost rank where this process is ended because it waits for that rank in a
            native call that nothing ends.

    Returns:
        the measurement's document on rank 0, None elsewhere.

    Raises:
        UsageError: a network interface was asked for that a node does not have.
        RankFailedError: a rank or node was lost.
        RunError: a rank did not answer, or a node is not reached.
    """
    with_nccl = payload.get("backend", "gloo") == "nccl"
    if with_nccl:
        take_own_gpu(os.environ)
    with watched_ranks(timeout=_TIMEOUT, say=say) as (store, rank, size, watch):
        network = join_network(_TIMEOUT)
        for line in network.lines:
            on_network(line)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
        world = dist.group.WORLD
        assert world is not None
        watch.on_loss(lambda _loss: end_waits(world))
        with Communicator(store, rank, size, name="topotune/measure", timeout=_TIMEOUT) as private:
            watch.on_loss(lambda _loss: private.abort())
            nodes = same_node(private.group)
            has_devices = any_devices(Messages(private.group))
            devices_s = DEVICES_SHARE * payload["budget_s"] if has_devices else 0.0
            links_s = payload["budget_s"] - devices_s
            pairs_s, flow_time = split_budget(links_s, max(nodes.node_of_rank) + 1)
            measurement = measure_links(
                private.group,
                budget_s=pairs_s,
                flow_time=flow_time,
                seed=payload.get("seed", 0),
                nodes=nodes,
                progress=on_progress,
            )
            measurement = with_devices(measurement, private, budget_s=devices_s, with_nccl=with_nccl)
        measurement = replace(measurement, facts=measurement.facts | network.facts)
        document = to_document(measurement) if rank == 0 else None
        dist.destroy_process_group()
        return document
