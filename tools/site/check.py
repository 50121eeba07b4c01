"""Looks at the pages of the built site: check.py FOLDER.

Takes the folder; gives every link that leads to no page or anchor of the site, and every file that a page
would load from another host, one a line on stderr. Exit 0 none, 1 some. Links of the text to other hosts are
fine, and are not opened.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Attributes that make a browser load something as soon as the page is open.
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
#: Relations of `link` that a browser loads nothing for.
NOT_LOADED = {"index", "search", "next", "prev", "canonical", "author"}


class Page(HTMLParser):
    """The anchors of a page, what it links to and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        for name, value in given.items():
            if (tag, name) in LOADED and given.get("rel") not in NOT_LOADED:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


def faults(folder: Path) -> list[str]:
    """Of all pages, style sheets and scripts below the folder."""
    pages = {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded and parts.scheme != "data":
                    found.append(f"{path}: loads {link}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                found.append(f"{path}: no such page: {link}")
            elif parts.fragment and target in pages:
                if unquote(parts.fragment) not in pages[target].anchors:
                    found.append(f"{path}: no such anchor: {link}")
    for path in sorted([*folder.rglob("*.css"), *folder.rglob("*.js")]):
        for address in re.findall(
            r"(?:url\(|@import|importScripts\()\s*['\"]?(https?:)?//", path.read_text()
        ):
            found.append(f"{path}: loads from {address or 'another host'}")
    return found


def main() -> int:
    found = faults(Path(sys.argv[1]).resolve())
    for fault in found:
        print(f"milepost: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
