"""All algorithms side by side on a network, with the optimum: ``topotune simulate`` on a topology. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy

from topotune.bounds.bound import Bound, NoBound
from topotune.simulate.contenders import Contender
from topotune.simulate.document import (
    SCHEMA,
    SCHEMA_VERSION,
    Bottleneck,
    NcclChoice,
    Predicted,
    PredictedSize,
    Prediction,
)
from topotune.simulate.nccl import VERSION as NCCL_VERSION
from topotune.simulate.nccl import NcclMachine, picks
from topotune.simulate.network import FloatArray, Network
from topotune.simulate.routed import predict_steps


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """Times of one contender.

    Attributes:
        contender: whose.
        time_s: of each size; shape (num_sizes,).
    """

    contender: Contender
    time_s: FloatArray


def curves(network: Network, found: Sequence[Contender], message_bytes: Sequence[int]) -> list[Curve]:
    """Predicted times of each contender.

    Raises:
        ValueError: a rank cannot reach another.
    """
    with_servers = network.with_servers_as_ranks()
    return [
        Curve(
            contender=one,
            time_s=predict_steps(
                one.steps, with_servers if one.with_servers else network, message_bytes, ways=one.ways
            ),
        )
        for one in found
    ]


def survey_network(
    network: Network,
    bound: Bound | NoBound,
    found: Sequence[Curve],
    message_bytes: Sequence[int],
    *,
    name: str,
    nccl: NcclMachine | None = None,
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """The times and the optimum as a JSON document, fastest first at each size.

    Args:
        network: that was simulated.
        bound: of allreduce on it.
        found: one or more.
        message_bytes: sizes of the curves.
        name: of the network, in words.
        nccl: what NCCL would know of it; None where it does not run there.
        warnings: one line each.
    """
    least_s = network.call_overhead_s + farthest_s(network)
    sizes = []
    for index, size in enumerate(message_bytes):
        optimum_s = None
        if isinstance(bound, Bound):
            optimum_s = max(least_s, network.call_overhead_s + bound.time_s(size))
        predictions = [
            Predicted(
                algorithm=curve.contender.algorithm,
                params=dict(curve.contender.params),
                time_s=float(curve.time_s[index]),
                percent_of_optimum=None
                if optimum_s is None
                else 100.0 * optimum_s / float(curve.time_s[index]),
            )
            for curve in sorted(found, key=lambda curve: float(curve.time_s[index]))
        ]
        choice = None if nccl is None else _nccl_choice(nccl, size, optimum_s)
        sizes.append(
            PredictedSize(message_bytes=size, predictions=predictions, optimum_s=optimum_s, nccl=choice)
        )
    is_bound = isinstance(bound, Bound)
    document = Prediction(
        num_ranks=network.num_ranks,
        sizes=sizes,
        network=name,
        bottleneck=Bottleneck(text=bound.text, cut=list(bound.cut)) if isinstance(bound, Bound) else None,
        no_bound_reason=None if is_bound or isinstance(bound, Bound) else bound.reason,
        nccl_version=None if nccl is None else NCCL_VERSION,
        warnings=list(warnings),
    )
    return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **asdict(document)}


def _nccl_choice(machine: NcclMachine, message_bytes: int, optimum_s: float | None) -> NcclChoice:
    pick = picks(machine, message_bytes)[0]
    in_switches = pick.algorithm in ("nvls", "nvls_tree")
    return NcclChoice(
        algorithm=pick.algorithm,
        protocol=pick.protocol,
        time_s=pick.time_s,
        percent_of_optimum=None if optimum_s is None or in_switches else 100.0 * optimum_s / pick.time_s,
    )


def farthest_s(network: Network) -> float:
    """Latency that no allreduce escapes: between two ranks far from each other, by the fastest way.

    The two are found by two searches: from the first rank, and from the rank farthest from it.
    """
    num_vertices = len(network.vertices)
    # Links without latency are none to the search.
    latency_s = np.maximum(network.latency_s, 1e-15)
    ways = scipy.sparse.csr_array(
        (latency_s, (network.tail, network.head)), shape=(num_vertices, num_vertices)
    )
    at = int(network.vertex_of_rank[0])
    farthest = 0.0
    for _ in range(2):
        reached = scipy.sparse.csgraph.dijkstra(ways, indices=at)[network.vertex_of_rank]
        reached = np.where(np.isfinite(reached), reached, 0.0)
        at = int(network.vertex_of_rank[int(np.argmax(reached))])
        farthest = max(farthest, float(reached.max()))
    return farthest if farthest > 1e-12 else 0.0
