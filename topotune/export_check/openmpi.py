"""Whether Open MPI chooses what an exported rule file of coll/tuned says."""

import os
import re
import tempfile
from pathlib import Path
from typing import Final

from topotune.errors import RunError, UsageError
from topotune.export_check.jobs import Launcher, library_near, run_watched, version_said
from topotune.export_check.sizes import check_num_ranks, probed_sizes
from topotune.export_check.verification import Verification, observed
from topotune.plan import Plan
from topotune.plan.exports.counterparts import Choice
from topotune.plan.exports.openmpi_tuned import ALGORITHMS, RuleFile
from topotune.plan.exports.target import ExportOptions, Target

_PROGRAMS: Final = ("mpirun.openmpi", "mpirun", "mpiexec")
_LIBRARIES: Final = ("libmpi.so.40", "libmpi.so.80")
_VERSION: Final = re.compile(r"\((?:Open MPI|OpenRTE)\) ((\d{1,4})\.(\d{1,4})[^\s)]{0,20})")
_TUNED: Final = ("--mca", "coll_tuned_use_dynamic_rules", "1")
_NO_HAN: Final = ("--mca", "coll", "^han")  # as the exported file is to be used


def check(plan: Plan, target: Target, options: ExportOptions) -> Verification:
    """Run Open MPI with the export, without it, and with each of its algorithms alone.

    Raises:
        UsageError: the export is for another form of the file, or for too many ranks.
        RunError: no Open MPI here, or a job of it failed.
    """
    launcher, version = find_open_mpi()
    document: RuleFile = target.from_plan(plan, options).document
    if (document.form == "json") != (version >= (6, 0)):
        raise UsageError(
            f"--verify: {launcher.version} is installed, and the export is not for it",
            hint=f"--for {version[0]}.{version[1]}",
        )
    table = document.tables[-1]
    num_ranks = table.num_ranks
    check_num_ranks(num_ranks)
    choices = [
        Choice(
            min_bytes=rule.min_bytes,
            max_bytes=rule.max_bytes,
            word=None if rule.algorithm == 0 else ALGORITHMS[rule.algorithm],
        )
        for rule in table.rules
    ]
    sizes = probed_sizes(choices, num_ranks)
    run = [size for size, _ in sizes]
    with tempfile.TemporaryDirectory(prefix="topotune-") as folder:
        rules = Path(folder) / "tuned.conf"
        rules.write_text(target.write(document))
        with_rules = ("--mca", "coll_tuned_dynamic_rules_filename", str(rules))
        seen = run_watched(launcher, num_ranks, run, options=(*_TUNED, *_NO_HAN, *with_rules))
    own = run_watched(launcher, num_ranks, run, options=_NO_HAN)
    forced = {
        word: run_watched(
            launcher,
            num_ranks,
            [size for size, said in sizes if said == word],
            options=(*_TUNED, *_NO_HAN, "--mca", "coll_tuned_allreduce_algorithm", word),
        )
        for word in dict.fromkeys(word for _, word in sizes if word is not None)
    }
    return Verification(
        program=launcher.version, num_ranks=num_ranks, observations=observed(sizes, seen, own, forced)
    )


def find_open_mpi() -> tuple[Launcher, tuple[int, int]]:
    """Open MPI's launcher here, and its version.

    Raises:
        RunError: there is none on PATH.
    """
    for program in _PROGRAMS:
        match = _VERSION.search(version_said(program, "--version"))
        if match is None:
            continue
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        launcher = Launcher(
            kind="openmpi",
            command=(program, "--oversubscribe"),
            library=library_near(program, _LIBRARIES),
            version=f"Open MPI {match[1]}",
            environment=as_root if os.geteuid() == 0 else {},
        )
        return launcher, (int(match[2]), int(match[3]))
    raise RunError(
        "--verify: Open MPI is not installed here (no mpirun of it on PATH): nothing was verified",
        hint="apt install openmpi-bin, or run this where the job runs",
    )
