"""``topotune check`` on one rank: all nodes look at themselves, then the links are timed."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from topotune.errors import TopotuneError
from topotune.health.checked import check_topology, with_measured
from topotune.launch.cluster_probe import probe_each_node
from topotune.links.check import check_measurement, check_to_document
from topotune.links.document import from_document
from topotune.links.session import measure_worker
from topotune.links.timing import Progress
from topotune.probe.instance_type import read_hints


def check_worker(
    payload: Mapping[str, Any],
    on_progress: Progress | None = None,
    on_network: Callable[[str], None] = lambda line: None,
    say: Callable[[TopotuneError], None] = lambda _error: None,
) -> dict[str, Any] | None:
    """Look and measure on this rank, together with all others of the environment that torchrun gives.

    Args:
        payload: as of `measure_worker`; and ``profile``, as `check_topology` takes it, and ``measure``:
            whether links are timed.
        on_progress: as of `measure_worker`.
        on_network: as of `measure_worker`.
        say: as of `measure_worker`.

    Returns:
        the document of what was found on rank 0, None elsewhere.

    Raises:
        UsageError, RankFailedError, RunError: as `probe_each_node` and `measure_worker`.
    """
    seen = probe_each_node(Path("/"))
    looked = None
    if seen is not None:
        looked = check_topology(
            seen.together,
            each=seen.each,
            rank_cpus=seen.rank_cpus,
            profile=payload["profile"],
            hints=read_hints(os.environ, Path("/")),
        )
    if payload["measure"]:
        measured = measure_worker(payload, on_progress, on_network, say)
        if looked is not None and measured is not None:
            looked = with_measured(looked, check_measurement(from_document(measured, "measurement")))
    return None if looked is None else check_to_document(looked)
