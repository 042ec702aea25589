"""Open MPI's rule file of coll/tuned: plain text up to 5.0, JSON from 6.0 on.

Theory of operation. The text form has one communicator size only: up to 5.0 the largest listed size that is
not above the communicator's counts (smaller ones use the first), 6.0 reads the same text shifted by one size,
and with one size both mean the same, a table for communicators of every size. A row holds from its size to
the next row's. JSON has closed ranges, and a table for exactly one size of communicator. Algorithm 0 is Open
MPI's own decision.

What Open MPI 4.1 does with a file (seen with 4.1.4): a file that it cannot read is dropped in silence; an
algorithm number that it does not know makes the first allreduce abort the job, so that 7 is never written
for 4.x; rules hold for operations that do not commute as well, which ring reduces in another order.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from topotune.documents import MAX_INTEGER, Value, parse_json
from topotune.plan import Group, Plan, Row
from topotune.plan.exports.counterparts import (
    Counterpart,
    choices_of,
    evidence_warning,
    lost_beside_rows,
    lost_rows,
    shape_in_words,
    span,
)
from topotune.plan.exports.rule_words import RuleWords
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions

PROGRAM: Final = "Open MPI"
VERSIONS: Final = Versions(program=PROGRAM, oldest=(4, 0), newest=(6, 0))
ALGORITHMS: Final = (
    "ignore",
    "basic_linear",
    "nonoverlapping",
    "recursive_doubling",
    "ring",
    "segmented_ring",
    "rabenseifner",
    "allgather_reduce",
)
"""coll/tuned's names of its allreduce algorithms, at their numbers; ``ignore`` is its own decision."""

COUNTERPARTS: Final[Mapping[str, str]] = {
    "ring": "ring",
    "recursive_doubling": "recursive_doubling",
    "halving_doubling": "rabenseifner",
    "native_reduce_scatter_allgather": "rabenseifner",
    "native_reduce_broadcast": "nonoverlapping",
    "native_allgather_reduce": "allgather_reduce",
}
"""topotune's name → coll/tuned's."""

_JSON_SINCE: Final = (6, 0)
_ALLGATHER_REDUCE_SINCE: Final = (5, 0)
_ALLREDUCE: Final = 2
_FILE_VERSION: Final = 3
_MAX_RANKS: Final = 2**31 - 1
_MAX_TABLES: Final = 256
_MAX_RULES: Final = 4096
_NEEDS_COMMUTATIVE: Final = frozenset({"ring", "segmented_ring"})

Distribution = Literal["any", "one-per-node", "single-node"]
DISTRIBUTIONS: Final[tuple[Distribution, ...]] = ("any", "one-per-node", "single-node")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One range of sizes.

    Attributes:
        min_bytes: the smallest message.
        max_bytes: the first size beyond; None is unbounded.
        algorithm: its number.
        fan: of trees; 0 is Open MPI's own.
        segment_bytes: of segmented algorithms; 0 is Open MPI's own.
    """

    min_bytes: int
    max_bytes: int | None
    algorithm: int
    fan: int = 0
    segment_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The rules of one kind of communicator.

    Attributes:
        num_ranks: its size.
        distribution: how its ranks lie on nodes; always ``any`` in the text form.
        rules: in the order in which they are tried.
    """

    num_ranks: int
    distribution: Distribution
    rules: tuple[Rule, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleFile:
    """A rule file.

    Attributes:
        form: ``text`` or ``json``.
        tables: one in the text form, with rules without gaps from 0 on.
    """

    form: Literal["text", "json"]
    tables: tuple[Table, ...]


def _from_plan(plan: Plan, options: ExportOptions) -> Translated:
    version = VERSIONS.chosen(options.version)
    as_json = version >= _JSON_SINCE
    world = plan.groups[0]

    def counterpart(row: Row) -> str | None:
        word = COUNTERPARTS.get(row.algorithm)
        return None if word == "allgather_reduce" and version < _ALLGATHER_REDUCE_SINCE else word

    groups = [group for group in plan.groups[1:] if group.allreduce is not None] if as_json else []
    choices = [choice for group in (world, *groups) for choice in choices_of(group.allreduce, counterpart)]
    # Rules of the smaller groups stand first: the first that fits counts, and the world's fits any placement.
    tables = tuple(_table(group, counterpart, _distribution(group)) for group in groups)
    tables += (_table(world, counterpart, "any"),)
    warnings = [*evidence_warning(plan, PROGRAM, choices)]
    warnings += lost_rows(world, counterpart, PROGRAM)
    for group in groups:
        warnings += lost_rows(group, counterpart, PROGRAM, of=shape_in_words(group))
    warnings += lost_beside_rows(plan, PROGRAM, of_other_groups=not as_json)
    if any(choice.word in _NEEDS_COMMUTATIVE for choice in choices):
        warnings.append(
            "Open MPI applies rules to user-defined operations that do not commute as well, and ring gives "
            "wrong results for those: leave the file out of jobs that have any"
        )
    if not as_json and any(choice.word is not None for choice in choices):
        warnings.append(
            f"up to Open MPI 5 this table of {world.shape.num_ranks} ranks holds for any size of communicator"
        )
    return Translated(
        document=RuleFile(form="json" if as_json else "text", tables=tables), warnings=tuple(warnings)
    )


def _table(group: Group, counterpart: Counterpart, distribution: Distribution) -> Table:
    return Table(
        num_ranks=group.shape.num_ranks,
        distribution=distribution,
        rules=tuple(
            Rule(
                min_bytes=choice.min_bytes,
                max_bytes=choice.max_bytes,
                algorithm=ALGORITHMS.index(choice.word or "ignore"),
            )
            for choice in choices_of(group.allreduce, counterpart)
        ),
    )


def _distribution(group: Group) -> Distribution:
    if group.shape.num_nodes == 1:
        return "single-node"
    return "one-per-node" if group.shape.ranks_per_node == 1 else "any"


def _write(document: RuleFile) -> str:
    return _write_json(document) if document.form == "json" else _write_text(document)


def _write_text(document: RuleFile) -> str:
    (table,) = document.tables
    lines = [
        "# coll/tuned rules of Open MPI 4 and 5: bytes, algorithm, fan, segment size",
        "1  # collective",
        f"{_ALLREDUCE}  # allreduce",
        "1  # communicator size",
        f"{table.num_ranks}  # ranks",
        f"{len(table.rules)}  # rows",
    ]
    lines += [
        f"{rule.min_bytes} {rule.algorithm} {rule.fan} {rule.segment_bytes}"
        f"  # {span(rule.min_bytes, rule.max_bytes)}: {_name(rule.algorithm)}"
        for rule in table.rules
    ]
    return "\n".join(lines) + "\n"


def _name(algorithm: int) -> str:
    return "own decision" if algorithm == 0 else ALGORITHMS[algorithm]


def _write_json(document: RuleFile) -> str:
    tables = [
        {
            "comm_size_min": table.num_ranks,
            "comm_size_max": table.num_ranks,
            "comm_rank_distribution": table.distribution,
            "rules": [_rule_to_json(rule) for rule in table.rules],
        }
        for table in document.tables
    ]
    whole = {"rule_file_version": _FILE_VERSION, "module": "tuned", "collectives": {"allreduce": tables}}
    return json.dumps(whole, indent=1) + "\n"


def _rule_to_json(rule: Rule) -> dict[str, int | str]:
    said: dict[str, int | str] = {
        "msg_size_min": rule.min_bytes,
        "msg_size_max": "inf" if rule.max_bytes is None else rule.max_bytes - 1,
        "alg": ALGORITHMS[rule.algorithm],
    }
    if rule.fan:
        said["faninout"] = rule.fan
    if rule.segment_bytes:
        said["seg_size"] = rule.segment_bytes
    return said


def _read(text: str, source: str) -> RuleFile:
    if text.lstrip().startswith("{"):
        return _read_json(text, source)
    return _read_text(text, source)


def _read_text(text: str, source: str) -> RuleFile:
    words = RuleWords(text, source)
    words.integer("the number of collectives", 1, 1)
    words.integer("the collective", _ALLREDUCE, _ALLREDUCE)
    words.integer("the number of communicator sizes", 1, 1)
    num_ranks = words.integer("the communicator size", 1, _MAX_RANKS)
    rows: list[tuple[int, int, int, int]] = []
    for _ in range(words.integer("the number of rows", 1, _MAX_RULES)):
        least, most = (rows[-1][0] + 1, MAX_INTEGER) if rows else (0, 0)
        rows.append(
            (
                words.integer("a row's first size", least, most),
                words.integer("a row's algorithm", 0, len(ALGORITHMS) - 1),
                words.integer("a row's fan", 0, _MAX_RANKS),
                words.integer("a row's segment size", 0, MAX_INTEGER),
            )
        )
    words.end()
    ends = [following[0] for _, following in pairwise(rows)]
    rules = tuple(
        Rule(min_bytes=first, max_bytes=end, algorithm=algorithm, fan=fan, segment_bytes=segment)
        for (first, algorithm, fan, segment), end in zip(rows, [*ends, None], strict=True)
    )
    return RuleFile(form="text", tables=(Table(num_ranks=num_ranks, distribution="any", rules=rules),))


def _read_json(text: str, source: str) -> RuleFile:
    members = parse_json(text.encode(), source).members(("rule_file_version", "module", "collectives"))
    members["rule_file_version"].integer(_FILE_VERSION, _FILE_VERSION)
    members["module"].text(one_of=("tuned",))
    tables = members["collectives"].members(("allreduce",))["allreduce"].items(_MAX_TABLES, what="tables")
    return RuleFile(form="json", tables=tuple(_read_table(table) for table in tables))


def _read_table(value: Value) -> Table:
    members = value.members(("comm_size_min", "comm_size_max", "comm_rank_distribution", "rules"))
    num_ranks = members["comm_size_min"].integer(1, _MAX_RANKS)
    members["comm_size_max"].integer(num_ranks, num_ranks)
    said = members["comm_rank_distribution"].text(one_of=DISTRIBUTIONS)
    return Table(
        num_ranks=num_ranks,
        distribution=next(known for known in DISTRIBUTIONS if known == said),
        rules=tuple(_read_rule(rule) for rule in members["rules"].items(_MAX_RULES, what="rules")),
    )


def _read_rule(value: Value) -> Rule:
    members = value.members(("msg_size_min", "msg_size_max", "alg"), ("faninout", "seg_size"))
    first = members["msg_size_min"].integer()
    last = members["msg_size_max"]
    return Rule(
        min_bytes=first,
        max_bytes=None if last.raw == "inf" else last.integer(first, MAX_INTEGER - 1) + 1,
        algorithm=ALGORITHMS.index(members["alg"].text(one_of=ALGORITHMS)),
        fan=members["faninout"].integer(1, _MAX_RANKS) if "faninout" in members else 0,
        segment_bytes=members["seg_size"].integer(1) if "seg_size" in members else 0,
    )


def _how_to_use(path: str) -> str:
    return (
        "mpirun --mca coll_tuned_use_dynamic_rules 1 "
        f"--mca coll_tuned_dynamic_rules_filename $(realpath {path}) --mca coll ^han …\n"
        "# ^han: from Open MPI 5 on, han would take allreduce between nodes before tuned sees it\n"
        "# whether it acts: topotune export … --verify"
    )


TARGET: Final = Target(
    name="openmpi-tuned",
    summary="Open MPI's coll/tuned rule file: text up to 5, JSON from 6",
    versions=str(VERSIONS),
    from_plan=_from_plan,
    write=_write,
    read=_read,
    how_to_use=_how_to_use,
)
