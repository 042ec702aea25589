"""UCC's configuration file: a section for teams of the plan's shape, with tl/ucp's algorithm by size.

Theory of operation. A section applies to teams whose size, ranks per node and nodes all match, and acts on
tl/ucp (sections of other components are ignored). Ranges there start inclusive and end exclusive, as the
plan's do; sizes that no range names keep UCC's own scores, so rows without a counterpart are left out. UCC's
knomial allreduce is recursive doubling only with radix 2, its SRA is halving-doubling only with radix 2: the
radix is set for just those ranges.

Hierarchical rows have no place in a section: cl/hier is switched on by UCC_CLS for all teams and sizes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from topotune.documents import MAX_INTEGER
from topotune.errors import InputFileError
from topotune.plan import Plan, Row
from topotune.plan.exports.counterparts import choices_of, evidence_warning, lost_beside_rows, lost_rows
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions

PROGRAM: Final = "UCC"
VERSIONS: Final = Versions(program=PROGRAM, oldest=(1, 3), newest=(1, 6))
ALGORITHMS: Final = ("knomial", "sra_knomial", "dbt", "ring")
"""tl/ucp's names of the allreduce algorithms that are written; numbers differ by version."""

COUNTERPARTS: Final[Mapping[str, str]] = {
    "recursive_doubling": "knomial",
    "halving_doubling": "sra_knomial",
    "native_reduce_scatter_allgather": "sra_knomial",
    "double_binary_tree": "dbt",
    "ring": "ring",
}
RADIX: Final[Mapping[str, str]] = {
    "knomial": "UCC_TL_UCP_ALLREDUCE_KN_RADIX",
    "sra_knomial": "UCC_TL_UCP_ALLREDUCE_SRA_KN_RADIX",
}
"""Algorithm → the variable that holds its radix."""

Memory = Literal["host", "cuda"]

_TUNE: Final = "UCC_TL_UCP_TUNE"
_MAX_LINE: Final = 2**19
_COUNT: Final = "([1-9][0-9]{0,9})"
_SECTION: Final = re.compile(rf"\[team_size={_COUNT}(?: ppn={_COUNT})? nnodes={_COUNT}\]")
_ASSIGNMENT: Final = re.compile(r"([A-Z_]{1,64})=(\S+)")
_TOKEN: Final = re.compile(r"allreduce:([0-9]{1,19})-([0-9]{1,19}|inf):(host|cuda):@([a-z_]{1,20})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One range of sizes.

    Attributes:
        min_bytes: the smallest message.
        max_bytes: the first size beyond; None is unbounded.
        algorithm: tl/ucp's name.
    """

    min_bytes: int
    max_bytes: int | None
    algorithm: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """What holds for teams of one shape.

    Attributes:
        team_size: ranks.
        ranks_per_node: on every node; None where nodes differ.
        num_nodes: that they lie on.
        memory: where the buffers are; ``host`` where there are no rules.
        rules: ascending; sizes between them are UCC's own decision.
    """

    team_size: int
    ranks_per_node: int | None
    num_nodes: int
    memory: Memory
    rules: tuple[Rule, ...]


def _from_plan(plan: Plan, options: ExportOptions) -> Translated:
    VERSIONS.chosen(options.version)
    world = plan.groups[0]
    choices = choices_of(world.allreduce, _counterpart)
    warnings = [*evidence_warning(plan, PROGRAM, choices)]
    warnings += lost_rows(world, _counterpart, PROGRAM)
    warnings += lost_beside_rows(plan, PROGRAM)
    on_gpus = plan.fingerprint.hard.device_kind.startswith("cuda")
    if on_gpus and any(choice.word is not None for choice in choices):
        warnings.append(
            "only tl/ucp is told: for GPU buffers UCC prefers tl/nccl and tl/cuda, where they are built in"
        )
    rules = tuple(
        Rule(min_bytes=choice.min_bytes, max_bytes=choice.max_bytes, algorithm=choice.word)
        for choice in choices
        if choice.word is not None
    )
    return Translated(
        document=Section(
            team_size=world.shape.num_ranks,
            ranks_per_node=world.shape.ranks_per_node or None,
            num_nodes=world.shape.num_nodes,
            memory="cuda" if on_gpus and rules else "host",
            rules=rules,
        ),
        warnings=tuple(warnings),
    )


def _counterpart(row: Row) -> str | None:
    return COUNTERPARTS.get(row.algorithm)


def _write(document: Section) -> str:
    per_node = "" if document.ranks_per_node is None else f" ppn={document.ranks_per_node}"
    lines = [
        "# UCC: the plan's allreduce, for teams of its shape",
        f"[team_size={document.team_size}{per_node} nnodes={document.num_nodes}]",
    ]
    memory = document.memory
    for algorithm, variable in RADIX.items():
        ranges = [f"{_range(rule)}:{memory}:2" for rule in document.rules if rule.algorithm == algorithm]
        if ranges:
            lines.append(f"{variable}={','.join(ranges)}")
    if document.rules:
        tokens = [f"allreduce:{_range(rule)}:{memory}:@{rule.algorithm}" for rule in document.rules]
        lines.append(f"{_TUNE}={'#'.join(tokens)}")
    return "\n".join(lines) + "\n"


def _range(rule: Rule) -> str:
    return f"{rule.min_bytes}-{'inf' if rule.max_bytes is None else rule.max_bytes}"


def _read(text: str, source: str) -> Section:
    section: re.Match[str] | None = None
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        said, place = line.strip(), f"line {number}"
        if not said or said.startswith("#"):
            continue
        if len(said) > _MAX_LINE:
            raise InputFileError(source, f"has {len(said)} characters, more than {_MAX_LINE}", place=place)
        if section is None:
            section = _SECTION.fullmatch(said)
            if section is None:
                raise InputFileError(source, f"begins no section of a team: {said[:60]!r}", place=place)
            continue
        assignment = _ASSIGNMENT.fullmatch(said)
        if assignment is None or assignment[1] not in (*RADIX.values(), _TUNE) or assignment[1] in values:
            raise InputFileError(
                source, f"is no variable that an export sets once: {said[:60]!r}", place=place
            )
        values[assignment[1]] = assignment[2]
    if section is None:
        raise InputFileError(source, "holds no section of a team: [team_size=…]")
    read = [_read_rule(token, source) for token in values[_TUNE].split("#")] if _TUNE in values else []
    memories = {memory for _, memory in read}
    if len(memories) > 1:
        raise InputFileError(source, "is for buffers on hosts and on GPUs at once", place=_TUNE)
    document = Section(
        team_size=int(section[1]),
        ranks_per_node=None if section[2] is None else int(section[2]),
        num_nodes=int(section[3]),
        memory=memories.pop() if memories else "host",
        rules=tuple(rule for rule, _ in read),
    )
    if any(f"{name}={value}" not in _write(document).splitlines() for name, value in values.items()):
        raise InputFileError(source, "sets a radix that is not 2, or for other ranges than its algorithm has")
    return document


def _read_rule(token: str, source: str) -> tuple[Rule, Memory]:
    match = _TOKEN.fullmatch(token)
    if match is None or match[4] not in ALGORITHMS:
        raise InputFileError(source, f"{token[:60]!r} is no allreduce:from-to:memory:@algorithm", place=_TUNE)
    first = int(match[1])
    end = None if match[2] == "inf" else int(match[2])
    if first > MAX_INTEGER or (end is not None and not first < end <= MAX_INTEGER + 1):
        raise InputFileError(source, f"{token!r} is an empty range, or out of bounds", place=_TUNE)
    memory: Memory = "cuda" if match[3] == "cuda" else "host"
    return Rule(min_bytes=first, max_bytes=end, algorithm=match[4]), memory


def _how_to_use(path: str) -> str:
    return (
        f"export UCC_CONFIG_FILE=$(realpath {path})\n"
        "mpirun --mca coll_ucc_enable 1 --mca coll_ucc_priority 100 …\n"
        "# whether it acts: UCC_LOG_LEVEL=info prints the score map, UCC_COLL_TRACE=info each algorithm"
    )


TARGET: Final = Target(
    name="ucc",
    summary="UCC's configuration file, a section for the plan's shape",
    versions=str(VERSIONS),
    from_plan=_from_plan,
    write=_write,
    read=_read,
    how_to_use=_how_to_use,
)
