"""Documents hang together: whatever they link to is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.program import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "generated" / "docs").rglob("*.md")])
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in _LINK.findall(text):
        path, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), target


def test_the_fusion_of_the_language_page_is_the_real_one() -> None:
    page = (ROOT / "generated" / "docs" / "language.md").read_text("utf-8")
    (shown,) = re.findall(r"^```yaml\n(fusions:\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shown in (ROOT / "spec" / "fused.yaml").read_text("utf-8")
