"""Ranks and who starts them: joining a launcher's, starting local ones, and meeting over nodes.

torch takes seconds to import and a command line is refused before that, so the names below are imported when
they are first used; `topotune.probe.launcher` reads the environment, without torch.
"""

from typing import TYPE_CHECKING

from topotune.lazy import lazy_attributes

if TYPE_CHECKING:
    from topotune.launch.join import complete_environment, joined
    from topotune.launch.local_ranks import run_local
    from topotune.launch.on_ranks import launcher_here, run_on_ranks

__all__ = ["complete_environment", "joined", "launcher_here", "run_local", "run_on_ranks"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "complete_environment": "topotune.launch.join",
        "joined": "topotune.launch.join",
        "launcher_here": "topotune.launch.on_ranks",
        "run_local": "topotune.launch.local_ranks",
        "run_on_ranks": "topotune.launch.on_ranks",
    },
)
