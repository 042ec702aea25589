"""The record of a search in Optuna's form: a study for each size, over algorithms and their variants.

What is tried is decided elsewhere (`topotune.tune.search`): a study is asked for just that, and told what
came of it, so that other tools can read the search.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState

from topotune.tune.trial import Candidate

ALGORITHM: Final = "algorithm"
"""The parameter of a study that names the algorithm; under each algorithm's name stands the variant."""


def new_study(seed: int) -> optuna.Study:
    """An empty study: minimises log(candidate / default)."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="minimize", sampler=optuna.samplers.RandomSampler(seed=seed))


def search_space(candidates: Iterable[Candidate]) -> dict[str, CategoricalDistribution]:
    """``algorithm`` and, under each algorithm's name, its variants (parameters as JSON)."""
    variants: dict[str, list[str]] = {}
    for candidate in candidates:
        variants.setdefault(candidate.algorithm, []).append(candidate.params_json)
    return {
        ALGORITHM: CategoricalDistribution(tuple(variants)),
        **{algorithm: CategoricalDistribution(tuple(names)) for algorithm, names in variants.items()},
    }


def open_trial(
    study: optuna.Study, space: Mapping[str, CategoricalDistribution], candidate: Candidate
) -> optuna.Trial:
    """An open trial of this candidate.

    Args:
        study: of the size.
        space: of the study's candidates, as `search_space` gives it.
        candidate: one of them.
    """
    study.enqueue_trial(_params(candidate))
    trial = study.ask()
    for name in (ALGORITHM, candidate.algorithm):
        trial.suggest_categorical(name, space[name].choices)
    return trial


def rebuild_study(
    notes: Iterable[Mapping[str, Any]], message_bytes: int, candidates: Sequence[Candidate], *, seed: int
) -> optuna.Study:
    """The study of one size as it stood, from a journal's notes.

    Args:
        notes: of the journal; those of kind ``told`` are used.
        message_bytes: the size.
        candidates: of that run, in the same order; what was told of others is left out.
        seed: of the study.
    """
    study = new_study(seed)
    space = search_space(candidates)
    for note in notes:
        if note["kind"] != "told" or note["message_bytes"] != message_bytes:
            continue
        candidate = Candidate.of(note["algorithm"], note["params"])
        if candidate not in candidates:
            continue
        params = _params(candidate)
        state = TrialState[note["state"]]
        value = note["log_ratio"]
        study.add_trial(
            optuna.trial.create_trial(
                state=state,
                value=value if state is TrialState.COMPLETE else None,
                params=params,
                distributions={name: space[name] for name in params},
                intermediate_values={} if value is None else {note["num_rounds"]: value},
            )
        )
    return study


def _params(candidate: Candidate) -> dict[str, str]:
    return {ALGORITHM: candidate.algorithm, candidate.algorithm: candidate.params_json}
