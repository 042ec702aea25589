"""What a training script can ask of a process group, case by case.

Each case runs on torch's own ``gloo`` and on ``topotune`` under a plan, and must give the same on both: the
same result, or the same refusal. ``through`` says as what the calls of the case are counted on ``topotune``.
The table in docs/reference/backend.md is made from this list: ``python tests/train/conformance_cases.py``
writes it anew.
"""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn.parallel import DistributedDataParallel as DDP

NUM_RANKS = 4
RD, RING, NATIVE, DEFAULT = "recursive_doubling", "ring", "native_reduce_scatter_allgather", "default"
HALVING, SHM = "halving_doubling", "shm"
SMALL, MIDDLE, LARGE = 100, 1000, 30000  # float32 elements: one for each algorithm of the test's plan


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing that a script asks for.

    Attributes:
        name: what the script calls.
        run: (rank) → a result that pickles and compares.
        through: (collective, algorithm) of every call that it makes on ``topotune``.
        note: for the table.
        same: whether ``topotune`` must do as ``gloo`` does.
    """

    name: str
    run: Callable[[int], Any]
    through: frozenset[tuple[str, str]]
    note: str = ""
    same: bool = True


CASES: list[Case] = []


def case(name: str, *through: tuple[str, str], note: str = "", same: bool = True) -> Callable[..., Any]:
    def register(run: Callable[[int], Any]) -> Callable[[int], Any]:
        CASES.append(Case(name=name, run=run, through=frozenset(through), note=note, same=same))
        return run

    return register


def mine(rank: int, num_elements: int = 6, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers of this rank that sum exactly in any order."""
    return ((torch.arange(num_elements) + 3 * rank) % 11).to(dtype)


def plain(value: Any) -> Any:
    if isinstance(value, DTensor):
        return value.full_tensor().tolist()
    if isinstance(value, torch.Tensor):
        return value.detach().to(torch.float64 if value.is_floating_point() else value.dtype).tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


# Collectives on tensors.


@case("all_reduce, sizes without an algorithm", ("allreduce", DEFAULT))
def all_reduce_default(rank):
    tensor = mine(rank)
    dist.all_reduce(tensor)
    return tensor


@case("all_reduce", ("allreduce", RD), ("allreduce", RING), ("allreduce", NATIVE))
def all_reduce(rank):
    tensors = [mine(rank, size) for size in (SMALL, MIDDLE, LARGE)]
    for tensor in tensors:
        dist.all_reduce(tensor)
    return tensors


@case("all_reduce(async_op=True)", ("allreduce", RING))
def all_reduce_async(rank):
    tensors = [mine(rank, MIDDLE) for _ in range(5)]
    works = [dist.all_reduce(tensor, op=dist.ReduceOp.MAX, async_op=True) for tensor in tensors]
    waits = [work.wait(timedelta(seconds=60)) for work in works]
    return tensors, waits, [work.is_completed() for work in works], works[0].get_future().value()


@case("all_reduce of integers, booleans, complex numbers", ("allreduce", DEFAULT), ("allreduce", RING))
def all_reduce_types(rank):
    results = []
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64, torch.bool):
        tensor = mine(rank, 5000, dtype)
        dist.all_reduce(tensor)
        results.append(tensor)
    tensor = torch.complex(mine(rank, 3), mine(rank + 1, 3))
    dist.all_reduce(tensor)
    return results, torch.view_as_real(tensor)


@case("all_reduce with BAND, BOR, BXOR", ("allreduce", DEFAULT))
def all_reduce_bitwise(rank):
    results = []
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        tensor = mine(rank, MIDDLE, torch.int64)
        dist.all_reduce(tensor, op=op)
        results.append(tensor)
    return results


@case("all_reduce of a sparse tensor", ("allreduce", DEFAULT))
def all_reduce_sparse(rank):
    tensor = torch.sparse_coo_tensor(torch.tensor([[rank, 5]]), torch.tensor([1.0, 2.0]), (6,))
    dist.all_reduce(tensor)
    return tensor.to_dense()


@case("all_reduce of nothing", ("allreduce", DEFAULT))
def all_reduce_empty(rank):
    tensor = torch.empty(0)
    dist.all_reduce(tensor)
    return tensor


@case("all_reduce that gloo refuses: int16, average of integers, PREMUL_SUM", ("allreduce", DEFAULT))
def all_reduce_refused(rank):
    return [
        refusal(lambda: dist.all_reduce(mine(rank, MIDDLE, torch.int16))),
        refusal(lambda: dist.all_reduce(mine(rank, MIDDLE, torch.int64), op=dist.ReduceOp.AVG)),
        refusal(lambda: dist.all_reduce(mine(rank, MIDDLE), op=dist._make_nccl_premul_sum(2.0))),
    ]


@case("all_reduce_coalesced", ("allreduce_coalesced", DEFAULT))
def all_reduce_coalesced(rank):
    tensors = [mine(rank, 7), mine(rank, MIDDLE)]
    dist.all_reduce_coalesced(tensors)
    return tensors


@case("_coalescing_manager", ("allreduce_coalesced", DEFAULT))
def coalescing_manager(rank):
    tensors = [mine(rank, 7), mine(rank, MIDDLE)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    return tensors


@case("broadcast", ("broadcast", DEFAULT))
def broadcast(rank):
    tensor = mine(rank)
    dist.broadcast(tensor, src=2)
    return tensor


@case("reduce", ("reduce", DEFAULT))
def reduce(rank):
    tensor = mine(rank)
    dist.reduce(tensor, dst=1)
    return tensor if rank == 1 else None


@case("all_gather", ("allgather", DEFAULT))
def all_gather(rank):
    outputs = [torch.zeros(6) for _ in range(NUM_RANKS)]
    dist.all_gather(outputs, mine(rank))
    return outputs


@case(
    "all_gather_into_tensor, all_gather_single",
    *(("allgather", algorithm) for algorithm in (DEFAULT, HALVING, RING, SHM)),
)
def all_gather_single(rank):
    results = []
    for size in (2, 6, SMALL, MIDDLE, LARGE):
        outputs = torch.zeros(2, size * NUM_RANKS)
        dist.all_gather_into_tensor(outputs[0], mine(rank, size))
        work = dist.all_gather_single(outputs[1], mine(rank, size), async_op=True)
        work.wait()
        results.append((outputs, work.get_future().wait()))
    return results


@case("all_gather_single, other types and shapes", ("allgather", RING))
def all_gather_shapes(rank):
    whole, columns = torch.zeros(NUM_RANKS * 8, 50), torch.zeros(50, NUM_RANKS * 8)
    part = mine(rank, 400)
    dist.all_gather_single(whole, part.view(8, 50))
    dist.all_gather_single(columns.t(), part.view(50, 8).t())
    in_place = torch.zeros(NUM_RANKS * 400)
    own = in_place[400 * rank : 400 * rank + 400].copy_(part)
    dist.all_gather_single(in_place, own)
    results = [whole, columns, in_place]
    for dtype in (torch.bool, torch.int8, torch.int64, torch.bfloat16, torch.float64):
        output = torch.zeros(NUM_RANKS * 500, dtype=dtype)
        dist.all_gather_single(output, mine(rank, 500).to(dtype))
        results.append(output)
    return results


@case("all_gather_single that gloo refuses: sizes, shapes, int16", ("allgather", DEFAULT))
def all_gather_refused(rank):
    short = torch.zeros(4 * MIDDLE, dtype=torch.int16)
    return [
        refusal(lambda: dist.all_gather_single(short, short[:MIDDLE])),
        refusal(lambda: dist.all_gather_single(torch.zeros(7 * MIDDLE), torch.zeros(MIDDLE))),
        refusal(lambda: dist.all_gather_single(torch.zeros(4, MIDDLE), torch.zeros(MIDDLE))),
        refusal(lambda: dist.all_gather_single(torch.zeros(4 * MIDDLE).long(), torch.zeros(MIDDLE))),
    ]


@case("all_gather_coalesced", ("allgather", DEFAULT))
def all_gather_coalesced(rank):
    outputs = [[torch.zeros(6), torch.zeros(2)] for _ in range(NUM_RANKS)]
    dist.all_gather_coalesced(outputs, [mine(rank), mine(rank, 2)])
    return outputs


@case("gather", ("gather", DEFAULT))
def gather(rank):
    outputs = [torch.zeros(6) for _ in range(NUM_RANKS)] if rank == 3 else None
    dist.gather(mine(rank), outputs, dst=3)
    return outputs


@case("scatter", ("scatter", DEFAULT))
def scatter(rank):
    output = torch.zeros(6)
    dist.scatter(output, [mine(part) for part in range(NUM_RANKS)] if rank == 0 else None, src=0)
    return output


@case("reduce_scatter", ("reduce_scatter", DEFAULT))
def reduce_scatter(rank):
    output = torch.zeros(6)
    dist.reduce_scatter(output, [mine(rank + part) for part in range(NUM_RANKS)])
    return output


@case(
    "reduce_scatter_tensor, reduce_scatter_single",
    *(("reduce_scatter", algorithm) for algorithm in (DEFAULT, HALVING, RING, SHM)),
)
def reduce_scatter_single(rank):
    results = []
    for size in (2, 6, SMALL, MIDDLE, LARGE, 100 * MIDDLE):
        given, outputs = mine(rank, size * NUM_RANKS), torch.zeros(2, size)
        dist.reduce_scatter_tensor(outputs[0], given)
        dist.reduce_scatter_single(outputs[1], given, async_op=True).wait()
        results.append((given, outputs))
    return results


@case("reduce_scatter_single, other types, operations and shapes", ("reduce_scatter", RING))
def reduce_scatter_shapes(rank):
    results = []
    for dtype in (torch.float64, torch.bfloat16, torch.int32, torch.uint8):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
            output = torch.zeros(1500, dtype=dtype)
            dist.reduce_scatter_single(output, mine(rank, 1500 * NUM_RANKS, dtype), op=op)
            results.append(output)
    output = torch.zeros(10, 50)
    dist.reduce_scatter_single(output, mine(rank, 500 * NUM_RANKS).view(-1, 50), op=dist.ReduceOp.AVG)
    transposed = torch.zeros(50, 10).t()
    dist.reduce_scatter_single(transposed, mine(rank, 500 * NUM_RANKS).view(50, -1).t())
    in_place = mine(rank, 500 * NUM_RANKS)
    dist.reduce_scatter_single(in_place[500 * rank : 500 * rank + 500], in_place)
    return [*results, output, transposed, in_place[500 * rank : 500 * rank + 500]]


@case("reduce_scatter_single by the backend: booleans, complex numbers, BAND", ("reduce_scatter", DEFAULT))
def reduce_scatter_types(rank):
    output = torch.zeros(500, dtype=torch.bool)
    dist.reduce_scatter_single(output, mine(rank, 500 * NUM_RANKS).bool())
    numbers = torch.zeros(500, dtype=torch.complex64)
    dist.reduce_scatter_single(numbers, mine(rank, 500 * NUM_RANKS).to(torch.complex64))
    bits = torch.zeros(500, dtype=torch.int64)
    dist.reduce_scatter_single(bits, mine(rank, 500 * NUM_RANKS, torch.int64), op=dist.ReduceOp.BAND)
    return output, torch.view_as_real(numbers), bits


@case("reduce_scatter_single that gloo refuses: sizes, int16", ("reduce_scatter", DEFAULT))
def reduce_scatter_refused(rank):
    return [
        refusal(lambda: dist.reduce_scatter_single(torch.zeros(MIDDLE), torch.zeros(3 * MIDDLE))),
        refusal(lambda: dist.reduce_scatter_single(torch.zeros(2, MIDDLE), torch.zeros(8 * MIDDLE))),
        refusal(
            lambda: dist.reduce_scatter_single(
                torch.zeros(MIDDLE, dtype=torch.int16), torch.zeros(4 * MIDDLE, dtype=torch.int16)
            )
        ),
    ]


@case(
    "collectives queued one behind the other, all kinds",
    ("allreduce", RING),
    ("allgather", RING),
    ("reduce_scatter", SHM),
    ("broadcast", DEFAULT),
)
def mixed_queue(rank):
    message, whole = mine(rank, MIDDLE), torch.zeros(NUM_RANKS * MIDDLE)
    part, flag = torch.zeros(5 * MIDDLE), torch.full((3,), float(rank))
    works = [
        dist.all_reduce(message, async_op=True),
        dist.all_gather_single(whole, mine(rank + 1, MIDDLE), async_op=True),
        dist.broadcast(flag, src=1, async_op=True),
        dist.reduce_scatter_single(part, mine(rank, 20 * MIDDLE), async_op=True),
        dist.all_reduce(message, async_op=True),
    ]
    for work in works:
        work.wait()
    return message, whole, flag, part


@case("all_to_all_single", ("alltoall", DEFAULT))
def all_to_all_single(rank):
    output = torch.zeros(8)
    dist.all_to_all_single(output, mine(rank, 8))
    return output


@case("all_to_all", ("alltoall", DEFAULT))
def all_to_all(rank):
    outputs = [torch.zeros(2) for _ in range(NUM_RANKS)]
    dist.all_to_all(outputs, list(mine(rank, 8).chunk(NUM_RANKS)))
    return outputs


@case("barrier", ("barrier", DEFAULT))
def barrier(rank):
    dist.barrier()
    return dist.barrier(async_op=True).wait()


@case(
    "monitored_barrier",
    note="torch refuses it for any group whose backend is not named gloo; `group.monitored_barrier()` works",
    same=False,
)
def monitored_barrier(rank):
    dist.monitored_barrier()


@case("group.monitored_barrier", ("barrier", DEFAULT))
def group_monitored_barrier(rank):
    return dist.group.WORLD.monitored_barrier(timedelta(seconds=60), wait_all_ranks=True)


@case(
    "collectives queued behind an algorithm",
    ("allreduce", NATIVE),
    ("broadcast", DEFAULT),
    ("barrier", DEFAULT),
)
def queued_behind(rank):
    tensors = [mine(rank, LARGE), mine(rank), mine(rank, LARGE)]
    works = [
        dist.all_reduce(tensors[0], async_op=True),
        dist.broadcast(tensors[1], src=1, async_op=True),
        dist.all_reduce(tensors[2], async_op=True),
    ]
    dist.barrier()
    return [work.wait() for work in works], works[1].get_future().wait(), tensors


# Collectives on objects.


@case("all_gather_object", ("allgather", DEFAULT))
def all_gather_object(rank):
    objects = [None] * NUM_RANKS
    dist.all_gather_object(objects, {"rank": rank})
    return objects


@case("gather_object", ("allgather", DEFAULT), ("gather", DEFAULT))
def gather_object(rank):
    objects = [None] * NUM_RANKS if rank == 0 else None
    dist.gather_object(("rank", rank), objects, dst=0)
    return objects


@case("broadcast_object_list", ("broadcast", DEFAULT))
def broadcast_object_list(rank):
    objects = [rank, str(rank)]
    dist.broadcast_object_list(objects, src=2)
    return objects


@case("scatter_object_list", ("broadcast", DEFAULT), ("scatter", DEFAULT))
def scatter_object_list(rank):
    output = [None]
    dist.scatter_object_list(output, list("abcd") if rank == 0 else None, src=0)
    return output


@case("send_object_list, recv_object_list", ("send", DEFAULT), ("recv", DEFAULT))
def object_messages(rank):
    objects = [{"from": rank}]
    if rank in (0, 2):
        dist.send_object_list(objects, dst=rank + 1)
        dist.recv_object_list(objects, src=rank + 1)
    else:
        received = [None]
        dist.recv_object_list(received, src=rank - 1)
        dist.send_object_list(objects, dst=rank - 1)
        return received
    return objects


# Messages between two ranks.


@case("send, recv", ("send", DEFAULT), ("recv", DEFAULT))
def messages(rank):
    tensor = mine(rank)
    if rank % 2:
        received = torch.zeros(6)
        dist.recv(received, src=rank - 1, tag=3)
        dist.send(tensor, dst=rank - 1, tag=4)
    else:
        dist.send(tensor, dst=rank + 1, tag=3)
        received = torch.zeros(6)
        dist.recv(received, src=rank + 1, tag=4)
    return received


@case("recv from any rank", ("send", DEFAULT), ("recv", DEFAULT))
def message_from_any(rank):
    received = torch.zeros(6)
    if rank % 2:
        return dist.recv(received), received
    dist.send(mine(rank), dst=rank + 1)
    return None


@case("isend, irecv beside collectives", ("send", DEFAULT), ("recv", DEFAULT), ("allreduce", NATIVE))
def messages_beside_collectives(rank):
    tensor, received = mine(rank, LARGE), torch.zeros(6)
    if rank == 0:
        reduction = dist.all_reduce(tensor, async_op=True)
        dist.send(mine(rank), dst=1)  # rank 1 begins to reduce only when it has this
    else:
        if rank == 1:
            dist.recv(received, src=0)
        reduction = dist.all_reduce(tensor, async_op=True)
    after = dist.irecv(received, src=0) if rank == 3 else dist.isend(mine(rank), dst=3) if rank == 0 else None
    if after is not None:
        after.wait()
    reduction.wait()
    return tensor, received


@case("batch_isend_irecv", ("send", DEFAULT), ("recv", DEFAULT))
def batch(rank):
    received = torch.zeros(6)
    operations = [
        dist.P2POp(dist.isend, mine(rank), (rank + 1) % NUM_RANKS),
        dist.P2POp(dist.irecv, received, (rank - 1) % NUM_RANKS),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return received


# Groups and meshes.


@case("new_group", ("allreduce", RING), ("broadcast", DEFAULT))
def new_group(rank):
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3], timeout=timedelta(seconds=90))]
    group = pairs[rank % 2]
    tensor, other = mine(rank, MIDDLE), mine(rank)
    dist.all_reduce(tensor, group=group)
    dist.broadcast(other, group=group, group_src=1)
    facts = [dist.get_process_group_ranks(group), dist.get_rank(group), group.size()]
    dist.destroy_process_group(group)
    return tensor, other, facts


@case("new_subgroups", ("allreduce", RING))
def new_subgroups(rank):
    group, _ = dist.new_subgroups(2)
    tensor = mine(rank, MIDDLE)
    dist.all_reduce(tensor, group=group)
    return tensor


@case("split_group", note="torch refuses it without a GPU")
def split_group(rank):
    dist.split_group(split_ranks=[[0, 1], [2, 3]])


@case("group.split_group", ("allreduce", RING))
def group_split_group(rank):
    ranks = [0, 1] if rank < 2 else [2, 3]
    # Without device_types, raw gloo splits once for each device type with the same keys, and may hang.
    group = dist.group.WORLD.split_group(
        ranks, group_name=f"half {rank // 2}", device_types=[torch.device("cpu")]
    )
    tensor, options = mine(rank, MIDDLE), dist.AllreduceOptions()
    group.allreduce([tensor], options).wait()
    facts = [group.rank(), group.size()]
    group.shutdown()
    return tensor, facts


@case("init_device_mesh, 1-D", ("allreduce", RING))
def mesh_1d(rank):
    mesh = init_device_mesh("cpu", (NUM_RANKS,))
    tensor = mine(rank, MIDDLE)
    dist.all_reduce(tensor, group=mesh.get_group())
    return tensor, mesh.get_local_rank()


@case("init_device_mesh, 2-D", ("allreduce", RING))
def mesh_2d(rank):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    tensor = mine(rank, MIDDLE)
    dist.all_reduce(tensor, group=mesh["rows"].get_group())
    dist.all_reduce(tensor, group=mesh["columns"].get_group())
    return tensor, mesh.get_coordinate()


@case(
    "DTensor", ("allreduce", RING), ("allgather", DEFAULT), ("scatter", DEFAULT), ("reduce_scatter", DEFAULT)
)
def dtensor(rank):
    mesh = init_device_mesh("cpu", (NUM_RANKS,))
    sharded = torch.distributed.tensor.distribute_tensor(
        torch.arange(1024.0).reshape(32, 32), mesh, [Shard(0)]
    )
    partial = DTensor.from_local(mine(rank, 1024).reshape(32, 32), mesh, [Partial()])
    return [
        sharded.redistribute(placements=[Replicate()]).to_local(),
        partial.redistribute(placements=[Replicate()]).to_local(),
        partial.redistribute(placements=[Shard(0)]).to_local(),
    ]


# Functional collectives.


@case("funcol.all_reduce", ("allreduce", RING))
def funcol_all_reduce(rank):
    return funcol.wait_tensor(funcol.all_reduce(mine(rank, MIDDLE), "sum", dist.group.WORLD))


@case("funcol.all_reduce_coalesced", ("allreduce_coalesced", DEFAULT))
def funcol_all_reduce_coalesced(rank):
    outputs = funcol.all_reduce_coalesced([mine(rank), mine(rank, MIDDLE)], "max", dist.group.WORLD)
    return [funcol.wait_tensor(output) for output in outputs]


@case("funcol.all_gather_tensor", ("allgather", DEFAULT))
def funcol_all_gather(rank):
    return funcol.wait_tensor(funcol.all_gather_tensor(mine(rank), 0, dist.group.WORLD))


@case("funcol.all_gather_into_tensor_coalesced", ("allgather", DEFAULT))
def funcol_all_gather_coalesced(rank):
    outputs = funcol.all_gather_into_tensor_coalesced([mine(rank), mine(rank, 2)], dist.group.WORLD)
    return [funcol.wait_tensor(output) for output in outputs]


@case("funcol.reduce_scatter_tensor", ("reduce_scatter", DEFAULT))
def funcol_reduce_scatter(rank):
    return funcol.wait_tensor(funcol.reduce_scatter_tensor(mine(rank, 8), "sum", 0, dist.group.WORLD))


@case("funcol.reduce_scatter_tensor_coalesced", ("reduce_scatter", DEFAULT))
def funcol_reduce_scatter_coalesced(rank):
    inputs = [mine(rank, 8), mine(rank, 4)]
    outputs = funcol.reduce_scatter_tensor_coalesced(inputs, "sum", [0, 0], dist.group.WORLD)
    return [funcol.wait_tensor(output) for output in outputs]


@case("funcol.all_to_all_single", ("alltoall", DEFAULT))
def funcol_all_to_all(rank):
    return funcol.wait_tensor(funcol.all_to_all_single(mine(rank, 8), None, None, dist.group.WORLD))


@case("funcol.broadcast", ("broadcast", DEFAULT))
def funcol_broadcast(rank):
    return funcol.wait_tensor(funcol.broadcast(mine(rank), 1, dist.group.WORLD))


# Training.


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.Tanh(), nn.Linear(64, 8))


def train(wrapped: nn.Module, rank: int, *, num_steps: int = 3) -> list[Any]:
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = wrapped(torch.randn(16, 32, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [torch.tensor(losses), *(parameter.detach() for parameter in wrapped.parameters())]


DDP_CALLS = (("allreduce", RING), ("broadcast", DEFAULT), ("allgather", DEFAULT))


@case("DDP", *DDP_CALLS)
def ddp(rank):
    return train(DDP(model()), rank)


@case("DDP(static_graph=True, gradient_as_bucket_view=True)", *DDP_CALLS, ("allreduce", DEFAULT))
def ddp_static(rank):
    return train(DDP(model(), static_graph=True, gradient_as_bucket_view=True), rank)


@case("DDP(find_unused_parameters=True)", *DDP_CALLS, ("allreduce", DEFAULT))
def ddp_unused(rank):
    return train(DDP(model(), find_unused_parameters=True, bucket_cap_mb=1), rank)


@case("DDP.no_sync", *DDP_CALLS)
def ddp_no_sync(rank):
    wrapped = DDP(model())
    with wrapped.no_sync():
        wrapped(torch.ones(4, 32) * rank).sum().backward()
    wrapped(torch.ones(4, 32)).sum().backward()
    return [parameter.grad for parameter in wrapped.parameters()]


@case("DDP.join with uneven inputs", *DDP_CALLS, ("allreduce", DEFAULT))
def ddp_join(rank):
    wrapped = DDP(nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 8)))
    torch.manual_seed(0)
    for parameter in wrapped.parameters():
        nn.init.normal_(parameter)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.001)
    with Join([wrapped]):
        for _ in range(2 + rank % 2):
            optimizer.zero_grad()
            wrapped(torch.ones(4, 32)).sum().backward()
            optimizer.step()
    return list(wrapped.parameters())


@case("FSDP2", ("allgather", RING), ("allgather", DEFAULT), ("reduce_scatter", RING))
def fsdp2(rank):
    wrapped = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8))
    torch.manual_seed(0)
    for parameter in wrapped.parameters():
        nn.init.normal_(parameter, std=0.1)
    fully_shard(wrapped, mesh=init_device_mesh("cpu", (NUM_RANKS,)))
    return [value.full_tensor() if isinstance(value, DTensor) else value for value in train(wrapped, rank)]


@case(
    "FSDP2 as HSDP",
    ("allreduce", RING),
    ("allgather", RING),
    ("allgather", DEFAULT),
    ("reduce_scatter", RING),
)
def hsdp(rank):
    wrapped = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8))
    torch.manual_seed(0)
    for parameter in wrapped.parameters():
        nn.init.normal_(parameter, std=0.1)
    fully_shard(wrapped, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    return [value.full_tensor() if isinstance(value, DTensor) else value for value in train(wrapped, rank)]


def refusal(run: Callable[[], Any]) -> str | None:
    """The type of the exception that a call raises; None if it raises none."""
    try:
        run()
    except Exception as error:
        return type(error).__name__
    return None


def run_case(one: Case, rank: int) -> tuple[str, Any, str]:
    """("result", value, "") or ("refusal", type of exception, traceback)."""
    try:
        return "result", plain(one.run(rank)), ""
    except Exception as error:
        return "refusal", type(error).__name__, traceback.format_exc()


# The table in the documentation.

BEGIN, END = "<!-- made by tests/train/conformance_cases.py -->", "<!-- end -->"
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "backend.md"


def table() -> str:
    lines = ["| a script calls | counted as | by |", "| --- | --- | --- |"]
    for one in CASES:
        collectives = list(dict.fromkeys(sorted(name for name, _ in one.through)))
        planned = sorted(name for name, algorithm in one.through if algorithm != DEFAULT)
        by = "the plan" if planned else "the wrapped backend" if collectives else "torch"
        if planned and set(planned) != set(collectives):
            by = f"the plan ({', '.join(dict.fromkeys(planned))}), the wrapped backend"
        note = f"; {one.note}" if one.note else ""
        lines.append(f"| {one.name} | {', '.join(collectives) or '—'} | {by}{note} |")
    return "\n".join(lines)


def document_with_table(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(document_with_table(DOCUMENT.read_text()))
