"""Every relative link of the documents leads to a file, and every anchor to a heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.hooks import site
from tests.documents import DOCS, ROOT, anchors, without_code

PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        *DOCS.glob("*.md"),
        *(ROOT / "src").rglob("README.md"),
    ]
)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def broken(page: Path, text: str) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for target in LINK.findall(re.sub(r"`[^`\n]*`", "", without_code(text))):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        known = anchors(path.read_text(encoding="utf-8")) if anchor and path.exists() else ()
        if not path.exists() or (anchor and anchor not in known):
            found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    assert not broken(page, page.read_text(encoding="utf-8"))


def test_a_broken_link_or_anchor_is_found() -> None:
    page = DOCS / "START.md"
    assert broken(page, "[a](NOWHERE.md) [b](CONCEPTS.md#nowhere) [c](CONCEPTS.md#the-laws)") == [
        "NOWHERE.md",
        "CONCEPTS.md#nowhere",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:src|tests|benchmarks|examples)/[\w/]+\.\w+)`", page.read_text())
    assert not [name for name in named if not (ROOT / name).exists()]


def test_every_page_is_linked_from_another() -> None:
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in PAGES
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in target and not target.startswith("#")
    }
    assert set(DOCS.glob("*.md")) <= linked


def test_every_page_of_the_site_exists_and_links_to_what_does() -> None:
    """What `make docs` checks, without MkDocs: the pages from elsewhere, and the navigation."""
    for source, target in site.OUTSIDE.items():
        site.relinked((ROOT / source).read_text(encoding="utf-8"), ROOT / source, target)
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = re.findall(r"[\w/.-]+\.md", navigation)
    assert len(pages) > 15
    assert not [
        name for name in pages if name not in site.OUTSIDE.values() and not (DOCS / name).exists()
    ]
