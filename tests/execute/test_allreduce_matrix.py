"""Every executable against torch's own gloo: dtypes × operations × sizes, on worlds of 1 to 8 processes."""

import hashlib
from datetime import timedelta

import gloo_world
import pytest
import torch
import torch.distributed as dist

from topotune.execute import Communicator, build_executable
from topotune.execute.executable import ScheduleExecutable
from topotune.schedule import build

pytestmark = pytest.mark.gloo

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
DTYPES = (*FLOATS, torch.int64)
OPS = ("SUM", "MAX", "MIN", "PRODUCT", "AVG")
SIZES = {  # twice 37 elements where nothing is said; twice 40001 of float32 are beyond COALESCED_BYTES
    ("SUM", torch.float32): (0, 1, 37, 40_001),
    ("AVG", torch.bfloat16): (0, 1, 37),
    ("MAX", torch.int64): (0, 1, 37, 20_001),
}


def executables(communicator):
    num_ranks = communicator.size
    algorithms = [
        ("default", {}),
        ("ring", {}),
        ("ring", {"channels": 2, "pieces": 2}),
        ("double_binary_tree", {"pieces": 3}),
        ("recursive_doubling", {}),
        ("halving_doubling", {}),
        ("native_allreduce", {}),
        ("native_reduce_broadcast", {}),
        ("native_reduce_scatter_allgather", {}),
        ("native_allgather_reduce", {}),
    ]
    if num_ranks > 2:
        unequal = [list(range(num_ranks - 1, 0, -1)), [0]]
        algorithms += [
            ("hierarchical", {"groups": unequal, "pieces": 2}),
            ("native_hierarchical", {"groups": unequal}),
        ]
    if num_ranks % 2 == 0 and num_ranks > 2:
        equal = [list(range(0, num_ranks, 2)), list(range(1, num_ranks, 2))]
        algorithms += [
            ("hierarchical", {"groups": equal, "across": "recursive_doubling"}),
            ("hierarchical", {"groups": three_levels(num_ranks), "pieces": 2}),
            ("native_hierarchical", {"groups": equal}),
        ]
    made = {f"{name} {params}": build_executable(name, params, communicator) for name, params in algorithms}
    made["halving_doubling in Python"] = ScheduleExecutable(
        build("halving_doubling", {}, num_ranks), communicator, native=False
    )
    return made


def three_levels(num_ranks):
    """Racks of unequal numbers of nodes of unequal numbers of ranks; an even number of 4 ranks or more."""
    single = [[rank] for rank in range(num_ranks - 4)]
    return [[[1, 0], [2]], [[3], *[[rank[0] + 4] for rank in single]]]


def messages(dtype, op, num_elements, num_ranks, whole):
    """One message a rank; ``whole`` ones are integers whose results are exact in every dtype."""
    generator = torch.Generator().manual_seed(num_elements)
    shape = (num_ranks, num_elements)
    if op == "PRODUCT":
        values = 2.0 ** torch.randint(0, 2, shape, generator=generator)
        noise = torch.rand(shape, generator=generator, dtype=torch.float64) * 0.25
    else:
        limit = 128 // num_ranks**2 if op == "AVG" else 16
        values = torch.randint(-limit, limit, shape, generator=generator) * (num_ranks if op == "AVG" else 1)
        noise = torch.rand(shape, generator=generator, dtype=torch.float64)
    return (values if whole else values + noise).to(dtype)


def reference(parts, op):
    """In float64, and the largest error that any order of summation or multiplication may make."""
    exact = parts.to(torch.float64)
    rounding = len(parts) * torch.finfo(parts.dtype).eps
    if op in ("SUM", "AVG"):
        divisor = len(parts) if op == "AVG" else 1
        return exact.sum(dim=0) / divisor, rounding * exact.abs().sum(dim=0) / divisor
    if op == "PRODUCT":
        return exact.prod(dim=0), rounding * exact.abs().prod(dim=0)
    return (exact.amax(dim=0) if op == "MAX" else exact.amin(dim=0)), torch.zeros(parts.shape[1])


def run_matrix(rank, num_ranks, store):
    dist.init_process_group("gloo")
    communicator = Communicator(store, rank, num_ranks, name="matrix", timeout=timedelta(seconds=100))
    made = executables(communicator)
    digests = {}
    for op_name in OPS:
        op = getattr(dist.ReduceOp, op_name)
        for dtype in DTYPES:
            if op_name == "AVG" and dtype == torch.int64:
                assert not any(executable.supports(dtype, op) for executable in made.values())
                continue
            for num_elements in SIZES.get((op_name, dtype), (37,)):
                whole = messages(dtype, op_name, num_elements, num_ranks, whole=True)
                expected = whole[rank].clone()
                dist.all_reduce(expected, op)
                broken = messages(dtype, op_name, num_elements, num_ranks, whole=False)
                wanted, bound = reference(broken, op_name) if dtype in FLOATS else (None, None)
                for name, executable in made.items():
                    case = f"{name}: {op_name} of {num_elements} {dtype}"
                    assert executable.supports(dtype, op), case
                    result = torch.cat([whole[rank], broken[rank]])
                    limit = executable.max_message_bytes
                    if limit is not None and result.nbytes > limit:
                        continue
                    executable.allreduce_(result, op)
                    assert torch.equal(result[:num_elements], expected), case
                    if dtype in FLOATS:
                        error = result[num_elements:].to(torch.float64) - wanted
                        assert (error.abs() <= bound).all(), case
                    digests[case] = hashlib.sha256(result.view(torch.uint8).numpy().tobytes()).hexdigest()
    dist.destroy_process_group()
    return digests


@pytest.mark.parametrize("num_ranks", range(1, 9))
def test_every_executable_gives_what_gloo_gives_and_the_same_bits_on_all_ranks(num_ranks):
    digests = gloo_world.run_world(num_ranks, run_matrix, timeout_s=120)
    assert len(digests[0]) >= 270
    for case, digest in digests[0].items():
        assert {other[case] for other in digests} == {digest}, case


def run_on_special_values(rank, num_ranks, store):
    communicator = Communicator(store, rank, num_ranks, name="special", timeout=timedelta(seconds=100))
    bits = []
    for name in ("recursive_doubling", "halving_doubling", "ring"):
        executable = build_executable(name, {}, communicator)
        for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.SUM):
            signed_zeros = torch.tensor([0.0, -0.0] if rank % 2 else [-0.0, 0.0])
            not_numbers = (torch.arange(2, dtype=torch.int32) + 0x7FC00001 + 16 * rank).view(torch.float32)
            flat = torch.cat([signed_zeros, not_numbers]).repeat(9)
            executable.allreduce_(flat, op)
            assert flat.view(9, 4)[:, 2:].isnan().all()
            bits.append(flat.view(torch.int32).tolist())
    return bits


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_signed_zeros_and_payloads_of_nan_are_the_same_on_all_ranks(num_ranks):
    results = gloo_world.run_world(num_ranks, run_on_special_values)
    assert all(result == results[0] for result in results)
