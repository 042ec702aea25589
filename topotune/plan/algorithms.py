"""The algorithms that a plan may name, and the parameters each of them takes. Standard library only.

A plan read inside a training job must be refused before anything is built from it, so the rules stand here
and not beside the generators; tests hold `topotune.schedule.catalog` to them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

DEFAULT: Final = "default"
SCHEDULE_ALGORITHMS: Final = (
    "ring",
    "double_binary_tree",
    "recursive_doubling",
    "halving_doubling",
    "hierarchical",
)
NATIVE_ALGORITHMS: Final = (
    "native_reduce_broadcast",
    "native_reduce_scatter_allgather",
    "native_allgather_reduce",
    "native_hierarchical",
)
SHARED_MEMORY_ALGORITHMS: Final = ("shm", "shm_hierarchical")
ALGORITHMS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "allreduce": (DEFAULT, *SCHEDULE_ALGORITHMS, *NATIVE_ALGORITHMS, *SHARED_MEMORY_ALGORITHMS),
    "reduce_scatter": (DEFAULT,),
    "allgather": (DEFAULT,),
}
"""Which algorithms each table of a plan may name."""

ALGORITHMS: Final = ALGORITHMS_OF["allreduce"]
ACROSS: Final = ("ring", "recursive_doubling", "halving_doubling")
"""What `hierarchical` can run between the groups."""

MAX_CHANNELS: Final = 64
MAX_PIECES: Final = 1024
MAX_TRANSFERS: Final = 2**22
"""Largest schedule that a plan may ask for, in transfers: about 100 MB of columns, built in seconds."""


def check_params(algorithm: str, params: Mapping[str, Any], num_ranks: int) -> str | None:
    """What is wrong with the parameters of an algorithm on ``num_ranks`` ranks, in words; None if nothing is.

    Parameters that are left out take the generator's default, except ``groups``, which has none.
    """
    rules = _RULES.get(algorithm)
    if rules is None:
        return f"{algorithm!r} is no known algorithm: {', '.join(ALGORITHMS)}"
    for name in params:
        if name not in rules:
            takes = ", ".join(rules) if rules else "none"
            return f"{algorithm} takes no parameter {name!r} (it takes {takes})"
    for name, rule in rules.items():
        if name in params:
            problem = rule(params[name], num_ranks)
            if problem:
                return f"{name}{problem}"
        elif name == "groups":
            return f"{algorithm} needs the parameter 'groups'"
    num_transfers = _transfers_at_most(algorithm, params, num_ranks)
    if num_transfers > MAX_TRANSFERS:
        return f"{algorithm} on {num_ranks} ranks takes {num_transfers} transfers, more than {MAX_TRANSFERS}"
    return None


# A rule gives what follows a parameter's name in a sentence: " is 0, not …" or "[1] names …".
def _count(most: int) -> Callable[[Any, int], str | None]:
    def rule(value: Any, num_ranks: int) -> str | None:
        if type(value) is not int or not 1 <= value <= most:
            return f" is {_shown(value)}, not a whole number from 1 to {most}"
        return None

    return rule


def _partition(value: Any, num_ranks: int) -> str | None:
    """``groups`` must hold every rank of the group exactly once, and no empty list."""
    if not _is_list(value):
        return f" is {_shown(value)}, not a list of lists of ranks"
    group_of_rank: dict[int, int] = {}
    for index, members in enumerate(value):
        if not _is_list(members) or not members:
            return f"[{index}] is {_shown(members)}, not a list of ranks"
        for rank in members:
            if type(rank) is not int or not 0 <= rank < num_ranks:
                return f"[{index}] names {_shown(rank)}, which is no rank from 0 to {num_ranks - 1}"
            if rank in group_of_rank:
                return f"[{index}] names rank {rank}, which groups[{group_of_rank[rank]}] has already"
            group_of_rank[rank] = index
    if len(group_of_rank) != num_ranks:
        missing = next(rank for rank in range(num_ranks) if rank not in group_of_rank)
        return f" names {len(group_of_rank)} of {num_ranks} ranks; rank {missing} is in none"
    return None


def _across(value: Any, num_ranks: int) -> str | None:
    return None if value in ACROSS else f" is {_shown(value)}, not one of {', '.join(ACROSS)}"


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_PIECES = _count(MAX_PIECES)
_RULES: Final[Mapping[str, Mapping[str, Callable[[Any, int], str | None]]]] = {
    DEFAULT: {},
    "ring": {"channels": _count(MAX_CHANNELS), "pieces": _PIECES},
    "double_binary_tree": {"pieces": _PIECES},
    "recursive_doubling": {},
    "halving_doubling": {},
    "hierarchical": {"groups": _partition, "across": _across, "pieces": _PIECES},
    "native_reduce_broadcast": {},
    "native_reduce_scatter_allgather": {},
    "native_allgather_reduce": {},
    "native_hierarchical": {"groups": _partition},
    "shm": {},
    "shm_hierarchical": {"groups": _partition},
}
ALLOWED_PARAMS: Final[Mapping[str, tuple[str, ...]]] = {name: tuple(rules) for name, rules in _RULES.items()}
"""Algorithm → the names of its parameters."""


def _transfers_at_most(algorithm: str, params: Mapping[str, Any], num_ranks: int) -> int:
    """An upper estimate of a schedule's length; 0 for what is no schedule.

    Every rank's part is reduced n - 1 times and copied n - 1 times for each of at most n chunks (ring,
    hierarchical) or 2 (tree), times the pieces and channels that the chunks are cut into.
    """
    pieces = params.get("pieces", 1)
    if algorithm in ("ring", "hierarchical"):
        return int(2 * (num_ranks - 1) * num_ranks * params.get("channels", 1) * pieces)
    if algorithm == "double_binary_tree":
        return int(4 * (num_ranks - 1) * pieces)
    return 0
