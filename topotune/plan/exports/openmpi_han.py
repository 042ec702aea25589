"""Open MPI's rule file of coll/han: from which size on allreduce between nodes is hierarchical.

Theory of operation. HAN reduces within each node, runs an allreduce between the nodes' leaders, and
broadcasts within the nodes. Its rule file says for a communicator which component takes a message: ``han``
itself (hierarchical) or ``tuned`` (flat). Sizes of communicators and messages are minima: the last that is
not above counts. So one table for exactly n ranks stands between one from 1 rank on and one from n + 1 ranks
on, which leave all as it is: tuned up to 4.1, where HAN is off unless asked for, and han from 5.0 on.

Collectives and levels are written as numbers, components as names: all versions read those (4.1.4 takes no
names of collectives, and no numbers of components). Rules of the levels inside HAN are left out; its
parameters keep them.
"""

from dataclasses import dataclass
from typing import Final

from topotune.documents import MAX_INTEGER
from topotune.plan import Group, Plan, Row
from topotune.plan.algorithms import SCHEDULE_ALGORITHMS
from topotune.plan.exports.counterparts import choices_of, evidence_warning, lost_beside_rows, lost_rows
from topotune.plan.exports.nodes import HIERARCHICAL, groups_are_nodes
from topotune.plan.exports.rule_words import RuleWords
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions

PROGRAM: Final = "Open MPI's HAN"
VERSIONS: Final = Versions(program="Open MPI", oldest=(4, 1), newest=(6, 0))
COMPONENTS: Final = ("tuned", "han")
FLAT: Final = tuple(
    name
    for name in (*SCHEDULE_ALGORITHMS, "native_reduce_broadcast", "native_reduce_scatter_allgather")
    if name not in HIERARCHICAL
)

_HAN_BY_DEFAULT_SINCE: Final = (5, 0)
_ALLREDUCE: Final = 2
_GLOBAL_COMMUNICATOR: Final = 2
_MAX_RANKS: Final = 2**31 - 1
_MAX_RULES: Final = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """From a size on.

    Attributes:
        min_bytes: the smallest message; it holds up to the next rule's.
        component: ``tuned`` or ``han``.
    """

    min_bytes: int
    component: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The rules of communicators from a size on.

    Attributes:
        min_ranks: the smallest communicator; they hold up to the next table's.
        rules: ascending, the first from 0.
    """

    min_ranks: int
    rules: tuple[Rule, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class HanRules:
    """A rule file: tables ascending, the first from 1 rank on."""

    tables: tuple[Table, ...]


def _from_plan(plan: Plan, options: ExportOptions) -> Translated:
    version = VERSIONS.chosen(options.version)
    own = "han" if version >= _HAN_BY_DEFAULT_SINCE else "tuned"
    world = plan.groups[0]
    node_sizes = sorted(plan.fingerprint.hard.ranks_per_node)

    def counterpart(row: Row) -> str | None:
        if row.algorithm in FLAT:
            return "tuned"
        return "han" if row.algorithm in HIERARCHICAL and groups_are_nodes(plan, row) else None

    choices = choices_of(world.allreduce, counterpart)
    rules: list[Rule] = []
    for choice in choices:
        component = choice.word or own
        if not rules or rules[-1].component != component:
            rules.append(Rule(min_bytes=choice.min_bytes, component=component))
    num_ranks = world.shape.num_ranks
    as_it_is = (Rule(min_bytes=0, component=own),)
    tables = [Table(min_ranks=num_ranks, rules=tuple(rules)), Table(min_ranks=num_ranks + 1, rules=as_it_is)]
    if num_ranks > 1:
        tables.insert(0, Table(min_ranks=1, rules=as_it_is))
    warnings = [*evidence_warning(plan, PROGRAM, choices)]
    warnings += lost_rows(world, counterpart, PROGRAM)
    warnings += _warnings(world, tuple(choice.word for choice in choices), node_sizes)
    warnings += lost_beside_rows(plan, PROGRAM)
    return Translated(document=HanRules(tables=tuple(tables)), warnings=tuple(warnings))


def _warnings(world: Group, words: tuple[str | None, ...], node_sizes: list[int]) -> list[str]:
    warnings = []
    if len(node_sizes) == 1:
        warnings.append("the plan is for one node, and HAN leaves communicators of one node alone")
    elif len(set(node_sizes)) > 1 and "han" in words:
        warnings.append(
            f"nodes have from {node_sizes[0]} to {node_sizes[-1]} ranks, and where nodes differ HAN falls "
            "back to flat algorithms"
        )
    if "tuned" in words:
        warnings.append("which flat algorithm runs is coll/tuned's decision: --to openmpi-tuned says that")
    return warnings


def _write(document: HanRules) -> str:
    lines = [
        "# coll/han rules of Open MPI: minima of ranks and bytes, and the component from there on",
        "1  # collective",
        f"{_ALLREDUCE}  # allreduce",
        "1  # level",
        f"{_GLOBAL_COMMUNICATOR}  # global communicator",
        f"{len(document.tables)}  # communicator sizes",
    ]
    for table in document.tables:
        lines += [f"{table.min_ranks}  # ranks and more", f"{len(table.rules)}  # rows"]
        lines += [f"{rule.min_bytes} {rule.component}" for rule in table.rules]
    return "\n".join(lines) + "\n"


def _read(text: str, source: str) -> HanRules:
    words = RuleWords(text, source)
    words.integer("the number of collectives", 1, 1)
    words.integer("the collective", _ALLREDUCE, _ALLREDUCE)
    words.integer("the number of levels", 1, 1)
    words.integer("the level", _GLOBAL_COMMUNICATOR, _GLOBAL_COMMUNICATOR)
    tables: list[Table] = []
    for _ in range(words.integer("the number of communicator sizes", 1, _MAX_RULES)):
        least, most = (tables[-1].min_ranks + 1, _MAX_RANKS) if tables else (1, 1)
        min_ranks = words.integer("a communicator size", least, most)
        rules: list[Rule] = []
        for _ in range(words.integer("the number of rows", 1, _MAX_RULES)):
            first, last = (rules[-1].min_bytes + 1, MAX_INTEGER) if rules else (0, 0)
            min_bytes = words.integer("a row's first size", first, last)
            component = words.word("a component")
            if component not in COMPONENTS:
                words.fail(f"the component is {component[:40]!r}, not one of {', '.join(COMPONENTS)}")
            rules.append(Rule(min_bytes=min_bytes, component=component))
        tables.append(Table(min_ranks=min_ranks, rules=tuple(rules)))
    words.end()
    return HanRules(tables=tuple(tables))


def _how_to_use(path: str) -> str:
    return (
        "mpirun --mca coll_han_priority 90 --mca coll_han_use_dynamic_file_rules 1 "
        f"--mca coll_han_dynamic_rules_filename $(realpath {path}) …\n"
        "# whether it was read: --mca coll_han_dump_dynamic_rules 1 --mca coll_base_verbose 10"
    )


TARGET: Final = Target(
    name="openmpi-han",
    summary="Open MPI's coll/han rule file: flat or hierarchical by size",
    versions=str(VERSIONS),
    from_plan=_from_plan,
    write=_write,
    read=_read,
    how_to_use=_how_to_use,
)
