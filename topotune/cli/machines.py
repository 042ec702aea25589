"""A machine that the user names: a file, a known machine, this one."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from topotune.errors import UsageError

if TYPE_CHECKING:
    from topotune.topology.profile import MachineProfile


def one_of(file: Path | None, profile: str | None) -> str:
    """What to call the one thing that the user gave, a file or a known machine."""
    if (file is None) == (profile is None):
        problem = "neither a file nor --profile" if file is None else f"{file} and --profile {profile}"
        raise UsageError(
            f"{problem}: give one",
            hint="machine.json, of topotune probe -o, or --profile dgx-h100, a known machine",
        )
    return str(file or profile)


def machine_profile(name: str) -> "MachineProfile":
    """A known machine by name or file; ``auto``: the one that this is, which is said on stderr."""
    from topotune.topology.catalog import load_profile

    if name != "auto":
        return load_profile(name)
    from topotune.probe import probe as look
    from topotune.probe.instance_type import read_hints
    from topotune.topology.recognition import recognise

    found = recognise(look(), read_hints(os.environ))
    if found.profile is None:
        raise UsageError(f"--profile auto: {found.text}", hint="name the machine: --profile NAME")
    print(f"recognised {found.text}", file=sys.stderr)
    return found.profile
