"""What a plan's certificate says, and how the plan is used, in plain words."""

import shlex

from topotune.plan.model import DEFAULT_ALGORITHM, Plan
from topotune.units import format_bytes, format_seconds


def certificate_in_words(plan: Plan) -> tuple[str, ...]:
    """How far the plan may be trusted, one paragraph each."""
    one = plan.certificate
    confirmed = "No row came so far as to be compared."
    if one.num_comparisons:
        confirmed = (
            f"{one.num_comparisons} comparison{'s were' * (one.num_comparisons > 1) or ' was'} made and "
            f"corrected for their number ({one.correction}): that no row left the default that should not "
            f"have holds for all of them together with {100 * one.confidence:g} % confidence."
        )
    said = [
        "A row leaves the default only where fresh, paired measurements show a gain: the whole interval of "
        f"default / plan had to lie above {1 + one.min_gain:g}. {confirmed}"
    ]
    if one.num_null_trials and one.false_win_rate is not None:
        wins = round(one.false_win_rate * one.num_null_trials)
        upper = 100 * (one.false_win_rate_ci or (0.0, 1.0))[1]
        said.append(
            f"As a control the default was tuned against itself {one.num_null_trials} times, where no gain "
            f"can be: it “won” {wins} times, so that the true rate of false gains on this cluster is at most "
            f"{upper:.0f} % (95 % confidence)."
        )
    else:
        said.append("The default was not tuned against itself, so the rate of false gains is not known.")
    said.append(f"Method: {one.method}.")
    return tuple(said)


def gains_in_words(plan: Plan) -> str:
    """What the plan gains, in a sentence."""
    rows = plan.groups[0].allreduce or ()
    won = [row for row in rows if row.algorithm != DEFAULT_ALGORITHM and row.evidence is not None]
    if not won:
        return "The plan keeps the default at every message size: no gain was confirmed."
    best = max(won, key=lambda row: row.evidence.ratio if row.evidence else 0.0)
    assert best.evidence is not None
    times = f"{format_seconds(best.evidence.default_median_s)} → {format_seconds(best.evidence.median_s)}"
    return (
        f"The plan leaves the default in {len(won)} of {len(rows)} size ranges; the largest gain is "
        f"{best.evidence.ratio:.2f} times, by {best.algorithm} at "
        f"{format_bytes(best.evidence.measured_bytes)} ({times})."
    )


def plan_commands(plan: Plan, path: str) -> tuple[tuple[str, str], ...]:
    """How to use a plan: what for, and the text to type.

    Args:
        plan: the plan.
        path: its file, as the user wrote it.
    """
    hard = plan.fingerprint.hard
    torchrun = f"torchrun --nproc-per-node {hard.ranks_per_node[0]}"
    if len(hard.ranks_per_node) > 1:
        torchrun += f" --nnodes {len(hard.ranks_per_node)} …"
    file = shlex.quote(path)
    return (
        (
            "Run the job under the plan (or set TOPOTUNE_PLAN)",
            f"topotune run --plan {file} -- {torchrun} train.py",
        ),
        (
            "In train.py: the topotune backend, bucket sizes from the plan where it has any",
            'dist.init_process_group("topotune")\nmodel = DDP(model, **topotune.ddp_kwargs())',
        ),
        (
            "Or keep the backend, and give DDP a hook",
            f"model.register_comm_hook(None, topotune.ddp_comm_hook({path!r}))",
        ),
        ("See that it holds here and now; exit code 3 where it is slower", f"topotune compare {file}"),
        ("For other programs (MPI, NCCL, …)", f"topotune export {file} --to list"),
    )


def conditions_in_words(plan: Plan) -> str:
    """Where the plan applies, in a sentence."""
    hard = plan.fingerprint.hard
    nodes = len(hard.ranks_per_node)
    return (
        f"It applies to jobs of {hard.world_size} ranks on {nodes} node{'s' * (nodes != 1)} "
        f"({'+'.join(map(str, hard.ranks_per_node[:8]))}{'+…' if nodes > 8 else ''} per node) with "
        f"{hard.collective_library} on {hard.device_kind}; elsewhere it costs one warning and leaves the "
        "default."
    )
