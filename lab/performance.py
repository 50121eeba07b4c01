"""`lab page`: docs/performance.md from lab/results.toml, which holds the newest figure of each row.

Raw data stays out of the checkout: a run writes its samples beside its report, `--rows DIR/NAME.json` prints
its figures as rows, and a person puts those that matter into results.toml, with their method.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
from pathlib import Path
from typing import Any

import tomllib

from lab import report
from lab.toolbox import CHECKOUT, LAB, Unusable

RESULTS = LAB / "results.toml"
PAGE = CHECKOUT / "docs/performance.md"
LINES_MAX = 150
KEYS = {"what", "goal", "ratio", "method", "date", "missed", "disturbed"}
NEEDED = {"what", "ratio", "date"}
HEAD = "<!-- Written by `python3 -m lab page` from lab/results.toml; change that file instead. -->\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="print the figures of a report (JSON) as rows"
    )
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 when the page is stale")


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises Unusable."""
    if options.rows:
        print(rows(json.loads(options.rows.read_text())))
        return 0
    text = page(tomllib.loads(RESULTS.read_text()))
    if options.check:
        return int(not PAGE.exists() or PAGE.read_text() != text)
    PAGE.write_text(text)
    return 0


def page(results: dict[str, Any]) -> str:
    """The whole page. Raises Unusable."""
    parts = [f"{HEAD}# Performance\n\n{results['introduction'].strip()}\n"]
    for section in results["section"]:
        lines = [["", "goal", "measured", "method", "date"]]
        lines += [line(row, section.get("method", "")) for row in section.get("row", [])]
        texts = [f"## {section['title']}", *([report.table(lines)] if len(lines) > 1 else [])]
        texts += [section["note"].strip()] if "note" in section else []
        parts.append("\n\n".join(texts) + "\n")
    text = "\n".join(parts)
    if (count := text.count("\n")) > LINES_MAX:
        raise Unusable(f"the page would have {count} lines, more than {LINES_MAX}\nhint: shorten {RESULTS}")
    return text


def rows(document: dict[str, Any]) -> str:
    """The figures of a report that were measured, as they stand in results.toml."""
    date = document["machine"][0].removeprefix("date: ").split(" ")[0]
    found = []
    for bar in document["bars"]:
        if bar["measured"] is None:
            continue
        what, goal = re.split(r": at (?:most|least) ", bar["text"])
        spread = f" ({bar['least']:.3g}-{bar['greatest']:.3g})" if bar["least"] is not None else ""
        found.append(
            f"[[section.row]]\nwhat = {json.dumps(bar['scenario'] + ': ' + what, ensure_ascii=False)}\n"
            f'goal = "{goal}"\nratio = "{bar["measured"]:.3g}{spread}"\ndate = {date}\n'
            + ("" if bar["passed"] else "missed = true\n")
        )
    return "\n".join(found)


def line(row: dict[str, Any], method: str) -> list[str]:
    """A row of a table. Raises Unusable."""
    if faults := (set(row) - KEYS) | (NEEDED - set(row)):
        raise Unusable(f"row `{row.get('what')}`: unknown or missing: {', '.join(sorted(faults))}")
    if not isinstance(row["date"], datetime.date):
        raise Unusable(f"row `{row['what']}`: `date` is a date without quotes")
    measured = row["ratio"] + (", **missed**" if row.get("missed") else "")
    measured += ", disturbed by other programs" if row.get("disturbed") else ""
    cells = [row["what"], row.get("goal", "–"), measured, row.get("method", method), row["date"].isoformat()]
    return [re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in cells]
