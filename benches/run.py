#!/usr/bin/env python3
"""Measures Milepost against its peers, side by side in one run on one machine.

The server runs on one core and `milepost bench` on another; servers take turns (A B C A B C ...), each
started afresh, so that a drift of the machine hits all of them. Tables go to stdout, progress
to stderr. Exit status: 0 measured, 1 a bar was missed under --strict, 2 could not measure.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import measure
import report
import scenarios
import toolbox
from measure import Ground, Sample
from scenarios import Row, Scenario
from toolbox import Toolbox

NAMES = ("static", "static-log", "wsgi", "wsgi-log", "idle", "slow-readers", "generators")


def main() -> int:
    """The exit status."""
    return guarded("bench", read_arguments(), prepare_and_measure)


def guarded(name: str, options: argparse.Namespace, work: Callable[[argparse.Namespace], int]) -> int:
    """The exit status of `work`; 2, and why, when it cannot be done or a signal ends it."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return work(options)
    except toolbox.Unusable as cause:
        print(f"{name}: {cause}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"{name}: interrupted; everything that was started has been ended", file=sys.stderr)
    return 2


def prepare_and_measure(options: argparse.Namespace) -> int:
    """Everything between the arguments and the exit status. Raises Unusable."""
    cores = two_cores()
    box = toolbox.prepare(options.peers, options.milepost, options.build)
    with tempfile.TemporaryDirectory(prefix="milepost-bench-") as directory:
        ground = Ground(Path(directory), *cores, options.seconds, options.warm_up, options.patience)
        return compare(options, box, ground)


def read_arguments() -> argparse.Namespace:
    """The command line; `--help` is its reference."""
    parser = argparse.ArgumentParser(description="Measure Milepost against its peers.")
    parser.add_argument("--only", type=names(NAMES), default=list(NAMES), help="scenarios, by comma")
    parser.add_argument(
        "--peers",
        type=names(("none", *toolbox.PEERS)),
        default=list(toolbox.PEERS),
        help="peers, by comma; the default is all",
    )
    parser.add_argument("--repeat", type=int, default=5, help="interleaved repetitions (5)")
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement (5)")
    parser.add_argument("--warm-up", type=int, default=1, help="seconds of load before it (1)")
    parser.add_argument("--patience", type=float, default=20, help="seconds to wait for a quiet machine (20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    add_common(parser)
    return parser.parse_args()


def add_common(parser: argparse.ArgumentParser) -> None:
    """What to measure, and what a missed bar means: the same for every collection of scenarios."""
    parser.add_argument(
        "--milepost", type=Path, metavar="FILE", help="measure this command; nothing is built"
    )
    parser.add_argument(
        "--build", choices=("wheel", "none"), default="wheel", help="install the checkout first (wheel)"
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 when a bar is missed")


def compare(options: argparse.Namespace, box: Toolbox, ground: Ground) -> int:
    """Runs the chosen scenarios, printing each as soon as it is complete."""
    measure.lay_out(ground)
    head = describe(options, box, ground)
    print("\n".join(head) + "\n", flush=True)
    found: list[report.Verdict] = []
    done: list[report.Results] = []
    for scenario in scenarios.every(box, canned_reply(box, ground)):
        if scenario.name in options.only:
            take = functools.partial(measure.sample, kind=scenario.kind, box=box, ground=ground)
            done.append(run_scenario(scenario, take, options, box))
            print(report.table(done[-1]), flush=True)
            found += report.verdicts(done[-1])
    print(report.verdict_table(found))
    if options.json:
        report.write_json(options.json, {"machine": head, "versions": box.versions}, done, found)
    return 1 if options.strict and any(verdict.passed is False for verdict in found) else 0


def run_scenario(
    scenario: Scenario, take: Callable[[Row], Sample], options: argparse.Namespace, box: Toolbox
) -> report.Results:
    """All repetitions of one scenario; a row that fails is left out of the rest."""
    results = report.Results(scenario)
    rows = [row for row in scenario.rows if row.tool == scenarios.MILEPOST or row.tool in options.peers]
    for row in rows:
        results.samples[row.name] = []
        if row.tool in box.missing:
            results.failures[row.name] = box.missing[row.tool]
    for turn in range(1, options.repeat + 1):
        for row in rows:
            if row.name in results.failures:
                continue
            print(f"bench: {scenario.name}: {row.name} {turn}/{options.repeat}", file=sys.stderr)
            try:
                results.samples[row.name].append(take(row))
            except measure.FAULTS as cause:
                # Not tried again: a fault that comes and goes is a result to look at.
                results.failures[row.name] = str(cause)
    return results


def canned_reply(box: Toolbox, ground: Ground) -> bytes:
    """The reply that the floor copies: Milepost's, or nginx's while there is no Milepost."""
    for row in scenarios.static(b"").rows[:2]:
        if row.tool not in box.missing and (row.tool == scenarios.MILEPOST or row.tool in box.versions):
            try:
                return measure.first_reply(row, box, ground)
            except measure.FAULTS as cause:
                box.missing[row.tool] = str(cause)
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1024\r\n\r\n" + b"x" * 1024


def describe(options: argparse.Namespace, box: Toolbox, ground: Ground) -> list[str]:
    """The head of the report: machine, versions, method."""
    lines = [f"date     {datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %z}", *toolbox.machine()]
    lines += [f"{name:8} {version}" for name, version in box.versions.items()]
    lines += [f"{name:8} missing: {why}" for name, why in box.missing.items()]
    lines.append(
        f"method   server on core {ground.server_core}, `milepost bench` on core {ground.client_core}; "
        f"{options.repeat} interleaved repetitions of {ground.seconds} s after {ground.warm_up_s} s; "
        "median (least-greatest); ratios within a repetition"
    )
    return lines


def two_cores() -> tuple[int, int]:
    """One core for the server and one for the load; this program joins the load's."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise toolbox.Unusable(
            "one core only: server and generator would measure each other\nhint: use two cores"
        )
    return cores[0], cores[1]


def names(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """The type of an argument: some of the `known`, by comma."""

    def split(text: str) -> list[str]:
        chosen = [name for name in text.split(",") if name]
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"`{name}` is none of {', '.join(known)}")
        return chosen

    return split


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
