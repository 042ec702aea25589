"""Options that several verbs take."""

from pathlib import Path
from typing import Annotated

import typer

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
        "--backend", metavar="NAME", help="Collective library of the job: gloo (CPU) or nccl (GPU)."
    ),
]


KnownMachine = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="A known machine instead of a file: its name, a .json file of one, or auto for this machine.",
    ),
]


Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything that is drawn at random.")]
