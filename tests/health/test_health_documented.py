"""Every code of a finding is described, and every one that is described exists."""

import re
from pathlib import Path

import topotune.health

ROOM = Path(topotune.health.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "check.md"


def test_the_page_lists_each_code_that_the_checks_give():
    source = "\n".join(file.read_text() for file in ROOM.glob("*.py"))
    given = {
        code
        for text in re.findall(r'code="([^,\n]*)|return "(pcie-[a-z]+)"', source)
        for code in re.findall(r"[a-z0-9]+(?:-[a-z0-9]+)+", " ".join(text))
    }
    listed = re.findall(r"^\| `([a-z0-9-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert set(listed) == given
    assert listed == sorted(listed)
