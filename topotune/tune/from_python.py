"""`topotune.tune`: the main job from a script, a notebook, or the ranks of a job."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topotune.errors import TopotuneError, UsageError
from topotune.launch.default_ranks import default_ranks
from topotune.tune.options import DEFAULT_BUDGET_S, DEFAULT_MIN_GAIN, TuneOptions

if TYPE_CHECKING:
    from topotune.plan import Plan


def tune(
    path: str | os.PathLike[str] | None = None,
    *,
    num_ranks: int | None = None,
    budget_s: float = DEFAULT_BUDGET_S,
    sizes: str | Sequence[int] | None = None,
    min_gain: float = DEFAULT_MIN_GAIN,
    backend: str = "gloo",
    gradients: str | os.PathLike[str] | None = None,
    num_parameters: int | None = None,
    backward_s: float | None = None,
    compute: str | None = None,
    interface: str | None = None,
    seed: int = 0,
    resume: bool = False,
    force: bool = False,
) -> "Plan":
    """Probe, measure, search, confirm: the plan for these ranks, as ``topotune tune`` makes it.

    In a plain script or a notebook it starts ranks on this machine (a script needs no ``if __name__ ==
    "__main__"``: they do not run it again). Under torchrun, srun or mpirun it tunes for the job's ranks, and
    all of them call it, before or after they make their process group; each gets the same plan.

        plan = topotune.tune("plan.json", num_ranks=4, budget_s=60)

    Options are checked before anything is started:

        >>> tune(budget_s=0)
        Traceback (most recent call last):
        ...
        topotune.errors.UsageError: a budget of 0 s is no time to work in

    Args:
        path: where the plan is written (its journal beside it); a plan there is renewed. None keeps no file.
        num_ranks: ranks to start on this machine (each node, under a launcher of one process a node); None:
            what the platform says, or else 2 (with ``nccl`` one for each GPU). Not to be given where a
            launcher has started the ranks.
        budget_s: seconds from "ranks joined" to the finished plan.
        sizes: message sizes in bytes, ascending, or text such as ``"1K:64M:4"``; None takes the usual ones.
        min_gain: what a row must gain to leave the default: 0.02 is 2 %.
        backend: the collective library of the job.
        gradients: a file of recorded gradients (`topotune.record`), to choose DDP's buckets for.
        num_parameters: of a typical transformer, where there is no such file.
        backward_s: length of its backward in seconds; None: as recorded, or as long as the exchange.
        compute: what stands for the backward's computing: ``matmul`` or ``sleep``, with ``nccl`` ``spin``;
            None for the first that fits.
        interface: network interfaces to use (``"eth0"``); None leaves the choice to topotune.
        seed: of everything that is drawn at random.
        resume: go on with the run whose journal stands beside ``path``.
        force: replace a file at ``path`` that is no plan.

    Returns:
        The plan; the same on all ranks.

    Raises:
        UsageError: an option out of its range, or a launcher that says too little.
        InputFileError: gradients or a journal that cannot be read.
        OutputFileError: a place that cannot be written.
        RankFailedError: a rank or node was lost.
        RunError: ranks did not find each other, or could not be timed.
    """
    from topotune.documents import document_text
    from topotune.files import check_writable, write_whole
    from topotune.launch.on_ranks import launcher_here, run_on_ranks
    from topotune.plan import SCHEMA, plan_from_document
    from topotune.probe.membership import PerRank
    from topotune.tune.journal import check_replaceable, journal_path_of
    from topotune.units import parse_sizes

    plan_path = None if path is None else Path(os.path.abspath(path))
    journal_path = None if plan_path is None else journal_path_of(plan_path)
    payload: dict[str, Any] = {
        "budget_s": budget_s,
        "sizes": None if sizes is None else [*(parse_sizes(sizes) if isinstance(sizes, str) else sizes)],
        "min_gain": min_gain,
        "backend": backend,
        "seed": seed,
        "journal_path": None if journal_path is None else str(journal_path),
        "resume": resume,
        "step": _step_payload(gradients, num_parameters, backward_s, compute),
    }
    options = TuneOptions.from_payload(payload)
    if options.step is not None:
        options.step.gradients()
    launcher = launcher_here(num_ranks)
    if launcher.speaks and plan_path is not None and journal_path is not None:
        check_writable(plan_path, force=force, renews=SCHEMA)
        check_replaceable(journal_path)
    if interface is not None:
        from topotune.interfaces.own import force as force_interface

        force_interface(interface)
    if isinstance(launcher, PerRank):
        from topotune.launch.beside import run_beside

        document = run_beside(launcher, f"{__name__}:{tune_rank.__name__}", payload)
    else:
        _refuse_world_without_launcher()
        document = run_on_ranks(
            tune_rank,
            payload,
            launcher,
            num_local_ranks=num_ranks,
            default_ranks=default_ranks(backend),
            share_result=True,
        )
    plan = plan_from_document(document, "the new plan")
    if launcher.speaks and plan_path is not None:
        write_whole(plan_path, document_text(document).encode(), force=force, renews=SCHEMA)
    return plan


def tune_rank(payload: dict[str, Any]) -> dict[str, Any] | None:
    """`tune` on one rank; the plan's document on rank 0."""
    from topotune.tune.session import tune_worker

    return tune_worker(payload, say=_log_error)


def _log_error(error: TopotuneError) -> None:
    """Of a process that is about to be ended; without a handler Python writes it to stderr."""
    logging.getLogger("topotune").error("%s", error.message)


def _step_payload(
    gradients: str | os.PathLike[str] | None,
    num_parameters: int | None,
    backward_s: float | None,
    compute: str | None,
) -> dict[str, Any] | None:
    """What ranks are told about the training step; None where none is to be measured."""
    if gradients is None and num_parameters is None:
        if backward_s is not None:
            raise UsageError(
                f"a backward of {backward_s:g} s: of which gradients?",
                hint="pass gradients=FILE or num_parameters=N",
            )
        return None
    return {
        "gradients_path": None if gradients is None else os.path.abspath(gradients),
        "num_parameters": num_parameters,
        "backward_s": backward_s,
        "compute": compute,
    }


def _refuse_world_without_launcher() -> None:
    """Where a process group of several ranks stands, but nothing says how a new process could join them.

    Raises:
        UsageError: it is so.
    """
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        raise UsageError(
            f"topotune.tune() in a process group of {dist.get_world_size()} ranks that no launcher started: "
            "RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say nothing",
            hint="start the job with torchrun, or tune before it: topotune tune -o plan.json",
        )
