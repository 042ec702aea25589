"""The calls of a torch process group, and the way each takes through the backend. The one list of them.

`ProcessGroupTopotune` builds its methods from it; the conformance test holds that nothing is missing.
"""

from dataclasses import dataclass
from typing import Final, Literal

Way = Literal["planned", "queued", "direct"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One method of ``torch.distributed.ProcessGroup``.

    Attributes:
        method: its name.
        collective: under what it is counted.
        way: ``planned``: by the plan's algorithm, else as ``queued``; ``queued``: by the wrapped backend,
            behind what is already in the group's queue; ``direct``: by the wrapped backend, past the queue.
        blocks: it returns when it is done, without a Work.
    """

    method: str
    collective: str
    way: Way
    blocks: bool = False


CALLS: Final = (
    Call(method="allreduce", collective="allreduce", way="planned"),
    Call(method="allreduce_coalesced", collective="allreduce_coalesced", way="queued"),
    Call(method="broadcast", collective="broadcast", way="queued"),
    Call(method="reduce", collective="reduce", way="queued"),
    Call(method="allgather", collective="allgather", way="queued"),
    Call(method="all_gather_single", collective="allgather", way="planned"),
    Call(method="all_gather_single_coalesced", collective="allgather", way="queued"),
    Call(method="allgather_coalesced", collective="allgather", way="queued"),
    Call(method="gather", collective="gather", way="queued"),
    Call(method="scatter", collective="scatter", way="queued"),
    Call(method="reduce_scatter", collective="reduce_scatter", way="queued"),
    Call(method="reduce_scatter_single", collective="reduce_scatter", way="planned"),
    Call(method="reduce_scatter_single_coalesced", collective="reduce_scatter", way="queued"),
    Call(method="all_to_all_single", collective="alltoall", way="queued"),
    Call(method="alltoall", collective="alltoall", way="queued"),
    Call(method="barrier", collective="barrier", way="queued"),
    Call(method="monitored_barrier", collective="barrier", way="queued", blocks=True),
    Call(method="send", collective="send", way="direct"),
    Call(method="recv", collective="recv", way="direct"),
    Call(method="recv_anysource", collective="recv", way="direct"),
)

OLD_NAMES: Final = {
    "_allgather_base": "all_gather_single",
    "allgather_into_tensor_coalesced": "all_gather_single_coalesced",
    "_reduce_scatter_base": "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single_coalesced",
    "alltoall_base": "all_to_all_single",
}
"""Names that torch keeps for older callers → the method of today."""
