"""Reading what ``topotune check`` writes (``topotune/check``)."""

from typing import Final, Literal, cast

from topotune.documents import Value, document_of
from topotune.links.check import SCHEMA, SCHEMA_VERSION, SEVERITIES, Check
from topotune.links.finding import Finding
from topotune.results.fields import maybe, needed, seconds, warnings_of, words

_MAX_FINDINGS: Final = 100_000
_MAX_NODES: Final = 200_000


def check_of(value: Value) -> Check:
    """What a check found, from a document of unknown origin; the gravest first.

    Raises:
        InputFileError: no check, a newer version, or a value missing or out of bounds.
    """
    document = document_of(value, SCHEMA, SCHEMA_VERSION)
    findings = [_finding(one) for one in needed(document, "findings").items(_MAX_FINDINGS, what="findings")]
    findings.sort(key=lambda finding: -SEVERITIES.index(finding.severity))
    return Check(
        num_ranks=maybe(document, "num_ranks", lambda one: one.integer(0, 2**31)),
        node_names=tuple(one.text() for one in needed(document, "node_names").items(_MAX_NODES)),
        findings=tuple(findings),
        created=maybe(document, "created", lambda one: one.text(max_length=100)),
        elapsed_s=maybe(document, "elapsed_s", lambda one: seconds(one, above=False)),
        profile=maybe(document, "profile", words),
        warnings=warnings_of(document),
    )


def _finding(value: Value) -> Finding:
    severity = needed(value, "severity").text(one_of=SEVERITIES)
    return Finding(
        code=needed(value, "code").text(max_length=100),
        severity=cast("Literal['info', 'warning', 'error']", severity),
        where=words(needed(value, "where")),
        evidence=words(needed(value, "evidence")),
        advice=words(needed(value, "advice")),
        cost_percent=maybe(value, "cost_percent", lambda one: one.number(0, 100)),
    )
