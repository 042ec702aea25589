"""A tuning run as Optuna's studies, in a database that Optuna's own tools read.

    topotune show plan.journal.jsonl --export study.db
    optuna-dashboard sqlite:///study.db

One study a message size and table, minimising log(candidate / default); one trial a verdict of the search,
with the algorithm and its variant as parameters. The journal stays the only record: the database is made
from it, anew each time.
"""

import math
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from topotune.errors import InputFileError
from topotune.files import check_writable, write_whole
from topotune.results.tuning import Arm, Told, TunedTable, TuningRun
from topotune.units import GIB, KIB, MIB, format_bytes

_STATES: Final = ("COMPLETE", "PRUNED", "FAIL")


def study_name(message_bytes: int, table: TunedTable | None = None, *, numbered: bool = False) -> str:
    """Of the study of one size: ``allreduce of 64 KiB``; where that would not be exact, in bytes.

    Args:
        message_bytes: the size.
        table: beside the world's allreduce: ``allgather of 64 KiB, shard``; None for that itself.
        numbered: whether to tell the table from others of the same collective and name.
    """
    exact = any(message_bytes % unit == 0 and message_bytes < 1024 * unit for unit in (KIB, MIB, GIB))
    size = format_bytes(message_bytes) if exact else f"{message_bytes} bytes"
    if table is None:
        return f"allreduce of {size}"
    name = f"{table.collective} of {size}, {table.group}"
    return f"{name} (table {table.number})" if numbered else name


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
    studies = list(_studies(run, source))
    if not studies:
        raise InputFileError(
            source, "tells of no verdict of a search", hint="the run ended before it searched"
        )
    with tempfile.TemporaryDirectory(prefix="topotune-") as folder:
        database = Path(folder, "study.db")
        _fill(database, studies, run, source)
        write_whole(path, database.read_bytes(), force=force)
    return len(studies)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Study:
    """What one study is to hold."""

    name: str
    message_bytes: int
    collective: str
    group: str
    verdicts: tuple[Told, ...]


def _studies(run: TuningRun, source: str) -> Iterator[_Study]:
    """Of the world's allreduce first, then of the tables beside it; ascending by size."""
    titles = Counter(table.title for table in run.tables)
    for table, told in ((None, run.told), *((table, table.told) for table in run.tables)):
        for size, by_arm in sorted(_by_size(told, source).items()):
            yield _Study(
                name=study_name(size, table, numbered=table is not None and titles[table.title] > 1),
                message_bytes=size,
                collective="allreduce" if table is None else table.collective,
                group="world" if table is None else table.group,
                verdicts=tuple(by_arm.values()),
            )


def _by_size(told: Sequence[Told], source: str) -> dict[int, dict[Arm, Told]]:
    """Verdicts by size and candidate."""
    found: dict[int, dict[Arm, Told]] = {}
    for one in told:
        if one.state not in _STATES or (one.state == "COMPLETE" and one.log_ratio is None):
            raise InputFileError(source, f"a verdict is {one.state!r}, with a ratio of {one.log_ratio}")
        # A candidate that was judged again later is one trial: the last verdict stands.
        found.setdefault(one.message_bytes, {})[one.arm] = one
    return found


def _fill(database: Path, studies: Sequence[_Study], run: TuningRun, source: str) -> None:
    import optuna
    from optuna.distributions import CategoricalDistribution

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.RDBStorage(f"sqlite:///{database}")
    try:
        for one in studies:
            study = optuna.create_study(storage=storage, study_name=one.name, direction="minimize")
            study.set_user_attr("value", "log(candidate / default)")
            study.set_user_attr("message_bytes", one.message_bytes)
            study.set_user_attr("collective", one.collective)
            study.set_user_attr("group", one.group)
            study.set_user_attr("journal", source)
            if run.num_ranks is not None:
                study.set_user_attr("num_ranks", run.num_ranks)
            if run.topotune_version is not None:
                study.set_user_attr("topotune_version", run.topotune_version)
            variants: dict[str, list[str]] = {}
            for told in one.verdicts:
                variants.setdefault(told.arm.algorithm, []).append(told.arm.params_json)
            space = {
                "algorithm": CategoricalDistribution(tuple(variants)),
                **{name: CategoricalDistribution(tuple(known)) for name, known in variants.items()},
            }
            study.add_trials([_trial(told, space) for told in one.verdicts])
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
