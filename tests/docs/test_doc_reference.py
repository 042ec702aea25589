import re
from pathlib import Path

from generated_pages import REFERENCE, pages

import topotune

SOURCES = Path(topotune.__file__).parent


def test_pages_that_are_made_from_the_code_are_current():
    for path, text in pages().items():
        assert path.read_text() == text, f"run: python tests/docs/generated_pages.py (for {path.name})"


def test_every_variable_of_topotunes_own_is_documented():
    page = (REFERENCE / "environment.md").read_text()
    listed = set(re.findall(r"`(TOPOTUNE_[A-Z_]+)`", page))
    read = {
        name
        for file in (*SOURCES.rglob("*.py"), *SOURCES.rglob("*.c"))
        for name in re.findall(r'"(TOPOTUNE_[A-Z_]+)"', file.read_text())
    }
    assert listed == read
