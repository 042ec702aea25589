"""Valid plans for property tests."""

import itertools

from hypothesis import strategies as st

from topotune.plan import (
    Bottleneck,
    Certificate,
    Context,
    Ddp,
    Evidence,
    Fingerprint,
    Group,
    GroupShape,
    HardFingerprint,
    LinkClass,
    Plan,
    Row,
    SoftFingerprint,
)
from topotune.plan.grouping import ACROSS
from topotune.plan.nccl import ALGOS_WITH_ALL_PROTOS, NCCL_ALGOS_OF, NCCL_PROTOS

texts = st.text(st.characters(exclude_categories=("C", "Zl", "Zp")), max_size=20)
seconds = st.floats(min_value=1e-9, max_value=1e6)
ratios = st.floats(min_value=1e-3, max_value=1e3)
intervals = st.tuples(ratios, ratios).map(lambda ends: (min(ends), max(ends)))
shares = st.floats(min_value=0, max_value=1)
sizes = st.integers(min_value=1, max_value=2**50)
counts = st.integers(min_value=1, max_value=10**6)


def size_tuples(min_size=0):
    return st.lists(sizes, min_size=min_size, max_size=4).map(tuple)


@st.composite
def partitions(draw, num_ranks):
    ranks = draw(st.permutations(range(num_ranks)))
    cuts = sorted(draw(st.sets(st.integers(1, num_ranks - 1)))) if num_ranks > 1 else []
    ends = [*cuts, num_ranks]
    return [list(ranks[start:end]) for start, end in zip([0, *cuts], ends, strict=True)]


@st.composite
def nested_partitions(draw, num_ranks):
    """Of three levels."""
    inner = draw(partitions(num_ranks))
    return [[inner[number] for number in outer] for outer in draw(partitions(len(inner)))]


@st.composite
def trees(draw, num_ranks, root):
    """Each rank's parent; any tree with this root."""
    parents, joined = [-1] * num_ranks, [root]
    for rank in draw(st.permutations([rank for rank in range(num_ranks) if rank != root])):
        parents[rank] = draw(st.sampled_from(joined))
        joined.append(rank)
    return parents


@st.composite
def forests(draw, num_ranks):
    roots = draw(st.lists(st.integers(0, num_ranks - 1), min_size=1, max_size=3))
    params = {
        "weights": [draw(st.integers(1, 100)) for _ in roots],
        "down": [draw(trees(num_ranks, root)) for root in roots],
    }
    if draw(st.booleans()):
        params["up"] = [draw(trees(num_ranks, root)) for root in roots]
    if draw(st.booleans()):
        params["pieces"] = draw(st.integers(1, 64))
    return "forest", params


def algorithms(num_ranks):
    """(algorithm, params) that run on this many ranks."""
    pieces = st.integers(1, 64)
    return st.one_of(
        st.sampled_from(
            [
                "default",
                "recursive_doubling",
                "halving_doubling",
                "swing",
                "bine",
                "parameter_server",
                "native_allreduce",
                "native_reduce_broadcast",
                "native_reduce_scatter_allgather",
                "native_allgather_reduce",
                "shm",
            ]
        ).map(lambda name: (name, {})),
        forests(num_ranks),
        st.sampled_from([rows for rows in range(1, num_ranks + 1) if num_ranks % rows == 0]).map(
            lambda rows: ("torus", {"rows": rows})
        ),
        st.lists(st.integers(0, num_ranks - 1), min_size=1, unique=True).map(
            lambda servers: ("parameter_server", {"servers": servers})
        ),
        st.lists(st.integers(1, 9), min_size=num_ranks, max_size=num_ranks).map(
            lambda shares: ("parameter_server", {"shares": shares})
        ),
        st.just(("blueconnect", {"factors": [num_ranks]}))
        if num_ranks > 1
        else st.just(("parameter_server", {"servers": [0]})),
        st.fixed_dictionaries({}, optional={"channels": st.integers(1, 8), "pieces": pieces}).map(
            lambda params: ("ring", params)
        ),
        st.fixed_dictionaries({}, optional={"pieces": pieces}).map(
            lambda params: ("double_binary_tree", params)
        ),
        st.fixed_dictionaries(
            {"groups": partitions(num_ranks) | nested_partitions(num_ranks)},
            optional={"across": st.sampled_from(ACROSS), "pieces": pieces},
        ).map(lambda params: ("hierarchical", params)),
        st.fixed_dictionaries({"groups": nested_partitions(num_ranks)}, optional={"pieces": pieces}).map(
            lambda params: ("shm_hierarchical", params)
        ),
        st.tuples(
            st.sampled_from(["native_hierarchical", "shm_hierarchical"]),
            partitions(num_ranks).map(lambda groups: {"groups": groups}),
        ),
    )


def part_algorithms(num_ranks):
    """(algorithm, params) that scatter or gather parts between this many ranks."""
    pieces = st.integers(1, 64)
    equal = [size for size in range(1, num_ranks + 1) if num_ranks % size == 0]
    return st.one_of(
        st.sampled_from(["default", "halving_doubling", "shm"]).map(lambda name: (name, {})),
        st.fixed_dictionaries({}, optional={"channels": st.integers(1, 8), "pieces": pieces}).map(
            lambda params: ("ring", params)
        ),
        st.fixed_dictionaries({"groups": partitions(num_ranks)}, optional={"pieces": pieces}).map(
            lambda params: ("hierarchical", params)
        ),
        st.sampled_from(equal).map(
            lambda size: (
                "shm_hierarchical",
                {"groups": [list(range(at, at + size)) for at in range(0, num_ranks, size)]},
            )
        ),
    )


def nccl_algorithms(collective):
    """(``nccl``, params) that NCCL has for a collective."""
    pairs = [
        {"algo": algo, "proto": proto}
        for algo in NCCL_ALGOS_OF[collective]
        for proto in (NCCL_PROTOS if algo in ALGOS_WITH_ALL_PROTOS else ("simple",))
    ]
    channels = st.just({}) | st.integers(1, 64).map(lambda channels: {"channels": channels})
    return st.builds(lambda pair, more: ("nccl", pair | more), st.sampled_from(pairs), channels)


evidences = st.builds(
    Evidence,
    median_s=seconds,
    default_median_s=seconds,
    ratio=ratios,
    ratio_ci=intervals,
    num_samples=counts,
    measured_bytes=sizes,
    extrapolated=st.booleans(),
    predicted_s=st.none() | seconds,
    confirmed_bytes=size_tuples(),
    backward_ratio_ci=st.none() | intervals,
    busy_ratio=st.none() | ratios,
)
bottlenecks = st.builds(Bottleneck, text=texts, cut=st.lists(texts, max_size=3).map(tuple))


@st.composite
def rows(draw, min_bytes, max_bytes, algorithm_and_params):
    algorithm, params = draw(algorithm_and_params)
    bounded = draw(st.booleans())
    return Row(
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        algorithm=algorithm,
        params=params,
        percent_of_optimum=draw(st.floats(min_value=0.1, max_value=120)) if bounded else None,
        bottleneck=draw(bottlenecks) if bounded or draw(st.booleans()) else None,
        no_bound_reason=None if bounded else draw(st.none() | texts),
        evidence=draw(st.none() | evidences),
    )


@st.composite
def tables(draw, algorithm_and_params):
    bounds = [0, *sorted(draw(st.sets(sizes, max_size=4))), None]
    return tuple(draw(rows(low, high, algorithm_and_params)) for low, high in itertools.pairwise(bounds))


@st.composite
def groups(draw, shape, *, on_nccl):
    default = st.just(("default", {}))
    own = {collective: nccl_algorithms(collective) if on_nccl else default for collective in NCCL_ALGOS_OF}
    return Group(
        shape=shape,
        allreduce=draw(st.none() | tables(algorithms(shape.num_ranks) | own["allreduce"])),
        reduce_scatter=draw(st.none() | tables(part_algorithms(shape.num_ranks) | own["reduce_scatter"])),
        allgather=draw(st.none() | tables(part_algorithms(shape.num_ranks) | own["allgather"])),
    )


@st.composite
def plans(draw):
    ranks_per_node = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    world_size, num_nodes = sum(ranks_per_node), len(ranks_per_node)
    world = GroupShape(
        num_ranks=world_size,
        num_nodes=num_nodes,
        ranks_per_node=ranks_per_node[0] if len(set(ranks_per_node)) == 1 else 0,
        stride=1,
    )
    within_node = GroupShape(num_ranks=1, num_nodes=1, ranks_per_node=1, stride=0)
    shapes = [world, within_node] if draw(st.booleans()) else [world]
    backend = draw(st.just("nccl") | texts)
    return Plan(
        groups=tuple(draw(groups(shape, on_nccl=backend == "nccl")) for shape in shapes),
        fingerprint=Fingerprint(
            hard=HardFingerprint(
                backend=backend,
                device_kind=draw(texts),
                device_count=draw(counts),
                world_size=world_size,
                ranks_per_node=ranks_per_node,
                collective_library=draw(texts),
            ),
            soft=SoftFingerprint(
                hosts=tuple(draw(texts) for _ in ranks_per_node),
                driver=draw(st.none() | texts),
                kernel=draw(st.none() | texts),
                torch=draw(texts),
            ),
        ),
        certificate=draw(
            st.builds(
                Certificate,
                method=texts,
                num_comparisons=counts,
                correction=texts,
                confidence=shares,
                min_gain=shares,
                false_win_rate=st.none() | shares,
                false_win_rate_ci=st.none()
                | st.tuples(shares, shares).map(lambda ends: (min(ends), max(ends))),
                num_null_trials=st.integers(0, 1000),
            )
        ),
        context=draw(
            st.builds(
                Context,
                created=texts,
                topotune_version=texts,
                seed=st.integers(0, 2**63 - 1),
                budget_s=seconds | st.integers(0, 1000),
                elapsed_s=seconds,
                versions=st.dictionaries(texts, texts, max_size=3),
                network=st.none() | texts,
                interface=st.none() | texts,
            )
        ),
        links=tuple(
            draw(
                st.lists(
                    st.builds(
                        LinkClass,
                        name=texts,
                        num_pairs=counts,
                        latency_s=st.just(0.0) | seconds,
                        latency_ci_s=st.none() | intervals,
                        bandwidth_bytes_per_s=st.floats(min_value=1, max_value=1e13),
                        bandwidth_ci_bytes_per_s=st.none() | intervals,
                        max_relative_error=st.none() | shares,
                    ),
                    max_size=2,
                )
            )
        ),
        ddp=draw(
            st.none()
            | st.builds(
                Ddp,
                bucket_caps_mb=st.none() | st.lists(ratios, min_size=1, max_size=3).map(tuple),
                layout_bytes=st.none() | size_tuples(1),
                projected_from=st.none() | size_tuples(1),
                evidence=st.none() | evidences,
                projection_loss=st.none() | shares,
                gradients=st.none() | texts,
                compute=st.none() | texts,
                bound=st.none() | texts,
            )
        ),
        rank_order=draw(st.none() | st.permutations(range(world_size)).map(tuple)),
        warnings=tuple(draw(st.lists(texts, max_size=2))),
    )
