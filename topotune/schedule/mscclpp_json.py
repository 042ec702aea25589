"""MSCCL++ execution plans as JSON, written and read; for GPUs that reach each other's memory."""

from typing import Any, Final

from topotune.documents import Value, document_text, parse_json
from topotune.schedule.mscclpp import (
    KINDS,
    MAX_BLOCKS,
    MAX_CHUNKS,
    MAX_OPERATIONS,
    MAX_PEERS,
    MAX_PEERS_OF_OPERATION,
    MAX_RANKS,
    MAX_SCRATCH,
    Block,
    ExecutionPlan,
    Gpu,
    Operation,
)

NAME: Final = "mscclpp-json"
SUMMARY: Final = "MSCCL++'s execution plan, in place, on one node (mscclpp 0.10)"
WARNINGS: Final = (
    "the plan is for calls in place, on GPUs of one node, whose messages are a multiple of 16 bytes for each "
    "of its chunks; keys differ between releases of MSCCL++: this is for 0.10",
)
_ALIGNMENT: Final = 16
_THREADS: Final = 1024
_MAX_SIZE: Final = 2**40
_MAX_KEYS: Final = 32
_MEMORY: Final = "memory"
_MOVES: Final = ("put", "re", "copy")


def write_mscclpp(plan: ExecutionPlan) -> str:
    """The text of a plan."""
    document = {
        "name": plan.name,
        "collective": "allreduce",
        "protocol": "Simple",
        "inplace": True,
        "reuse_resources": False,
        "gpus": [_gpu(rank, gpu, plan.num_chunks) for rank, gpu in enumerate(plan.gpus)],
        "num_threads_per_block": _THREADS,
        "use_double_scratch_buffer": False,
        "buffer_alignment": _ALIGNMENT,
        "min_message_size": 0,
        "max_message_size": _MAX_SIZE,
    }
    return document_text(document)


def _gpu(rank: int, gpu: Gpu, num_chunks: int) -> dict[str, Any]:
    remote = sorted({block.peers[at] for block in gpu.blocks for at in _put_to(block)})
    blocks, first = [], 0
    for number, block in enumerate(gpu.blocks):
        buffers = [remote.index(block.peers[at]) for at in _put_to(block)]
        blocks.append(
            {
                "id": number,
                "ops": [_operation(operation, block) for operation in block.operations],
                "channels": [
                    {"channel_type": _MEMORY, "channel_ids": list(range(first, first + len(block.peers)))}
                ],
                "remote_buffer_refs": [{"access_channel_type": _MEMORY, "remote_buffer_ids": buffers}]
                if buffers
                else [],
            }
        )
        first += len(block.peers)
    return {
        "id": rank,
        "input_chunks": num_chunks,
        "output_chunks": num_chunks,
        "scratch_chunks": gpu.scratch_chunks,
        "threadblocks": blocks,
        "channels": [
            {"channel_type": _MEMORY, "connected_to": [peer for block in gpu.blocks for peer in block.peers]}
        ]
        if gpu.blocks
        else [],
        "remote_buffers": [{"rank": peer, "type": "s", "access_channel_types": [_MEMORY]} for peer in remote],
        "semaphores": [],
    }


def _put_to(block: Block) -> list[int]:
    """Positions of the peers that a thread block puts to, ascending: the order of its remote buffers."""
    return sorted({operation.peers[0] for operation in block.operations if operation.kind == "put"})


def _operation(operation: Operation, block: Block) -> dict[str, Any]:
    own = {"type": "i", "index": operation.chunk, "size": operation.count}
    slot = {"type": "s", "index": operation.slot, "size": operation.count}
    match operation.kind:
        case "put":
            there = {
                "buffer_id": _put_to(block).index(operation.peers[0]),
                "index": operation.slot,
                "size": operation.count,
            }
            return {"name": "put", "src_buff": [own], "dst_buff": [there], "channel_type": _MEMORY}
        case "re":
            return {"name": "re", "src_buff": [own, slot], "dst_buff": [own], "reduce_op": "sum"}
        case "copy":
            return {"name": "copy", "src_buff": [slot], "dst_buff": [own]}
        case "nop":
            return {"name": "nop"}
        case _:
            return {
                "name": operation.kind,
                "channel_ids": list(operation.peers),
                "channel_type": _MEMORY,
            }


def read_mscclpp(text: str, source: str) -> ExecutionPlan:
    """The plan of a text.

    Raises:
        InputFileError: no JSON, or not the kind of plan that `write_mscclpp` writes.
    """
    root = parse_json(text.encode(errors="surrogatepass"), source)
    gpus = _member(root, "gpus").items(MAX_RANKS, min_items=1, what="GPUs")
    plan = ExecutionPlan(
        name=_member(root, "name").text(max_length=200),
        num_chunks=gpus[0].member("input_chunks").integer(1, MAX_CHUNKS),
        gpus=tuple(_read_gpu(gpu, len(gpus)) for gpu in gpus),
    )
    # What is not an operation follows from the operations: written anew, it must be the same.
    if write_mscclpp(plan) != text:
        root.fail("is no plan as topotune writes it: its channels, buffers or sizes are others")
    return plan


def _member(value: Value, key: str) -> Value:
    """What stands under a key that must be there."""
    members = value.mapping(_MAX_KEYS)
    if key not in members:
        value.fail(f"lacks {key}")
    return members[key]


def _read_gpu(gpu: Value, num_ranks: int) -> Gpu:
    connected = [
        peer.integer(0, num_ranks - 1)
        for channel in _member(gpu, "channels").items(1, what="lists of channels")
        for peer in _member(channel, "connected_to").items(MAX_BLOCKS * MAX_PEERS, what="peers")
    ]
    remote = [
        _member(buffer, "rank").integer(0, num_ranks - 1)
        for buffer in _member(gpu, "remote_buffers").items(num_ranks, what="buffers")
    ]
    return Gpu(
        scratch_chunks=_member(gpu, "scratch_chunks").integer(0, MAX_SCRATCH),
        blocks=tuple(
            _read_block(block, connected, remote)
            for block in _member(gpu, "threadblocks").items(MAX_BLOCKS, what="thread blocks")
        ),
    )


def _read_block(block: Value, connected: list[int], remote: list[int]) -> Block:
    peers = _chosen(_member(block, "channels"), "channel_ids", connected)
    put_to = _chosen(_member(block, "remote_buffer_refs"), "remote_buffer_ids", remote)
    if not peers or not set(put_to) <= set(peers):
        block.fail(f"talks to ranks {peers} and puts to {put_to}: must be some, and some of these")
    positions = [peers.index(rank) for rank in put_to]
    listed = _member(block, "ops").items(MAX_OPERATIONS, what="operations")
    return Block(
        peers=tuple(peers), operations=tuple(_read_operation(each, len(peers), positions) for each in listed)
    )


def _chosen(lists: Value, key: str, of: list[int]) -> list[int]:
    """What the numbers of a list of one list choose."""
    return [
        of[number.integer(0, len(of) - 1)]
        for part in lists.items(1, what="lists")
        for number in _member(part, key).items(MAX_PEERS, what="numbers")
    ]


def _read_operation(value: Value, num_peers: int, put_to: list[int]) -> Operation:
    name = _member(value, "name").text()
    kind = next((known for known in KINDS if known == name), None)
    if kind is None:
        value.fail(f"is {name[:40]!r}, none of {', '.join(KINDS)}")
    if kind == "nop":
        return Operation(kind=kind)
    if kind not in _MOVES:
        ids = _member(value, "channel_ids").items(MAX_PEERS_OF_OPERATION, min_items=1, what="channels")
        return Operation(kind=kind, peers=tuple(number.integer(0, num_peers - 1) for number in ids))
    sources = _member(value, "src_buff").items(2, min_items=2 if kind == "re" else 1, what="buffers")
    (target,) = _member(value, "dst_buff").items(1, min_items=1, what="buffers")
    own = target if kind == "copy" else sources[0]
    slot = target if kind == "put" else sources[-1]
    peers: tuple[int, ...] = ()
    if kind == "put":
        peers = (put_to[_member(slot, "buffer_id").integer(0, len(put_to) - 1)],)
    return Operation(
        kind=kind,
        peers=peers,
        chunk=_member(own, "index").integer(0, MAX_CHUNKS),
        slot=_member(slot, "index").integer(0, MAX_SCRATCH),
        count=_member(own, "size").integer(1, MAX_CHUNKS),
    )


def how_to_use(path: str) -> str:
    """How a job takes the file."""
    return (
        "LD_PRELOAD=libmscclpp_nccl.so in the job's environment, and in its script, with mscclpp 0.10\n"
        f"  plan = mscclpp.ExecutionPlan({path!r}, rank)  # and register it for allreduce, in place\n"
        "NVIDIA's NCCL ignores it"
    )
