"""What ranks run in the tests of this folder; module level, so that they can be sent to processes."""

import os
import signal
from datetime import timedelta
from pathlib import Path

from topotune.execute.communicator import Communicator
from topotune.links.clock import SynchronizedClock
from topotune.links.flow_plan import FlowPlan, FlowSpan, FlowTime
from topotune.links.flow_timing import FlowRunner
from topotune.links.messages import Messages
from topotune.links.same_node import NodeVerdict, same_node
from topotune.links.session import measure_worker
from topotune.links.timing import measure_links


def _joined(store, rank, size, timeout_s=60):
    return Communicator(store, rank, size, name="links", timeout=timedelta(seconds=timeout_s))


def measure(rank, size, store, budget_s, sizes, node_of_rank=None, flows_s=None):
    done = []
    nodes = NodeVerdict(node_of_rank=tuple(node_of_rank)) if node_of_rank else None
    with _joined(store, rank, size) as communicator:
        measurement = measure_links(
            communicator.group,
            budget_s=budget_s,
            sizes=sizes,
            nodes=nodes,
            flow_time=None if flows_s is None else FlowTime(first_s=flows_s, fresh_s=flows_s),
            progress=done.append,
        )
    return measurement, done


def run_session(rank, size, store, budget_s):
    return measure_worker({"budget_s": budget_s, "backend": "gloo", "seed": 0})


def handshake(rank, size, store, folder_of_rank):
    with _joined(store, rank, size) as communicator:
        return same_node(communicator.group, shm=Path(folder_of_rank[rank]))


def die_in_handshake(rank, size, store, folder, victim):
    """The victim is killed after its segment exists and before anyone has read it."""
    with _joined(store, rank, size, timeout_s=5) as communicator:
        if rank == victim:
            Messages.barrier = lambda self: os.kill(os.getpid(), signal.SIGKILL)
        try:
            same_node(communicator.group, shm=Path(folder))
        except Exception as error:
            return type(error).__name__, str(error)
    return "no error", ""


def clocks(rank, size, store, node_of_rank):
    with _joined(store, rank, size) as communicator:
        clock = SynchronizedClock(communicator.group, node_of_rank=node_of_rank)
        messages = Messages(communicator.group)
        unsynced_error_s = clock.max_error_s
        synced = []
        for _ in range(2):
            clock.sync()
            synced.append((clock.offset_s, clock.max_error_s))
        start_s = max(now for (now,) in messages.gather_numbers(clock.now_s())) + 0.05
        late_s = clock.wait_until(start_s)
        woke_s = clock.now_s()
        too_late_s = clock.wait_until(start_s - 1.0)
        messages.barrier()
        return {
            "unsynced_error_s": unsynced_error_s,
            "synced": synced,
            "late_s": late_s,
            "woke_after_start_s": woke_s - start_s,
            "too_late_s": too_late_s,
        }


def gather_values(rank, size, store):
    with _joined(store, rank, size) as communicator:
        messages = Messages(communicator.group)
        return (
            messages.gather_numbers(rank, 2**53 - 1 - rank),
            messages.gather({"rank": rank, "text": "µ" * rank}),
            messages.gather([]),
        )


def lose_a_rank(rank, size, store, victim):
    with _joined(store, rank, size, timeout_s=5) as communicator:
        messages = Messages(communicator.group)
        messages.barrier()
        if rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            measure_links(communicator.group, budget_s=0.5)
        except Exception as error:
            return type(error).__name__, str(error), error.__cause__ is not None
    return "no error", "", False


def _runner(communicator, message_bytes=4096):
    messages = Messages(communicator.group)
    clock = SynchronizedClock(communicator.group, node_of_rank=list(range(communicator.size)))
    span = FlowSpan(message_bytes=message_bytes, settle_s=0.03, measured_s=0.05)
    return FlowRunner(messages, clock, span), clock


def flows(rank, size, store, plans, num_sweeps, time_s):
    with _joined(store, rank, size) as communicator:
        runner, _ = _runner(communicator)
        done = []
        tests = runner.run(
            [FlowPlan(purpose=purpose, flows=flows) for purpose, flows in plans],
            num_sweeps=num_sweeps,
            first_number=5,
            time_s=time_s,
            progress=done.append,
        )
    return tests, done


def flows_with_late_starts(rank, size, store, late_rank, num_late):
    """How many starts a run of one flow takes if a rank is late for the first few of them."""
    with _joined(store, rank, size) as communicator:
        runner, clock = _runner(communicator)
        starts = []
        wait_until = clock.wait_until

        def counting(start_s):
            starts.append(start_s)
            late_s = wait_until(start_s)
            return 1.0 if rank == late_rank and len(starts) <= num_late else late_s

        clock.wait_until = counting
        tests = runner.run(
            [FlowPlan(purpose="alone", flows=((0, 1),))], num_sweeps=1, first_number=0, time_s=60.0
        )
    return len(starts), tests[0].num_repetitions


def lose_a_sender(rank, size, store):
    """Rank 0 is killed while it sends; the receiver must come to know, and in a time that is bounded."""
    with _joined(store, rank, size, timeout_s=5) as communicator:
        runner, _ = _runner(communicator)
        plans = [FlowPlan(purpose="round", flows=((0, 1), (1, 0)))]
        if rank == 0:
            runner._receive = lambda peer: os.kill(os.getpid(), signal.SIGKILL)
        try:
            runner.run(plans, num_sweeps=1, first_number=0, time_s=60.0)
        except Exception as error:
            return type(error).__name__, str(error)
    return "no error", ""
