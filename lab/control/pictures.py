"""`lab policies`: draws the table of queueing policies that the research crate prints, one chart a workload.

To the right more threads, upwards more requests answered within a second. The line is fixed pools of all
sizes that shed by CoDel's test; points are rules that choose their size.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from lab import plots, toolbox

COLUMNS = 3


@dataclass(frozen=True)
class Cell:
    """One rule under one workload."""

    threads: float
    p95_ms: float
    answered_percent: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("table", type=Path, help="the table as Markdown")
    parser.add_argument("picture", type=Path, help="the SVG file to write")


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises Unusable."""
    if why := plots.missing():
        raise toolbox.Unusable(why)
    try:
        names, rules = read(options.table.read_text())
    except (OSError, ValueError, IndexError, TypeError) as cause:
        raise toolbox.Unusable(f"{options.table}: {cause}") from cause
    charts = {
        name: chart({rule: cells[place] for rule, cells in rules.items()}) for place, name in enumerate(names)
    }
    plots.scatters(options.picture, ("threads", "% answered within 1 s"), charts, COLUMNS)
    return 0


def read(text: str) -> tuple[list[str], dict[str, list[Cell]]]:
    """Names of the workloads, and the cells of each rule."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) > 1]
    # The first row names the workloads, the second is a rule of dashes.
    names = rows[0][-(len(rows[2]) - 1) :]
    return names, {row[0]: [Cell(*map(float, cell.split("/"))) for cell in row[1:]] for row in rows[2:]}


def chart(cells: dict[str, Cell]) -> plots.Scatter:
    """One workload."""
    at = {rule: (cell.threads, cell.answered_percent) for rule, cell in cells.items()}
    return plots.Scatter(
        line=[place for rule, place in at.items() if rule.endswith("+ CoDel")],
        points={rule.strip("*"): place for rule, place in at.items() if not rule.startswith("fixed")},
    )
