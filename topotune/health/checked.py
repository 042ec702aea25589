"""An examination as what ``topotune check`` says, alone or beside a measurement of the same nodes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topotune.health.against_marks import mark_findings
from topotune.health.examination import examine
from topotune.links.check import SEVERITIES, Check, check_measurement
from topotune.links.finding import Finding
from topotune.links.measurement import Measurement
from topotune.topology.model import Topology

if TYPE_CHECKING:
    from topotune.topology.profile import MachineProfile
    from topotune.topology.recognition import Hint

AUTO: Final = "auto"


def check_topology(
    topology: Topology,
    *,
    each: Sequence[Topology] = (),
    rank_cpus: Sequence[str] = (),
    profile: str | None = None,
    hints: "Sequence[Hint]" = (),
) -> Check:
    """All findings of a topology.

    Args:
        topology: of a machine or cluster.
        each: as `examine` takes it.
        rank_cpus: as `examine` takes it.
        profile: name or file of the machine that each node should be; ``auto``: the one that it is taken for;
            None: nodes are held against nothing but each other.
        hints: what may tell ``auto`` the machine, beside the topology.

    Raises:
        UsageError: no such profile.
        InputFileError: a profile's file that cannot be used.
    """
    known, said = known_machine(profile, topology, hints)
    found = examine(topology, each=each, rank_cpus=rank_cpus, profile=known)
    return Check(
        num_ranks=None,
        node_names=found.node_names,
        findings=found.findings,
        created=topology.source.created,
        profile=said,
        warnings=topology.warnings,
    )


def known_machine(
    profile: str | None, topology: Topology | None, hints: "Sequence[Hint]" = ()
) -> "tuple[MachineProfile | None, str | None]":
    """The machine that nodes are held against, and how it was chosen.

    Args:
        profile: as `check_topology` takes it.
        topology: by which ``auto`` recognises it; None: there is none.
        hints: as `check_topology` takes them.

    Raises:
        UsageError, InputFileError: as `check_topology`.
    """
    if profile is None:
        return None, None
    if profile != AUTO:
        from topotune.topology.catalog import load_profile

        known = load_profile(profile)
        return known, f"{known.name}, as was asked for"
    if topology is None:
        return (
            None,
            "a measurement does not show what machine it is of: name it, or give its topology as well",
        )
    from topotune.topology.recognition import recognise

    recognised = recognise(topology, hints)
    return recognised.profile, recognised.text


def check_measured(measurement: Measurement, profile: str | None, looked_at: Topology | None = None) -> Check:
    """All findings of a measurement, and of the topology that it was made on where that is given.

    Args:
        measurement: of such machines.
        profile: as `check_topology` takes it; what was measured is held against its marks.
        looked_at: the machine or cluster.

    Raises:
        UsageError, InputFileError: as `check_topology`.
    """
    measured = check_measurement(measurement)
    known, said = known_machine(profile, looked_at)
    if known is not None:
        measured = _with_findings(measured, mark_findings(measurement, known))
    if looked_at is None:
        return replace(measured, profile=said)
    return with_measured(check_topology(looked_at, profile=profile), measured)


def _with_findings(check: Check, more: Sequence[Finding]) -> Check:
    """With more of them, the gravest first."""
    findings = sorted((*check.findings, *more), key=lambda finding: -SEVERITIES.index(finding.severity))
    return replace(check, findings=tuple(findings))


def with_measured(looked: Check, measured: Check) -> Check:
    """What was found by looking and by measuring, the gravest first; nodes as the measurement names them."""
    return replace(
        _with_findings(measured, looked.findings),
        profile=looked.profile,
        warnings=(*measured.warnings, *(each for each in looked.warnings if each not in measured.warnings)),
    )
