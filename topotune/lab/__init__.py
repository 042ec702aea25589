"""A cluster of network namespaces on one Linux machine: profiles, commands on them, removing leftovers.

`Cluster` and what runs on it need pyroute2 and are imported when they are first asked for; profiles need
neither it nor Linux.
"""

from typing import TYPE_CHECKING

from topotune.lab.profile import LabNode, LabProfile, LabRack, list_profiles, read_profile
from topotune.lazy import lazy_attributes

if TYPE_CHECKING:
    from topotune.lab.cluster import Cluster
    from topotune.lab.launch import down, run

__all__ = ["Cluster", "LabNode", "LabProfile", "LabRack", "down", "list_profiles", "read_profile", "run"]

__getattr__ = lazy_attributes(
    __name__,
    {
        "Cluster": "topotune.lab.cluster",
        "down": "topotune.lab.launch",
        "run": "topotune.lab.launch",
    },
)
