"""The network interface that a plan names, as text for files that shells and YAML readers read."""

import re
from typing import Final

from topotune.documents import Value
from topotune.errors import UsageError
from topotune.plan import Plan

INTERFACE_VARIABLE: Final = "GLOO_SOCKET_IFNAME"

_NAMES: Final = re.compile(r"[A-Za-z0-9_.:@-]{1,15}(?:,[A-Za-z0-9_.:@-]{1,15})*")
"""What Linux allows (15 bytes), less what any shell or file format would read in another way."""


def interface_of(plan: Plan) -> str | None:
    """Value of GLOO_SOCKET_IFNAME; None where gloo's own choice is right.

    Raises:
        UsageError: the plan names what can be no interface.
    """
    names = plan.context.interface
    if names is not None and _NAMES.fullmatch(names) is None:
        raise UsageError(
            f"the plan's context.interface is {names[:60]!r}, which is no list of network interfaces",
            hint="eth0, or eth0,eth1",
        )
    return names


def take_interface(value: Value) -> str:
    """The same, read from a file.

    Raises:
        InputFileError: it can be no interface.
    """
    names = value.text(max_length=256)
    if _NAMES.fullmatch(names) is None:
        value.fail(f"is {names[:60]!r}, not a list of network interfaces")
    return names
