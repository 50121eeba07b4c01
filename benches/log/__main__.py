"""What the access log costs, and whether it has every line once, under stalls, rotation and signals.

Progress goes to stderr, the report as Markdown to stdout, and both it and every sample as JSON to
a folder. Exit status: 0 measured, 1 a bar was missed under --strict, 2 could not measure.
"""

from __future__ import annotations

import argparse
import copy
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
from slow import __main__ as slow_main
from slow import company
from toolbox import Toolbox

from log import paper, scenes, take

HERE = Path(__file__).parent.resolve()
PROGRAMS = {"numbered": HERE / "numbered", "slowfs": HERE.parent / "slow" / "slowfs"}
# Of the first scenario, whose figures are the finest and whose repetitions are short.
REPEAT_MORE = 2


def main() -> int:
    """The exit status."""
    return run.guarded("bench-log", read_arguments(), prepare_and_measure)


def prepare_and_measure(options: argparse.Namespace) -> int:
    """Everything between the arguments and the exit status. Raises Unusable."""
    server_core, client_core = run.two_cores()
    box = toolbox.prepare([], options.milepost, options.build)
    toolbox.install([] if take.faketime() else ["faketime"])
    for name, folder in PROGRAMS.items():
        box.programs[name] = str(toolbox.cargo_build(box, name, folder))
    lacking = [f"{name}: {box.missing[name]}" for name in ("milepost", "numbered") if name in box.missing]
    if lacking:
        raise toolbox.Unusable("\n".join(lacking))
    # Before the threads and children: none of them may disturb the server.
    os.sched_setaffinity(0, {client_core})
    with tempfile.TemporaryDirectory(prefix="milepost-log-") as directory, company.in_one_group() as awake:
        ground = Ground(Path(directory), server_core, client_core, options.seconds, 1, options.patience)
        return compare(options, box, ground, awake)


def read_arguments() -> argparse.Namespace:
    """The command line; `--help` is its reference."""
    parser = argparse.ArgumentParser(prog="bench-log", description="The access log.")
    parser.add_argument(
        "--only",
        type=run.names(scenes.NUMBERS),
        default=list(scenes.NUMBERS),
        help="scenarios, by comma (1 to 4)",
    )
    parser.add_argument(
        "--repeat", type=int, default=3, help="interleaved repetitions (3; 2 more of scenario 1)"
    )
    parser.add_argument("--seconds", type=int, default=4, help="of each throughput measurement (4)")
    parser.add_argument("--patience", type=float, default=5, help="seconds to wait for a quiet machine (5)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where log.md and log.json go (the cache)")
    run.add_common(parser)
    parser.set_defaults(peers=[])
    return parser.parse_args()


def compare(options: argparse.Namespace, box: Toolbox, ground: Ground, awake: bool) -> int:
    """Runs the chosen scenarios, writing the report anew after each."""
    began_s = time.monotonic()
    measure.lay_out(ground)
    head = slow_main.describe(options, box, ground, awake)
    known = scenes.known(box)
    folder: Path = options.out or toolbox.cache_folder() / "bench-log-report"
    folder.mkdir(parents=True, exist_ok=True)
    done: list[report.Results] = []
    found: list[report.Verdict] = []
    text = ""
    for scenario in scenes.every():
        if scenario.name not in options.only:
            continue
        asked = copy.copy(options)
        asked.repeat = repetitions(scenario.name, options.repeat)
        results = run.run_scenario(scenario, lambda row: take.sample(row, known, box, ground), asked, box)
        done.append(results)
        found += report.verdicts(results)
        text = paper.PAPER.markdown(head, done, found)
        (folder / "log.md").write_text(text)
        report.write_json(folder / "log.json", {"machine": head, "versions": box.versions}, done, found)
    print(text)
    took = f"{time.monotonic() - began_s:.0f} s"
    print(f"bench-log: {took}; written to {folder}/log.md and log.json", file=sys.stderr)
    return 1 if options.strict and any(not verdict.passed for verdict in found) else 0


def repetitions(scenario: str, repeat: int) -> int:
    """The rotations are a hundred repetitions by themselves."""
    return {"1": repeat + REPEAT_MORE, "3": 1}.get(scenario, repeat)


if __name__ == "__main__":
    sys.exit(main())
