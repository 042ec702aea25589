"""The schedules by name: building them, verified."""

import json
from functools import lru_cache
from typing import Any, Final

from topotune.errors import UsageError, WrongResultError
from topotune.plan.algorithms import MAX_SCHEDULE_RANKS, PART_SCHEDULES, check_params
from topotune.plan.model import Collective
from topotune.schedule.assemble import MAX_TRANSFERS, MAX_WRITTEN_RANKS
from topotune.schedule.blueconnect import blueconnect
from topotune.schedule.doubling import halving_doubling, recursive_doubling
from topotune.schedule.forest import forest
from topotune.schedule.hierarchical import check_groups, hierarchical
from topotune.schedule.model import Params, PartCollective, Schedule
from topotune.schedule.negabinary import bine, swing
from topotune.schedule.parameter_server import parameter_server
from topotune.schedule.parts import halving_doubling_of_parts, hierarchical_of_parts, ring_of_parts
from topotune.schedule.ring import ring
from topotune.schedule.torus import torus
from topotune.schedule.tree import double_binary_tree
from topotune.schedule.verify import verify

PARAMS_OF_ALGORITHM: Final[dict[str, frozenset[str]]] = {
    "ring": frozenset({"channels", "pieces"}),
    "double_binary_tree": frozenset({"pieces"}),
    "recursive_doubling": frozenset(),
    "halving_doubling": frozenset(),
    "swing": frozenset(),
    "bine": frozenset(),
    "torus": frozenset({"rows"}),
    "parameter_server": frozenset({"servers", "shares", "pieces"}),
    "hierarchical": frozenset({"groups", "across", "pieces"}),
    "blueconnect": frozenset({"factors", "order", "pieces"}),
    "forest": frozenset({"weights", "down", "up", "pieces"}),
}
PARAMS_OF_PART_ALGORITHM: Final[dict[str, frozenset[str]]] = {
    "ring": frozenset({"channels", "pieces"}),
    "halving_doubling": frozenset(),
    "hierarchical": frozenset({"groups", "pieces"}),
}
"""Of those that scatter and gather."""

assert tuple(PARAMS_OF_PART_ALGORITHM) == PART_SCHEDULES


def build(algorithm: str, params: Params, num_ranks: int, collective: Collective = "allreduce") -> Schedule:
    """The schedule of that name, verified; equal calls get the same object, up to 512 ranks.

    Args:
        algorithm: a key of ``PARAMS_OF_ALGORITHM``, or of ``PARAMS_OF_PART_ALGORITHM``.
        params: those of its generator; one that is absent has the generator's default.
        num_ranks: 1 to 2048.
        collective: what it is to do.

    Raises:
        UsageError: no such algorithm, a param it does not take, or a value out of range.
        WrongResultError: the schedule does not pass ``verify``.
    """
    known = PARAMS_OF_ALGORITHM if collective == "allreduce" else PARAMS_OF_PART_ALGORITHM
    if algorithm not in known:
        what = "schedule" if collective == "allreduce" else f"schedule of {collective}"
        raise UsageError(f"{algorithm!r:.100} is no {what}; there are {', '.join(known)}")
    unknown = sorted(set(params) - known[algorithm])
    if unknown:
        takes = ", ".join(sorted(known[algorithm])) or "none"
        raise UsageError(f"{algorithm} takes no param {unknown[0]!r:.100}; it takes {takes}")
    if (
        not isinstance(num_ranks, int)
        or isinstance(num_ranks, bool)
        or not 1 <= num_ranks <= MAX_WRITTEN_RANKS
    ):
        raise UsageError(f"schedules are built for 1 to {MAX_WRITTEN_RANKS} ranks, not {num_ranks!r:.100}")
    try:
        key = json.dumps(dict(params), sort_keys=True)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{algorithm}: params cannot be read: {error}") from error
    # Larger ones are not kept: sixty of them would fill the memory.
    make = _kept if num_ranks <= MAX_SCHEDULE_RANKS else _build_verified
    return make(algorithm, key, num_ranks, collective)


def _build_verified(algorithm: str, params_text: str, num_ranks: int, collective: Collective) -> Schedule:
    params = json.loads(params_text)
    schedule = (
        _generate(algorithm, params, num_ranks)
        if collective == "allreduce"
        else _generate_of_parts(algorithm, params, num_ranks, collective)
    )
    violations = verify(schedule)
    if violations:
        text = "; ".join(violation.message for violation in violations)
        raise WrongResultError(f"{algorithm} {params_text} for {num_ranks} ranks is no {collective}: {text}")
    return schedule


_kept = lru_cache(maxsize=64)(_build_verified)


def _generate(algorithm: str, params: dict[str, Any], num_ranks: int) -> Schedule:
    if algorithm == "ring":
        return ring(num_ranks, **params)
    if algorithm == "double_binary_tree":
        return double_binary_tree(num_ranks, **params)
    if algorithm == "recursive_doubling":
        return recursive_doubling(num_ranks)
    if algorithm == "halving_doubling":
        return halving_doubling(num_ranks)
    if algorithm == "swing":
        return swing(num_ranks)
    if algorithm == "bine":
        return bine(num_ranks)
    if algorithm == "torus":
        return torus(num_ranks, **{"rows": None, **params})
    if algorithm == "parameter_server":
        return parameter_server(num_ranks, **params)
    if algorithm in ("forest", "blueconnect"):
        problem = check_params(
            algorithm, params, num_ranks, most_transfers=MAX_TRANSFERS, most_ranks=MAX_WRITTEN_RANKS
        )
        if problem:
            raise UsageError(f"{algorithm}: {problem}")
        return forest(**params) if algorithm == "forest" else blueconnect(num_ranks, **params)
    check_groups(params.get("groups"), num_ranks)
    return hierarchical(**params)


def _generate_of_parts(
    algorithm: str, params: dict[str, Any], num_ranks: int, collective: PartCollective
) -> Schedule:
    if algorithm == "ring":
        return ring_of_parts(num_ranks, collective, **params)
    if algorithm == "halving_doubling":
        return halving_doubling_of_parts(num_ranks, collective)
    check_groups(params.get("groups"), num_ranks, most_levels=2)
    return hierarchical_of_parts(collective=collective, **params)
