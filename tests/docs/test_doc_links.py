import re
from pathlib import Path

import pytest
from pages import PAGES, REPOSITORY, links

INDEX = REPOSITORY / "docs" / "README.md"


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_of_a_page_leads_somewhere(page):
    for link in links(page):
        target, _, anchor = link.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


def test_the_index_names_every_page():
    listed = {(INDEX.parent / link).resolve() for link in links(INDEX)}
    pages = {page for page in PAGES if INDEX.parent in page.parents and page != INDEX}
    assert pages - listed == set()


def test_the_readme_is_short():
    assert len((REPOSITORY / "README.md").read_text().splitlines()) < 200
