"""Draw the README's picture, docs/default-plan-optimum.svg: time against message size on a lab cluster.

    python docs/make_picture.py     # from notebooks/data/2x4.*, as python benchmarks/lab.py 2x4 left them
    python docs/make_picture.py --plan plan.json --comparison comparison.json -o picture.svg

The same files give the same bytes. Text and grid follow the reader's light or dark setting.
"""

import argparse
import math
from html import escape
from pathlib import Path

from topotune.files import write_whole
from topotune.plan import Plan, load_plan
from topotune.report.pictures.axes import COLOURS
from topotune.report.pictures.curves import Curve, comparison_curves, plan_curves
from topotune.results import Comparison, read_result
from topotune.units import format_bytes, format_seconds

ROOT = Path(__file__).parents[1]
DATA = ROOT / "notebooks" / "data"
WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 76, 24, 74, 56
LOOKS = {
    "default": (COLOURS[0], "", "the default (gloo)"),
    "plan": (COLOURS[1], "", "under the plan, and how many times as fast"),
    "optimum": (COLOURS[2], "6 4", "provable optimum"),
}
HEADING = "allreduce on 8 ranks, 2 nodes with 200 Mbit/s each (lab cluster 2x4)"
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1b1f24}.faint{fill:#57606a}.grid{stroke:#d0d5db}"
    "@media(prefers-color-scheme:dark){text{fill:#e7eaee}.faint{fill:#a5aeb8}.grid{stroke:#3a424b}}"
)


class Scales:
    """Message sizes and times → places; both axes are logarithmic."""

    def __init__(self, curves: list[Curve]) -> None:
        points = [point for curve in curves for point in curve.points]
        self.sizes = sorted({point.message_bytes for point in points})
        times_s = [point.time_s for point in points]
        low, high = math.floor(math.log10(min(times_s))), math.ceil(math.log10(max(times_s)))
        self.powers = range(low, high + 1)

    def x(self, size: float) -> float:
        """Of a message size."""
        share = math.log(size / self.sizes[0]) / math.log(self.sizes[-1] / self.sizes[0])
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, time_s: float) -> float:
        """Of a time; up is longer."""
        share = (self.powers[-1] - math.log10(time_s)) / (self.powers[-1] - self.powers[0])
        return TOP + share * (HEIGHT - TOP - BOTTOM)


def picture(plan: Plan, comparison: Comparison, heading: str) -> str:
    """The compared sizes, and the optimum of the plan, as SVG."""
    compared = {curve.role: curve for curve in comparison_curves(comparison, "")}
    optimum = [curve for curve in plan_curves(plan, "") if curve.role == "optimum"]
    curves = [compared["default"], compared["plan"], *optimum]
    scales = Scales(curves)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(heading)}</title><style>{STYLE}</style>",
        f'<text x="{LEFT}" y="22" font-weight="600">{escape(heading)}</text>',
        *_grid(scales),
        *(_line(curve, scales) for curve in curves),
        *_ratios(comparison, scales),
        *_legend(curves),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _grid(scales: Scales) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for power in scales.powers:
        y = scales.y(10.0**power)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>')
        label = format_seconds(10.0**power)
        parts.append(f'<text class="faint" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for size in scales.sizes:
        x = scales.x(size)
        parts.append(f'<path class="grid" d="M{x:.1f} {TOP}V{bottom}"/>')
        place = f'x="{x:.1f}" y="{bottom + 20}" text-anchor="middle"'
        parts.append(f'<text class="faint" {place}>{format_bytes(size)}</text>')
    place = f'x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle"'
    parts.append(f'<text class="faint" {place}>message size</text>')
    return parts


def _line(curve: Curve, scales: Scales) -> str:
    colour, dash, _ = LOOKS[curve.role]
    places = [(scales.x(point.message_bytes), scales.y(point.time_s)) for point in curve.points]
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    line = f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2.5"{dashes}/>'
    return line if dash else line + dots


def _ratios(comparison: Comparison, scales: Scales) -> list[str]:
    """Below the plan's points, where the plan is faster."""
    return [
        f'<text x="{scales.x(one.message_bytes) + 6:.1f}" y="{scales.y(one.plan_median_s) + 18:.1f}">'
        f"{one.ratio:.2f}</text>"
        for one in comparison.sizes
        if one.verdict == "faster"
    ]


def _legend(curves: list[Curve]) -> list[str]:
    parts, x = [], LEFT
    for curve in curves:
        colour, dash, words = LOOKS[curve.role]
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<path d="M{x} 44h26" stroke="{colour}" stroke-width="3"{dashes}/>')
        parts.append(f'<text x="{x + 32}" y="48">{words}</text>')
        x += 62 + round(6.6 * len(words))
    return parts


def main() -> None:
    """Draw what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plan", type=Path, default=DATA / "2x4.plan.json")
    parser.add_argument("--comparison", type=Path, default=DATA / "2x4.comparison.json")
    parser.add_argument("--heading", default=HEADING)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "default-plan-optimum.svg")
    given = parser.parse_args()
    comparison = read_result(given.comparison).value
    assert isinstance(comparison, Comparison), f"{given.comparison} is no comparison"
    text = picture(load_plan(given.plan), comparison, given.heading)
    write_whole(given.output, text.encode(), force=True)


if __name__ == "__main__":
    main()
