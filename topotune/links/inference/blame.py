"""Slow nodes and paths: suspects that fresh runs, with nothing else under way, showed to be slow."""

import statistics
from collections.abc import Sequence

import numpy as np

from topotune.links.inference.ends import SLOW, class_rate
from topotune.links.inference.observations import BoolArray, Ends, NodeFlows
from topotune.links.inference.structure import Fault, Suspect

_MIN_RUNS = 3
_SLOW_RUNS = 0.9  # share of a suspect's fresh runs that must be slow


def confirmed_faults(
    suspects: Sequence[Suspect], tests: Sequence[NodeFlows], ends: Ends, felt_alone: BoolArray
) -> tuple[Fault, ...]:
    """Suspects whose fresh runs were slow, nearly all of them, the worst first.

    Args:
        suspects: what first measurements suggested.
        tests: all; only isolated flows are looked at.
        ends: what each node reaches by itself.
        felt_alone: paths across boundaries that single flows feel: runs there may be slow for that reason.
    """
    typical = {"sending": class_rate(ends.sending), "receiving": class_rate(ends.receiving)}
    faults = []
    for suspect in suspects:
        mine = [
            test
            for test in tests
            if test.purpose == "isolated"
            and not felt_alone[test.sources[0], test.sinks[0]]
            and suspect.source in (None, int(test.sources[0]))
            and suspect.sink in (None, int(test.sinks[0]))
        ]
        runs: list[float] = []
        num_slow = 0
        for test in mine:
            source, sink = int(test.sources[0]), int(test.sinks[0])
            # Against what the flow would reach if the suspected part of it were like its class.
            if suspect.sink is None:
                wanted = np.fmin(typical["sending"], ends.receiving[sink])
            elif suspect.source is None:
                wanted = np.fmin(ends.sending[source], typical["receiving"])
            else:
                wanted = np.fmin(ends.sending[source], ends.receiving[sink])
            runs += test.rates[0].tolist()
            num_slow += int((test.rates[0] < SLOW * wanted).sum())
        if len(runs) >= _MIN_RUNS and num_slow >= _SLOW_RUNS * len(runs):
            faults.append(
                Fault(
                    source=suspect.source,
                    sink=suspect.sink,
                    rate_bytes_per_s=statistics.median(runs),
                    class_bytes_per_s=suspect.class_bytes_per_s,
                    num_slow=num_slow,
                    num_runs=len(runs),
                )
            )
    return tuple(sorted(faults, key=lambda fault: fault.rate_bytes_per_s / fault.class_bytes_per_s))
