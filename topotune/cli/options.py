"""Options that several verbs take."""

from pathlib import Path
from typing import Annotated, Any

import typer

from topotune.cli import completion
from topotune.errors import UsageError
from topotune.units import parse_seconds

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout; all else goes to stderr.")
]


Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the result to FILE.")
]


Force = Annotated[bool, typer.Option("--force", help="Overwrite FILE whatever it is.")]


NumLocalRanks = Annotated[
    int | None,
    typer.Option(
        "--nproc-per-node",
        metavar="N",
        help="Ranks to start on this machine, or on each node; not under launchers that start ranks.  "
        "[default: 2]",
    ),
]


Interface = Annotated[
    str | None,
    typer.Option(
        "--interface",
        metavar="NAME",
        help="Network interface between nodes, or several: eth0,eth1.  [default: the fastest that all reach]",
    ),
]


Sizes = Annotated[
    str | None,
    typer.Option(
        "--sizes", metavar="LIST", help="Message sizes in bytes: 256K,8M or 1K:64M (doubling) or 1K:64M:4."
    ),
]


Backend = Annotated[
    str,
    typer.Option(
        "--backend",
        metavar="NAME",
        help="Collective library of the job: gloo (CPU) or nccl (GPU).",
        autocompletion=completion.BACKENDS,
    ),
]


Launches = Annotated[
    int,
    typer.Option(
        "--launches",
        metavar="N",
        min=1,
        max=20,
        help="Measure in N launches, each on fresh processes; intervals hold what differs between them. "
        "3 or more tell how far they differ.",
    ),
]


KnownMachine = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="A known machine instead of a file: its name, a .json file of one, or auto for this machine.",
        autocompletion=completion.MACHINES,
    ),
]


Seed = Annotated[
    int,
    typer.Option("--seed", metavar="N", min=0, help="Seed of everything that is drawn at random."),
]


GradientsFile = Annotated[
    Path | None,
    typer.Option("--gradients", metavar="FILE", help="Gradients of the job, from topotune record."),
]


Parameters = Annotated[
    str | None,
    typer.Option(
        "--params", metavar="N", help="Gradients of a typical transformer of N parameters: 350M, 1.3B."
    ),
]


BackwardTime = Annotated[
    str | None,
    typer.Option(
        "--backward",
        metavar="TIME",
        help="Length of the backward.  [default: as recorded, or as long as the default's exchange]",
    ),
]


Compute = Annotated[
    str | None,
    typer.Option(
        "--compute",
        metavar="HOW",
        help="What stands for the backward: matmul (on the job's threads), sleep (cores are not shared), or "
        "spin (on GPUs).  [default: matmul, on GPUs spin]",
        autocompletion=completion.COMPUTES,
    ),
]


Groups = Annotated[
    str | None,
    typer.Option(
        "--groups",
        metavar="MESH",
        help="Process groups of the job, too: a device mesh (dp=4,tp=2) or ranks ('0-3;4-7').",
    ),
]


Collectives = Annotated[
    str | None,
    typer.Option(
        "--collectives",
        metavar="LIST",
        help="Of allreduce, reduce_scatter, allgather.  [default: all three with --groups, else allreduce]",
    ),
]


def collectives_payload(collectives: str | None) -> list[str] | None:
    """What ranks are told of ``--collectives``; they check the names."""
    return None if collectives is None else [name.strip() for name in collectives.split(",")]


def step_payload(
    gradients: Path | None, parameters: str | None, backward: str | None, compute: str | None, *, asked: bool
) -> dict[str, Any] | None:
    """What ranks are told about the training step; None where none is to be measured.

    Args:
        gradients: file, or None.
        parameters: as written, or None.
        backward: as written, or None.
        compute: as written, or None.
        asked: whether a step is measured even where neither gradients nor parameters were given.

    Raises:
        UsageError: a value that cannot be, or a backward of nothing.
        InputFileError: the file is none of gradients.
    """
    if gradients is None and parameters is None and not asked:
        if backward is not None:
            raise UsageError(
                f"--backward {backward}: of which gradients?", hint="--gradients FILE, or --params 350M"
            )
        return None
    from topotune.step.models import parse_parameters
    from topotune.tune.options import StepOptions

    payload = {
        "gradients_path": None if gradients is None else str(gradients.resolve()),
        "num_parameters": None if parameters is None else parse_parameters(parameters),
        "backward_s": None if backward is None else parse_seconds(backward),
        "compute": compute,
    }
    options = StepOptions.from_payload(payload)
    assert options is not None
    options.gradients()
    return payload
