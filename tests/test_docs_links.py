"""The links of the Markdown pages, as a forge shows them: `make site` checks those of the built site.

Takes the text of the pages alone. Relative links must name a file of the checkout, anchors a heading of the
page that they point to, and every page of docs/ must have its place in the navigation of the site.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "lab/*.md", "examples/*/*.md") for path in ROOT.glob(pattern)
)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")


def prose(path: Path) -> str:
    """A page without its fenced blocks and its code spans, in which a bracket is no link."""
    text = re.sub(r"^ *```.*?^ *```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", lambda span: re.sub(r"[\[\]()]", " ", span[0]), text)


def anchors(path: Path) -> set[str]:
    """Those that a forge gives to the headings of a page."""
    seen: dict[str, int] = {}
    text = re.sub(r"^ *```.*?^ *```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for title in re.findall(r"^#{1,6} +(.+?) *$", text, re.MULTILINE):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
        if seen[slug]:
            seen[f"{slug}-{seen[slug]}"] = 0
    return set(seen)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_to_a_heading(page: Path) -> None:
    faults = []
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not (target.exists() and target.is_relative_to(ROOT)):
            faults.append(f"{link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            faults.append(f"{link}: no such heading")
    assert not faults, faults


def test_every_page_has_one_place_in_the_navigation() -> None:
    """The site is not built by the tests: it needs a generator from elsewhere."""
    configuration = ast.parse((ROOT / "tools/site/conf.py").read_text())
    navigation = next(
        ast.literal_eval(node.value)
        for node in configuration.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NAVIGATION"
    )
    listed = [page for pages in navigation.values() for page in pages]
    written = [str(page.relative_to(ROOT).with_suffix("")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(page for page in listed if page.startswith("docs/")) == sorted(written)
    assert all((ROOT / f"{page}.md").is_file() for page in listed)


#: Words that no other server uses in the same meaning.
OWN_WORDS = ("driver", "exchange", "generation", "spooler", "supervisor")


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/guide/*.md")), ids=lambda page: page.stem)
def test_a_guide_explains_its_own_words_by_the_glossary(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    if page.stem != "glossary":
        missing = [word for word in OWN_WORDS if re.search(rf"\b{word}s?\b", text)]
        assert [word for word in missing if f"(glossary.md#{word})" not in text] == []


def test_a_dead_link_and_a_missing_heading_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `title`, twice\n\n## A title twice\n[a](b.md) `[c](d.md)` ![e [f]](g.png)\n```\n[h](i)\n```\n"
    )
    assert LINK.findall(prose(page)) == ["b.md", "g.png"]
    assert anchors(page) == {"a-title-twice", "a-title-twice-1"}
