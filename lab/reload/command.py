"""`lab reload`: reloads, crashes and the spread of connections over processes and drivers."""

from __future__ import annotations

import argparse
import functools

from lab import measure, runner, toolbox
from lab.reload import lifecycle, scenarios
from lab.scenario import Scenario

# A kill is one number, and the restart after it a short one.
CRASH_REPEAT_MORE = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    runner.add_arguments(parser, scenarios.NAMES, scenarios.PEERS, seconds=4)
    parser.add_argument("--reloads", type=int, default=lifecycle.RELOADS, help="of `operations` (100)")
    parser.add_argument("--others", type=int, default=lifecycle.SCALES, help="its kills, and its scales (20)")


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises Unusable."""
    runner.raise_descriptor_limit()
    box = toolbox.prepare(options.peers, options.milepost)
    box.programs["callers"] = str(toolbox.cargo_build(box, "callers"))
    runner.require(box, "milepost", "callers")
    with runner.prepared(options, "reload") as (ground, awake):
        measure.lay_out(ground)
        method = (
            f"{options.repeat} interleaved repetitions, of operations and reloads one; every request that "
            "did not get its whole right reply is lost, none is tried twice; latencies of closed loops"
        )
        collection = runner.Collection(
            "reload",
            "Reloads, crashes and spread",
            chosen(options),
            runner.describe(box, ground, awake, method),
            functools.partial(scenarios.sample, box=box, ground=ground),
            # A hundred reloads are a hundred repetitions by themselves, twenty of each server nearly so.
            {"operations": 1, "reloads": 1, "crash": options.repeat + CRASH_REPEAT_MORE},
        )
        return runner.run(collection, options, box)


def chosen(options: argparse.Namespace) -> list[Scenario]:
    """The scenarios, the first with as many reloads as were asked for."""
    every = [scenarios.operations(options.reloads, options.others), *scenarios.every()[1:]]
    return [scenario for scenario in every if scenario.name in options.only]
