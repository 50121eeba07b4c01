#!/usr/bin/env python3
"""Draws the table of `cargo run --release -p milepost-whatif --example compare` as six small charts.

    pictures.py TABLE.md PICTURE.svg

Each chart is one workload: to the right more threads, upwards more requests answered within a second. The
line is fixed pools of all sizes that shed by CoDel's test; points are rules that choose their size.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, HEIGHT, MARGIN, COLUMNS = 300, 220, 40, 3
THREADS_MAX = 64
STYLE = """
text { font: 11px sans-serif; fill: #333 }
.title { font-weight: bold; font-size: 13px }
.grid { stroke: #ddd } .fixed { stroke: #888; fill: none; stroke-width: 1.5 }
.rule { fill: #2a6fb0 } .ours { fill: #c2410c } .ground { fill: #fff }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd } .grid { stroke: #333 } .ground { fill: #111 }
  .rule { fill: #6fb1f0 } .ours { fill: #fb923c }
}
"""


@dataclass(frozen=True)
class Cell:
    """Of one rule under one workload."""

    threads: float
    p95_ms: float
    good: float


def read(text: str) -> tuple[list[str], dict[str, list[Cell]]]:
    """Names of the workloads, and the cells of each rule."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]
    rows = [row for row in rows if len(row) > 1]
    # The first row names the workloads, the second is a rule of dashes.
    names = rows[0][-(len(rows[2]) - 1) :]
    return names, {row[0]: [Cell(*map(float, cell.split("/"))) for cell in row[1:]] for row in rows[2:]}


def draw(names: list[str], rules: dict[str, list[Cell]]) -> str:
    """The whole picture."""
    lines = -(-len(names) // COLUMNS)
    size = f"{COLUMNS * WIDTH} {lines * HEIGHT}"
    charts = [
        f'<g transform="translate({index % COLUMNS * WIDTH} {index // COLUMNS * HEIGHT})">'
        + chart(name, {rule: cells[index] for rule, cells in rules.items()})
        + "</g>"
        for index, name in enumerate(names)
    ]
    ground = '<rect class="ground" width="100%" height="100%"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}"><style>{STYLE}</style>'
        f"{ground}{''.join(charts)}</svg>\n"
    )


def chart(name: str, cells: dict[str, Cell]) -> str:
    """One workload."""
    parts = [f'<text class="title" x="{MARGIN}" y="18">{escape(name)}</text>']
    for good in (0, 50, 100):
        y = up(good)
        parts.append(f'<path class="grid" d="M{MARGIN} {y}H{WIDTH - 10}"/>')
        parts.append(f'<text x="{MARGIN - 6}" y="{y + 4}" text-anchor="end">{good} %</text>')
    for threads in (0, 16, 32, 48, 64):
        parts.append(f'<text x="{right(threads)}" y="{HEIGHT - 14}" text-anchor="middle">{threads}</text>')
    fixed = [cell for rule, cell in cells.items() if rule.endswith("+ CoDel")]
    line = " ".join(f"{right(cell.threads)},{up(cell.good)}" for cell in fixed)
    parts.append(f'<polyline class="fixed" points="{line}"/>')
    for rule, cell in cells.items():
        if not rule.startswith("fixed"):
            parts.append(point(rule, cell))
    return "".join(parts)


def point(rule: str, cell: Cell) -> str:
    """A rule that chooses its size, with its first letter beside it."""
    plain = rule.strip("*")
    x, y = right(cell.threads), up(cell.good)
    kind = "ours" if plain != rule else "rule"
    return (
        f'<circle class="{kind}" cx="{x}" cy="{y}" r="{6 if kind == "ours" else 4}">'
        f"<title>{escape(plain)}: {cell.threads:g} threads, {cell.good:g} %</title></circle>"
        f'<text x="{x + 7}" y="{y + (14 if y < 50 else 4)}">{mark(plain)}</text>'
    )


def mark(rule: str) -> str:
    """`N`, and where two begin alike their first and their last letter or digit."""
    name = rule.split()[0]
    return escape(name[0].upper() if name[0].lower() != "g" else name[0] + name[-1])


def right(threads: float) -> float:
    return round(MARGIN + threads / THREADS_MAX * (WIDTH - MARGIN - 20), 1)


def up(good: float) -> float:
    return round(HEIGHT - 34 - good / 100 * (HEIGHT - 70), 1)


if __name__ == "__main__":
    table, picture = map(Path, sys.argv[1:])
    picture.write_text(draw(*read(table.read_text())))
