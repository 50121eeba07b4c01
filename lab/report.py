"""The report of every measurement: figures to reach, tables and pictures, and each sample as JSON.

A ratio is taken within each repetition, and the median of those ratios is shown: a machine that slows down
slows both sides of a repetition. Disturbed repetitions are left out where others are left.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from lab.scenario import Bar, Compared, Judged, Sample, Scenario

# Below this share of its core a server has idle wake-ups and small batches, which make each request dearer
# than under full load.
SATURATED_SHARE = 0.93
# Above this share of its core the generator sets the rate: requests per second are its own then.
GENERATOR_LIMIT_SHARE = 0.95
MARKS = {True: "reached", False: "**missed**", None: "not measured"}


class Metric(NamedTuple):
    """How a number is shown."""

    title: str
    form: str
    scale: float = 1.0


# The columns of all tables, in their order. A number without an entry is in the JSON alone.
METRICS: dict[str, Metric] = {
    "reply_bytes": Metric("reply B", ".0f"),
    "rps": Metric("requests/s", ",.0f"),
    "cpu_us": Metric("processor µs a request", ".2f"),
    "server_cpu": Metric("server's core %", ".0f", 100.0),
    "sleeps": Metric("sleeps a request", ".3f"),
    "generator_cpu_us": Metric("generator's µs a request", ".2f"),
    "generator_cpu": Metric("generator's core %", ".0f", 100.0),
    "rate": Metric("requests/s asked", ",.0f"),
    "p50_us": Metric("p50 ms", ".3f", 1e-3),
    "p99_us": Metric("p99 ms", ".3f", 1e-3),
    "max_us": Metric("greatest ms", ".1f", 1e-3),
    "errors": Metric("errors", ".0f"),
    "timeouts": Metric("timeouts", ".0f"),
    "slow_open": Metric("slow readers open", ".0f"),
    "slow_held": Metric("of them held by the server", ".0f"),
    "resumed_share": Metric("resumed sessions %", ".1f", 100.0),
    "phase_p99_us": Metric("p99 by the server's phases ms", ".3f", 1e-3),
    "handshakes": Metric("handshakes/s", ",.0f"),
    "overload": Metric("handshakes asked, of what the server can do", ".2f"),
    "server_limit": Metric("processor the server may have %", ".0f", 100.0),
    "grown_bytes": Metric("memory grown MB", ".1f", 1e-6),
    "flood_mb_s": Metric("flood MB/s", ".2f"),
    "closed": Metric("flooding connections closed", ",.0f"),
    "close_s": Metric("longest flood until the close s", ".2f"),
    "stalled": Metric("streams stalled", ",.0f"),
    "refused_streams": Metric("streams refused, to be tried again", ",.0f"),
    "not_resumed": Metric("sessions offered and not resumed", ",.0f"),
    "bytes_per_connection": Metric("bytes a connection", ",.0f"),
    "base_bytes": Metric("memory before MB", ".1f", 1e-6),
    "kept_per_connection": Metric("bytes a connection kept after the close", ",.0f"),
    "p50_app_us": Metric("p50 app ms", ".2f", 1e-3),
    "queue_p50_us": Metric("queue p50 ms", ".3f", 1e-3),
    "queue_p95_us": Metric("queue p95 ms", ".3f", 1e-3),
    "queue_p99_us": Metric("queue p99 ms", ".3f", 1e-3),
    "queue_max_us": Metric("queue max ms", ".1f", 1e-3),
    "held_most": Metric("workers held by the disk, at once", ".0f"),
    "held_share": Metric("moments with such a worker %", ".0f", 100.0),
    "peak_bytes": Metric("memory peak MB", ",.0f", 1e-6),
    "p99_app_us": Metric("p99 app ms", ".2f", 1e-3),
    "p99_file_us": Metric("p99 file ms", ".2f", 1e-3),
    "p99_kept_us": Metric("p99 cached file of the slow disk ms", ".2f", 1e-3),
    "failed": Metric("requests without an answer", ".0f"),
    "unsent": Metric("never sent", ".0f"),
    "lag_p99_us": Metric("client's lag p99 ms", ".3f", 1e-3),
    "outside": Metric("closed outside ±1 s of the deadline, or never", ".0f"),
    "open": Metric("connections open at the end", ".0f"),
    "stalled_least_s": Metric("first close s", ".2f"),
    "stalled_greatest_s": Metric("last close s", ".2f"),
    "head_least_s": Metric("first head closed s", ".2f"),
    "head_greatest_s": Metric("last head closed s", ".2f"),
    "body_least_s": Metric("first body closed s", ".2f"),
    "body_greatest_s": Metric("last body closed s", ".2f"),
    "held_back": Metric("not wholly in the kernel", ".0f"),
    "client_bytes": Metric("memory bytes of each client", ",.0f"),
    "bad_client_mb_s": Metric("bad clients' MB/s", ".1f"),
    "completed": Metric("bad clients' transfers", ".0f"),
    "cpu_ms": Metric("processor ms", ".1f"),
    "mb_s": Metric("MB/s", ",.0f"),
    "served": Metric("served", ",.0f"),
    "logged": Metric("logged", ",.0f"),
    "dropped": Metric("lines dropped", ",.0f"),
    "lost_lines": Metric("served without a line", ",.0f"),
    "unaccounted": Metric("served, neither kept nor counted as dropped", ",.0f"),
    "wrong": Metric("lines doubled, disordered, torn, misplaced or foreign", ",.0f"),
    "cut": Metric("cut by the signal", ",.0f"),
    "rotations": Metric("rotations", ".0f"),
    "by_signal": Metric("of them by SIGUSR1", ".0f"),
    "own": Metric("rotations by the server itself", ".0f"),
    "fillings": Metric("times that the disk was full and the log stood still", ".0f"),
    "days": Metric("days in the log", ".0f"),
    "oldest_lost_s": Metric("age of the oldest lost s", ".3f"),
    "end_s": Metric("end after s", ".2f"),
    "answered": Metric("answered", ",.0f"),
    "connections": Metric("connections", ",.0f"),
    "waiting_most": Metric("connections that waited in the kernel at once", ",.0f"),
    "reloads": Metric("reloads", ".0f"),
    "scales": Metric("changes of the number of processes", ".0f"),
    "kills": Metric("kills", ".0f"),
    "upgrades": Metric("upgrades", ".0f"),
    "unchanged": Metric("reloads that replaced no process", ".0f"),
    "reload_s": Metric("one reload s", ".2f"),
    "scale_s": Metric("one scale s", ".2f"),
    "kill_s": Metric("whole again after a kill s", ".2f"),
    "lost": Metric("lost", ",.0f"),
    "lost_connect_refused": Metric("refused", ",.0f"),
    "lost_connect_reset": Metric("connect reset", ",.0f"),
    "lost_connect_timeout": Metric("connect timed out", ",.0f"),
    "lost_connect_other": Metric("connect failed", ",.0f"),
    "lost_stale": Metric("due on an ended connection", ",.0f"),
    "lost_reset": Metric("reset", ",.0f"),
    "lost_closed": Metric("closed", ",.0f"),
    "lost_short": Metric("reply cut", ",.0f"),
    "lost_timeout": Metric("timed out", ",.0f"),
    "lost_wrong": Metric("wrong reply", ",.0f"),
    "by_reload": Metric("lost by reloads", ",.0f"),
    "by_scale": Metric("lost by changes of the number of processes", ",.0f"),
    "by_upgrade": Metric("lost by the upgrade", ",.0f"),
    "by_quiet": Metric("lost before the first operation", ",.0f"),
    "by_kill": Metric("lost in killed processes", ",.0f"),
    "by_beyond_kill": Metric("lost after kills, but not in the killed process", ",.0f"),
    "evicted_idle": Metric("idle connections ended for want of room", ",.0f"),
    "ended_badly": Metric("ended badly after the reply", ",.0f"),
    "drivers": Metric("drivers", ".0f"),
    "accepted": Metric("accepted", ",.0f"),
    "unaccounted_connections": Metric("made by clients, not counted by the server", ",.0f"),
    "most_share": Metric("busiest driver, of the mean", ".3f"),
    "least_share": Metric("idlest driver, of the mean", ".3f"),
    "rounds": Metric("rounds", ".0f"),
    "worst_off": Metric("connections off an equal share", ".0f"),
    "balanced_out": Metric("given to another driver", ",.0f"),
    "took_s": Metric("until the next reply s", ".3f"),
    "import_s": Metric("of it import s", ".3f"),
    "restart_s": Metric("from the kill to the next reply, without the import, s", ".3f"),
    "refused": Metric("connections refused after the kill", ".0f"),
    "reused_share": Metric("upstream connections used again %", ".3f", 100.0),
    # In `proxy slow` that is the slow one.
    "last_share": Metric("requests to the last upstream %", ".2f", 100.0),
    **{
        f"simulated_{name}_us": Metric(f"queue {name} simulated ms", ".3f", 1e-3)
        for name in ("p50", "p95", "p99")
    },
    "prediction_error": Metric("greatest error of the simulation, of what is allowed", ".2f"),
    "misbehaving": Metric("misbehaving clients at the end", ",.0f"),
    "slots_held": Metric("requests in the upstream, on average", ".2f"),
    "short_p99_us": Metric("p99 short-lived ms", ",.1f", 1e-3),
    "short_max_us": Metric("greatest short-lived ms", ",.1f", 1e-3),
    "keep_p99_us": Metric("p99 kept ms", ",.1f", 1e-3),
    "keep_max_us": Metric("greatest kept ms", ",.1f", 1e-3),
}
# What is divided by the same of another row.
RATIOS = (
    *("cpu_us", "rps", "p99_us", "bytes_per_connection", "generator_cpu_us", "cpu_ms"),
    *("phase_p99_us", "queue_p99_us", "p99_app_us", "p99_file_us", "p99_kept_us"),
)


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

    def ratios(self, metric: str, row: str, base: str, compared: Compared = Compared.RATIO) -> list[float]:
        """Within each repetition, where both are numbers, or differences; the undisturbed ones, or all."""
        pairs = [pair for pair in zip(self.samples.get(row, []), self.samples.get(base, [])) if all(pair)]
        calm = [pair for pair in pairs if not any(taken and taken.disturbed for taken in pair)]
        found = []
        for pair in calm or pairs:
            over, under = (taken.values.get(metric, math.nan) if taken else math.nan for taken in pair)
            if math.isfinite(over) and math.isfinite(under) and under > 0:
                found.append(over / under if compared is Compared.RATIO else over - under)
        return found

    @property
    def measured_rows(self) -> list[str]:
        """The rows that were measured."""
        return [row for row in self.samples if row not in self.failures]


@dataclass(frozen=True)
class Verdict:
    """A figure to reach and what was measured; `passed` is None when it could not be measured."""

    scenario: str
    text: str
    measured: float | None
    passed: bool | None
    least: float | None = None
    greatest: float | None = None


def verdicts(results: Results) -> list[Verdict]:
    """Every figure to reach of the scenario."""
    return [_judge(results, bar) for bar in results.scenario.bars]


def markdown(
    title: str,
    head: Sequence[str],
    done: Sequence[Results],
    found: Sequence[Verdict],
    conclusions: Mapping[str, str],
) -> str:
    """The whole text: figures to reach, tables with their conclusions, machine and method."""
    parts = [f"# {title}"]
    parts += [_verdict_table(found)] if found else []
    for results in done:
        conclusion = conclusions.get(results.scenario.name, "")
        parts.append(section(results) + (f"\n\n{conclusion}" if conclusion else ""))
    parts.append("## Machine, versions, method\n\n" + "\n".join(f"- {line}" for line in head))
    return "\n\n".join(parts) + "\n"


def section(results: Results) -> str:
    """One scenario: its rows, their ratios, and what went wrong."""
    seen = results.measured_rows
    shown = shown_metrics(results)
    lines = [["", *(metric_of(name).title for name in shown), "repetitions"]]
    for row in seen:
        cells = [spread(results.values(row, name), metric_of(name)) for name in shown]
        lines.append([row, *cells, _notes(results, row)])
    text = f"## {results.scenario.name}: {results.scenario.title}\n\n{table(lines)}\n"
    text += "".join(f"\n- ratios {line}" for line in _ratio_lines(results))
    return text + "".join(f"\n- {row}: not run: {why}" for row, why in results.failures.items())


def shown_metrics(results: Results) -> list[str]:
    """The numbers that at least one row has: first those of METRICS, then those with a title of their own."""
    known = [name for name in METRICS if any(results.values(row, name) for row in results.measured_rows)]
    named = {
        name: None
        for samples in results.samples.values()
        for taken in samples
        if taken
        for name in taken.values
        if " " in name
    }
    return [*known, *named]


def metric_of(name: str) -> Metric:
    """How a number is shown; a name that is a title of its own is shown as it is."""
    return METRICS.get(name, Metric(name, ".3g"))


def table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first line is its head."""
    rule = ["---"] * len(lines[0])
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])


def spread(values: Sequence[float], metric: Metric) -> str:
    """Median and range, as `12.3 (11.9-12.8)`."""
    numbers = sorted(value * metric.scale for value in values)
    if not numbers:
        return "-"
    middle = statistics.median(numbers)
    if math.isinf(middle):
        return "no reply"
    text = f"{middle:{metric.form}}"
    return (
        text
        if numbers[0] == numbers[-1]
        else f"{text} ({numbers[0]:{metric.form}}-{numbers[-1]:{metric.form}})"
    )


def write_json(path: Path, head: Sequence[str], done: Sequence[Results], found: Sequence[Verdict]) -> None:
    """Everything, each repetition included; what is no number becomes null."""
    scenarios = {
        results.scenario.name: {
            "rows": {
                row: [_plain(taken) if taken else None for taken in samples]
                for row, samples in results.samples.items()
            },
            "not_run": results.failures,
        }
        for results in done
    }
    document = {"machine": list(head), "scenarios": scenarios, "bars": [asdict(verdict) for verdict in found]}
    path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")


def _judge(results: Results, bar: Bar) -> Verdict:
    limit, word = (bar.at_most, "at most") if bar.at_most is not None else (bar.at_least, "at least")
    assert limit is not None, "a bar has one of the two limits"
    subject = f"{metric_of(bar.metric).title} of {bar.row}" + (
        f" {bar.compared.value} {bar.base}" if bar.base else ""
    )
    # A ratio has no unit.
    has_unit = bar.base is None or bar.compared is Compared.DIFFERENCE
    scale = metric_of(bar.metric).scale if has_unit else 1.0
    text = f"{subject}: {word} {limit * scale:g}"
    if bar.judged is Judged.WORST:
        values = [] if bar.row in results.failures else results.all_values(bar.row, bar.metric)
    elif bar.base:
        values = results.ratios(bar.metric, bar.row, bar.base, bar.compared)
    else:
        values = results.values(bar.row, bar.metric)
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return Verdict(results.scenario.name, text, None, None)
    measured = statistics.median(values)
    if bar.judged is Judged.WORST:
        measured = max(values) if bar.at_most is not None else min(values)
    passed = measured <= limit if bar.at_most is not None else measured >= limit
    shown = (value * scale for value in (min(values), max(values)))
    return Verdict(results.scenario.name, text, measured * scale, passed, *shown)


def _verdict_table(found: Sequence[Verdict]) -> str:
    lines = [["scenario", "figure to reach", "measured", "spread", "verdict"]]
    for verdict in found:
        middle, width = "-", "-"
        if verdict.measured is not None:
            middle, width = f"{verdict.measured:,.2f}", f"{verdict.least:,.2f}-{verdict.greatest:,.2f}"
        lines.append([verdict.scenario, verdict.text, middle, width, MARKS[verdict.passed]])
    return table(lines)


def ratio_pairs(results: Results) -> list[tuple[str, str]]:
    """The pairs of rows of the bars and of the scenario; without any the first row over each other one."""
    pairs = [(bar.row, bar.base) for bar in results.scenario.bars if bar.base]
    pairs += results.scenario.also
    seen = results.measured_rows
    return list(dict.fromkeys(pairs)) or [(seen[0], row) for row in seen[1:]]


def _ratio_lines(results: Results) -> list[str]:
    lines = []
    for row, base in ratio_pairs(results):
        parts = [
            f"{METRICS[name].title} {spread(values, Metric('', '.2f'))}"
            for name in RATIOS
            if (values := results.ratios(name, row, base))
        ]
        lines += [f"{row} / {base}: {', '.join(parts)}"] if parts else []
    return lines


def _notes(results: Results, row: str) -> str:
    """How many repetitions there were, and what makes them less than they seem."""
    samples = [taken for taken in results.samples[row] if taken]
    notes = [str(len(samples))]
    for word, count in (
        ("disturbed", sum(taken.disturbed for taken in samples)),
        ("lagged", sum(taken.lagged for taken in samples)),
    ):
        notes += [f"{count} {word}"] if count else []
    busy, generator = results.values(row, "server_cpu"), results.values(row, "generator_cpu")
    if busy and generator and statistics.median(busy) < SATURATED_SHARE:
        notes.append("server not saturated")
    if generator and statistics.median(generator) > GENERATOR_LIMIT_SHARE:
        notes.append("generator at its limit")
    return ", ".join(notes)


def _plain(taken: Sample) -> dict[str, float | bool | None]:
    numbers: dict[str, float | bool | None] = {
        key: value if math.isfinite(value) else None for key, value in taken.values.items()
    }
    return numbers | {"foreign_share": taken.foreign_share, "disturbed": taken.disturbed}
