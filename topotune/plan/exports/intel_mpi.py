"""Intel MPI's environment: I_MPI_ADJUST_ALLREDUCE, an algorithm's number for each range of sizes.

Theory of operation. The variable is a list of ``number:from-to@ranks``, both ends inclusive, the first that
fits counts, and what none fits stays Intel MPI's own decision. So rows without a counterpart are left out.
Sizes end at 2**31 - 1 bytes. Since about 2021.13 Intel's pages call the numbers presets, which need not be
the algorithms that they were; every export says so.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from topotune.errors import InputFileError
from topotune.plan import Plan, Row
from topotune.plan.exports.counterparts import choices_of, evidence_warning, lost_beside_rows, lost_rows
from topotune.plan.exports.target import ExportOptions, Target, Translated
from topotune.plan.exports.versions import Versions

PROGRAM: Final = "Intel MPI"
VERSIONS: Final = Versions(program=PROGRAM, oldest=(2019, 0), newest=(2021, 17))
VARIABLE: Final = "I_MPI_ADJUST_ALLREDUCE"
LAST_BYTES: Final = 2**31 - 1
"""The largest size that a range can name."""

NUMBERS: Final[Mapping[str, int]] = {
    "recursive_doubling": 1,
    "halving_doubling": 2,
    "native_reduce_scatter_allgather": 2,
    "native_reduce_broadcast": 3,
    "ring": 8,
}
"""topotune's algorithm → Intel MPI's number: recursive doubling, Rabenseifner, reduce and bcast, ring."""

_MAX_NUMBER: Final = 99
_MAX_RANKS: Final = 2**31 - 1
_MAX_LINE: Final = 2**17
_LINE: Final = re.compile(rf"export {VARIABLE}='([0-9:;@-]*)'")
_CLAUSE: Final = re.compile(r"([0-9]{1,2}):([0-9]{1,10})-([0-9]{1,10})@([0-9]{1,10})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Clause:
    """One range of sizes.

    Attributes:
        number: of the algorithm.
        first_bytes, last_bytes: the range, both ends inclusive.
        num_ranks: of the communicators that it is for.
    """

    number: int
    first_bytes: int
    last_bytes: int
    num_ranks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Adjustment:
    """The variable's clauses, in their order; none leaves the variable unset."""

    clauses: tuple[Clause, ...]


def _from_plan(plan: Plan, options: ExportOptions) -> Translated:
    VERSIONS.chosen(options.version)
    world = plan.groups[0]
    choices = choices_of(world.allreduce, _counterpart)
    warnings = [*evidence_warning(plan, PROGRAM, choices)]
    clauses = tuple(
        Clause(
            number=int(choice.word),
            first_bytes=choice.min_bytes,
            last_bytes=LAST_BYTES if choice.max_bytes is None else min(choice.max_bytes - 1, LAST_BYTES),
            num_ranks=world.shape.num_ranks,
        )
        for choice in choices
        if choice.word is not None and choice.min_bytes <= LAST_BYTES
    )
    if clauses:
        warnings.append(
            "the numbers are those of Intel MPI up to 2021.12; later ones call them presets, which need not "
            "be the same algorithms: time each on the cluster"
        )
    if any(
        choice.word and (choice.max_bytes is None or choice.max_bytes > LAST_BYTES + 1) for choice in choices
    ):
        warnings.append(f"Intel MPI's ranges end at {LAST_BYTES} B; above it decides by itself")
    warnings += lost_rows(world, _counterpart, PROGRAM)
    warnings += lost_beside_rows(plan, PROGRAM)
    return Translated(document=Adjustment(clauses=clauses), warnings=tuple(warnings))


def _counterpart(row: Row) -> str | None:
    number = NUMBERS.get(row.algorithm)
    return None if number is None else str(number)


def _environment(document: Adjustment) -> Mapping[str, str]:
    if not document.clauses:
        return {}
    return {VARIABLE: ";".join(_clause(clause) for clause in document.clauses)}


def _clause(clause: Clause) -> str:
    return f"{clause.number}:{clause.first_bytes}-{clause.last_bytes}@{clause.num_ranks}"


def _write(document: Adjustment) -> str:
    lines = ["# Intel MPI's allreduce by size: algorithm:from-to@ranks"]
    lines += [f"export {name}='{value}'" for name, value in _environment(document).items()]
    return "\n".join(lines) + "\n"


def _read(text: str, source: str) -> Adjustment:
    clauses: tuple[Clause, ...] = ()
    seen = False
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        place = f"line {number}"
        match = _LINE.fullmatch(line.strip()) if len(line) <= _MAX_LINE else None
        if match is None:
            raise InputFileError(source, f"is no export {VARIABLE}='…': {line[:60]!r}", place=place)
        if seen:
            raise InputFileError(source, f"sets {VARIABLE} a second time", place=place)
        seen = True
        clauses = tuple(_read_clause(clause, source, place) for clause in match[1].split(";"))
    return Adjustment(clauses=clauses)


def _read_clause(text: str, source: str, place: str) -> Clause:
    match = _CLAUSE.fullmatch(text)
    if match is None:
        raise InputFileError(source, f"{text[:60]!r} is no algorithm:from-to@ranks", place=place)
    number, first, last, ranks = (int(part) for part in match.groups())
    if not (1 <= number <= _MAX_NUMBER and first <= last <= LAST_BYTES and 1 <= ranks <= _MAX_RANKS):
        raise InputFileError(source, f"{text!r} is out of bounds", place=place)
    return Clause(number=number, first_bytes=first, last_bytes=last, num_ranks=ranks)


def _how_to_use(path: str) -> str:
    return f". {path}\nmpirun -genvall …\n# what is in force: I_MPI_DEBUG=4"


TARGET: Final = Target(
    name="intel-mpi",
    summary="Intel MPI's I_MPI_ADJUST_ALLREDUCE, to be sourced by a shell",
    versions=str(VERSIONS),
    from_plan=_from_plan,
    write=_write,
    read=_read,
    environment=None,  # `topotune run` leaves it: what gloo did is no evidence about Intel MPI
    how_to_use=_how_to_use,
)
