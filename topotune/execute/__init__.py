"""Running candidates on torch.distributed: schedules message by message, and the library's own collectives.

The names below need torch; they are imported when they are first used, so that the pure modules of this
package can be imported without it.
"""

from typing import TYPE_CHECKING

from topotune.lazy import lazy_attributes

if TYPE_CHECKING:
    from topotune.execute.build import build_executable
    from topotune.execute.check import check_exact
    from topotune.execute.communicator import Communicator
    from topotune.execute.executable import Executable


__all__ = [
    "Communicator",
    "Executable",
    "build_executable",
    "check_exact",
]

__getattr__ = lazy_attributes(
    __name__,
    {
        "Communicator": "topotune.execute.communicator",
        "Executable": "topotune.execute.executable",
        "build_executable": "topotune.execute.build",
        "check_exact": "topotune.execute.check",
    },
)
