"""`lab autoscaling`: the chart's rule beside the HPA on CPU and a clairvoyant, by simulation.

Takes options, prints the tables, writes them and the pictures into a folder. Each row is a run of its own
with the same requests; rows run in several processes.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import functools
import multiprocessing
import os
import sys
from array import array
from dataclasses import dataclass
from pathlib import Path

from lab import plots, toolbox
from lab.autoscaling import chart, controllers, loads, results
from lab.autoscaling.chart import Rule
from lab.autoscaling.fleet import Controller, Fleet, Machine, controlled
from lab.autoscaling.loads import Load, Stream
from lab.autoscaling.pods import UNKNOWN, Requests
from lab.autoscaling.results import Result

DOCS = Path(__file__).resolve().parents[2] / "docs/autoscaling"
RECORDED = DOCS / "recorded.txt"
CLAIRVOYANT = "clairvoyant"
TARGETS = (0.65, 0.8, 0.9, 1.0)
WINDOWS = (60, 120, 300)


@dataclass(frozen=True)
class Scenario:
    """A load. `busy` is the mean number of running requests: before a step, at a day's peak."""

    title: str
    shape: str
    busy: float
    share: float
    #: None: the recording.
    mean: float | None
    rows: str = "controllers"

    @property
    def interval(self) -> float:
        """How often the clairvoyant changes the number of pods."""
        return 60.0 if self.shape == "step" else 300.0


SCENARIOS = {
    "step-waiting": Scenario("Step, an application that waits", "step", 8, 0.2, 0.5),
    "step-short": Scenario("Step, short requests that wait", "step", 8, 0.2, 0.05),
    "step-computing": Scenario("Step, an application that computes", "step", 3, 1.0, 0.5),
    "step-recorded": Scenario("Step, recorded requests", "step", 8, 0.01, None),
    "day-waiting": Scenario("Day, an application that waits", "day", 24, 0.2, 1.5),
    "day-computing": Scenario("Day, an application that computes", "day", 8, 1.0, 1.0),
    "day-recorded": Scenario("Day, recorded requests", "day", 12, 0.01, None),
    "targets": Scenario("Other targets, step of an application that waits", "step", 8, 0.2, 0.5, "targets"),
}
USUAL = [name for name in SCENARIOS if name != "targets"]


@dataclass(frozen=True)
class Task:
    """One row."""

    scenario: Scenario
    row: str
    rule: Rule
    balance: str
    seed: int
    recording: Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=USUAL, help=f"of {', '.join(SCENARIOS)}"
    )
    parser.add_argument(
        "--chart", type=Path, default=chart.FOLDER, help="folder of a Helm chart with another rule"
    )
    parser.add_argument(
        "--log",
        type=Path,
        default=RECORDED,
        help="access log of Milepost, or a recording, for recorded requests",
    )
    parser.add_argument("--record", type=Path, help="write what is used of the log to this file, and end")
    parser.add_argument("--balance", choices=("least", "random"), default="least", help="how pods are chosen")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder for pictures and tables (docs/autoscaling)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if the rule misses its figure")


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises Unusable."""
    if unknown := [name for name in options.only if name not in SCENARIOS]:
        raise toolbox.Unusable(f"--only {','.join(unknown)}: expected {', '.join(SCENARIOS)}")
    try:
        if options.record:
            loads.write(options.record, loads.read(options.log))
            return 0
        rule = chart.read(options.chart)
        return report(options, rule)
    except OSError as cause:
        raise toolbox.Unusable(str(cause)) from cause


def report(options: argparse.Namespace, rule: Rule) -> int:
    """Runs everything, a scenario's report as soon as its rows are there."""
    missed, texts = 0, []
    with concurrent.futures.ProcessPoolExecutor(
        os.cpu_count(), multiprocessing.get_context("fork")
    ) as processes:
        tasks = {
            name: [
                Task(SCENARIOS[name], row, rule, options.balance, options.seed, options.log)
                for row in rows_of(SCENARIOS[name], rule)
            ]
            for name in options.only
        }
        pending = {name: [processes.submit(taken, task) for task in tasks[name]] for name in tasks}
        for name, futures in pending.items():
            rows = {task.row: future.result() for task, future in zip(tasks[name], futures)}
            text, is_missed = written(name, rows, rule, options.out)
            missed += is_missed
            texts.append(text)
            print(text, flush=True)
    if options.out:
        (options.out / "autoscaling.md").write_text("\n".join(texts))
    return 1 if missed and options.strict else 0


def written(name: str, rows: dict[str, Result], rule: Rule, out: Path | None) -> tuple[str, bool]:
    """The report of a scenario, and whether the chart's rule misses its figure."""
    scenario, first = SCENARIOS[name], rows[CLAIRVOYANT]
    facts = f"{first.requests} requests; p99 within {first.objective:.2f} s is the objective."
    text = f"## {scenario.title}\n\n{facts}\n\n{results.table(rows, CLAIRVOYANT)}\n"
    if out:
        out.mkdir(parents=True, exist_ok=True)
        if why := plots.missing():
            print(f"lab: {why}", file=sys.stderr)
        else:
            results.draw(out / f"{name}.svg", scenario.title, rows, rule.threads)
    ruled = rows.get("chart")
    is_missed = ruled is not None and not (
        ruled.is_within and ruled.pod_hours <= results.RATIO_MAX * first.pod_hours
    )
    return text, is_missed


def rows_of(scenario: Scenario, rule: Rule) -> list[str]:
    """The names of the rows; the clairvoyant takes longest and so comes first."""
    if scenario.rows == "targets":
        return [CLAIRVOYANT, *(f"{target}, {window} s" for target in TARGETS for window in WINDOWS)]
    # Where the processor is idle it does not decide.
    alone = ["chart without CPU"] if rule.cpu_target and scenario.share > 0.5 else []
    return [CLAIRVOYANT, "chart", *alone, "CPU 50 %", "CPU 70 %"]


def controller(row: str, rule: Rule) -> Controller:
    """Who decides in a row."""
    if row == "chart":
        return controllers.by_rule(rule)
    if row == "chart without CPU":
        return controllers.by_rule(dataclasses.replace(rule, cpu_target=0.0))
    if row.startswith("CPU "):
        return controllers.by_cpu(rule, float(row.split()[1]) / 100)
    target, window = row.removesuffix(" s").split(", ")
    behavior = dataclasses.replace(rule.behavior, down_window_seconds=float(window))
    return controllers.by_rule(dataclasses.replace(rule, target=float(target), behavior=behavior))


def taken(task: Task) -> Result:
    """Runs one row."""
    scenario, rule = task.scenario, task.rule
    load = fresh(requests(scenario, task.seed, task.recording))
    machine = Machine(
        rule.threads,
        scenario.share,
        task.balance,
        prestop_seconds=rule.prestop_seconds,
        drain_seconds=rule.drain_seconds,
    )
    if task.row == CLAIRVOYANT:
        fleet, course = controllers.clairvoyant(load, machine, rule, scenario.interval, task.seed)
        return results.of(load, fleet, course)
    fleet = Fleet(machine, load.requests, task.seed)
    # Enough pods for the beginning, which is then as the controller makes it.
    work = sum(load.requests.works[at] for at in loads.between(load.requests.times, 0, 300)) / 300
    pods = max(
        rule.pods_min, round(work / (rule.threads * min(1, 1 / (rule.threads * scenario.share))) / 0.7)
    )
    course = controlled(fleet, controller(task.row, rule), pods, load.seconds)
    return results.of(load, fleet, course)


@functools.lru_cache(maxsize=1)
def requests(scenario: Scenario, seed: int, recording: Path) -> Load:
    """The same for all rows."""
    mean, stream = streamed(scenario, seed, recording)
    if scenario.shape == "step":
        rate, seconds = loads.step(scenario.busy, mean)
    else:
        rate, seconds = loads.day(scenario.busy, mean, seed)
    return loads.load(stream, rate, seconds)


def streamed(scenario: Scenario, seed: int, recording: Path) -> tuple[float, Stream]:
    """The mean run time, and the requests."""
    if scenario.mean is not None:
        return scenario.mean, loads.made(scenario.mean, 1.0, seed)
    recorded = loads.read(recording)
    return sum(run for _, run in recorded) / len(recorded), loads.repeated(recorded, seed)


def fresh(load: Load) -> Load:
    """The same requests, of which nothing is known."""
    known = load.requests
    unknown = array("d", [UNKNOWN]) * len(known.times)
    return dataclasses.replace(load, requests=Requests(known.times, known.works, unknown))
