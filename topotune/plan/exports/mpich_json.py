"""MPICH's algorithm selection by size (MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE).

Theory of operation. See `mpich_selection` for the file. What a row names is used only for calls that its
algorithm is for, as in MPICH's own file: ring where the operation commutes, reduce-scatter and allgather
where it is built in and there is an element for each rank; all else stays MPICH's own choice.

On MPICH's usual device (ch4) a composition is chosen first, and only the flat one runs these algorithms over
the whole communicator: ``--to mpich-ch4-json`` writes that file, and a job needs both.
"""

from collections.abc import Mapping
from typing import Final

from topotune.plan import Plan, Row
from topotune.plan.exports.counterparts import choices_of, evidence_warning, lost_beside_rows, lost_rows
from topotune.plan.exports.mpich_selection import (
    PROGRAM,
    VERSIONS,
    Tree,
    base_tree,
    beyond_warning,
    named,
    read_tree,
    with_choices,
    write_tree,
)
from topotune.plan.exports.target import ExportOptions, Target, Translated

NAME: Final = "mpich-json"
COUNTERPARTS: Final[Mapping[str, str]] = {
    "ring": "ring",
    "recursive_doubling": "recursive_doubling",
    "halving_doubling": "reduce_scatter_allgather",
    "native_reduce_scatter_allgather": "reduce_scatter_allgather",
}
"""topotune's name → MPICH's, without ``MPIR_Allreduce_intra_``."""


def counterpart(row: Row) -> str | None:
    """MPICH's name for a row's algorithm."""
    return COUNTERPARTS.get(row.algorithm)


def _from_plan(plan: Plan, options: ExportOptions) -> Translated:
    VERSIONS.chosen(options.version)
    base = base_tree(options, "algorithm", NAME)
    world = plan.groups[0]
    choices = choices_of(world.allreduce, counterpart)
    warnings = [*evidence_warning(plan, PROGRAM, choices)]
    warnings += beyond_warning(choices)
    warnings += lost_rows(world, counterpart, PROGRAM)
    warnings += lost_beside_rows(plan, PROGRAM)
    if any(choice.word is not None for choice in choices):
        warnings.append(
            "the ch4 device runs these only with the compositions of --to mpich-ch4-json beside them"
        )
    return Translated(
        document=with_choices(base, world.shape.num_ranks, choices, _leaf), warnings=tuple(warnings)
    )


def _leaf(word: str, own: Tree) -> Tree:
    algorithm = _algorithm(word)
    if word == "ring":
        return Tree((("is_commutative=yes", algorithm), ("is_commutative=no", own)))
    if word == "reduce_scatter_allgather":
        by_count = Tree((("count<pow2", _algorithm("recursive_doubling")), ("count=any", algorithm)))
        return Tree((("is_op_built_in=yes", by_count), ("is_op_built_in=no", own)))
    return algorithm


def _algorithm(word: str) -> Tree:
    return named("algorithm", f"MPIR_Allreduce_intra_{word}")


def _how_to_use(path: str) -> str:
    return (
        f"export MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE=$(realpath {path})\n"
        "# and MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE: topotune export … --to mpich-ch4-json\n"
        "# whether it acts: topotune export … --verify"
    )


TARGET: Final = Target(
    name=NAME,
    summary="MPICH's algorithm selection file; needs --base",
    versions=str(VERSIONS),
    from_plan=_from_plan,
    write=write_tree,
    read=read_tree,
    how_to_use=_how_to_use,
)
