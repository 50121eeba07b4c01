"""Slow clients and slow disks beside ordinary ones, each scenario within one run on one machine.

Progress goes to stderr, the report as Markdown to stdout, and both it and every sample as JSON to
a folder. Exit status: 0 measured, 1 a bar was missed under --strict, 2 could not measure.
"""

from __future__ import annotations

import argparse
import datetime
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import report
import run
import toolbox
from measure import Ground
from toolbox import Toolbox

from slow import company, paper, scenes, take

HERE = Path(__file__).parent.resolve()
PROGRAMS = ("pace", "slowfs")
DESCRIPTORS_NEEDED = 16_000
# Scenarios with a slow disk.
NEED_FUSE = {"3", "5", "7", "8"}


def main() -> int:
    """The exit status."""
    return run.guarded("bench-slow", read_arguments(), prepare_and_measure)


def prepare_and_measure(options: argparse.Namespace) -> int:
    """Everything between the arguments and the exit status. Raises Unusable."""
    server_core, client_core = run.two_cores()
    raise_descriptor_limit()
    box = toolbox.prepare(options.peers, options.milepost, options.build)
    for name in PROGRAMS:
        box.programs[name] = str(toolbox.cargo_build(box, name, HERE / name))
    check(box, options.only)
    # Before the threads and children: none of them may disturb the server.
    os.sched_setaffinity(0, {client_core})
    with tempfile.TemporaryDirectory(prefix="milepost-slow-") as directory, company.in_one_group() as awake:
        ground = Ground(Path(directory), server_core, client_core, options.seconds, 1, options.patience)
        return compare(options, box, ground, awake)


def read_arguments() -> argparse.Namespace:
    """The command line; `--help` is its reference."""
    parser = argparse.ArgumentParser(prog="bench-slow", description="Slow clients and slow disks.")
    parser.add_argument(
        "--only",
        type=run.names(scenes.NUMBERS),
        default=list(scenes.NUMBERS),
        help="scenarios, by comma (1 to 8)",
    )
    parser.add_argument("--repeat", type=int, default=3, help="interleaved repetitions (3)")
    parser.add_argument("--seconds", type=int, default=5, help="of each throughput measurement (5)")
    parser.add_argument("--patience", type=float, default=5, help="seconds to wait for a quiet machine (5)")
    parser.add_argument(
        "--peers", type=run.names(("none", "nginx")), default=["nginx"], help="nginx or none (nginx)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where slow.md and slow.json go (the cache)")
    run.add_common(parser)
    return parser.parse_args()


def compare(options: argparse.Namespace, box: Toolbox, ground: Ground, awake: bool) -> int:
    """Runs the chosen scenarios, writing the report anew after each."""
    began_s = time.monotonic()
    take.lay_out(ground, options.only)
    head = describe(options, box, ground, awake)
    folder: Path = options.out or toolbox.cache_folder() / "bench-slow-report"
    folder.mkdir(parents=True, exist_ok=True)
    done: list[report.Results] = []
    found: list[report.Verdict] = []
    text = ""
    for scenario in scenes.every(box):
        if scenario.name not in options.only:
            continue
        results = run.run_scenario(scenario, lambda row: take.sample(row, box, ground), options, box)
        done.append(results)
        found += report.verdicts(results)
        text = paper.Paper("Slow clients, slow disks", paper.COLUMNS).markdown(head, done, found)
        (folder / "slow.md").write_text(text)
        report.write_json(folder / "slow.json", {"machine": head, "versions": box.versions}, done, found)
    print(text)
    took = f"{time.monotonic() - began_s:.0f} s"
    print(f"bench-slow: {took}; written to {folder}/slow.md and slow.json", file=sys.stderr)
    return 1 if options.strict and any(not verdict.passed for verdict in found) else 0


def describe(options: argparse.Namespace, box: Toolbox, ground: Ground, awake: bool) -> list[str]:
    """The head of the report: machine, versions, method."""
    private = company.keep_mounts_private()
    realtime = company.may_be_realtime()
    return [
        f"date: {datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %z}",
        *(line.replace("  ", " ").strip() for line in toolbox.machine()),
        *(f"{name}: {version}" for name, version in box.versions.items()),
        *(f"{name}: missing: {why}" for name, why in box.missing.items()),
        f"mounts: {'in a namespace of their own' if private else 'in that of the machine'}",
        f"processors: {'kept awake by the idle class' if awake else 'may fall asleep between requests'}",
        f"method: server on processor {ground.server_core}, everything else on {ground.client_core}; "
        f"{options.repeat} interleaved repetitions; latencies at a constant rate from the intended start "
        f"({'real-time' if realtime else 'ordinary'} priority); ratios within a repetition, their median "
        "(least-greatest); disturbed repetitions left out where others are left",
    ]


def check(box: Toolbox, chosen: list[str]) -> None:
    """Says at once what cannot be done without. Raises Unusable."""
    lacking = [f"{name}: {box.missing[name]}" for name in ("milepost", "pace") if name in box.missing]
    if "slowfs" in box.missing and NEED_FUSE & set(chosen):
        lacking.append(f"slowfs: {box.missing['slowfs']}")
    if not os.access("/dev/fuse", os.W_OK) and NEED_FUSE & set(chosen):
        others = ",".join(number for number in scenes.NUMBERS if number not in NEED_FUSE)
        lacking.append(
            f"/dev/fuse cannot be opened; scenarios {', '.join(sorted(NEED_FUSE))} need it\n"
            f"hint: modprobe fuse, or --only {others}"
        )
    if lacking:
        raise toolbox.Unusable("\n".join(lacking))


def raise_descriptor_limit() -> None:
    """All descriptors that we may have. Raises Unusable when they are too few."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS_NEEDED:
        raise toolbox.Unusable(
            f"{hard} descriptors are allowed, {DESCRIPTORS_NEEDED} needed\nhint: ulimit -Hn"
        )


if __name__ == "__main__":
    sys.exit(main())
