"""A tuning run as Optuna's studies, in a database that Optuna's own tools read.

    topotune show plan.journal.jsonl --export study.db
    optuna-dashboard sqlite:///study.db

One study a message size, minimising log(candidate / default); one trial a verdict of the search, with the
algorithm and its variant as parameters. The journal stays the only record: the database is made from it, anew
each time.
"""

import math
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from topotune.errors import InputFileError
from topotune.files import check_writable, write_whole
from topotune.results.tuning import Told, TuningRun
from topotune.units import GIB, KIB, MIB, format_bytes

_STATES: Final = ("COMPLETE", "PRUNED", "FAIL")


def study_name(message_bytes: int) -> str:
    """Of the study of one size: ``allreduce of 64 KiB``; where that would not be exact, in bytes."""
    exact = any(message_bytes % unit == 0 and message_bytes < 1024 * unit for unit in (KIB, MIB, GIB))
    return f"allreduce of {format_bytes(message_bytes) if exact else f'{message_bytes} bytes'}"


def write_studies(run: TuningRun, source: str, path: str | os.PathLike[str], *, force: bool = False) -> int:
    """Write a tuning run's studies as an SQLite database; how many.

    Args:
        run: from its journal.
        source: the journal, for errors and as an attribute of each study.
        path: of the database.
        force: an existing file may be replaced.

    Raises:
        InputFileError: the journal tells of no trial, or of one that Optuna knows no such state of.
        OutputFileError: the file is there already, or cannot be written.
    """
    check_writable(path, force=force)
    told: dict[int, dict[Any, Told]] = {}
    for one in run.told:
        if one.state not in _STATES or (one.state == "COMPLETE" and one.log_ratio is None):
            raise InputFileError(source, f"a verdict is {one.state!r}, with a ratio of {one.log_ratio}")
        # A candidate that was judged again later is one trial: the last verdict stands.
        told.setdefault(one.message_bytes, {})[one.arm] = one
    if not told:
        raise InputFileError(
            source, "tells of no verdict of a search", hint="the run ended before it searched"
        )
    with tempfile.TemporaryDirectory(prefix="topotune-") as folder:
        database = Path(folder, "study.db")
        _fill(database, {size: list(by_arm.values()) for size, by_arm in sorted(told.items())}, run, source)
        write_whole(path, database.read_bytes(), force=force)
    return len(told)


def _fill(database: Path, told: dict[int, Sequence[Told]], run: TuningRun, source: str) -> None:
    import optuna
    from optuna.distributions import CategoricalDistribution

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.RDBStorage(f"sqlite:///{database}")
    try:
        for size, verdicts in told.items():
            study = optuna.create_study(storage=storage, study_name=study_name(size), direction="minimize")
            study.set_user_attr("value", "log(candidate / default)")
            study.set_user_attr("message_bytes", size)
            study.set_user_attr("journal", source)
            if run.num_ranks is not None:
                study.set_user_attr("num_ranks", run.num_ranks)
            if run.topotune_version is not None:
                study.set_user_attr("topotune_version", run.topotune_version)
            variants: dict[str, list[str]] = {}
            for one in verdicts:
                variants.setdefault(one.arm.algorithm, []).append(one.arm.params_json)
            space = {
                "algorithm": CategoricalDistribution(tuple(variants)),
                **{name: CategoricalDistribution(tuple(known)) for name, known in variants.items()},
            }
            study.add_trials([_trial(one, space) for one in verdicts])
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _trial(told: Told, space: dict[str, Any]) -> Any:
    from optuna.trial import TrialState, create_trial

    params = {"algorithm": told.arm.algorithm, told.arm.algorithm: told.arm.params_json}
    attributes: dict[str, Any] = {"label": told.arm.label, "num_rounds": told.num_rounds}
    if told.log_ratio is not None:
        attributes["default_over_candidate"] = math.exp(-told.log_ratio)
    if told.problem is not None:
        attributes["problem"] = told.problem
    complete = told.state == "COMPLETE"
    return create_trial(
        state=TrialState[told.state],
        value=told.log_ratio if complete else None,
        params=params,
        distributions={name: space[name] for name in params},
        intermediate_values={} if told.log_ratio is None else {told.num_rounds: told.log_ratio},
        user_attrs=attributes,
    )
