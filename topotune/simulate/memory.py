"""What collectives through the memory of a node cost, out of what was measured between its ranks.

Links are timed through the library, and nothing of shared memory itself. What it costs is put together of:

- waiting for others: the latency of a message, that is a rank that wakes another (an estimate from above: the
  library wakes two threads). What it costs beyond that to call all at once, most where ranks outnumber cores,
  is in ``call_overhead_s``, which every call has once, here and elsewhere;
- moving bytes: to copy one costs a rank as much as to combine two (``reduce_s_per_byte``, where it was
  measured, else a byte of a message), and more where they do it all at once, by as much as messages are
  slower together than alone. (A message's own cost per byte is no measure: through sockets it was eight times
  that of moving it, Xeon with 2 cores, 2026.)
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from topotune.links.model import LinkCost, LinkModel, SharedCapacity

FloatArray = npt.NDArray[np.float64]


def allreduce_through_memory(
    model: LinkModel, ranks: Sequence[int], message_bytes: Sequence[int]
) -> FloatArray:
    """Seconds of ``shm`` among ranks of one node, by the quickest of its ways.

    Every rank combines all messages itself, or its piece out of the slots of all, or pieces are handed round
    in turns.

    Args:
        model: fitted links.
        ranks: those that share the memory, one at least.
        message_bytes: sizes, each >= 0.

    Returns:
        Shape (len(message_bytes),), the cost of the call itself left out.
    """
    num_ranks = len(ranks)
    everywhere = _time_s(model, ranks, message_bytes, num_waits=1, moves=num_ranks)
    in_slots = _time_s(model, ranks, message_bytes, num_waits=2, moves=3 - 2 / num_ranks)
    in_turns = _time_s(model, ranks, message_bytes, num_waits=num_ranks, moves=2 - 1 / num_ranks)
    return np.minimum(np.minimum(everywhere, in_slots), in_turns)


def stages_through_memory(
    model: LinkModel, ranks: Sequence[int], message_bytes: Sequence[int], *, by_shards: bool
) -> FloatArray:
    """Seconds of the stages inside a group that ``shm_hierarchical`` has before and after that across.

    Args:
        model: fitted links.
        ranks: the group.
        message_bytes: sizes, each >= 0.
        by_shards: reduce-scatter and all-gather; else reduce to the first rank, and broadcast.

    Returns:
        Shape (len(message_bytes),).
    """
    if by_shards:
        return _time_s(model, ranks, message_bytes, num_waits=2, moves=3)
    return _time_s(model, ranks, message_bytes, num_waits=3, moves=5 - 2 / len(ranks))


def _time_s(
    model: LinkModel,
    ranks: Sequence[int],
    message_bytes: Sequence[int],
    *,
    num_waits: int,
    moves: float,
) -> FloatArray:
    """Waits one after the other, and every byte of the message moved so often by each rank."""
    sizes = np.asarray(message_bytes, dtype=np.float64)
    if len(ranks) == 1:
        return np.zeros(len(sizes))
    latency_s = max(cost.latency_s for cost in _costs(model, ranks))
    time_s: FloatArray = num_waits * latency_s + moves * _move_s_per_byte(model, ranks) * sizes
    return time_s


def _costs(model: LinkModel, ranks: Sequence[int]) -> list[LinkCost]:
    numbers = {model.pair_class[src][dst] for src in ranks for dst in ranks if src != dst}
    return [model.classes[number] for number in sorted(numbers)]


def _move_s_per_byte(model: LinkModel, ranks: Sequence[int]) -> float:
    """What it takes each of these ranks to copy or combine a byte, all at once."""
    message_s_per_byte = max(cost.beta_s_per_byte[-1] for cost in _costs(model, ranks))
    alone_s_per_byte = model.reduce_s_per_byte or message_s_per_byte
    together_s_per_byte = max(
        (len(ranks) / shared.capacity_bytes_per_s for shared in model.shared if _is_of_all(shared, ranks)),
        default=0.0,
    )
    if together_s_per_byte <= message_s_per_byte:
        return alone_s_per_byte
    return alone_s_per_byte * together_s_per_byte / message_s_per_byte


def _is_of_all(shared: SharedCapacity, ranks: Sequence[int]) -> bool:
    return all((src, dst) in shared.pairs for src in ranks for dst in ranks if src != dst)
