"""What times candidates on all ranks of a cluster, for benchmarks that do so outside of `topotune tune`."""

from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

from topotune.links import fit_links, measure_links
from topotune.tune.arrangement import Arrangement
from topotune.tune.session import followed, told_to_all
from topotune.tune.timing import Station, TorchBench
from topotune.tune.world import World, joined_world

LINKS_S = 4.0

Found = TypeVar("Found")


def on_joined_bench(run: Callable[[World, Arrangement, TorchBench], Found]) -> Found | None:
    """Join all ranks, measure the links, and have rank 0 run this; the others do what its bench tells them.

    Returns:
        what rank 0 found; None on the others.
    """
    with joined_world(None) as world:
        measurement = measure_links(world.private.group, budget_s=LINKS_S, seed=0, nodes=world.nodes)
        station = Station(world.planned, world.raw, world.private, world.nodes.node_of_rank)
        if world.rank != 0:
            followed(world, station)
            return None
        arrangement = Arrangement.of(fit_links(measurement, seed=0))
        bench = TorchBench(station, started_s=perf_counter())
        with told_to_all(world, bench):
            bench.arrange(arrangement.rank_order)
            found = run(world, arrangement, bench)
        bench.end()
        return found
