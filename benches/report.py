"""The report: plain tables of medians with their range, ratios, bars, and the same as JSON.

A ratio is taken within each repetition, and the median of those ratios is shown: a machine
that slows down slows both sides of a repetition. Disturbed repetitions are left out.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from measure import Sample
from scenarios import MILEPOST, Bar, Judged, Kind, Scenario

RATIOS = {"cpu_us": "cpu/req", "rps": "req/s", "p99_us": "p99", "bytes_per_connection": "bytes"}
# Measures of the slow scenarios, which have bars and columns of their own.
SLOW_RATIOS = {
    "failed": "requests without an answer",
    "queue_p99_us": "p99 of the queue",
    "held_most": "workers held by the disk at once",
    "peak_bytes": "memory at most, bytes",
    "p99_app_us": "p99 of the application",
    "p99_file_us": "p99 of a cached file",
    "p99_kept_us": "p99 of a cached file of the slow disk",
    "cpu_ms": "processor time",
    "client_bytes": "memory bytes of each client",
    "outside": "clients closed outside their deadline",
    "lost": "connections or requests lost",
}
# Measures of the log's scenarios: those that are counted of the greatest, or least, of all repetitions.
LOG_TITLES = {
    "lost_lines": "served without a line",
    "unaccounted": "served, neither kept nor counted as dropped",
    "dropped": "lines dropped",
    "wrong": "lines doubled, disordered, torn, misplaced or foreign",
    "rotations": "rotations",
    "own": "rotations by itself",
    "fillings": "times that the disk was full and the log stood still",
    "days": "days in the log",
    "oldest_lost_s": "age of the oldest lost, s",
}
# Measures of the reloads' scenarios, counted as those of the log.
RELOAD_TITLES = {
    "reloads": "reloads",
    "scales": "changes of the number of processes",
    "kills": "kills",
    "upgrades": "upgrades",
    "by_reload": "requests lost by reloads",
    "by_scale": "requests lost by changes of the number of processes",
    "by_upgrade": "requests lost by the upgrade",
    "by_quiet": "requests lost before anything was done",
    "by_beyond_kill": "requests lost after kills, but not in the killed process",
    "unchanged": "reloads that replaced nobody",
    "waiting_most": "connections that waited in the kernel at once",
    "most_share": "the driver with the most connections, of the mean",
    "least_share": "the driver with the fewest connections, of the mean",
    "worst_off": "connections off an equal share",
    "restart_s": "seconds from the kill to the next reply, without the import",
    "refused": "connections in vain after the kill",
}
GENERATOR_RATIOS = {"generator_cpu_us": "the generator's cpu/req"}
TITLES = RATIOS | GENERATOR_RATIOS | SLOW_RATIOS | RELOAD_TITLES | LOG_TITLES


@dataclass
class Results:
    """The samples of one scenario: for each row one entry per repetition, None where it failed."""

    scenario: Scenario
    samples: dict[str, list[Sample | None]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def values(self, row: str, metric: str) -> list[float]:
        """`metric` of the repetitions that count: the undisturbed ones, or all when none is."""
        samples = [taken for taken in self.samples.get(row, []) if taken]
        counting = [taken for taken in samples if not taken.disturbed] or samples
        return [value for taken in counting if not math.isnan(value := taken.values.get(metric, math.nan))]

    def all_values(self, row: str, metric: str) -> list[float]:
        """`metric` of every repetition, disturbed or not."""
        samples = [taken for taken in self.samples.get(row, []) if taken]
        return [taken.values[metric] for taken in samples if metric in taken.values]

    def ratios(self, metric: str, row: str, base: str) -> list[float]:
        """Within each repetition, where both are numbers; the undisturbed ones, or all."""
        pairs = [pair for pair in zip(self.samples.get(row, []), self.samples.get(base, [])) if all(pair)]
        calm = [pair for pair in pairs if not any(taken and taken.disturbed for taken in pair)]
        found = []
        for pair in calm or pairs:
            over, under = (taken.values.get(metric, math.nan) if taken else math.nan for taken in pair)
            if _is_number(over) and _is_number(under) and under > 0:
                found.append(over / under)
        return found


@dataclass(frozen=True)
class Verdict:
    """A bar and what was measured against it; `passed` is None when it could not be measured."""

    scenario: str
    text: str
    measured: float | None
    passed: bool | None
    least: float | None = None
    greatest: float | None = None


Column = tuple[str, Callable[[Results, str], str]]


def table(results: Results) -> str:
    """The whole text of one scenario: title, rows, failures, ratios."""
    columns = COLUMNS[results.scenario.kind]
    if any(row.slow_readers for row in results.scenario.rows):
        columns = columns + SLOW_COLUMNS
    lines: list[list[str]] = [["server", *(title for title, _ in columns)]]
    for row in results.samples:
        if row not in results.failures:
            lines.append([row, *(cell(results, row) for _, cell in columns)])
    text = f"{results.scenario.name}: {results.scenario.title}\n" + _aligned(lines)
    text += "".join(f"  {row}: not run: {why}\n" for row, why in results.failures.items())
    return text + _ratio_lines(results)


def verdicts(results: Results) -> list[Verdict]:
    """Every bar of the scenario against its median."""
    return [_judge(results, bar) for bar in results.scenario.bars]


def verdict_table(found: Sequence[Verdict]) -> str:
    """All bars, one a line."""
    marks = {True: "PASS", False: "MISS", None: "not measured"}
    lines = [["scenario", "bar", "measured", ""]]
    for verdict in found:
        measured = "-" if verdict.measured is None else f"{verdict.measured:.2f}"
        lines.append([verdict.scenario, verdict.text, measured, marks[verdict.passed]])
    return "bars\n" + _aligned(lines, left=2)


def write_json(
    path: Path, head: dict[str, object], all_results: Sequence[Results], found: Sequence[Verdict]
) -> None:
    """Everything, each repetition included; what is no number becomes null."""
    scenarios = {
        results.scenario.name: {
            "rows": {
                row: [_plain(taken) if taken else None for taken in samples]
                for row, samples in results.samples.items()
            },
            "not_run": results.failures,
        }
        for results in all_results
    }
    document = {**head, "scenarios": scenarios, "bars": [asdict(verdict) for verdict in found]}
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")


def _judge(results: Results, bar: Bar) -> Verdict:
    limit, word = (bar.at_most, "at most") if bar.at_most is not None else (bar.at_least, "at least")
    assert limit is not None, "a bar has one of the two limits"
    subject = f"{TITLES[bar.metric]} of {bar.row}" + (f" / {bar.base}" if bar.base else "")
    text = f"{subject}: {word} {limit:g}"
    if bar.judged is Judged.WORST:
        values = [] if bar.row in results.failures else results.all_values(bar.row, bar.metric)
    elif bar.base:
        values = results.ratios(bar.metric, bar.row, bar.base)
    else:
        values = results.values(bar.row, bar.metric)
    values = [value for value in values if _is_number(value)]
    if not values:
        return Verdict(results.scenario.name, text, None, None)
    measured = statistics.median(values)
    if bar.judged is Judged.WORST:
        measured = max(values) if bar.at_most is not None else min(values)
    passed = measured <= limit if bar.at_most is not None else measured >= limit
    return Verdict(results.scenario.name, text, measured, passed, min(values), max(values))


def _ratio_lines(results: Results) -> str:
    present = [row for row in results.samples if row not in results.failures]
    pairs = [(bar.row, bar.base) for bar in results.scenario.bars if bar.base]
    titles = RATIOS
    if results.scenario.kind is Kind.GENERATOR:
        titles = GENERATOR_RATIOS | {"rps": RATIOS["rps"]}
    elif any(row.slow_readers for row in results.scenario.rows):
        pairs = [(row, row.rsplit(" +", 1)[0]) for row in present if " +" in row]
    elif MILEPOST in present:
        pairs = [(MILEPOST, row) for row in present if row != MILEPOST]
    elif present:
        pairs = [(row, present[0]) for row in present[1:]]
    pairs += [pair for pair in results.scenario.also if pair not in pairs]
    lines = []
    for row, base in pairs:
        parts = [
            f"{title} {spread(values, '.2f')}"
            for metric, title in titles.items()
            if (values := results.ratios(metric, row, base))
        ]
        if parts:
            lines.append([f"{row} / {base}", *parts])
    return ("ratios\n" + _aligned(lines, left=len(titles) + 1)) if lines else ""


def middle(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def spread(values: Sequence[float], form: str, scale: float = 1.0) -> str:
    """Median and range, as `12.3 (11.9-12.8)`."""
    numbers = sorted(value * scale for value in values)
    if not numbers:
        return "-"
    middle = statistics.median(numbers)
    if math.isinf(middle):
        return "no reply"
    return f"{middle:{form}} ({numbers[0]:{form}}-{numbers[-1]:{form}})"


def _spread_of(metric: str, form: str, scale: float = 1.0) -> Callable[[Results, str], str]:
    return lambda results, row: spread(results.values(row, metric), form, scale)


def _middle_of(metric: str, form: str, scale: float = 1.0) -> Callable[[Results, str], str]:
    def cell(results: Results, row: str) -> str:
        numbers = [value * scale for value in results.values(row, metric)]
        if not numbers:
            return "-"
        middle = statistics.median(numbers)
        return "no reply" if math.isinf(middle) else f"{middle:{form}}"

    return cell


def _note(results: Results, row: str) -> str:
    """What makes a row less than it seems."""
    notes = []
    disturbed = sum(1 for taken in results.samples[row] if taken and taken.disturbed)
    if disturbed:
        kept = "all" if disturbed == len(results.samples[row]) else str(disturbed)
        notes.append(f"{kept} disturbed")
    for metric, word in (("errors", "errors"), ("timeouts", "timeouts")):
        count = sum(results.values(row, metric))
        if count:
            notes.append(f"{count:.0f} {word}")
    busy = results.values(row, "server_cpu")
    if busy and statistics.median(busy) < SATURATED_SHARE:
        notes.append("server not saturated")
    generator = results.values(row, "generator_cpu")
    if generator and statistics.median(generator) > GENERATOR_LIMIT_SHARE:
        notes.append("generator at its limit")
    return ", ".join(notes)


# Below this share of its core a server has idle wake-ups and small batches, which make each
# request dearer than it would be under full load.
SATURATED_SHARE = 0.93
# Above this share of its core the generator sets the rate: requests per second are its own then.
GENERATOR_LIMIT_SHARE = 0.95

LOAD_COLUMNS: tuple[Column, ...] = (
    ("reply B", _middle_of("reply_bytes", ".0f")),
    ("req/s", _spread_of("rps", ",.0f")),
    ("cpu us/req", _spread_of("cpu_us", ".2f")),
    ("user %", _middle_of("user_share", ".0f", 100)),
    ("system %", lambda results, row: _complement(results, row)),
    ("core %", _middle_of("server_cpu", ".0f", 100)),
    ("sleeps/req", _middle_of("sleeps", ".3f")),
    ("generator %", _middle_of("generator_cpu", ".0f", 100)),
    ("p50 ms", _middle_of("p50_us", ".2f", 1e-3)),
    ("p99 ms", _spread_of("p99_us", ".2f", 1e-3)),
    ("note", _note),
)
SLOW_COLUMNS: tuple[Column, ...] = (
    ("slow open", _middle_of("slow_open", ".0f")),
    ("slow held", _middle_of("slow_held", ".0f")),
)
GENERATOR_COLUMNS: tuple[Column, ...] = (
    ("req/s", _spread_of("rps", ",.0f")),
    ("generator cpu us/req", _spread_of("generator_cpu_us", ".2f")),
    ("generator %", _middle_of("generator_cpu", ".0f", 100)),
    ("server %", _middle_of("server_cpu", ".0f", 100)),
    ("p50 ms", _middle_of("p50_us", ".2f", 1e-3)),
    ("p99 ms", _spread_of("p99_us", ".2f", 1e-3)),
    ("note", _note),
)
IDLE_COLUMNS: tuple[Column, ...] = (
    ("open", _middle_of("open", ".0f")),
    ("bytes/connection", _spread_of("bytes_per_connection", ",.0f")),
    ("before MB", _middle_of("base_bytes", ".1f", 1e-6)),
    ("bytes/connection kept after close", _middle_of("kept_per_connection", ",.0f")),
)

COLUMNS = {Kind.LOAD: LOAD_COLUMNS, Kind.GENERATOR: GENERATOR_COLUMNS, Kind.IDLE: IDLE_COLUMNS}


def _complement(results: Results, row: str) -> str:
    shares = [1 - value for value in results.values(row, "user_share")]
    return f"{100 * statistics.median(shares):.0f}" if shares else "-"


def _aligned(lines: list[list[str]], left: int = 1) -> str:
    """Columns of equal width, two spaces apart; the first `left` of them flush left."""
    count = max((len(line) for line in lines), default=0)
    widths = [max(len(line[i]) for line in lines if i < len(line)) for i in range(count)]
    text = ""
    for line in lines:
        named = [cell.ljust(width) for cell, width in zip(line[:left], widths)]
        others = [cell.rjust(width) for cell, width in zip(line[left:], widths[left:])]
        text += "  " + "  ".join(named + others).rstrip() + "\n"
    return text


def _plain(taken: Sample) -> dict[str, float | bool | None]:
    numbers: dict[str, float | bool | None] = {
        key: value if _is_number(value) else None for key, value in taken.values.items()
    }
    return numbers | {"foreign_share": taken.foreign_share, "disturbed": taken.disturbed}


def _is_number(value: float) -> bool:
    return math.isfinite(value)
