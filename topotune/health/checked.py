"""An examination as what ``topotune check`` says, alone or beside a measurement of the same nodes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topotune.health.examination import examine
from topotune.links.check import SEVERITIES, Check
from topotune.topology.model import Topology

if TYPE_CHECKING:
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
    known = said = None
    if profile == AUTO:
        from topotune.topology.recognition import recognise

        recognised = recognise(topology, hints)
        known, said = recognised.profile, recognised.text
    elif profile is not None:
        from topotune.topology.catalog import load_profile

        known = load_profile(profile)
        said = f"{known.name}, as was asked for"
    found = examine(topology, each=each, rank_cpus=rank_cpus, profile=known)
    return Check(
        num_ranks=None,
        node_names=found.node_names,
        findings=found.findings,
        created=topology.source.created,
        profile=said,
        warnings=topology.warnings,
    )


def with_measured(looked: Check, measured: Check) -> Check:
    """What was found by looking and by measuring, the gravest first; nodes as the measurement names them."""
    findings = [*measured.findings, *looked.findings]
    findings.sort(key=lambda finding: -SEVERITIES.index(finding.severity))
    return replace(
        measured,
        findings=tuple(findings),
        profile=looked.profile,
        warnings=(*measured.warnings, *(each for each in looked.warnings if each not in measured.warnings)),
    )
