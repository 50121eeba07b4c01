"""Pools that steer themselves, against pools of fixed sizes, on the real server.

Progress goes to stderr, tables as Markdown to stdout, and they and every sample as JSON to a folder. Exit
status: 0 measured, 2 could not measure.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import measure
import run
import toolbox
from measure import Ground
from slow import company
from toolbox import Toolbox

from control import reality, scenes

Take = Callable[[Toolbox, Ground], scenes.Values]


@dataclass(frozen=True)
class Scene:
    """What is measured, of which servers."""

    number: str
    title: str
    rows: dict[str, Take]
    # A sentence about all repetitions.
    verdict: Callable[[reality.Samples], str] | None = None


def every(seconds: int) -> list[Scene]:
    """All scenarios; `seconds` is the length of the overload, others go by it."""
    fixed = {f"fixed {size}": ["--threads", str(size)] for size in (1, 2, 4, 8, 16, 32)}
    tight = ["--queue-target", "5ms", "--overload-timeout", "8ms"]
    steps = {"fixed 4": ["--threads", "4"], "fixed 32": ["--threads", "32"], "4:32": ["--threads", "4:32"]}
    bound = {**fixed, "1:32": ["--threads", "1:32"]}
    idle: dict[str, Take] = {}
    for state, may_sleep in (("kept awake", False), ("may fall asleep", True)):
        idle[f"fixed 4, processor {state}"] = scenes.idle(["--threads", "4"], may_sleep)
        idle[f"one thread wakes another, processor {state}"] = scenes.woken(may_sleep)
    return [
        Scene(
            "1",
            "Step load, handlers sleep 20 ms",
            {name: scenes.step(flags) for name, flags in steps.items()},
        ),
        Scene(
            "2",
            "Work under the interpreter's lock, 5 ms of processor time",
            {name: scenes.bound(flags, seconds // 2) for name, flags in bound.items()},
        ),
        Scene(
            "3",
            "Twice the capacity",
            {"fixed 4": scenes.overload(["--threads", "4"], tight, "/sleep?ms=20", seconds)},
        ),
        Scene(
            "4",
            "Hand-over, idle server",
            idle,
        ),
        *(Scene(number, title, rows, reality.verdict) for number, title, rows in reality.every(seconds)),
    ]


def main() -> int:
    """The exit status."""
    return run.guarded("bench-control", read_arguments(), prepare_and_measure)


def read_arguments() -> argparse.Namespace:
    """The command line; `--help` is its reference."""
    parser = argparse.ArgumentParser(prog="bench-control", description="Pools that steer themselves.")
    parser.add_argument("--only", default="1,2,3,4,5,6,7", help="scenarios, by comma (1 to 7)")
    parser.add_argument("--repeat", type=int, default=3, help="interleaved repetitions (3)")
    parser.add_argument("--seconds", type=int, default=60, help="of the overload; others go by it (60)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the report goes (the cache)")
    run.add_common(parser)
    return parser.parse_args()


def prepare_and_measure(options: argparse.Namespace) -> int:
    """Everything between the arguments and the exit status. Raises Unusable."""
    server_core, client_core = run.two_cores()
    box = toolbox.prepare(["floor"], options.milepost, options.build)
    box.programs["wake"] = str(box.floor.with_name("milepost-wake"))
    os.sched_setaffinity(0, {client_core})
    with (
        tempfile.TemporaryDirectory(prefix="milepost-control-") as directory,
        company.in_one_group() as awake,
    ):
        if not awake:
            print("bench-control: processors cannot be kept awake: all rows are as asleep", file=sys.stderr)
        ground = Ground(Path(directory), server_core, client_core, options.seconds, 1, 0)
        return measure_all(options, box, ground)


def measure_all(options: argparse.Namespace, box: Toolbox, ground: Ground) -> int:
    """Servers take turns; the report is written anew after each scenario."""
    folder = options.out or toolbox.cache_folder() / "bench-control-report"
    folder.mkdir(parents=True, exist_ok=True)
    samples: dict[str, dict[str, list[scenes.Values]]] = {}
    text = ""
    for scene in every(options.seconds):
        if scene.number not in options.only.split(","):
            continue
        found: dict[str, list[scenes.Values]] = {name: [] for name in scene.rows}
        for turn in range(1, options.repeat + 1):
            for name, take in scene.rows.items():
                print(f"bench-control: {scene.title}: {name} {turn}/{options.repeat}", file=sys.stderr)
                try:
                    found[name].append(take(box, ground))
                except measure.FAULTS as cause:
                    print(f"bench-control: {name}: {cause}", file=sys.stderr)
        samples[scene.title] = found
        text += table(scene.title, found)
        if scene.verdict:
            text += f"\n{scene.verdict(found)}\n"
        (folder / "control.md").write_text(text)
        (folder / "control.json").write_text(json.dumps(samples, indent=1))
    print(text)
    return 0


def table(title: str, found: dict[str, list[scenes.Values]]) -> str:
    """Medians, with the least and the greatest behind them."""
    names = next((list(values[0]) for values in found.values() if values), [])
    lines = [f"\n### {title}\n", "| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row, values in found.items():
        cells = [cell([one[name] for one in values]) if values else "failed" for name in names]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def cell(values: list[float]) -> str:
    """`4.2 (3.9-5.0)`"""
    return f"{statistics.median(values):.3g} ({min(values):.3g}-{max(values):.3g})"


if __name__ == "__main__":
    sys.exit(main())
