"""Runs scenarios: rows by turns, the report written anew after each scenario. Used by all subcommands.

Progress goes to stderr, the report as Markdown to stdout, and with every sample and pictures to a folder.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import re
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lab import fixtures, measure, plots, report, toolbox
from lab.report import Results, Verdict
from lab.scenario import MILEPOST, Ground, Judged, Row, Sample, Scenario
from lab.toolbox import Toolbox

DESCRIPTORS_NEEDED = 16_000


@dataclass(frozen=True)
class Collection:
    """What one subcommand measures; `name` is that of its files."""

    name: str
    title: str
    scenarios: Sequence[Scenario]
    head: list[str]
    measure: Callable[[Row], Sample]
    # Repetitions of scenarios for which one number does not do, by name.
    repeat: dict[str, int] = field(default_factory=dict)
    # A sentence about a scenario, by its results.
    conclusion: Callable[[Results], str] = lambda results: ""


@contextlib.contextmanager
def prepared(options: argparse.Namespace, name: str) -> Iterator[tuple[Ground, bool]]:
    """A folder, two cores, and whether the processors can be kept awake; undone with the block."""
    server_core, client_core = two_cores()
    # Before threads and children: none of them may disturb the server.
    os.sched_setaffinity(0, {client_core})
    with (
        tempfile.TemporaryDirectory(prefix=f"milepost-{name}-") as directory,
        fixtures.in_one_group() as awake,
    ):
        times = (options.seconds, options.warm_up, options.patience)
        yield Ground(Path(directory), server_core, client_core, *times), awake


def run(collection: Collection, options: argparse.Namespace, box: Toolbox) -> int:
    """Measures everything; the exit status."""
    began_s = time.monotonic()
    folder = output_folder(options, collection.name)
    done: list[Results] = []
    found: list[Verdict] = []
    conclusions: dict[str, str] = {}
    text = ""
    for scenario in collection.scenarios:
        repeat = collection.repeat.get(scenario.name, options.repeat)
        results = run_scenario(collection, scenario, repeat, options, box)
        done.append(results)
        found += report.verdicts(results)
        conclusions[scenario.name] = collection.conclusion(results)
        text = report.markdown(collection.title, collection.head, done, found, conclusions)
        (folder / f"{collection.name}.md").write_text(text)
        report.write_json(folder / f"{collection.name}.json", collection.head, done, found)
        draw(folder, results)
    print(text)
    say(collection.name, f"{time.monotonic() - began_s:.0f} s; written to {folder}")
    return 1 if options.strict and any(verdict.passed is False for verdict in found) else 0


def run_scenario(
    collection: Collection, scenario: Scenario, repeat: int, options: argparse.Namespace, box: Toolbox
) -> Results:
    """All repetitions of one scenario; a row that fails is left out of the rest."""
    results = Results(scenario)
    rows = [row for row in scenario.rows if row.tool == MILEPOST or row.tool in options.peers]
    for row in rows:
        results.samples[row.name] = []
        if row.tool in box.missing:
            results.failures[row.name] = box.missing[row.tool]
    for turn in range(1, repeat + 1):
        for row in rows:
            if row.name in results.failures:
                continue
            say(collection.name, f"{scenario.name}: {row.name} {turn}/{repeat}")
            try:
                results.samples[row.name].append(collection.measure(row))
            except measure.FAULTS as cause:
                # Not tried again: a fault that comes and goes is a result to look at.
                results.failures[row.name] = str(cause)
    return results


def draw(folder: Path, results: Results) -> None:
    """A picture of each number whose median is to reach a figure; counts are in the tables."""
    if why := plots.missing():
        say("lab", why)
        return
    judged = [bar.metric for bar in results.scenario.bars if bar.judged is Judged.MEDIAN]
    metrics = dict.fromkeys(judged or ["rps"])
    for name in metrics:
        metric = report.metric_of(name)
        rows = {
            row: [value * metric.scale for value in values if abs(value) != float("inf")]
            for row in results.measured_rows
            if (values := results.values(row, name))
        }
        rows = {row: values for row, values in rows.items() if values}
        if rows:
            file = folder / f"{file_name(results.scenario.name)}-{file_name(name)}.svg"
            plots.bars(file, results.scenario.title, metric.title, rows)


def file_name(text: str) -> str:
    """Letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def output_folder(options: argparse.Namespace, name: str) -> Path:
    """Where the report goes: `--out`, or a folder of the cache."""
    folder: Path = options.out or toolbox.cache_folder() / f"lab-{name}-report"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def describe(box: Toolbox, ground: Ground, awake: bool, method: str) -> list[str]:
    """The head of a report: machine, versions, method."""
    return [
        f"date: {datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %z}",
        *toolbox.machine(),
        *(f"{name}: {version}" for name, version in box.versions.items()),
        *(f"{name}: missing: {why}" for name, why in box.missing.items()),
        f"processors: {'kept awake by the idle class' if awake else 'may fall asleep between requests'}",
        f"method: server on processor {ground.server_core}, everything else on {ground.client_core}; "
        f"{method}; ratios within a repetition, their median (least-greatest); disturbed repetitions left "
        "out where others are left",
    ]


def require(box: Toolbox, *names: str) -> None:
    """Raises Unusable when one of them is missing."""
    lacking = [f"{name}: {box.missing[name]}" for name in names if name in box.missing]
    if lacking:
        raise toolbox.Unusable("\n".join(lacking))


def two_cores() -> tuple[int, int]:
    """One core for the server and one for the load; this program joins the load's."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise toolbox.Unusable(
            "one core only: server and generator would measure each other\nhint: use two cores"
        )
    return cores[0], cores[1]


def raise_descriptor_limit() -> None:
    """Takes all descriptors that are allowed. Raises Unusable when they are too few."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS_NEEDED:
        raise toolbox.Unusable(
            f"{hard} descriptors are allowed, {DESCRIPTORS_NEEDED} needed\nhint: ulimit -Hn"
        )


def add_arguments(
    parser: argparse.ArgumentParser,
    names: tuple[str, ...],
    peers: tuple[str, ...],
    repeat: int = 3,
    seconds: int = 5,
) -> None:
    """The options that all collections of scenarios have."""
    if names:
        parser.add_argument(
            "--only",
            type=some_of(names),
            default=list(names),
            help=f"scenarios, by comma: {', '.join(names)} (all)",
        )
    parser.add_argument(
        "--peers",
        type=some_of(("none", *peers)),
        default=list(peers),
        help=f"peers beside Milepost, by comma: {', '.join(('none', *peers))} (all)",
    )
    parser.add_argument("--repeat", type=int, default=repeat, help=f"interleaved repetitions ({repeat})")
    parser.add_argument("--seconds", type=int, default=seconds, help=f"of each measurement ({seconds})")
    parser.add_argument("--warm-up", type=int, default=1, help="seconds of load before it (1)")
    parser.add_argument("--patience", type=float, default=5, help="seconds to wait for a quiet machine (5)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder of the report (in the cache)")
    parser.add_argument("--milepost", type=Path, metavar="FILE", help="measure this command; build nothing")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a figure was missed")


def some_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """The type of an argument: some of the `known`, by comma."""

    def split(text: str) -> list[str]:
        chosen = [name for name in text.split(",") if name]
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"`{name}` is none of {', '.join(known)}")
        return chosen

    return split


def say(name: str, text: str) -> None:
    """A line of progress."""
    print(f"lab {name}: {text}", file=sys.stderr, flush=True)
