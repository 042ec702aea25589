"""Fitted links of clusters whose nodes or racks limit what their ranks send."""

from collections.abc import Iterable, Sequence

from topotune.links import LinkCost, LinkModel, SharedCapacity


def links_of(node_of_rank: Sequence[int], shared: Iterable[SharedCapacity]) -> LinkModel:
    """Every two ranks alike but for what they share: no latency, 1 GB/s."""
    num_ranks = len(node_of_rank)
    return LinkModel(
        num_ranks=num_ranks,
        classes=(LinkCost(from_bytes=(0,), alpha_s=(0.0,), beta_s_per_byte=(1e-9,)),),
        pair_class=tuple(tuple(-1 if a == b else 0 for b in range(num_ranks)) for a in range(num_ranks)),
        class_names=("between nodes",),
        node_of_rank=tuple(node_of_rank),
        shared=tuple(shared),
    )
