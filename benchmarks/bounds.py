"""How long optima, forests and simulations of large clusters take: one table, CPU seconds of one process.

What a process loads once, the solvers of SciPy, is a row of its own: its first bound takes so much longer.

    python benchmarks/bounds.py [--csv FILE] [--exact]

``--exact`` adds the forest of two MI250 nodes with as many trees as the optimum needs.
"""

import argparse
import csv
import time
from collections.abc import Callable

import scipy

from topotune.bounds import (
    CapacityGraph,
    allgather_bound,
    allreduce_forest,
    graph_allreduce_bound,
    graph_from_topology,
    reduce_scatter_bound,
    ring_algbw_bytes_per_s,
    spanning_forest,
)
from topotune.schedule.catalog import build
from topotune.simulate.fabrics import dragonfly, switched_nodes, torus
from topotune.simulate.machine_fabric import machine_fabric
from topotune.simulate.patterns import patterns
from topotune.simulate.routed import predict_steps
from topotune.simulate.steps import steps_of
from topotune.topology.catalog import load_profile
from topotune.topology.profile_topology import machine_network

SIZES = [2**20, 2**30]
RANKS = 65536


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--csv", metavar="FILE")
    parser.add_argument("--exact", action="store_true")
    options = parser.parse_args()
    rows = []
    for name, target_s, run in tasks(exact=options.exact):
        began_s = time.process_time()
        run()
        taken_s = time.process_time() - began_s
        rows.append((name, f"{taken_s:.3f}", "" if target_s is None else f"{target_s:g}"))
        print(
            f"{name:58} {taken_s:8.3f} s" + ("" if target_s is None else f"   of {target_s:g} s"), flush=True
        )
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            csv.writer(file).writerows([("what", "cpu_s", "target_s"), *rows])


def tasks(*, exact: bool) -> list[tuple[str, float | None, Callable[[], object]]]:
    """Name, what it should take at most, and the work; what the work needs is made here, untimed."""
    found: list[tuple[str, float | None, Callable[[], object]]] = [("SciPy's solvers, loaded", None, solvers)]
    for num_nodes, target_s in ((16, 0.1), (128, 5.0)):
        graph = graph_from_topology(machine_network(load_profile("dgx-h100"), num_nodes))
        found.append((f"optimum of {num_nodes} x dgx-h100", target_s, lambda graph=graph: all_bounds(graph)))
        found.append(
            (
                f"flat ring's ceiling on {num_nodes} x dgx-h100",
                None,
                lambda graph=graph: ring_algbw_bytes_per_s(graph),
            )
        )
    mi250 = graph_from_topology(machine_network(load_profile("mi250-16gpu"), 2))
    found.append(
        ("forest of 2 x mi250-16gpu, 1 tree a rank", 10.0, lambda: spanning_forest(mi250, trees_per_rank=1))
    )
    if exact:
        found.append(("forest of 2 x mi250-16gpu, exact", 120.0, lambda: spanning_forest(mi250)))
    for num_racks, hosts in ((1, 8), (2, 8), (4, 8), (8, 8), (8, 12)):
        graph = unlike_racks(num_racks, hosts)
        found.append(
            (
                f"allreduce forest of {num_racks * hosts} unlike hosts in {num_racks} racks",
                None,
                lambda graph=graph: allreduce_forest(graph),
            )
        )
    box = load_profile("dgx-h100")
    fabric, _ = machine_fabric(box, 128)
    ring = dict(patterns(8))["ring"]
    found.append(("simulated ring of 1,024 ranks", 1.0, lambda: predict_steps(ring(1024), fabric, SIZES)))
    written = build("ring", {}, 1024)
    found.append(
        (
            "written ring of 1,024 ranks, simulated",
            1.0,
            lambda: predict_steps(steps_of(written), fabric, SIZES),
        )
    )
    found += [
        (
            f"ring of {ranks:,} ranks, written out and proven",
            None,
            lambda ranks=ranks: build("ring", {}, ranks),
        )
        for ranks in (1024, 2048)
    ]
    nodes = {"inside_bytes_per_s": 450e9, "nic_bytes_per_s": 50e9, "nodes_per_leaf": 32}
    clusters = [
        ("fat tree 4:1", switched_nodes(RANKS // 8, 8, oversubscription=4.0, **nodes), 8),
        ("rails 4:1", switched_nodes(RANKS // 8, 8, oversubscription=4.0, rails=True, **nodes), 8),
        (
            "dragonfly",
            dragonfly(
                256,
                16,
                16,
                rank_bytes_per_s=25e9,
                local_bytes_per_s=50e9,
                global_bytes_per_s=50e9,
            ),
            1,
        ),
        ("torus 256 x 256", torus([256, 256], link_bytes_per_s=50e9), 1),
        ("torus 16 x 64 x 64", torus([16, 64, 64], link_bytes_per_s=50e9), 1),
    ]
    for name, cluster, size in clusters:
        for algorithm, steps in patterns(size).items():
            if algorithm == "hierarchical" and size == 1:
                continue
            found.append(
                (
                    f"{algorithm}, 65,536 ranks, {name}",
                    1.0,
                    lambda steps=steps, cluster=cluster: predict_steps(steps(RANKS), cluster, SIZES),
                )
            )
    return found


def unlike_racks(num_racks: int, hosts_per_rack: int) -> CapacityGraph:
    """Hosts of 25, 50 and 100 GB/s, no two alike, in racks whose uplinks carry a fifth of what they need."""
    capacities, compute = dict[tuple[str, str], int](), list[str]()
    for rack in range(num_racks):
        total = 0
        for place in range(hosts_per_rack):
            host = f"r{rack}h{place}"
            compute.append(host)
            rate = (25, 50, 100)[(rack + place) % 3] * 10**9 + len(compute) * 10**6
            capacities[host, f"rack{rack}"] = capacities[f"rack{rack}", host] = rate
            total += rate
        if num_racks > 1:
            capacities[f"rack{rack}", "spine"] = capacities["spine", f"rack{rack}"] = total // 5
    return CapacityGraph(capacities=capacities, compute=tuple(compute))


def solvers() -> tuple[object, ...]:
    """What bounds load where they use it."""
    return scipy.optimize.linprog, scipy.sparse.csgraph.maximum_flow


def all_bounds(graph: CapacityGraph) -> None:
    """Of allreduce, all-gather and reduce-scatter."""
    graph_allreduce_bound(graph)
    allgather_bound(graph)
    reduce_scatter_bound(graph)


if __name__ == "__main__":
    main()
