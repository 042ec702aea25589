"""What a plan says about NCCL: the rows that name NCCL's own algorithms, and what stands beside them.

All targets of NCCL begin here, so that they agree on what counts. Rows measured on another backend say
nothing about NCCL, and rows of topotune's own algorithms cannot run inside it; where a plan has nothing to
say, NCCL chooses by itself.
"""

import re
from dataclasses import dataclass
from typing import Final

from topotune.errors import UsageError
from topotune.plan.exports.target import ExportOptions
from topotune.plan.model import COLLECTIVES, Collective, Plan
from topotune.plan.nccl import NCCL

Version = tuple[int, int]

NEWEST: Final[Version] = (2, 30)
"""The newest NCCL whose formats were read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NcclRow:
    """What NCCL is to run for some sizes on communicators of one kind.

    Attributes:
        collective: ``allreduce``, ``reduce_scatter`` or ``allgather``.
        num_ranks: of the communicator.
        num_nodes: that its ranks lie on.
        min_bytes: the smallest message; the larger of the two buffers, as NCCL counts.
        end_bytes: the first size beyond; None is unbounded.
        algo: as in plans (``ring``).
        proto: as in plans (``ll128``).
        channels: at most; None leaves them to NCCL.
    """

    collective: str
    num_ranks: int
    num_nodes: int
    min_bytes: int
    end_bytes: int | None
    algo: str
    proto: str
    channels: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NcclTables:
    """All that a plan says about NCCL.

    Attributes:
        rows: ascending within each collective and kind of communicator.
        complete: (collective, num_ranks, num_nodes) whose rows cover all sizes.
        tables: (collective, num_ranks, num_nodes) that the plan has a table for.
        warnings: what of the plan NCCL cannot be told, a sentence each.
    """

    rows: tuple[NcclRow, ...]
    complete: frozenset[tuple[str, int, int]]
    tables: frozenset[tuple[str, int, int]]
    warnings: tuple[str, ...]


def nccl_tables(plan: Plan) -> NcclTables:
    """What a plan says about NCCL; nothing, with a warning, where it was measured on another backend."""
    hard = plan.fingerprint.hard
    if hard.backend != NCCL:
        warning = (
            f"the plan was measured on {hard.backend}, which is no evidence about NCCL: "
            "nothing of it is exported, NCCL chooses by itself"
        )
        return NcclTables(rows=(), complete=frozenset(), tables=frozenset(), warnings=(warning,))
    rows: list[NcclRow] = []
    warnings: list[str] = []
    complete, tables = set(), set()
    for collective in COLLECTIVES:
        for (num_ranks, num_nodes), found in _tables_by_what_nccl_sees(plan, collective, warnings).items():
            tables.add((collective, num_ranks, num_nodes))
            rows += found
            if found and _cover_all(found):
                complete.add((collective, num_ranks, num_nodes))
    if not rows:
        warnings.append("the plan names none of NCCL's algorithms: NCCL chooses by itself")
    return NcclTables(
        rows=tuple(rows), complete=frozenset(complete), tables=frozenset(tables), warnings=tuple(warnings)
    )


def _tables_by_what_nccl_sees(
    plan: Plan, collective: Collective, warnings: list[str]
) -> dict[tuple[int, int], tuple[NcclRow, ...]]:
    """(ranks, nodes) → rows of one collective. NCCL sees no more of a communicator than these two numbers."""
    found: dict[tuple[int, int], tuple[NcclRow, ...]] = {}
    unlike = set()
    others: dict[str, int] = {}
    for group in plan.groups:
        table = getattr(group, collective)
        if table is None:
            continue
        for row in table:
            if row.algorithm not in (NCCL, "default"):
                others[row.algorithm] = others.get(row.algorithm, 0) + 1
        seen = (group.shape.num_ranks, group.shape.num_nodes)
        rows = tuple(
            NcclRow(
                collective=collective,
                num_ranks=seen[0],
                num_nodes=seen[1],
                min_bytes=row.min_bytes,
                end_bytes=row.max_bytes,
                algo=row.params["algo"],
                proto=row.params["proto"],
                channels=row.params.get("channels"),
            )
            for row in table
            if row.algorithm == NCCL
        )
        if found.setdefault(seen, rows) != rows:
            unlike.add(seen)
    for num_ranks, num_nodes in sorted(unlike):
        found[num_ranks, num_nodes] = ()
        warnings.append(
            f"{collective}: the plan has unlike tables for groups of {num_ranks} ranks on {num_nodes} "
            "nodes, which NCCL cannot tell apart: it chooses there by itself"
        )
    if others:
        named = ", ".join(f"{name} ({count})" for name, count in sorted(others.items()))
        warnings.append(
            f"{collective}: rows of topotune's own algorithms, which NCCL does not have, are left out: "
            f"{named}; only the topotune backend runs them"
        )
    return found


def _cover_all(rows: tuple[NcclRow, ...]) -> bool:
    """Whether rows of one ascending table leave no size out."""
    ends = [0, *(row.end_bytes for row in rows)]
    return ends[-1] is None and all(row.min_bytes == end for row, end in zip(rows, ends, strict=False))


def version_of(plan: Plan, options: ExportOptions, *, oldest: Version) -> Version:
    """The NCCL that an export is for: as asked, else that of the plan, else the newest known.

    Raises:
        UsageError: no version, or one outside of ``oldest`` to `NEWEST`.
    """
    asked = options.version
    if asked is None:
        measured = _measured_with(plan)
        return measured if measured is not None and oldest <= measured <= NEWEST else NEWEST
    match = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,4})?", asked)
    version = None if match is None else (int(match[1]), int(match[2]))
    if version is None or not oldest <= version <= NEWEST:
        raise UsageError(
            f"--for {asked}: not a version of NCCL from {shown(oldest)} to {shown(NEWEST)}",
            hint='python -c "import torch; print(torch.cuda.nccl.version())" says which one torch uses',
        )
    return version


def version_warnings(plan: Plan, version: Version) -> tuple[str, ...]:
    """That an export is for another NCCL than the plan was measured with, where it is."""
    measured = _measured_with(plan)
    if measured is None or measured == version:
        return ()
    return (
        f"the plan was measured with NCCL {shown(measured)}; what NCCL {shown(version)} runs under the "
        "same names may be slower than its own choice",
    )


def shown(version: Version) -> str:
    """A version as people write it."""
    return f"{version[0]}.{version[1]}"


def _measured_with(plan: Plan) -> Version | None:
    library = plan.fingerprint.hard.collective_library
    match = re.fullmatch(r"nccl ([0-9]{1,4})\.([0-9]{1,4})(?:\D.*)?", library)
    return None if match is None else (int(match[1]), int(match[2]))


def provenance(plan: Plan) -> str:
    """With what a plan was measured, in at most 160 printable ASCII characters."""
    hard = plan.fingerprint.hard
    nodes = f"{len(hard.ranks_per_node)} node{'' if len(hard.ranks_per_node) == 1 else 's'}"
    words = f"{hard.collective_library}, {hard.device_kind}, {hard.world_size} ranks on {nodes}"
    return "".join(letter if " " <= letter <= "~" else "?" for letter in words)[:160].strip()
