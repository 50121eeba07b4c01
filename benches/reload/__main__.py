"""Reloads, crashes and spread over processes and drivers, each scenario within one run on one machine.

Progress goes to stderr, the report as Markdown to stdout, and both it and every sample as JSON to
a folder. Exit status: 0 measured, 1 a bar was missed under --strict, 2 could not measure.
"""

from __future__ import annotations

import argparse
import copy
import functools
import os
import sys
import tempfile
import time
from pathlib import Path

import measure
import report
import run
import toolbox
from measure import Ground
from scenarios import Scenario
from slow import __main__ as slow_main
from slow import company
from toolbox import Toolbox

from reload import httpd, life, paper, scenes

HERE = Path(__file__).parent.resolve()
# A hundred reloads are a hundred repetitions by themselves, twenty of each server nearly so.
ONCE = ("1", "2")
# A kill is one number, and the restart after it a short one.
CRASH_REPEAT_MORE = 4


def main() -> int:
    """The exit status."""
    return run.guarded("bench-reload", read_arguments(), prepare_and_measure)


def prepare_and_measure(options: argparse.Namespace) -> int:
    """Everything between the arguments and the exit status. Raises Unusable."""
    server_core, client_core = run.two_cores()
    slow_main.raise_descriptor_limit()
    box = toolbox.prepare(options.peers, options.milepost, options.build)
    if httpd.NAME in options.peers and "6" in options.only:
        httpd.prepare(box)
    box.programs["callers"] = str(toolbox.cargo_build(box, "callers", HERE / "callers"))
    if "callers" in box.missing:
        raise toolbox.Unusable(f"callers: {box.missing['callers']}")
    # Before the threads and children: none of them may disturb the server.
    os.sched_setaffinity(0, {client_core})
    with tempfile.TemporaryDirectory(prefix="milepost-reload-") as directory, company.in_one_group() as awake:
        ground = Ground(Path(directory), server_core, client_core, options.seconds, 1, options.patience)
        return compare(options, box, ground, awake)


def read_arguments() -> argparse.Namespace:
    """The command line; `--help` is its reference."""
    parser = argparse.ArgumentParser(prog="bench-reload", description="Reloads, crashes and spread.")
    parser.add_argument(
        "--only",
        type=run.names(scenes.NUMBERS),
        default=list(scenes.NUMBERS),
        help="scenarios, by comma (1 to 6)",
    )
    parser.add_argument("--repeat", type=int, default=3, help="interleaved repetitions of 3 to 6 (3)")
    parser.add_argument("--seconds", type=int, default=4, help="of each throughput measurement (4)")
    parser.add_argument("--reloads", type=int, default=life.RELOADS, help="of the first scenario (100)")
    parser.add_argument("--others", type=int, default=life.SCALES, help="its kills, and its scales (20)")
    parser.add_argument("--patience", type=float, default=5, help="seconds to wait for a quiet machine (5)")
    parser.add_argument(
        "--peers",
        type=run.names(("none", *scenes.PEERS)),
        default=list(scenes.PEERS),
        help="peers, by comma; the default is all",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where reload.md and reload.json go (the cache)"
    )
    run.add_common(parser)
    return parser.parse_args()


def compare(options: argparse.Namespace, box: Toolbox, ground: Ground, awake: bool) -> int:
    """Runs the chosen scenarios, writing the report anew after each."""
    began_s = time.monotonic()
    measure.lay_out(ground)
    head = describe(options, box, ground, awake)
    folder: Path = options.out or toolbox.cache_folder() / "bench-reload-report"
    folder.mkdir(parents=True, exist_ok=True)
    done: list[report.Results] = []
    found: list[report.Verdict] = []
    text = ""
    for scenario in chosen(options):
        asked = copy.copy(options)
        asked.repeat = repetitions(scenario.name, options.repeat)
        results = run.run_scenario(
            scenario, functools.partial(scenes.sample, box=box, ground=ground), asked, box
        )
        done.append(results)
        found += report.verdicts(results)
        if scenario.name == scenes.sweep().name:
            found += scenes.peaks(results)
        text = paper.PAPER.markdown(head, done, found) + extra(done)
        (folder / "reload.md").write_text(text)
        report.write_json(folder / "reload.json", {"machine": head, "versions": box.versions}, done, found)
    print(text)
    took = f"{time.monotonic() - began_s:.0f} s"
    print(f"bench-reload: {took}; written to {folder}/reload.md and reload.json", file=sys.stderr)
    return 1 if options.strict and any(not verdict.passed for verdict in found) else 0


def describe(options: argparse.Namespace, box: Toolbox, ground: Ground, awake: bool) -> list[str]:
    """The head of the report: that of benches/slow, with the method of this one."""
    method = (
        f"method: server on processor {ground.server_core}, everything else on {ground.client_core}; "
        f"{options.repeat} interleaved repetitions, of 1 and 2 one; every request that did not get its whole "
        "right reply is lost, none is tried twice; latencies of closed loops"
    )
    return [*slow_main.describe(options, box, ground, awake)[:-1], method]


def chosen(options: argparse.Namespace) -> list[Scenario]:
    """The scenarios, the first with as many reloads as were asked for."""
    every = [scenes.lives(options.reloads, options.others), *scenes.every()[1:]]
    return [scenario for scenario in every if scenario.name in options.only]


def extra(done: list[report.Results]) -> str:
    """The sweep's own table, if it was measured."""
    sweeps = [results for results in done if results.scenario.name == scenes.sweep().name]
    return "".join(f"\n{paper.curves(results)}" for results in sweeps)


def repetitions(scenario: str, repeat: int) -> int:
    """How often a scenario is measured."""
    if scenario in ONCE:
        return 1
    return repeat + CRASH_REPEAT_MORE if scenario == scenes.crashes().name else repeat


if __name__ == "__main__":
    sys.exit(main())
