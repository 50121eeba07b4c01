"""The report as Markdown: the bars first, then what was seen of each row. Takes results, gives text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import report
from report import Results, Verdict

MARKS = {True: "reached", False: "MISSED", None: "not measured"}
# How a number is shown: title, form, scale. What is not here is in the JSON alone.
Columns = Mapping[str, tuple[str, str, float]]
COLUMNS: Columns = {
    "p50_app_us": ("p50 app ms", ".2f", 1e-3),
    "queue_p50_us": ("queue p50 ms", ".3f", 1e-3),
    "queue_p99_us": ("queue p99 ms", ".3f", 1e-3),
    "queue_max_us": ("queue max ms", ".1f", 1e-3),
    "held_most": ("workers held by the disk, at once", ".0f", 1.0),
    "held_share": ("moments with such a worker %", ".0f", 100.0),
    "peak_bytes": ("memory peak MB", ",.0f", 1e-6),
    "p99_app_us": ("p99 app ms", ".2f", 1e-3),
    "p99_file_us": ("p99 file ms", ".2f", 1e-3),
    "p99_kept_us": ("p99 file of the slow disk ms", ".2f", 1e-3),
    "failed": ("failed", ".0f", 1.0),
    "unsent": ("never got their turn", ".0f", 1.0),
    "lag_p99_us": ("client's lag p99 ms", ".2f", 1e-3),
    "outside": ("closed outside ±1 s, or never", ".0f", 1.0),
    "open": ("still open", ".0f", 1.0),
    "stalled_least_s": ("first close s", ".2f", 1.0),
    "stalled_greatest_s": ("last close s", ".2f", 1.0),
    "head_least_s": ("first head closed s", ".2f", 1.0),
    "head_greatest_s": ("last head closed s", ".2f", 1.0),
    "body_least_s": ("first body closed s", ".2f", 1.0),
    "body_greatest_s": ("last body closed s", ".2f", 1.0),
    "held_back": ("not wholly in the kernel", ".0f", 1.0),
    "client_bytes": ("memory bytes of each client", ",.0f", 1.0),
    "misfit_mb_s": ("their MB/s", ".1f", 1.0),
    "completed": ("their transfers done", ".0f", 1.0),
    "lost": ("lost", ".0f", 1.0),
    "cpu_ms": ("processor ms", ".1f", 1.0),
    "mb_s": ("MB/s", ",.0f", 1.0),
    "rps": ("requests/s", ",.0f", 1.0),
    "cpu_us": ("processor µs a request", ".2f", 1.0),
    "p99_us": ("p99 ms", ".2f", 1e-3),
    "server_cpu": ("server's core %", ".0f", 100.0),
}


@dataclass(frozen=True)
class Paper:
    """What a report is called, and what its tables show."""

    title: str
    columns: Columns

    def markdown(self, head: Sequence[str], done: Sequence[Results], found: Sequence[Verdict]) -> str:
        """The whole text."""
        parts = [f"# {self.title}", bars(done, found)]
        parts += [section(results, self.columns) for results in done]
        parts.append("## Machine, versions, method\n" + "\n".join(f"- {line}" for line in head))
        return "\n\n".join(parts) + "\n"


def bars(done: Sequence[Results], found: Sequence[Verdict]) -> str:
    """Every figure to reach, beside what was measured."""
    titles = {results.scenario.name: results.scenario.title for results in done}
    lines = [["", "scenario", "figure to reach", "measured", "spread", "verdict"]]
    for verdict in found:
        middle, spread = "-", "-"
        if verdict.measured is not None:
            middle = f"{verdict.measured:,.2f}"
            spread = f"{verdict.least:,.2f}-{verdict.greatest:,.2f}"
        lines.append(
            [verdict.scenario, titles[verdict.scenario], verdict.text, middle, spread, MARKS[verdict.passed]]
        )
    return table(lines)


def section(results: Results, columns: Columns) -> str:
    """One scenario: its rows, ratios, and what went wrong."""
    seen = [row for row in results.samples if row not in results.failures]
    shown = [name for name in columns if any(results.values(row, name) for row in seen)]
    lines = [["", *(columns[name][0] for name in shown), "repetitions"]]
    for row in seen:
        cells = [report.spread(results.values(row, name), *columns[name][1:]) for name in shown]
        lines.append([row, *cells, repetitions(results, row)])
    text = f"## {results.scenario.name}. {results.scenario.title}\n\n{table(lines)}"
    text += "".join(f"\n- ratios {line}" for line in ratios(results))
    return text + "".join(f"\n- {row}: not run: {why}" for row, why in results.failures.items())


def ratios(results: Results) -> list[str]:
    """Of every pair of rows with a bar or named by the scenario, all that can be divided."""
    pairs = [(bar.row, bar.base) for bar in results.scenario.bars if bar.base]
    lines = []
    for row, base in dict.fromkeys([*pairs, *results.scenario.also]):
        parts = [
            f"{title} {report.spread(values, '.2f')}"
            for metric, title in report.TITLES.items()
            if (values := results.ratios(metric, row, base))
        ]
        lines += [f"{row} / {base}: {', '.join(parts)}"] if parts else []
    return lines


def repetitions(results: Results, row: str) -> str:
    """How many there were and how many of them others, or the client itself, disturbed."""
    samples = [taken for taken in results.samples[row] if taken]
    disturbed = sum(taken.disturbed for taken in samples)
    lagged = sum(taken.lagged for taken in samples)
    notes = [f"{disturbed} disturbed"] if disturbed else []
    notes += [f"{lagged} lagged"] if lagged else []
    return ", ".join([str(len(samples)), *notes])


def table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first line is its head."""
    rule = ["---"] * len(lines[0])
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])
