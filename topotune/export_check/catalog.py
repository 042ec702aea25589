"""Exports that have a self-test."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final

from topotune.errors import UsageError
from topotune.export_check.verification import Verification
from topotune.plan import Plan
from topotune.plan.exports.target import ExportOptions, Target

MODULES: Final[Mapping[str, str]] = {"openmpi-tuned": "openmpi", "mpich-json": "mpich"}
"""Target → the module of this room whose ``check`` runs its program."""

Check = Callable[[Plan, Target, ExportOptions], Verification]


def find_check(name: str) -> Check:
    """The self-test of a target.

    Raises:
        UsageError: it has none.
    """
    if name not in MODULES:
        raise UsageError(
            f"--verify: there is no self-test of {name}", hint=f"there is one of {', '.join(MODULES)}"
        )
    check: Check = import_module(f"topotune.export_check.{MODULES[name]}").check
    return check
