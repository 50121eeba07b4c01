"""The page of an experiment: tables in the form of the published ones, theirs first, and pictures of grids.

Takes findings, gives Markdown. A cell without a number is `–`.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import plots, report
from lab.experiments import spec
from lab.experiments.spec import Column, Experiment, Table

NOTHING = "–"
CLOCKS = ("latency", "connect", "first-byte", "last-byte", "cycle", "late", "unread")
QUANTILES = {"avg": "mean", "mean": "mean", "median": "p50", "p99.9": "p99_9", "p99.99": "p99_99"}
OVER: dict[str, Callable[[Sequence[float]], float]] = {
    "median": statistics.median,
    "mean": statistics.fmean,
    "min": min,
    "max": max,
    "sum": sum,
}
UNITS = {"s": (1.0, ""), "ms": (1e3, ""), "us": (1e6, ""), "KB": (1e-3, ""), "MB": (1e-6, "")}
UNITS |= {"percent": (100.0, " %"), "": (1.0, "")}


@dataclass
class Finding:
    """One load on one server: the run as `milepost bench --json` gives it, or why there is none."""

    server: str
    point: str
    repetition: int
    outcome: dict[str, Any] | None = None
    fault: str = ""
    facts: dict[str, float] = field(default_factory=dict)


@dataclass
class Findings:
    """All of an experiment."""

    experiment: Experiment
    found: list[Finding] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def values(self, name: str, server: str, point: str) -> dict[int, float]:
        """A value of each repetition."""
        numbers = {
            one.repetition: value_of(one, name)
            for one in self.found
            if (one.server, one.point) == (server, point)
        }
        return {repetition: number for repetition, number in numbers.items() if number is not None}


def value_of(finding: Finding, name: str) -> float | None:
    """The number that a scenario file calls `name`; seconds, bytes, and shares of 1."""
    if name.startswith("fact."):
        return finding.facts.get(name.removeprefix("fact."))
    if finding.outcome is None:
        return None
    clock, _, quantile = name.partition(".")
    if clock in CLOCKS:
        times = finding.outcome["times"].get(clock.replace("-", "_"))
        if not times or not times["count"]:
            return None
        number = times[f"{QUANTILES.get(quantile, quantile)}_us"]
        return None if number is None else float(number) / 1e6
    return _count(finding.outcome, name)


def _count(outcome: dict[str, Any], name: str) -> float | None:
    counts, failures = outcome["counts"], outcome["counts"]["failures"]
    if name == "per-second":
        within = counts.get("answered_within")
        answered = counts["answered"] if within is None else within
        return float(answered) / max(float(outcome["seconds"]), 1e-9)
    if name == "seconds":
        return float(outcome["seconds"])
    if name == "requests":
        return float(counts["answered"] + sum(failures.values()))
    if name == "failed":
        return float(sum(failures.values()))
    if name.startswith("failed."):
        return float(failures[name.removeprefix("failed.")])
    if name == "generator.cpu":
        return float(outcome["generator"]["cpu_us_per_request"]) / 1e6
    if name.startswith("server."):
        server = outcome["server"] or {}
        cpu_us = server.get("cpu_us_per_request")
        found = {
            "server.cpu": None if cpu_us is None else cpu_us / 1e6,
            "server.cpu-share": server.get("cpu_share"),
            "server.resident": server.get("resident_bytes"),
        }
        return found[name]
    return float(counts[name.replace("-", "_")])


def page(findings: Findings, head: Sequence[str]) -> str:
    """Title, tables, what has to be known, machine and method."""
    experiment = findings.experiment
    parts = [f"# {experiment.name}: {experiment.shows}"]
    parts += [_table(findings, table) for table in experiment.tables]
    if doubts := list(_doubts(findings)):
        parts.append("## What has to be known\n\n" + "\n".join(f"- {doubt}" for doubt in doubts))
    parts.append("## Machine, versions, method\n\n" + "\n".join(f"- {line}" for line in head))
    return "\n\n".join(parts) + "\n"


def _table(findings: Findings, table: Table) -> str:
    servers = list(table.servers) or [server.name for server in findings.experiment.servers]
    points = list(table.points) or [point.name for point in findings.experiment.points]
    heads = table.heads(servers)
    lines, notes = [heads], list(table.notes)
    if table.published:
        theirs = spec.published()[table.published]
        lines.append(_banner(theirs.source, heads))
        for row in theirs.rows:
            cells = dict(zip(theirs.head, row))
            lines.append([cells.get(head, NOTHING) for head in heads])
        lines.append(_banner("here", heads))
        notes = [*theirs.notes, *notes]
    lines += _rows(findings, table, servers, points)
    return "\n\n".join([f"## {table.title}", report.table(lines), *notes])


def _banner(text: str, heads: list[str]) -> list[str]:
    return [f"**{text}**", *[""] * (len(heads) - 1)]


def _rows(findings: Findings, table: Table, servers: list[str], points: list[str]) -> Iterable[list[str]]:
    if cell := table.cell:
        return [
            [point, *(_cell(findings, cell, server, point, "") for server in servers)] for point in points
        ]
    if table.by == "server":
        places = [(server, point) for server in servers for point in points]
    else:
        places = [(server, point) for point in points for server in servers]
    rows = []
    for server, point in places:
        for row in table.rows or ("",):
            cells = [_cell(findings, column, server, point, row) for column in table.columns]
            said = [text != NOTHING for column, text in zip(table.columns, cells) if column.value]
            rows += [cells] if any(said) else []
    return rows


def _cell(findings: Findings, column: Column, server: str, point: str, row: str) -> str:
    words = {"server": server, "point": point, "row": row}
    if not column.value:
        return str(spec.replaced(column.text, words))
    name = str(spec.replaced(column.value, words))
    own = findings.values(name, server, point)
    if column.against:
        return _change(own, findings.values(name, column.against, point))
    if not own:
        return NOTHING
    numbers = list(own.values())
    if column.yes_above is not None:
        return "yes" if statistics.median(numbers) > column.yes_above else "no"
    factor, suffix = UNITS[column.unit]
    if column.over == "spread":
        shown = (min(numbers), statistics.fmean(numbers), max(numbers))
        return " / ".join(f"{number * factor:,.{column.digits}f}{suffix}" for number in shown)
    return f"{OVER[column.over](numbers) * factor:,.{column.digits}f}{suffix}"


def _change(own: dict[int, float], others: dict[int, float]) -> str:
    """The median of the changes within each repetition: a drift of the machine is in both."""
    ratios = [number / others[turn] for turn, number in own.items() if others.get(turn)]
    # Not `-0 %`.
    return f"{round((statistics.median(ratios) - 1) * 100) + 0:+d} %" if ratios else NOTHING


def _doubts(findings: Findings) -> Iterable[str]:
    """What was not measured, and what makes a number doubtful: each kind once, with its count."""
    for server, why in findings.skipped.items():
        yield f"{server} was not measured: {why}"
    counted: Counter[str] = Counter()
    first: dict[str, str] = {}
    for one in findings.found:
        place = f"{one.server}, {one.point}"
        kinds = {one.fault: f"{place}: {one.fault}"} if one.fault else {}
        for remark in (one.outcome or {}).get("remarks", []):
            if remark["weight"] != "note":
                kind = f"{remark['weight'].upper()} ({remark['word']})"
                kinds[kind] = f"{kind}: {place}: {remark['text']}"
        for kind, text in kinds.items():
            counted[kind] += 1
            first.setdefault(kind, text)
    for kind, count in counted.items():
        yield first[kind] + (f" (and so {count} of {len(findings.found)} runs)" if count > 1 else "")


def draw(findings: Findings, folder: Path) -> None:
    """A picture of each grid whose points are numbers, with the published lines dashed."""
    for number, table in enumerate(findings.experiment.tables):
        cell = table.cell
        points = [point.name for point in findings.experiment.points]
        if not cell or not all(point.isdigit() for point in points):
            continue
        lines = _published_lines(table)
        for server in findings.experiment.servers:
            at = {float(point): findings.values(cell.value, server.name, point) for point in points}
            line = {x: list(values.values()) for x, values in at.items() if values}
            if line:
                lines[server.name] = plots.Line(line)
        if lines:
            file = folder / f"{findings.experiment.name}-{number}.svg"
            plots.lines(file, table.title, (cell.head, cell.value), lines)


def _published_lines(table: Table) -> dict[str, plots.Line]:
    if not table.published:
        return {}
    theirs = spec.published()[table.published]
    lines = {}
    for place, head in enumerate(theirs.head[1:], start=1):
        cells = {float(row[0]): row[place].replace(",", "").split(" / ") for row in theirs.rows}
        points = {x: [float(part) for part in parts] for x, parts in cells.items()}
        lines[f"{head}, published"] = plots.Line(points, is_published=True)
    return lines
