"""One thing worth knowing of a cluster, as ``measure`` and ``check`` report it."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing worth knowing.

    Attributes:
        code: stable name of its kind.
        severity: ``info`` costs no measured or provable speed.
        where: the ranks or nodes concerned.
        evidence: the figures, in words.
        cost_percent: of allreduce speed, where it is known.
        advice: what to look at.
    """

    code: str
    severity: Literal["info", "warning", "error"]
    where: str
    evidence: str
    advice: str
    cost_percent: float | None = None
