"""A cluster of network namespaces on one Linux machine: profiles, commands on them, removing leftovers.

`Cluster` and what runs on it need pyroute2 and are imported when they are first asked for; profiles need
neither it nor Linux.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from topotune.lab.profile import LabNode, LabProfile, LabRack, list_profiles, read_profile

if TYPE_CHECKING:
    from topotune.lab.cluster import Cluster
    from topotune.lab.launch import down, run

__all__ = ["Cluster", "LabNode", "LabProfile", "LabRack", "down", "list_profiles", "read_profile", "run"]

_HOMES = {"Cluster": "cluster", "down": "launch", "run": "launch"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'topotune.lab' has no attribute {name!r}")
    return getattr(import_module(f"topotune.lab.{home}"), name)
