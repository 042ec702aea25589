"""The algorithms that a plan may name, and the parameters each of them takes. Standard library only.

A plan read inside a training job must be refused before anything is built from it, so the rules stand here
and not beside the generators; tests hold `topotune.schedule.catalog` to them.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from topotune.plan.grouping import (
    ACROSS,
    MAX_CHUNK_DENOMINATOR,
    Nested,
    chunk_denominator,
    groups_problem,
    has_three_levels,
    nested,
    num_folded,
    num_transfers,
    outer_groups,
    shown,
    sizes_and_counts,
)
from topotune.plan.nccl import MAX_NCCL_CHANNELS, NCCL, NCCL_ALGOS, NCCL_PROTOS, nccl_pair_problem

DEFAULT: Final = "default"
SCHEDULE_ALGORITHMS: Final = (
    "ring",
    "double_binary_tree",
    "recursive_doubling",
    "halving_doubling",
    "swing",
    "bine",
    "torus",
    "parameter_server",
    "hierarchical",
    "blueconnect",
    "forest",
)
NATIVE_ALGORITHMS: Final = (
    "native_allreduce",
    "native_reduce_broadcast",
    "native_reduce_scatter_allgather",
    "native_allgather_reduce",
    "native_hierarchical",
)
SHARED_MEMORY_ALGORITHMS: Final = ("shm", "shm_hierarchical")
PART_SCHEDULES: Final = ("ring", "halving_doubling", "hierarchical")
"""Schedules of reduce-scatter and all-gather: each rank has, or gets, one equal part of the message."""

PART_COLLECTIVES: Final = ("reduce_scatter", "allgather")
ALGORITHMS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "allreduce": (DEFAULT, *SCHEDULE_ALGORITHMS, *NATIVE_ALGORITHMS, *SHARED_MEMORY_ALGORITHMS, NCCL),
    **{name: (DEFAULT, *PART_SCHEDULES, *SHARED_MEMORY_ALGORITHMS, NCCL) for name in PART_COLLECTIVES},
}
"""Which algorithms each table of a plan may name."""

ALGORITHMS: Final = ALGORITHMS_OF["allreduce"]
OF_THE_BACKEND: Final = (DEFAULT, NCCL)
"""What the wrapped backend does by itself; ``nccl`` says how it has been told to, from outside the job."""

MAX_CHANNELS: Final = 64
MAX_TREES: Final = 1024
MAX_WEIGHT: Final = 2**20
MAX_LEVELS: Final = 12
MAX_PIECES: Final = 1024
MAX_SCHEDULE_RANKS: Final = 512
"""Most ranks that a job builds a schedule for: every rank does so by itself, before training."""

MAX_TRANSFERS: Final = 2**22
"""Largest schedule that a plan may ask for, in transfers: about 100 MB of columns, built in seconds."""


def check_params(
    algorithm: str,
    params: Mapping[str, Any],
    num_ranks: int,
    *,
    collective: str = "allreduce",
    most_transfers: int = MAX_TRANSFERS,
    most_ranks: int = MAX_SCHEDULE_RANKS,
) -> str | None:
    """What is wrong with the parameters of an algorithm on ``num_ranks`` ranks, in words; None if nothing is.

    Parameters that are left out take the generator's default, except those that have none.

    Args:
        algorithm: any name.
        params: anything that stands beside it.
        num_ranks: that take part.
        collective: what it is to do; a key of ``ALGORITHMS_OF``.
        most_transfers: that the schedule may have, where there is one.
        most_ranks: that it may be for.
    """
    is_of_parts = collective in PART_COLLECTIVES
    rules = (_PART_RULES if is_of_parts else _RULES).get(algorithm)
    if rules is None:
        what = f"algorithm for {collective}" if is_of_parts else "algorithm"
        return f"{algorithm!r} is no known {what}: {', '.join(ALGORITHMS_OF[collective])}"
    for name in params:
        if name not in rules:
            takes = ", ".join(rules) if rules else "none"
            return f"{algorithm} takes no parameter {name!r} (it takes {takes})"
    for name, rule in rules.items():
        if name in params:
            problem = rule(params[name], num_ranks)
            if problem:
                return f"{name}{problem}"
        elif name in _NEEDED:
            return f"{algorithm} needs the parameter {name!r}"
    if algorithm == NCCL:
        return nccl_pair_problem(params["algo"], params["proto"])
    if is_of_parts:
        return _parts_problem(algorithm, params, num_ranks, most_transfers)
    if algorithm == "forest":
        problem = _forest_problem(params)
        if problem:
            return problem
    if "shares" in params:
        num_servers = len(params.get("servers", range(num_ranks)))
        if len(params["shares"]) != num_servers:
            return f"parameter_server has {len(params['shares'])} shares for {num_servers} servers"
    if algorithm == "blueconnect":
        problem = _levels_problem(params, num_ranks)
        if problem:
            return problem
    if "groups" in params:
        problem = _grouping_problem(algorithm, params)
        if problem:
            return problem
    of_schedule = _num_ranks_of_schedule(algorithm, params, num_ranks)
    if of_schedule > most_ranks:
        return f"{algorithm} has a schedule of {of_schedule} ranks, more than {most_ranks}"
    transfers = _num_transfers(algorithm, params, num_ranks)
    if transfers > most_transfers:
        return f"{algorithm} on {num_ranks} ranks takes {transfers} transfers, more than {most_transfers}"
    return None


# A rule gives what follows a parameter's name in a sentence: " is 0, not …" or "[1] names …".
def _count(most: int) -> Callable[[Any, int], str | None]:
    def rule(value: Any, num_ranks: int) -> str | None:
        if type(value) is not int or not 1 <= value <= most:
            return f" is {shown(value)}, not a whole number from 1 to {most}"
        return None

    return rule


def _groups(most_levels: int) -> Callable[[Any, int], str | None]:
    def rule(value: Any, num_ranks: int) -> str | None:
        return groups_problem(value, num_ranks, most_levels=most_levels)

    return rule


def _one_of(names: tuple[str, ...]) -> Callable[[Any, int], str | None]:
    def rule(value: Any, num_ranks: int) -> str | None:
        return None if value in names else f" is {shown(value)}, not one of {', '.join(names)}"

    return rule


def _rows(value: Any, num_ranks: int) -> str | None:
    problem = _count(num_ranks)(value, num_ranks)
    return problem or (None if num_ranks % value == 0 else f" is {value}, which does not divide {num_ranks}")


def _servers(value: Any, num_ranks: int) -> str | None:
    if not isinstance(value, list) or not 1 <= len(value) <= num_ranks:
        return f" is {shown(value)}, not a list of 1 to {num_ranks} ranks"
    for rank in value:
        if type(rank) is not int or not 0 <= rank < num_ranks:
            return f" names {shown(rank)}, not a rank from 0 to {num_ranks - 1}"
    return None if len(set(value)) == len(value) else f" is {shown(value)}, which names a rank twice"


def _numbers(least: int) -> Callable[[Any, int], str | None]:
    def rule(value: Any, num_ranks: int) -> str | None:
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_LEVELS:
            return f" is {shown(value)}, not a list of 1 to {MAX_LEVELS} whole numbers"
        if any(type(one) is not int or not least <= one <= num_ranks for one in value):
            return f" is {shown(value)}, not of whole numbers from {least} to {num_ranks}"
        return None

    return rule


def _weights(value: Any, num_ranks: int) -> str | None:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_TREES:
        return f" is {shown(value)}, not a list of 1 to {MAX_TREES} weights"
    for index, weight in enumerate(value):
        problem = _count(MAX_WEIGHT)(weight, num_ranks)
        if problem:
            return f"[{index}]{problem}"
    return None


def _trees(value: Any, num_ranks: int) -> str | None:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_TREES:
        return f" is {shown(value)}, not a list of 1 to {MAX_TREES} trees"
    for index, parents in enumerate(value):
        problem = tree_problem(parents, num_ranks)
        if problem:
            return f"[{index}] {problem}"
    return None


def tree_problem(parents: Any, num_ranks: int) -> str | None:
    """Why each rank's parent, -1 for the root, do not make one tree over all ranks, in words."""
    if not isinstance(parents, list) or len(parents) != num_ranks:
        return f"is {shown(parents)}, not a list of {num_ranks} parents"
    for rank, parent in enumerate(parents):
        if type(parent) is not int or not -1 <= parent < num_ranks:
            return f"gives rank {rank} the parent {shown(parent)}"
    if parents.count(-1) != 1:
        return f"has {parents.count(-1)} roots, not one"
    leads_to_root = [parent < 0 for parent in parents]
    for rank in range(num_ranks):
        way: list[int] = []
        while not leads_to_root[rank]:
            if len(way) > num_ranks:
                return f"leads rank {way[0]} in a circle"
            way.append(rank)
            rank = parents[rank]
        for passed in way:
            leads_to_root[passed] = True
    return None


_PIECES = _count(MAX_PIECES)
_RULES: Final[Mapping[str, Mapping[str, Callable[[Any, int], str | None]]]] = {
    DEFAULT: {},
    "ring": {"channels": _count(MAX_CHANNELS), "pieces": _PIECES},
    "double_binary_tree": {"pieces": _PIECES},
    "recursive_doubling": {},
    "halving_doubling": {},
    "swing": {},
    "bine": {},
    "torus": {"rows": _rows},
    "parameter_server": {"servers": _servers, "shares": _weights, "pieces": _PIECES},
    "hierarchical": {"groups": _groups(3), "across": _one_of(ACROSS), "pieces": _PIECES},
    "blueconnect": {"factors": _numbers(2), "order": _numbers(0), "pieces": _PIECES},
    "forest": {"weights": _weights, "down": _trees, "up": _trees, "pieces": _PIECES},
    "native_allreduce": {},
    "native_reduce_broadcast": {},
    "native_reduce_scatter_allgather": {},
    "native_allgather_reduce": {},
    "native_hierarchical": {"groups": _groups(2)},
    "shm": {},
    "shm_hierarchical": {"groups": _groups(3), "pieces": _PIECES},
    NCCL: {"algo": _one_of(NCCL_ALGOS), "proto": _one_of(NCCL_PROTOS), "channels": _count(MAX_NCCL_CHANNELS)},
}
_PART_RULES: Final[Mapping[str, Mapping[str, Callable[[Any, int], str | None]]]] = {
    DEFAULT: {},
    "ring": _RULES["ring"],
    "halving_doubling": {},
    "hierarchical": {"groups": _groups(2), "pieces": _PIECES},
    "shm": {},
    "shm_hierarchical": {"groups": _groups(2)},
    NCCL: _RULES[NCCL],
}
_NEEDED: Final = frozenset({"groups", "rows", "factors", "weights", "down", "algo", "proto"})
ALLOWED_PARAMS: Final[Mapping[str, tuple[str, ...]]] = {name: tuple(rules) for name, rules in _RULES.items()}
"""Algorithm → the names of its parameters, as an allreduce."""

ALLOWED_PART_PARAMS: Final[Mapping[str, tuple[str, ...]]] = {
    name: tuple(rules) for name, rules in _PART_RULES.items()
}
"""The same as a reduce-scatter or all-gather."""


def _parts_problem(
    algorithm: str, params: Mapping[str, Any], num_ranks: int, most_transfers: int
) -> str | None:
    """What well-formed parameters of a reduce-scatter or all-gather ask too much of, in words."""
    if algorithm == "shm_hierarchical":
        sizes = sorted({len(group) for group in params["groups"]})
        if len(sizes) > 1:
            return f"groups of sizes {sizes}: shm_hierarchical scatters to groups of one size alone"
    if algorithm not in PART_SCHEDULES:
        return None
    if num_ranks > MAX_SCHEDULE_RANKS:
        return f"{algorithm} has a schedule of {num_ranks} ranks, more than {MAX_SCHEDULE_RANKS}"
    # Every part is added to, or copied, n - 1 times, on whichever way.
    transfers = num_ranks * num_ranks * params.get("channels", 1) * params.get("pieces", 1)
    if transfers > most_transfers:
        return f"{algorithm} on {num_ranks} ranks takes {transfers} transfers, more than {most_transfers}"
    return None


def _grouping_problem(algorithm: str, params: Mapping[str, Any]) -> str | None:
    """What is wrong with well-formed groups for this algorithm, in words."""
    if algorithm == "shm_hierarchical" and "pieces" in params and not has_three_levels(params["groups"]):
        return "shm_hierarchical takes pieces only with groups of three levels"
    schedule = _hierarchy(algorithm, params)
    if schedule is not None and chunk_denominator(*schedule) > MAX_CHUNK_DENOMINATOR:
        sizes, counts = map(sorted, sizes_and_counts(schedule[0]))
        of_groups = f" and {counts} groups each" if counts != [1] else ""
        return f"groups of sizes {sizes}{of_groups} share no common cut of the message"
    return None


def _levels_problem(params: Mapping[str, Any], num_ranks: int) -> str | None:
    """Whether well-formed factors make up the ranks, and an order names each of them once, in words."""
    factors = params["factors"]
    if math.prod(factors) != num_ranks:
        return f"factors {shown(factors)} make up {math.prod(factors)} ranks, not {num_ranks}"
    if sorted(params.get("order", range(len(factors)))) != list(range(len(factors))):
        return f"order is {shown(params['order'])}, which does not name each of {len(factors)} levels once"
    return None


def _forest_problem(params: Mapping[str, Any]) -> str | None:
    """What the well-formed parts of a forest contradict each other in, in words."""
    down, up = params["down"], params.get("up", params["down"])
    if not len(params["weights"]) == len(down) == len(up):
        return f"forest has {len(params['weights'])} weights, {len(down)} trees down and {len(up)} trees up"
    for index, (parents_down, parents_up) in enumerate(zip(down, up, strict=True)):
        if parents_down.index(-1) != parents_up.index(-1):
            return f"down[{index}] and up[{index}] have different roots"
    return None


def _num_ranks_of_schedule(algorithm: str, params: Mapping[str, Any], num_ranks: int) -> int:
    """How many ranks an algorithm's schedule is for; 0 where it has none."""
    if algorithm in SCHEDULE_ALGORITHMS:
        return num_ranks
    schedule = _hierarchy(algorithm, params)
    return 0 if schedule is None else sum(len(group) for outer in schedule[0] for group in outer)


def _num_transfers(algorithm: str, params: Mapping[str, Any], num_ranks: int) -> int:
    """The length of an algorithm's schedule; 0 for what has none.

    Every rank's part is reduced n - 1 times and copied n - 1 times for each of n chunks (ring) or 2 (tree),
    times the pieces and channels that the chunks are cut into.
    """
    pieces = params.get("pieces", 1)
    if algorithm == "ring":
        return int(2 * (num_ranks - 1) * num_ranks * params.get("channels", 1) * pieces)
    if algorithm == "double_binary_tree":
        return int(4 * (num_ranks - 1) * pieces)
    if algorithm == "forest":
        return int(2 * (num_ranks - 1) * len(params["weights"]) * pieces)
    if algorithm == "parameter_server":
        return int(2 * (num_ranks - 1) * len(params.get("servers", range(num_ranks))) * pieces)
    if algorithm == "blueconnect":
        return int(2 * (num_ranks - 1) * num_ranks * pieces)
    if algorithm in ("swing", "torus"):
        return int(4 * (num_ranks - 1) * num_ranks)
    if algorithm == "halving_doubling":
        return int(2 * (num_ranks - 1) * (num_ranks - num_folded(num_ranks)))
    if algorithm in ("recursive_doubling", "bine"):
        return int(num_ranks * num_ranks.bit_length())
    schedule = _hierarchy(algorithm, params)
    return 0 if schedule is None else num_transfers(*schedule)


def _hierarchy(algorithm: str, params: Mapping[str, Any]) -> tuple[Nested, str, int] | None:
    """Groups, across and pieces of the hierarchical schedule that an algorithm runs, or None."""
    if algorithm == "hierarchical":
        return nested(params["groups"]), params.get("across", "ring"), params.get("pieces", 1)
    if algorithm == "shm_hierarchical" and has_three_levels(params["groups"]):
        return outer_groups(nested(params["groups"])), "ring", params.get("pieces", 1)
    return None
