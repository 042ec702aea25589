"""Link models made up for tests of prediction."""

import numpy as np

from topotune.links.model import LinkCost, LinkModel, SharedCapacity

ALPHA_S, BETA_S_PER_BYTE, GAMMA_S_PER_BYTE = 20e-6, 1e-9, 0.25e-9
SIZES = (0, 1, 1000, 2**20, 2**26)


def affine(alpha_s, beta_s_per_byte) -> LinkCost:
    return LinkCost(from_bytes=(0,), alpha_s=(alpha_s,), beta_s_per_byte=(beta_s_per_byte,))


def uniform(num_ranks, *, cost=None, nodes=None, **settings) -> LinkModel:
    """All pairs alike."""
    return LinkModel(
        num_ranks=num_ranks,
        classes=(cost or affine(ALPHA_S, BETA_S_PER_BYTE),),
        class_names=("all",),
        pair_class=tuple(tuple(-1 if a == b else 0 for b in range(num_ranks)) for a in range(num_ranks)),
        node_of_rank=tuple(nodes or [0] * num_ranks),
        **settings,
    )


def random_model(num_ranks, seed) -> LinkModel:
    """Three classes of affine links, placed at random, a shared capacity and a cost of reducing."""
    rng = np.random.default_rng(seed)
    costs = tuple(
        affine(*pair) for pair in zip(rng.uniform(1e-6, 1e-4, 3), rng.uniform(1e-10, 1e-8, 3), strict=True)
    )
    kinds = rng.integers(0, 3, size=(num_ranks, num_ranks))
    np.fill_diagonal(kinds, -1)
    pairs = [(a, b) for a in range(num_ranks) for b in range(num_ranks) if a != b and rng.random() < 0.5]
    return LinkModel(
        num_ranks=num_ranks,
        classes=costs,
        class_names=("a", "b", "c"),
        pair_class=tuple(map(tuple, kinds.tolist())),
        node_of_rank=(0,) * num_ranks,
        shared=(SharedCapacity(name="fabric", capacity_bytes_per_s=5e8, pairs=frozenset(pairs)),),
        reduce_s_per_byte=1e-10,
        call_overhead_s=5e-6,
    )
