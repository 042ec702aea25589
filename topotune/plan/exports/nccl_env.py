"""NCCL's environment: what of a plan holds for all sizes, as NCCL_ALGO, NCCL_PROTO and NCCL_MAX_CTAS.

Theory of operation. These variables know no sizes. NCCL_ALGO and NCCL_PROTO say what NCCL may choose from, by
its own model; so they are written for a collective only where all of its rows, of all groups of the plan,
name NCCL's algorithms: where one size is left to NCCL, a list would take from it what it chooses there. From
2.24 on the lists go by collective (``allreduce:Tree,Ring;allgather:Ring``); before, one list holds for all
collectives, and is written only if all tables of the plan are full.

Dangerous settings are not representable here: `NcclEnvironment` refuses them, also when a file is read.

- A list of algorithms without Ring: from 2.24 on NCCL fails a collective that has none of the list's.
- LL128 in NCCL_PROTO: it switches off NCCL's check whether the machine keeps the order of writes, without
  which data are corrupted silently.
- NCCL_PROTO on several nodes: there it switches off the like check for LL of the network plugin on AWS (EFA),
  and no plan says what the network is. A file for one node may hold it, and says so; a job that is given
  variables unasked (`topotune run`, launchers' files) might have more nodes than its plan, and gets no list
  with LL.

Source: NCCL 2.30 user guide, "Environment Variables"; ``src/misc/param.cc`` for the form of the file.
"""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from topotune.errors import InputFileError, UsageError
from topotune.plan.exports.nccl_rows import (
    NEWEST,
    NcclRow,
    NcclTables,
    Version,
    nccl_tables,
    shown,
    version_of,
    version_warnings,
)
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.model import COLLECTIVES, Collective, Plan

OLDEST: Final[Version] = (2, 18)
BY_FUNCTION: Final[Version] = (2, 24)
"""The first NCCL whose lists go by collective."""

FILE_SINCE: Final[Version] = (2, 23)
"""The first NCCL that reads NCCL_CONF_FILE."""

ALGO_WORDS: Final[Mapping[str, str]] = {
    "ring": "Ring",
    "tree": "Tree",
    "collnet_direct": "CollnetDirect",
    "collnet_chain": "CollnetChain",
    "nvls": "NVLS",
    "nvls_tree": "NVLSTree",
    "pat": "PAT",
}
PROTO_WORDS: Final[Mapping[str, str]] = {"ll": "LL", "simple": "Simple"}
SINCE: Final[Mapping[str, Version]] = {"PAT": (2, 23)}
FUNCTIONS: Final = ("allreduce", "reducescatter", "allgather")
ALL: Final = ""
"""In place of a function: all of them."""

Lists = Mapping[str, tuple[str, ...]]
"""Function, or `ALL` → what NCCL may choose from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NcclEnvironment:
    """Variables for NCCL, none of them dangerous.

    Attributes:
        version: of NCCL.
        num_nodes: of the job.
        algos: in NCCL's words; empty leaves NCCL_ALGO out.
        protos: in NCCL's words; empty leaves NCCL_PROTO out.
        max_ctas: channels at most, for all collectives; None leaves NCCL_MAX_CTAS out.
    """

    version: Version
    num_nodes: int
    algos: Lists = field(default_factory=dict)
    protos: Lists = field(default_factory=dict)
    max_ctas: int | None = None

    def __post_init__(self) -> None:
        problem = _problem(self)
        if problem:
            raise ValueError(problem)


def _problem(settings: NcclEnvironment) -> str | None:
    """What would be wrong or dangerous for this NCCL on these nodes, in words."""
    by_function = settings.version >= BY_FUNCTION
    for name, lists, words in (
        ("NCCL_ALGO", settings.algos, ALGO_WORDS),
        ("NCCL_PROTO", settings.protos, PROTO_WORDS),
    ):
        for function, chosen in lists.items():
            if (function == ALL) == by_function:
                form = "FUNCTION:LIST;FUNCTION:LIST" if by_function else "one list for all collectives"
                return f"{name}: NCCL {shown(settings.version)} takes {form}"
            if function not in (ALL, *FUNCTIONS):
                return f"{name}: {function!r} is none of {', '.join(FUNCTIONS)}"
            if not chosen or len(set(chosen)) != len(chosen):
                return f"{name}: {','.join(chosen)!r} is no list of different names"
            for word in chosen:
                if word == "LL128":
                    return "NCCL_PROTO: LL128 there switches off NCCL's check that the machine can do it"
                if word not in words.values():
                    return f"{name}: {word!r} is none of {', '.join(words.values())}"
                if SINCE.get(word, OLDEST) > settings.version:
                    return f"{name}: NCCL {shown(settings.version)} has no {word}"
    for function, chosen in settings.algos.items():
        if "Ring" not in chosen:
            return (
                f"NCCL_ALGO: {function or 'the list'} lacks Ring, without which NCCL fails where it needs it"
            )
    if settings.protos and settings.num_nodes > 1:
        return "NCCL_PROTO: on several nodes it switches off a check that networks of AWS (EFA) need"
    if settings.max_ctas is not None and not 1 <= settings.max_ctas <= most_ctas(settings.version):
        return f"NCCL_MAX_CTAS: {settings.max_ctas} is not from 1 to {most_ctas(settings.version)}"
    return None


def most_ctas(version: Version) -> int:
    """The most channels that NCCL_MAX_CTAS may name."""
    return 64 if version > (2, 24) else 32


def from_plan(plan: Plan, options: ExportOptions) -> Translated:
    """What of the plan holds for all sizes; nothing where it leaves a size to NCCL."""
    version = version_of(plan, options, oldest=OLDEST)
    num_nodes = len(plan.fingerprint.hard.ranks_per_node)
    tables = nccl_tables(plan)
    warnings = list(tables.warnings)
    algos: dict[str, tuple[str, ...]] = {}
    protos: dict[str, tuple[str, ...]] = {}
    full = _full_collectives(tables, warnings)
    if version < BY_FUNCTION:
        if full != list(COLLECTIVES) and tables.rows:
            warnings.append(
                f"before NCCL {shown(BY_FUNCTION)} a list holds for all collectives: it is written only "
                "where the plan names NCCL's algorithms at all sizes of all of them"
            )
        spans = {ALL: list(tables.rows)} if full == list(COLLECTIVES) else {}
    else:
        spans = {name.replace("_", ""): [r for r in tables.rows if r.collective == name] for name in full}
    for function, rows in spans.items():
        algos[function] = _algos(function, rows, version, warnings)
        chosen = _protos(function, rows, num_nodes, warnings)
        if chosen and function != ALL:  # before 2.24 it would hold for broadcast and reduce, too
            protos[function] = chosen
    if any("LL" in chosen for chosen in protos.values()):
        warnings.append(
            "NCCL_PROTO is for jobs on one node: on several, LL in it can corrupt data silently on EFA"
        )
    max_ctas = _max_ctas(tables, full, version)
    if max_ctas is None and any(row.channels is not None for row in tables.rows):
        warnings.append(
            "numbers of channels are left out: NCCL_MAX_CTAS holds for all sizes and collectives alike"
        )
    if algos:
        warnings.append(
            "NCCL_ALGO holds for every communicator of the job, also for those that were not measured"
        )
    if tables.rows:
        warnings += version_warnings(plan, version)
    settings = NcclEnvironment(
        version=version, num_nodes=num_nodes, algos=algos, protos=protos, max_ctas=max_ctas
    )
    return Translated(document=settings, warnings=tuple(warnings))


def _full_collectives(tables: NcclTables, warnings: list[str]) -> list[Collective]:
    """The collectives whose tables name NCCL's algorithms at all sizes."""
    full = []
    for name in COLLECTIVES:
        of_it = {key for key in tables.tables if key[0] == name}
        if of_it and of_it <= tables.complete:
            full.append(name)
        elif any(row.collective == name for row in tables.rows):
            warnings.append(
                f"{name}: the plan leaves some sizes to NCCL, from which a list would take its choice: "
                "nothing is written for it; --to nccl-tuner goes by size"
            )
    return full


def _algos(function: str, rows: list[NcclRow], version: Version, warnings: list[str]) -> tuple[str, ...]:
    """What NCCL may choose from, Ring always."""
    named = {row.algo for row in rows}
    for algo in named:
        word = ALGO_WORDS[algo]
        if SINCE.get(word, OLDEST) > version:
            raise UsageError(
                f"nccl-env: the plan names {algo}, which NCCL {shown(version)} does not have",
                hint=f"--for {shown(SINCE[word])} or later",
            )
    words = tuple(word for algo, word in ALGO_WORDS.items() if algo in named | {"ring"})
    what = function or "all collectives"
    if len(named) > 1:
        warnings.append(
            f"{what}: NCCL chooses by itself at which sizes it runs {', '.join(words)}: the plan's "
            "sizes are lost; --to nccl-tuner keeps them"
        )
    elif named != {"ring"}:
        warnings.append(
            f"{what}: Ring stays allowed beside {words[-1]}, since NCCL fails where it has nothing "
            "else: it may choose it; --to nccl-tuner decides"
        )
    return words


def _protos(function: str, rows: list[NcclRow], num_nodes: int, warnings: list[str]) -> tuple[str, ...]:
    """What NCCL may choose from, Simple always; nothing where that is dangerous."""
    named = {row.proto for row in rows}
    what = function or "all collectives"
    if num_nodes > 1:
        warnings.append(
            f"{what}: NCCL_PROTO is not written for several nodes: on EFA it can corrupt data silently; "
            "--to nccl-tuner sets protocols safely"
        )
        return ()
    if "ll128" in named:
        warnings.append(
            f"{what}: NCCL_PROTO is not written, since LL128 in it switches off NCCL's check that the "
            "machine can do it; --to nccl-tuner sets protocols safely"
        )
        return ()
    return tuple(word for proto, word in PROTO_WORDS.items() if proto in named | {"simple"})


def _max_ctas(tables: NcclTables, full: list[Collective], version: Version) -> int | None:
    """The number of channels that every row of a full plan names; None otherwise."""
    named = {row.channels for row in tables.rows}
    only = named.pop() if len(named) == 1 and full == list(COLLECTIVES) else None
    return only if only is not None and only <= most_ctas(version) else None


def variables(settings: NcclEnvironment) -> dict[str, str]:
    """Name → value."""
    found = {}
    for name, lists in (("NCCL_ALGO", settings.algos), ("NCCL_PROTO", settings.protos)):
        if lists:
            found[name] = ";".join(
                ",".join(chosen) if function == ALL else f"{function}:{','.join(chosen)}"
                for function, chosen in lists.items()
            )
    if settings.max_ctas is not None:
        found["NCCL_MAX_CTAS"] = str(settings.max_ctas)
    return found


def variables_unasked(settings: NcclEnvironment) -> dict[str, str]:
    """Those that harm no job, however many nodes it has."""
    found = variables(settings)
    if any("LL" in chosen for chosen in settings.protos.values()):
        del found["NCCL_PROTO"]
    return found


_HEAD: Final = r"# topotune: for NCCL ([0-9]{1,4})\.([0-9]{1,4}) on ([1-9][0-9]{0,6}) nodes?"


def write(settings: NcclEnvironment) -> str:
    """A file for NCCL_CONF_FILE."""
    nodes = f"{settings.num_nodes} node{'' if settings.num_nodes == 1 else 's'}"
    lines = [f"# topotune: for NCCL {shown(settings.version)} on {nodes}"]
    lines += [f"{name}={value}" for name, value in variables(settings).items()]
    return "\n".join(lines) + "\n"


def read(text: str, source: str) -> NcclEnvironment:
    """The settings of a file; without topotune's first line, as for the newest NCCL on several nodes.

    Raises:
        InputFileError: a line that NCCL or this target does not know, or a dangerous setting.
    """
    lines = text.splitlines()
    head = re.fullmatch(_HEAD, lines[0] if lines else "")
    version = NEWEST if head is None else (int(head[1]), int(head[2]))
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if line.startswith("#") or not line:
            continue
        name, equals, value = line.partition("=")
        if name not in ("NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_CTAS") or not equals or name in found:
            what = "stands twice" if name in found else "is no setting of a plan"
            raise InputFileError(source, f"{name!r} {what}", place=f"line {number}")
        found[name] = value
    ctas = found.get("NCCL_MAX_CTAS")
    if ctas is not None and not re.fullmatch("[1-9][0-9]?", ctas):
        raise InputFileError(source, f"NCCL_MAX_CTAS: {ctas!r} is no number of channels")
    try:
        return NcclEnvironment(
            version=version,
            num_nodes=2 if head is None else int(head[3]),
            algos=_lists("NCCL_ALGO", found, version),
            protos=_lists("NCCL_PROTO", found, version),
            max_ctas=None if ctas is None else int(ctas),
        )
    except ValueError as problem:
        raise InputFileError(source, str(problem)) from None


def _lists(name: str, found: Mapping[str, str], version: Version) -> Lists:
    lists: dict[str, tuple[str, ...]] = {}
    if name not in found:
        return lists
    for part in found[name].split(";") if version >= BY_FUNCTION else [found[name]]:
        function, colon, chosen = part.rpartition(":")
        if function in lists:
            raise ValueError(f"{name}: {function or 'a list for all'} stands twice")
        lists[function if colon else ALL] = tuple(chosen.split(","))
    return lists


def how_to_use(place: str) -> str:
    """What the job's environment must say."""
    return (
        f"export NCCL_CONF_FILE={shlex.quote(os.path.abspath(place))}  # on all nodes; from NCCL "
        f"{shown(FILE_SINCE)} on, before it export the lines themselves, in quotes\n"
        "# to see it act: NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ENV,TUNING"
    )


TARGET: Final = Target(
    name="nccl-env",
    summary="NCCL_ALGO, NCCL_PROTO and NCCL_MAX_CTAS, where the plan says the same at all sizes",
    versions="NCCL 2.18 to 2.30",
    from_plan=from_plan,
    write=write,
    read=read,
    environment=variables_unasked,
    how_to_use=how_to_use,
)
