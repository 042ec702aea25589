"""Calls that meet in the memory which ranks of a node share: opening it together, giving it up together."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from topotune.execute.communicator import Communicator
from topotune.execute.handover import PROMPT_HANDOVER
from topotune.execute.shared_memory.collectives import SharedCollectives
from topotune.execute.shared_memory.segment import DATA_BYTES, open_memory
from topotune.links.messages import Messages


def shared_inside(
    communicator: Communicator, inside: Communicator, data_bytes: int = DATA_BYTES
) -> tuple[SharedCollectives | None, str]:
    """The memory that ``inside`` shares, if every part of ``communicator`` has such memory. Collective.

    Args:
        communicator: of all ranks.
        inside: of those that share a node with this one.
        data_bytes: what slots may take on a node; counts for the first that is opened on ``inside``.

    Returns:
        None where there is none, or the rank is alone; and why there is none, in words: "" if there is, the
        same on all ranks.
    """
    memory = inside.resource("shared memory", partial(open_memory, inside, data_bytes=data_bytes))
    # Shards must be cut alike on all nodes, however much room each has.
    own = [memory.problem, memory.segment.slot_bytes if memory.segment else None]
    answers = Messages(communicator.group).gather(own)
    unavailable: str = next((problem for problem, _ in answers if problem), "")
    slot_bytes = min((slot_bytes for _, slot_bytes in answers if slot_bytes is not None), default=0)
    if memory.segment is None or unavailable:
        return None, unavailable
    return SharedCollectives(memory.segment, slot_bytes), ""


@contextmanager
def meeting(communicator: Communicator, inside: SharedCollectives | None) -> Iterator[None]:
    """Around a call that meets others in memory: what was interrupted cannot be resumed by anybody.

    Args:
        communicator: of all ranks.
        inside: the memory; None for a rank that is alone in its group.

    Raises:
        RunError: the communicator failed or was aborted before.
    """
    _ = communicator.group  # says why
    try:
        with PROMPT_HANDOVER:
            yield
    except BaseException:
        if inside is not None:
            inside.give_up()  # nobody shall wait for it
        raise
