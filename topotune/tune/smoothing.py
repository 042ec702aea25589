"""Table smoothing: along the sizes of a table, the algorithm changes only where the change is well founded.

A single size where one candidate comes out ahead is chance more often than truth, and a table that follows it
flickers. So a change of algorithm from one size to the next, the change from the default among them, asks for
more than the margin at one size. A candidate stays where it was confirmed

- at two neighbouring searched sizes and at all that was tested between them, or
- at one searched size alone (or only between two) with an interval that clears the margin twice over.

Else what was found is withdrawn. Another candidate that was itself confirmed there, and is so founded, has
the range; the default, which needs no support, has what is left. So nothing is put in place that was not
confirmed.

A first or last size has one neighbour, and no privilege. Where a single size was searched there is no
neighbour that could bear out or contradict what was found: there is nothing to smooth, and the margin decides
alone.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from topotune.tune.decide import confirmed_spans
from topotune.tune.judge import Confirmation, margin_twice_over
from topotune.tune.trial import Candidate
from topotune.units import format_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Lone:
    """What was confirmed without support, and is withdrawn.

    Attributes:
        confirmed: of one candidate, ascending; at most one of these sizes was searched.
    """

    confirmed: tuple[Confirmation, ...]

    @property
    def candidate(self) -> Candidate:
        """Which."""
        return self.confirmed[0].candidate

    @property
    def shown(self) -> Confirmation:
        """At the searched size; at the first size if none was."""
        return next((one for one in self.confirmed if one.searched), self.confirmed[0])

    def in_words(self, min_gain: float) -> str:
        """What was found and what was not, without an end to the sentence."""
        compared = self.shown.comparison
        return (
            f"{self.candidate.label} was confirmed at {format_bytes(self.shown.message_bytes)} "
            f"[{compared.low:.3f}, {compared.high:.3f}] but at no neighbouring size, and alone it would "
            f"have to reach {margin_twice_over(min_gain):.3f}"
        )


def smoothed(
    confirmations: Sequence[Confirmation],
    *,
    tested_bytes: Iterable[int],
    searched_bytes: Collection[int],
    min_gain: float,
) -> tuple[list[Confirmation], list[Lone]]:
    """Confirmations without those that stand alone and do not clear the margin twice over.

    Args:
        confirmations: of all points, passed or not.
        tested_bytes: sizes that were to be confirmed, run or not.
        searched_bytes: all sizes of the search.
        min_gain: the margin.

    Returns:
        all of them in their order, those withdrawn as not passed; and what was withdrawn, ascending.
    """
    if len(searched_bytes) < 2:
        return list(confirmations), []
    lone = [
        Lone(confirmed=stretch)
        for stretch in _stretches(confirmations, {*tested_bytes, *searched_bytes})
        if not _is_supported(stretch, min_gain)
    ]
    withdrawn = {(one.candidate, one.message_bytes) for each in lone for one in each.confirmed}
    held = [
        replace(one, passed=False) if (one.candidate, one.message_bytes) in withdrawn else one
        for one in confirmations
    ]
    return held, lone


def _is_supported(confirmed: Sequence[Confirmation], min_gain: float) -> bool:
    """The rule, for all that one candidate was confirmed at without a break."""
    searched = [one for one in confirmed if one.searched]
    if len(searched) > 1:
        return True
    least = margin_twice_over(min_gain)
    return all(one.comparison.low >= least for one in searched or confirmed)


def _stretches(
    confirmations: Sequence[Confirmation], tested_bytes: Iterable[int]
) -> list[tuple[Confirmation, ...]]:
    """What each candidate's spans go through without a break; ascending."""
    stretches: list[tuple[Confirmation, ...]] = []
    last: dict[Candidate, int] = {}
    for span in confirmed_spans(confirmations, tested_bytes):
        at = last.get(span.candidate)
        if at is not None and stretches[at][-1].message_bytes == span.first_bytes:
            stretches[at] += span.confirmed[1:]
        else:
            last[span.candidate] = len(stretches)
            stretches.append(span.confirmed)
    return stretches
