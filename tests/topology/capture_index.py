"""The facts of an index of captures: a Markdown table of file, machine, origin, facts."""

import re
from collections import Counter
from pathlib import Path


def read_index(path: Path) -> dict[str, str]:
    """File → its facts, as they stand in the last column."""
    facts = {}
    for line in path.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("| `") and len(cells) >= 4:
            facts[cells[0].strip("`")] = " | ".join(cells[3:])
    return facts


def counted(text: str) -> dict[str, int]:
    """``8x SYS, 4x NODE`` → {"SYS": 8, "NODE": 4}."""
    return {what.strip(): int(number) for number, what in re.findall(r"(\d+)x ([^,;]+)", text)}


def part(facts: str, start: str) -> str | None:
    """What stands behind a word, up to the next semicolon or note."""
    match = re.search(rf"{re.escape(start)} ?(.*?)(?:;|\. \*\*Note|\.? *$)", facts)
    return match[1] if match else None


def half(ordered: dict[str, int]) -> dict[str, int]:
    """Ordered pairs → pairs; the old word for SYS → the new one."""
    pairs: Counter[str] = Counter()
    for word, number in ordered.items():
        assert number % 2 == 0
        pairs["SYS" if word == "SOC" else word] += number // 2
    return dict(pairs)
