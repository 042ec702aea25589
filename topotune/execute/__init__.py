"""Running candidates on torch.distributed: schedules message by message, and the library's own collectives.

The names below need torch; they are imported when they are first used, so that the pure modules of this
package can be imported without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topotune.execute.build import build_executable
    from topotune.execute.check import check_exact
    from topotune.execute.communicator import Communicator
    from topotune.execute.executable import Executable

_MODULE_OF_NAME = {
    "Communicator": "communicator",
    "Executable": "executable",
    "build_executable": "build",
    "check_exact": "check",
}

__all__ = [
    "Communicator",
    "Executable",
    "build_executable",
    "check_exact",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF_NAME[name]}"), name)
