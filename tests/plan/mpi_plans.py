"""Plans for tests of exports. A row is an algorithm, the first size beyond it, and its params if any."""

import copy

import plan_example

from topotune.plan import plan_from_document


def plan_of(*rows, ranks_per_node=(4,), rank_order=None, groups=(), device_kind="cpu"):
    """A plan whose world has these rows of allreduce; ``groups`` are further groups, as JSON."""
    document = plan_example.example()
    same = set(ranks_per_node)
    world = copy.deepcopy(document["groups"][0])
    world["shape"] = {
        "num_ranks": sum(ranks_per_node),
        "num_nodes": len(ranks_per_node),
        "ranks_per_node": ranks_per_node[0] if len(same) == 1 else 0,
        "stride": 1,
    }
    world["allreduce"] = table(*rows)
    hard = document["fingerprint"]["hard"]
    hard |= {"world_size": sum(ranks_per_node), "ranks_per_node": list(ranks_per_node)}
    hard["device_kind"] = device_kind
    document["fingerprint"]["soft"]["hosts"] = [f"node{index}" for index in range(len(ranks_per_node))]
    document |= {"groups": [world, *groups], "rank_order": rank_order, "ddp": None}
    return plan_from_document(document, "a plan")


def table(*rows):
    first = 0
    listed = []
    for algorithm, end, *params in rows:
        row = {"min_bytes": first, "max_bytes": end, "algorithm": algorithm}
        listed.append(row | {"params": params[0] if params else {}})
        first = end
    return listed


def alternating(num_rows):
    """Many rows that cannot be joined: ring, recursive doubling, default, …; row i starts at 1000·i."""
    names = ("ring", "recursive_doubling", "default")
    ends = [1000 * (index + 1) for index in range(num_rows - 1)]
    return [(names[index % 3], end) for index, end in enumerate([*ends, None])]
