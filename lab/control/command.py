"""`lab control`: pools that size themselves beside fixed ones, and the simulator beside the server."""

from __future__ import annotations

import argparse
import functools

from lab import runner, toolbox
from lab.control import prediction, scenarios
from lab.control.scenarios import Measure
from lab.process import Command
from lab.report import Results
from lab.scenario import MILEPOST, Ground, Row, Sample, Scenario
from lab.servers import Place
from lab.toolbox import Toolbox

NAMES = ("step", "gil", "overload", "handover", *prediction.NAMES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    runner.add_arguments(parser, NAMES, (), seconds=60)
    parser.set_defaults(patience=0)


def run(options: argparse.Namespace) -> int:
    """The exit status. Raises Unusable."""
    box = toolbox.prepare(["floor"], options.milepost)
    box.programs["wake"] = str(box.floor.with_name("milepost-wake"))
    runner.require(box, "milepost", "floor")
    with runner.prepared(options, "control") as (ground, awake):
        method = f"{options.repeat} interleaved repetitions; an overload of {ground.seconds} s"
        collection = runner.Collection(
            "control",
            "Pools that size themselves",
            [scenario for scenario in every(ground.seconds) if scenario.name in options.only],
            runner.describe(box, ground, awake, method),
            lambda row: row.take(row, box, ground),
            conclusion=conclusion,
        )
        return runner.run(collection, options, box)


def every(seconds: int) -> list[Scenario]:
    """All scenarios; `seconds` is the length of the overload, others go by it."""
    fixed = {f"fixed {size}": ["--threads", str(size)] for size in (1, 2, 4, 8, 16, 32)}
    tight = ["--queue-target", "5ms", "--overload-timeout", "8ms"]
    steps = {"fixed 4": ["--threads", "4"], "fixed 32": ["--threads", "32"], "4:32": ["--threads", "4:32"]}
    step = {name: scenarios.step(flags) for name, flags in steps.items()}
    bound = {**fixed, "1:32": ["--threads", "1:32"]}
    gil = {name: scenarios.bound(flags, seconds // 2) for name, flags in bound.items()}
    overload = {"fixed 4": scenarios.overload(["--threads", "4"], tight, "/sleep?ms=20", seconds)}
    for loop in ("asyncio", "uvloop"):
        # The handler blocks the loop; all other settings are the defaults.
        blocked = scenarios.overload(["--loop", loop], [], "/sleep?ms=2", seconds, "loop_app:app")
        overload[f"event loop of {loop}"] = blocked
    handover: dict[str, Measure] = {}
    for state, may_sleep in (("kept awake", False), ("may fall asleep", True)):
        handover[f"fixed 4, processor {state}"] = scenarios.idle(["--threads", "4"], may_sleep)
        handover[f"one thread wakes another, processor {state}"] = scenarios.woken(may_sleep)
    return [
        scenario("step", "step load, handlers sleep 20 ms", step),
        scenario("gil", "work under the interpreter's lock, 5 ms of processor time", gil),
        scenario("overload", "twice the capacity", overload),
        scenario("handover", "hand-over, idle server", handover),
        *(scenario(name, title, rows) for name, title, rows in prediction.every(seconds)),
    ]


def scenario(name: str, title: str, rows: dict[str, Measure]) -> Scenario:
    """Rows that start their servers themselves."""
    made = (Row(row, MILEPOST, no_server, take=functools.partial(taken, take)) for row, take in rows.items())
    return Scenario(name, title, tuple(made))


def taken(measure: Measure, _row: Row, box: Toolbox, ground: Ground) -> Sample:
    """The numbers as a sample; what others compute shows in the numbers of the machine itself."""
    return Sample(measure(box, ground), 0.0)


def no_server(_box: Toolbox, _place: Place) -> Command:
    """Never called: `scenarios.play` starts the servers."""
    raise AssertionError("these rows start their servers themselves")


def conclusion(results: Results) -> str:
    """How good the simulator's predictions were."""
    if results.scenario.name not in prediction.NAMES:
        return ""
    samples = {row: [one.values for one in found if one] for row, found in results.samples.items()}
    return prediction.verdict(samples)
