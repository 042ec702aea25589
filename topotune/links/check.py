"""``topotune check``: what a measurement says is wrong with a cluster. Pure.

schema_version history of ``topotune/check``: 1 is the first.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from topotune.links.finding import Finding
from topotune.links.findings import find
from topotune.links.fit import fit_links
from topotune.links.inference import infer_structure
from topotune.links.measurement import Measurement

SCHEMA: Final = "topotune/check"
SCHEMA_VERSION: Final = 1
SEVERITIES: Final = ("info", "warning", "error")
"""Ascending."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """What was found.

    Attributes:
        num_ranks: that measured; None where nothing was measured.
        node_names: where they ran, or what was looked at.
        findings: the gravest first.
        created: of the measurement, ISO 8601, UTC.
        elapsed_s: what measuring took.
        profile: the known machine that nodes were held against, and how it was chosen; None: none.
        warnings: what stood in its way.
    """

    num_ranks: int | None
    node_names: tuple[str, ...]
    findings: tuple[Finding, ...]
    created: str | None = None
    elapsed_s: float | None = None
    profile: str | None = None
    warnings: tuple[str, ...] = ()


def check_measurement(measurement: Measurement) -> Check:
    """All findings of a measurement; of a single node it is said that there was nobody to compare it with.

    Of other tools' figures there are those that figures can bear (`topotune.links.figure_findings`).
    """
    if measurement.has_only_figures:
        findings = list(find(measurement, None))
    else:
        structure = infer_structure(measurement)
        findings = list(find(measurement, fit_links(measurement, structure=structure), structure))
    if len(measurement.node_names) == 1 and not measurement.has_only_figures:
        findings.append(_one_node(measurement))
    findings.sort(key=lambda finding: -SEVERITIES.index(finding.severity))
    return Check(
        num_ranks=measurement.num_ranks,
        node_names=measurement.node_names,
        findings=tuple(findings),
        created=measurement.created,
        elapsed_s=measurement.elapsed_s,
        warnings=measurement.warnings,
    )


def check_to_document(check: Check) -> dict[str, Any]:
    """Its JSON form."""
    fields = {name: getattr(check, name) for name in ("num_ranks", "created", "elapsed_s", "profile")}
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        **fields,
        "node_names": list(check.node_names),
        "findings": [asdict(finding) for finding in check.findings],
        "warnings": list(check.warnings),
    }


def reaches(findings: Iterable[Finding], severity: str) -> bool:
    """Whether one of them is as grave as this, or graver."""
    return any(SEVERITIES.index(finding.severity) >= SEVERITIES.index(severity) for finding in findings)


def _one_node(measurement: Measurement) -> Finding:
    ranks = "1 rank" if measurement.num_ranks == 1 else f"{measurement.num_ranks} ranks"
    return Finding(
        code="one-node",
        severity="info",
        where=f"node {measurement.node_names[0]}",
        evidence=f"all {ranks} are on one node: there are no other nodes whose links could be compared",
        advice="start it on all nodes: srun, mpirun or torchrun … topotune check",
    )
