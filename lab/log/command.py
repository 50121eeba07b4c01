"""`lab log`: the cost of the access log, and whether it has every line once."""

from __future__ import annotations

import argparse

from lab import measure as lab_measure
from lab import runner, toolbox
from lab.log import measure, scenarios
from lab.slow import command as slow_command

# Of the first scenario, whose figures are the finest and whose repetitions are short.
REPEAT_MORE = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    runner.add_arguments(parser, scenarios.NAMES, (), seconds=4)


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises Unusable."""
    box = toolbox.prepare([], options.milepost)
    toolbox.install([] if measure.faketime() else ["faketime"])
    for name in ("numbered", "slowfs"):
        box.programs[name] = str(toolbox.cargo_build(box, name))
    runner.require(box, "milepost", "numbered")
    with runner.prepared(options, "log") as (ground, awake):
        lab_measure.lay_out(ground)
        known = scenarios.known(box)
        collection = runner.Collection(
            "log",
            "The access log",
            [scenario for scenario in scenarios.every() if scenario.name in options.only],
            slow_command.describe(options, box, ground, awake),
            lambda row: measure.sample(row, known, box, ground),
            # The rotations are a hundred repetitions by themselves.
            {"cost": options.repeat + REPEAT_MORE, "rotation": 1},
        )
        return runner.run(collection, options, box)
