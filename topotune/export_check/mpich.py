"""Whether MPICH chooses what an exported selection file says.

Theory of operation. As for Open MPI, with two files: the algorithms' and, on the ch4 device, the
compositions'. What MPICH decides by itself is not held against a job without the files: shared memory takes
over after a number of calls, so that the same call need not run the same twice. And it takes reduce-scatter
and allgather for built-in operations only, whose steps nobody sees.
"""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from topotune.errors import RunError
from topotune.export_check.jobs import Launcher, library_near, run_watched, version_said
from topotune.export_check.sizes import check_num_ranks, probed_sizes
from topotune.export_check.verification import Observation, Verification, observed
from topotune.plan import Plan
from topotune.plan.exports.catalog import find_target
from topotune.plan.exports.counterparts import choices_of
from topotune.plan.exports.mpich_ch4_json import NAME as COMPOSITIONS
from topotune.plan.exports.mpich_json import counterpart
from topotune.plan.exports.target import ExportOptions, Target

_PROGRAMS: Final = ("mpiexec.hydra", "mpiexec.mpich", "mpiexec", "mpirun")
_LIBRARIES: Final = ("libmpi.so.12", "libmpich.so.12")
_VERSION: Final = re.compile(r"HYDRA build details:\s+Version:\s+([0-9][0-9A-Za-z.]{0,20})")
_ALGORITHMS: Final = "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE"
_COMPOSITIONS: Final = "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE"
_FLAT: Final = {"MPIR_CVAR_ALLREDUCE_COMPOSITION": "2"}
_UNSEEN: Final[Mapping[str | None, str]] = {
    None: "what MPICH decides by itself may change from call to call",
    "reduce_scatter_allgather": "MPICH takes it for built-in operations only, whose steps cannot be watched",
}


def check(plan: Plan, target: Target, options: ExportOptions) -> Verification:
    """Run MPICH with the exports, without them, and with each of their algorithms alone.

    Raises:
        UsageError: no file of MPICH's own was given, or too many ranks.
        InputFileError: it holds no selections of MPICH's.
        RunError: no MPICH here, or a job of it failed.
    """
    launcher = _find()
    compositions = find_target(COMPOSITIONS)
    world = plan.groups[0]
    num_ranks = world.shape.num_ranks
    check_num_ranks(num_ranks)
    listed = probed_sizes(choices_of(world.allreduce, counterpart), num_ranks)
    sizes = [(size, word) for size, word in listed if word not in _UNSEEN]
    run = [size for size, _ in sizes]
    observations = [
        Observation(message_bytes=size, expected=word, verdict="not shown", reason=_UNSEEN[word])
        for size, word in listed
        if word in _UNSEEN
    ]
    with tempfile.TemporaryDirectory(prefix="topotune-") as folder:
        files = {_ALGORITHMS: (target, "algorithms.json"), _COMPOSITIONS: (compositions, "compositions.json")}
        environment = {}
        for variable, (exporter, name) in files.items():
            path = Path(folder) / name
            path.write_text(exporter.write(exporter.from_plan(plan, options).document))
            environment[variable] = str(path)
        seen = run_watched(launcher, num_ranks, run, environment=environment)
    own = run_watched(launcher, num_ranks, run)
    forced = {
        word: run_watched(
            launcher,
            num_ranks,
            [size for size, said in sizes if said == word],
            environment={**_FLAT, "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": word},
        )
        for word in dict.fromkeys(word for _, word in sizes if word is not None)
    }
    observations += observed(sizes, seen, own, forced)
    return Verification(
        program=launcher.version,
        num_ranks=num_ranks,
        observations=tuple(sorted(observations, key=lambda observation: observation.message_bytes)),
    )


def _find() -> Launcher:
    for program in _PROGRAMS:
        match = _VERSION.search(version_said(program, "--version"))
        if match is not None:
            return Launcher(
                kind="mpich",
                command=(program,),
                library=library_near(program, _LIBRARIES),
                version=f"MPICH {match[1]}",
                environment={},
            )
    raise RunError(
        "--verify: MPICH is not installed here (no mpiexec of it on PATH): nothing was verified",
        hint="pip install mpich, or run this where the job runs",
    )
