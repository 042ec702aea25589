"""Whether two tunings of the same cluster gave the same plan, but for rows whose intervals overlap.

    topotune lab 2x4 -- topotune tune --fresh --budget 200 --seed 1 -o one.json
    topotune lab 2x4 -- topotune tune --fresh --budget 200 --seed 2 -o other.json
    python benchmarks/same_plan.py one.json other.json

Prints a line for each size at which either plan was measured: what both have there, the interval of default /
plan of each, and whether they are the same, differ within their intervals, or differ beyond them. A plan that
keeps the default says nothing of the interval that kept it; there the other's must come within twice the
margin, for that is where a row may be lost by chance. Exits 3 where rows differ beyond their intervals.
"""

import argparse
import sys
from pathlib import Path

from topotune.plan import Plan, load_plan
from topotune.plan.lookup import find_row
from topotune.plan.model import DEFAULT_ALGORITHM, Row
from topotune.units import format_bytes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("one", type=Path)
    parser.add_argument("other", type=Path)
    options = parser.parse_args()
    one, other = plans = tuple(load_plan(path) for path in (options.one, options.other))
    for path, plan in zip((options.one, options.other), plans, strict=True):
        if not plan.groups[0].allreduce:
            sys.exit(f"{path} has no table for allreduce")
    verdicts = []
    for size in measured_sizes(one, other):
        rows = tuple(find_row(plan.groups[0].allreduce or (), size) for plan in (one, other))
        verdicts.append(verdict(*rows, margin=one.certificate.min_gain))
        print(f"{format_bytes(size):>8}  {described(rows[0])}  {described(rows[1])}  {verdicts[-1]}")
    same = verdicts.count("same")
    print(f"{same} of {len(verdicts)} the same, {verdicts.count('within')} differ within their intervals")
    sys.exit(3 if "beyond" in verdicts else 0)


def measured_sizes(*plans: Plan) -> list[int]:
    rows = [row for plan in plans for row in plan.groups[0].allreduce or ()]
    return sorted({row.evidence.measured_bytes for row in rows if row.evidence is not None})


def verdict(one: Row, other: Row, *, margin: float) -> str:
    """``same``, ``within`` or ``beyond``."""
    if (one.algorithm, one.params) == (other.algorithm, other.params):
        return "same"
    intervals = [
        (1.0, (1 + margin) ** 2) if row.algorithm == DEFAULT_ALGORITHM else row.evidence.ratio_ci
        for row in (one, other)
        if row.evidence is not None or row.algorithm == DEFAULT_ALGORITHM
    ]
    overlap = max(low for low, _ in intervals) <= min(high for _, high in intervals)
    return "within" if overlap else "beyond"


def described(row: Row) -> str:
    if row.algorithm == DEFAULT_ALGORITHM or row.evidence is None:
        return f"{row.algorithm:<24} {'':<13}"
    low, high = row.evidence.ratio_ci
    return f"{row.algorithm:<24} {low:.2f} … {high:.2f}"


if __name__ == "__main__":
    main()
