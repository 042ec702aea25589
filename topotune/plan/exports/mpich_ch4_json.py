"""MPICH's composition selection of its ch4 device (MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE).

Theory of operation. Before an algorithm, ch4 chooses a composition: alpha reduces in each node, runs an
allreduce between the nodes' first ranks, and broadcasts; beta runs one algorithm over all ranks. By default
alpha takes all that spans nodes, shared memory (gamma) what does not. So flat rows need beta, or the
algorithm that `mpich_json` names never runs over the plan's ranks; hierarchical rows need alpha, where the
communicator has nodes and the operation commutes.
"""

from typing import Final

from topotune.plan import Plan, Row
from topotune.plan.exports import mpich_json
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
from topotune.plan.exports.nodes import HIERARCHICAL, groups_are_nodes
from topotune.plan.exports.target import ExportOptions, Target, Translated

NAME: Final = "mpich-ch4-json"


def _from_plan(plan: Plan, options: ExportOptions) -> Translated:
    VERSIONS.chosen(options.version)
    base = base_tree(options, "composition", NAME)
    world = plan.groups[0]

    def counterpart(row: Row) -> str | None:
        if row.algorithm in HIERARCHICAL and world.shape.num_nodes > 1 and groups_are_nodes(plan, row):
            return "alpha"
        return None if mpich_json.counterpart(row) is None else "beta"

    choices = choices_of(world.allreduce, counterpart)
    warnings = [*evidence_warning(plan, PROGRAM, choices)]
    warnings += beyond_warning(choices)
    warnings += lost_rows(world, counterpart, PROGRAM)
    warnings += lost_beside_rows(plan, PROGRAM)
    if any(choice.word == "beta" for choice in choices):
        warnings.append("which algorithm runs over all ranks is what --to mpich-json says")
    return Translated(
        document=with_choices(base, world.shape.num_ranks, choices, _leaf), warnings=tuple(warnings)
    )


def _leaf(word: str, own: Tree) -> Tree:
    composition = named("composition", f"MPIDI_Allreduce_intra_composition_{word}")
    if word == "beta":
        return composition
    by_operation = Tree((("is_commutative=yes", composition), ("is_commutative=no", own)))
    return Tree((("comm_hierarchy=parent", by_operation), ("comm_hierarchy=any", own)))


def _how_to_use(path: str) -> str:
    return (
        f"export MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE=$(realpath {path})\n"
        "# and MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE: topotune export … --to mpich-json"
    )


TARGET: Final = Target(
    name=NAME,
    summary="MPICH's composition selection file (flat or by node); needs --base",
    versions=str(VERSIONS),
    from_plan=_from_plan,
    write=write_tree,
    read=read_tree,
    how_to_use=_how_to_use,
)
