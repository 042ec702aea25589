"""What is wrong with a machine or cluster, from what it is: a topology → findings. Pure.

Nothing is measured here; what only timing shows is in `topotune.links.findings`.
"""

from typing import TYPE_CHECKING

from topotune.lazy import lazy_attributes

if TYPE_CHECKING:
    from topotune.health.examination import Examination, examine

__all__ = ["Examination", "examine"]

__getattr__ = lazy_attributes(
    __name__,
    {"Examination": "topotune.health.examination", "examine": "topotune.health.examination"},
)
