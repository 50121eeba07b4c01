"""`lab slow`: slow clients and slow disks beside ordinary ones. Does one of them hold up the others?"""

from __future__ import annotations

import argparse
import os

from lab import fixtures, runner, toolbox
from lab.scenario import Ground
from lab.slow import measure, scenarios
from lab.toolbox import Toolbox

# Scenarios with a slow disk.
NEED_FUSE = {"cold-files", "uploads", "untaken-shared", "untaken-own"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    runner.add_arguments(parser, scenarios.NAMES, ("nginx",))


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises Unusable."""
    runner.raise_descriptor_limit()
    box = toolbox.prepare(options.peers, options.milepost)
    check(box, options.only)
    with runner.prepared(options, "slow") as (ground, awake):
        measure.lay_out(ground, options.only)
        chosen = [scenario for scenario in scenarios.every(box) if scenario.name in options.only]
        collection = runner.Collection(
            "slow",
            "Slow clients, slow disks",
            chosen,
            describe(options, box, ground, awake),
            lambda row: measure.sample(row, box, ground),
        )
        return runner.run(collection, options, box)


def describe(options: argparse.Namespace, box: Toolbox, ground: Ground, awake: bool) -> list[str]:
    """The head of the report, with what decides about latencies and mounts."""
    mounts = "a namespace of their own" if fixtures.keep_mounts_private() else "the namespace of the machine"
    priority = "real-time" if fixtures.may_be_realtime() else "ordinary"
    method = (
        f"{options.repeat} interleaved repetitions; latencies at a constant rate from the intended start "
        f"({priority} priority); mounts in {mounts}"
    )
    return runner.describe(box, ground, awake, method)


def check(box: Toolbox, chosen: list[str]) -> None:
    """Builds the slow disk where it is needed, and says at once what is missing. Raises Unusable."""
    runner.require(box, "milepost")
    needing = NEED_FUSE & set(chosen)
    if not needing:
        return
    box.programs["slowfs"] = str(toolbox.cargo_build(box, "slowfs"))
    runner.require(box, "slowfs")
    if not os.access("/dev/fuse", os.W_OK):
        others = ",".join(name for name in scenarios.NAMES if name not in NEED_FUSE)
        raise toolbox.Unusable(
            f"/dev/fuse cannot be opened; scenarios {', '.join(sorted(needing))} need it\n"
            f"hint: modprobe fuse, or --only {others}"
        )
