"""What flows tell of a network, step by step: first ones, what they make suspicious, and fresh runs of that.

Rank 0 alone looks at what was measured and decides what is run next; the others are told. What a suspicion
rests on is never what confirms it: those runs were picked out of many for looking odd, so fresh ones are
made.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from topotune.links.clock import SynchronizedClock
from topotune.links.flow_plan import (
    FlowPlan,
    FlowTime,
    first_flows,
    fitting_plans,
    flow_span,
    more_peers,
)
from topotune.links.flow_timing import FlowRunner
from topotune.links.flows import FlowTest
from topotune.links.inference.confirm import NUM_SWEEPS, confirming_tests
from topotune.links.inference.suspicion import suspected_groups
from topotune.links.measurement import Measurement
from topotune.links.messages import Messages
from topotune.units import format_seconds

_OVERRUN = 1.3  # rather than losing the last sweep, without which the others show nothing
_ROUNDS_PROGRESS, _FIRST_PROGRESS = 0.3, 0.4

Progress = Callable[[float], None]


def run_flows(
    messages: Messages,
    clock: SynchronizedClock,
    measurement: Measurement,
    time: FlowTime,
    *,
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> Measurement:
    """Add flow tests to a measurement. Collective.

    Args:
        messages: of a private group; its timeout bounds every wait.
        clock: of the same group.
        measurement: with timings of pairs between its nodes, of which there are two or more; equal on all
            ranks.
        time: about what they may take; equal on all ranks.
        seed: of what is drawn.
        progress: called on this rank with the share that is done, 0 to 1.

    Returns:
        on all ranks the same measurement with ``flow_tests``, or with a warning where there was no time for
        them.

    Raises:
        RunError: a rank did not answer.
    """
    span = flow_span(_rate_between_nodes(measurement))
    first = first_flows(measurement.node_of_rank, span, time.first_s, seed=seed)
    if first.num_sweeps == 0:
        return _with_warning(
            measurement,
            f"{format_seconds(time.first_s)} are too short for flows between {len(measurement.node_names)} "
            f"nodes, which take {format_seconds(first.needed_s)}: what they share was not looked for",
        )
    runner = FlowRunner(messages, clock, span)
    tests = runner.run(
        first.rounds,
        num_sweeps=first.num_sweeps,
        first_number=0,
        time_s=time.first_s,
        progress=lambda done: progress(_ROUNDS_PROGRESS * done),
    )
    tests += runner.run(
        first.alone, num_sweeps=1, first_number=_next_number(tests), time_s=len(first.alone) * span.run_s
    )
    progress(_FIRST_PROGRESS)
    measurement = replace(measurement, flow_tests=tuple(tests))
    more = _told_by_rank_0(messages, lambda: _more_where_in_doubt(measurement, seed))
    more_s = len(more) * span.run_s
    tests += runner.run(more, num_sweeps=1, first_number=_next_number(tests), time_s=more_s)
    measurement = replace(measurement, flow_tests=tuple(tests))
    suspicious = _told_by_rank_0(
        messages, lambda: confirming_tests(suspected_groups(measurement), measurement)
    )
    plans = fitting_plans(suspicious, span, time.fresh_s - more_s)
    if len(plans) < len(suspicious):
        measurement = _with_warning(
            measurement,
            f"what looked odd asks for {len(suspicious)} fresh tests of flows; "
            f"{format_seconds(time.fresh_s)} left time for {len(plans)}",
        )
    tests += runner.run(
        plans,
        num_sweeps=NUM_SWEEPS,
        first_number=_next_number(tests),
        time_s=_OVERRUN * (time.fresh_s - more_s),
        progress=lambda done: progress(_FIRST_PROGRESS + (1 - _FIRST_PROGRESS) * done),
    )
    return replace(measurement, flow_tests=tuple(tests))


def _more_where_in_doubt(measurement: Measurement, seed: int) -> list[FlowPlan]:
    """More peers for nodes that stand out or that nothing places; of up to 64 nodes all have met already."""
    hypothesis = suspected_groups(measurement)
    doubtful = {end for one in hypothesis.suspects for end in (one.source, one.sink) if end is not None}
    nodes = measurement.node_of_rank
    met = {frozenset((nodes[src], nodes[dst])) for test in measurement.flow_tests for src, dst in test.flows}
    return more_peers(nodes, sorted(doubtful.union(hypothesis.unplaced)), met, seed=seed)


def _next_number(tests: Sequence[FlowTest]) -> int:
    return max(test.number for test in tests) + 1


def _with_warning(measurement: Measurement, warning: str) -> Measurement:
    return replace(measurement, warnings=(*measurement.warnings, warning))


def _told_by_rank_0(messages: Messages, decide: Callable[[], Sequence[FlowPlan]]) -> list[FlowPlan]:
    """What rank 0 decides, on all ranks. Collective."""
    told = messages.gather([asdict(plan) for plan in decide()] if messages.rank == 0 else None)[0]
    return [
        FlowPlan(purpose=plan["purpose"], flows=tuple((src, dst) for src, dst in plan["flows"]))
        for plan in told
    ]


def _rate_between_nodes(measurement: Measurement) -> float:
    """Bytes/s of the largest messages that pairs between nodes sent each other; the median over pairs."""
    between = [pair for pair in measurement.pairs if not measurement.is_within_node(pair.src, pair.dst)]
    largest = max(pair.message_bytes for pair in between)
    return statistics.median(
        pair.message_bytes / pair.median_s for pair in between if pair.message_bytes == largest
    )
