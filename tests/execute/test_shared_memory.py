"""Allreduce through shared memory, on real processes: right, bounded in time, and gone when they are."""

import hashlib
import os
import random
import signal
import threading
import time
from contextlib import ExitStack
from datetime import timedelta
from functools import partial, wraps
from pathlib import Path

import gloo_world
import pytest
import torch
import torch.distributed as dist
from test_allreduce_matrix import DTYPES, FLOATS, OPS, messages, reference

from topotune.errors import RunError
from topotune.execute import Communicator, build_executable, check_exact
from topotune.execute.shared_memory import allreduce as allreduces
from topotune.execute.shared_memory import segment as segments
from topotune.execute.shared_memory.allreduce import SharedMemory, SharedMemoryHierarchical
from topotune.execute.shared_memory.segment import MIN_SLOT_BYTES, NUM_BUFFERS, open_memory
from topotune.links.placement import Placement
from topotune.links.same_node import PREFIX, SHM
from topotune.plan.grouping import has_three_levels
from topotune.schedule import shared_memory_candidates

pytestmark = pytest.mark.gloo

AMPLE = timedelta(seconds=100)
SIZES = (0, 1, 37, 20_001, 100_003)  # twice so many fill several of the smallest slots; the last go in turns


def closing(function):
    """Give a rank's function a maker of communicators that are closed at its end, in whatever way it ends."""

    @wraps(function)
    def run(rank, num_ranks, store, *args):
        with ExitStack() as stack:

            def join(name, timeout=AMPLE):
                made = Communicator(store, rank, num_ranks, name=name, timeout=timeout)
                return stack.enter_context(made)

            return function(rank, num_ranks, store, join, *args)

    return run


def smallest(num_ranks):
    """Room for the smallest slots only: messages go in slices."""
    return NUM_BUFFERS * num_ranks * MIN_SLOT_BYTES


def partitions(num_ranks):
    """Groups of several sizes and orders."""
    alone = [[rank] for rank in range(num_ranks)]
    if num_ranks < 3:
        return [alone, [list(range(num_ranks))]]
    unequal = [list(range(num_ranks - 1, 0, -1)), [0]]
    if num_ranks % 2:
        return [alone, unequal]
    equal = [list(range(0, num_ranks, 2)), list(range(1, num_ranks, 2))]
    return [unequal, equal, *three_levels(num_ranks)]


def three_levels(num_ranks):
    """Racks of nodes: alike, with two ranks each; and of unequal numbers, with unequal numbers of ranks."""
    pairs = [[rank, rank + 1] for rank in range(0, num_ranks, 2)]
    unequal = [[[1, 0], [2]], [[rank] for rank in range(3, num_ranks)]]
    return [[pairs[:1], pairs[1:]], unequal]


def with_cpus(num_cpus, make):
    """What is made by ranks that find so many CPUs, hence hand so many pieces round."""
    former = segments.Segment.num_cpus
    segments.Segment.num_cpus = num_cpus
    try:
        return make()
    finally:
        segments.Segment.num_cpus = former


def executables(join, num_ranks):
    made = {"shm": SharedMemory({}, join("roomy"))}
    for num_cpus in sorted({1, max(1, num_ranks - 1), num_ranks}):
        make = partial(SharedMemory, {}, join(f"tight {num_cpus}"), data_bytes=smallest(num_ranks))
        made[f"shm in slices, {num_cpus} CPUs"] = with_cpus(num_cpus, make)
    for number, groups in enumerate(partitions(num_ranks)):
        pieces = {"pieces": 2} if has_three_levels(groups) else {}
        made[f"groups {groups}"] = SharedMemoryHierarchical(
            {"groups": groups, **pieces}, join(f"groups {number}"), data_bytes=smallest(num_ranks)
        )
    return made


@closing
def run_matrix(rank, num_ranks, store, join):
    allreduces.num_parts = lambda message_bytes: min(8, 1 + message_bytes // 100_000)
    made = executables(join, num_ranks)
    digests = {}
    for op_name in OPS:
        op = getattr(dist.ReduceOp, op_name)
        for dtype in DTYPES:
            if op_name == "AVG" and dtype == torch.int64:
                assert not any(executable.supports(dtype, op) for executable in made.values())
                continue
            for num_elements in SIZES if dtype in (torch.float32, torch.bfloat16) else (37,):
                whole = messages(dtype, op_name, num_elements, num_ranks, whole=True)
                expected = reference(whole, op_name)[0].to(dtype) if dtype in FLOATS else None
                if expected is None:
                    expected = {
                        "SUM": whole.sum,
                        "PRODUCT": whole.prod,
                        "MAX": whole.amax,
                        "MIN": whole.amin,
                    }[op_name](dim=0)
                broken = messages(dtype, op_name, num_elements, num_ranks, whole=False)
                wanted, bound = reference(broken, op_name) if dtype in FLOATS else (None, None)
                for name, executable in made.items():
                    case = f"{name}: {op_name} of {num_elements} {dtype}"
                    assert executable.supports(dtype, op), case
                    result = torch.cat([whole[rank], broken[rank]])
                    executable.allreduce_(result, op)
                    assert torch.equal(result[:num_elements], expected), case
                    if dtype in FLOATS:
                        error = result[num_elements:].to(torch.float64) - wanted
                        assert (error.abs() <= bound).all(), case
                    digests[case] = hashlib.sha256(result.view(torch.uint8).numpy().tobytes()).hexdigest()
    return digests


@pytest.mark.parametrize("num_ranks", range(1, 6))
def test_results_are_exact_and_have_the_same_bits_on_all_ranks(num_ranks):
    digests = gloo_world.run_world(num_ranks, run_matrix)
    assert len(digests[0]) >= 4 * (len(OPS) * len(DTYPES) - 1)
    for case, digest in digests[0].items():
        assert {other[case] for other in digests} == {digest}, case


@closing
def run_on_special_values(rank, num_ranks, store, join):
    communicator = join("special")
    executable = build_executable("shm", {}, communicator)
    bits = []
    for repeats in (9, 5_000):
        for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.SUM):
            signed_zeros = torch.tensor([0.0, -0.0] if rank % 2 else [-0.0, 0.0])
            not_numbers = (torch.arange(2, dtype=torch.int32) + 0x7FC00001 + 16 * rank).view(torch.float32)
            flat = torch.cat([signed_zeros, not_numbers]).repeat(repeats)
            executable.allreduce_(flat, op)
            assert flat.view(repeats, 4)[:, 2:].isnan().all()
            bits.append(flat.view(torch.int32).tolist())
    return bits


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_signed_zeros_and_payloads_of_nan_are_the_same_on_all_ranks(num_ranks):
    results = gloo_world.run_world(num_ranks, run_on_special_values)
    assert all(result == results[0] for result in results)


@closing
def call_in_any_sequence(rank, num_ranks, store, join):
    """Messages of all sizes behind each other, on executables that share a segment, by ranks out of step."""
    communicator = join("sequence")
    groups = [list(range(num_ranks))]
    made = [
        SharedMemory({}, communicator, data_bytes=smallest(num_ranks)),
        build_executable("shm", {}, communicator),
        SharedMemoryHierarchical({"groups": groups}, communicator, data_bytes=smallest(num_ranks)),
    ]
    same, own = random.Random(5), random.Random(rank)
    for _ in range(150):
        executable = same.choice(made)
        num_elements = same.choice([1, 100, 5_000, 30_000, 70_000])
        factor = same.randrange(1, 50)
        if own.random() < 0.3:
            time.sleep(own.random() * 0.004)
        pattern = torch.arange(num_elements, dtype=torch.int64) % 1000
        flat = pattern * factor * (rank + 1)
        executable.allreduce_(flat)
        assert torch.equal(flat, pattern * factor * (num_ranks * (num_ranks + 1) // 2))


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_no_message_gets_into_another_however_ranks_are_out_of_step(num_ranks):
    gloo_world.run_world(num_ranks, call_in_any_sequence)


@closing
def call_in_opposite_order(rank, num_ranks, store, join):
    made = [build_executable("shm", {}, join(name)) for name in ("a", "b")]
    failures = []

    def work(executable):
        try:
            for _ in range(5):
                check_exact(executable, 1 << 20)
        except RunError as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[executable]) for executable in made]
    for thread in threads if rank % 2 else reversed(threads):
        thread.start()
        time.sleep(0.1)  # the first group of a rank has begun, and waits for ranks that began with the other
    for thread in threads:
        thread.join()
    assert not failures


def test_two_groups_in_two_threads_in_opposite_order_do_not_hinder_each_other():
    gloo_world.run_world(2, call_in_opposite_order)


@closing
def die(rank, num_ranks, store, join):
    communicator = join("dying")
    executable = build_executable("shm", {}, communicator)
    executable.allreduce_(torch.ones(102_400))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin_s = time.monotonic()
    with pytest.raises(RunError) as caught:
        executable.allreduce_(torch.ones(102_400))
    with pytest.raises(RunError) as again:
        executable.allreduce_(torch.ones(102_400))
    took_s = time.monotonic() - begin_s
    return caught.value.message, again.value.message, took_s < AMPLE.total_seconds() / 2


def test_a_rank_that_is_killed_ends_the_others_waits_and_leaves_nothing():
    results = gloo_world.run_world(3, die, deaths=[1])
    where = "allreduce of 400 KiB by shm on communicator 'dying', rank"
    causes = ("the process of rank 1 has ended", "a rank failed, or was aborted")
    for rank in (0, 2):
        first, second, in_time = results[rank]
        expected = [f"meeting in shared memory: {cause}" for cause in causes]
        assert first.removeprefix(f"{where} {rank} of 3: ") in expected
        assert second == f"communicator 'dying' cannot be used on rank {rank}: {first.split(': ', 1)[1]}"
        assert in_time
    assert any(causes[0] in results[rank][0] for rank in (0, 2))
    left = {path for path in SHM.iterdir() if path.name.startswith(PREFIX)}
    deadline_s = time.monotonic() + AMPLE.total_seconds()
    while any(path.exists() for path in left):  # other tests' handshakes have names for milliseconds
        assert time.monotonic() < deadline_s, left
        time.sleep(0.05)


@closing
def stop_in_the_middle(rank, num_ranks, store, join, stage, how):
    """Rank 1 stops after a stage of an allreduce that has many: for good, or until all were told to stop."""
    communicator = join("in the middle")
    executable = SharedMemory({}, communicator, data_bytes=smallest(num_ranks))
    message_bytes = num_ranks * MIN_SLOT_BYTES * 7 // 2
    check_exact(executable, message_bytes)
    inside = executable._inside
    tell, stages_left = inside.tell, iter(range(stage))

    def tell_and_stop(ranks):
        tell(ranks)
        if next(stages_left, None) is None:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            store.set("stopped", "")
            store.wait(["aborted"], AMPLE)

    def abort_others():
        store.wait(["stopped"], AMPLE)
        communicator.abort()
        store.set("aborted", "")

    aborting = threading.Thread(target=abort_others)
    if rank == 1:
        inside.tell = tell_and_stop
    if rank == 0 and how == "aborted":
        aborting.start()
    with pytest.raises(RunError) as caught:
        executable.allreduce_(torch.ones(message_bytes // 4))
    if aborting.ident is not None:
        aborting.join()  # or rank 1 would wait for a word that never comes
    # A rank that comes late finds the communicator aborted already, and is told why in other words.
    return caught.value.message.rpartition(": ")[2]


@pytest.mark.parametrize("stage", [0, 1, 4])
@pytest.mark.parametrize("how", ["killed", "aborted"])
def test_a_rank_that_stops_in_the_middle_of_a_message_ends_it_on_all(stage, how):
    deaths = [1] if how == "killed" else []
    results = gloo_world.run_world(3, stop_in_the_middle, stage, how, deaths=deaths)
    # The rank that aborts may do so before it has begun to wait itself.
    causes = {"a rank failed, or was aborted", "it was aborted"}
    if how == "killed":
        causes = {"a rank failed, or was aborted", "the process of rank 1 has ended"}
    for rank, message in enumerate(results):
        if rank not in deaths:
            assert message in causes


@closing
def die_on_another_node(rank, num_ranks, store, join):
    communicator = join("nodes")
    executable = build_executable("shm_hierarchical", {"groups": [[0, 1], [2, 3]]}, communicator)
    executable.allreduce_(torch.ones(1000))
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RunError) as caught:
        executable.allreduce_(torch.ones(1000))
    return caught.value.message.partition(" of 4: ")[2]


def test_a_rank_that_is_killed_on_another_node_ends_the_waits_here():
    results = gloo_world.run_world(4, die_on_another_node, deaths=[3])
    assert results[2] == "meeting in shared memory: the process of rank 1 has ended"
    assert all(results[rank] for rank in (0, 1))


@closing
def come_late(rank, num_ranks, store, join):
    store.set(f"began {rank}", "")
    store.wait([f"began {other}" for other in range(num_ranks)], AMPLE)
    communicator = join("late", timedelta(seconds=5))
    executable = build_executable("shm", {}, communicator)
    message = None
    if rank == 0:
        with pytest.raises(RunError) as caught:
            executable.allreduce_(torch.ones(10))
        message = caught.value.message
        store.set("gave up", "")
    else:
        store.wait(["gave up"], AMPLE)
        with pytest.raises(RunError, match="a rank failed, or was aborted"):
            executable.allreduce_(torch.ones(10))
    return message


def test_a_rank_that_does_not_come_is_waited_for_until_the_timeout_and_told_when_it_comes():
    assert gloo_world.run_world(2, come_late)[0] == (
        "allreduce of 40 B by shm on communicator 'late', rank 0 of 2: "
        "meeting in shared memory: rank 1 did not come within 5 s"
    )


@closing
def abort(rank, num_ranks, store, join):
    communicator = join("aborted")
    executable = build_executable("shm", {}, communicator)
    if rank == 2:
        store.wait(["aborted"], AMPLE)
        return 0.0
    if rank == 0:
        threading.Timer(0.5, communicator.abort).start()
    begin_s = time.monotonic()
    with pytest.raises(RunError, match="a rank failed, or was aborted"):
        executable.allreduce_(torch.ones(10))
    store.set("aborted", "")
    return time.monotonic() - begin_s


def test_an_abort_ends_the_waits_of_all_ranks():
    assert max(gloo_world.run_world(3, abort)) < AMPLE.total_seconds() / 2


@closing
def find_no_room(rank, num_ranks, store, join):
    communicator = join("full")
    executable = SharedMemory({}, communicator, data_bytes=smallest(num_ranks) - 1)
    return executable.supports(torch.float32, dist.ReduceOp.SUM), executable.unavailable


def test_without_room_for_the_smallest_slots_nothing_is_supported():
    refusal = (False, "no segment in /dev/shm: 2 ranks need 384 KiB at least")
    assert gloo_world.run_world(2, find_no_room) == [refusal, refusal]


@closing
def find_less_room(rank, num_ranks, store, join, folder):
    communicator = join("half")
    reserve = os.posix_fallocate

    def reserve_a_mebibyte(file, offset, length):
        if length > 1 << 20:
            raise OSError(28, "No space left on device")
        reserve(file, offset, length)

    segments.os.posix_fallocate = reserve_a_mebibyte
    memory = open_memory(communicator, shm=folder, data_bytes=16 << 20)
    return memory.segment.slot_bytes


def test_where_there_is_less_room_slots_are_smaller(tmp_path):
    assert gloo_world.run_world(2, find_less_room, tmp_path) == [87296, 87296]


@closing
def see_another_memory(rank, num_ranks, store, join, folders):
    communicator = join("apart")
    memory = open_memory(communicator, shm=folders[rank])
    return memory.segment, memory.problem


def test_ranks_that_see_another_folder_have_no_segment_and_neither_have_the_others(tmp_path):
    folders = [tmp_path, tmp_path, tmp_path / "other"]
    refusal = (None, f"rank 2 cannot open the segment in {folders[2]}: No such file or directory")
    assert gloo_world.run_world(3, see_another_memory, folders) == [refusal] * 3
    assert not list(tmp_path.iterdir())


@closing
def join_something_else(rank, num_ranks, store, join, folder):
    """Rank 1 opens a file of its own by the same name and size: what a name proves."""
    communicator = join("decoy")
    if rank == 1:
        join = segments._join

        def join_decoy(path, communicator, slot_bytes):
            decoy = path.with_name("decoy")
            decoy.write_bytes(bytes(path.stat().st_size))
            return join(decoy, communicator, slot_bytes)

        segments._join = join_decoy
    memory = open_memory(communicator, shm=folder)
    return memory.segment, memory.problem


def test_memory_that_is_not_the_same_is_found_out(tmp_path):
    refusal = (None, "rank 1 does not share the memory of rank 0")
    assert gloo_world.run_world(2, join_something_else, tmp_path) == [refusal] * 2


@closing
def own(rank, num_ranks, store, join, folder):
    communicator = join("mine")
    segment = open_memory(communicator, shm=folder).segment
    mode = os.fstat(segment._file).st_mode & 0o777
    names = [path.name for path in folder.iterdir()]
    segment.close()
    return mode, names, [str(file) for file in open_files() if folder in file.parents]


def open_files():
    for entry in Path("/proc/self/fd").iterdir():
        try:
            yield entry.readlink()
        except FileNotFoundError:  # the listing's own
            continue


def test_a_segment_is_its_users_own_has_no_name_and_is_gone_when_it_is_closed(tmp_path):
    assert gloo_world.run_world(2, own, tmp_path) == [(0o600, [], [])] * 2


@closing
def die_while_it_has_a_name(rank, num_ranks, store, join, folder):
    communicator = join("early")
    if rank == 0:
        segments.Segment.initialise = lambda self, secret: os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RunError):
        open_memory(communicator, shm=folder)


def test_the_name_of_a_segment_whose_maker_is_killed_is_removed_by_the_others(tmp_path):
    gloo_world.run_world(2, die_while_it_has_a_name, tmp_path, deaths=[0])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("node_of_rank", "candidates"),
    [
        ([0], ()),
        ([0, 1, 2], ()),
        ([0, 0, 0], (("shm", {}),)),
        ([0, 1, 0, 1], (("shm_hierarchical", {"groups": [[0, 2], [1, 3]]}),)),
        ([0, 0, 1], (("shm_hierarchical", {"groups": [[0, 1], [2]]}),)),
    ],
)
def test_it_is_a_candidate_where_ranks_share_nodes(node_of_rank, candidates):
    assert shared_memory_candidates(Placement(node_of_rank=tuple(node_of_rank))) == candidates


def test_where_nodes_lie_in_racks_they_are_joined_rack_by_rack_too():
    racks = (((0, 1, 2), (3, 4)),)
    found = shared_memory_candidates(Placement(node_of_rank=(0, 0, 1, 2, 2), racks=racks))
    nested = [[[0, 1], [2]], [[3, 4]]]
    assert found == (
        ("shm_hierarchical", {"groups": [[0, 1], [2], [3, 4]]}),
        *(("shm_hierarchical", {"groups": nested, "pieces": pieces}) for pieces in (1, 2, 4, 8)),
    )
