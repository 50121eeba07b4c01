"""What the simulator predicts from a log of four threads, and what two, eight and sixteen then give."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
from collections.abc import Iterator
from typing import Any

from lab.control import records, scenarios
from lab.control.records import Record
from lab.scenario import Ground
from lab.toolbox import Toolbox

RECORDED_THREADS = 4
PREDICTED_THREADS = (2, 8, 16)
NAMES = ("predict-sleep", "predict-cpu", "predict-mixed")
# Two threads are busy for 70 of 100 parts of the time; computing alone keeps one processor half as busy.
KINDS = {"sleep": ("/sleep?ms=20", 70), "cpu": ("/cpu?ms=5", 100), "mixed": ("/mixed?ms=20", 70)}
TITLES = {"sleep": "handlers that sleep", "cpu": "handlers that compute", "mixed": "both"}
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


Samples = dict[str, list[scenarios.Values]]


def every(seconds: int) -> Iterator[tuple[str, str, dict[str, scenarios.Measure]]]:
    """Name, title and rows of each kind of handler."""
    for name, kind in zip(NAMES, KINDS):
        path, rate = KINDS[kind]
        # The same arrivals: what is predicted is what other threads make of them.
        load = [*scenarios.open_loop(str(rate)), "--duration", f"{seconds}s", "--seed", "7"]
        logged = Logged(path, load)
        rows = {f"{threads} threads": predict(logged, threads) for threads in PREDICTED_THREADS}
        yield name, f"predicted and measured: {TITLES[kind]}", rows


class Logged:
    """What is predicted from: a log of its own for each repetition, which begins with the first row."""

    def __init__(self, path: str, load: list[str]) -> None:
        self.path = path
        self.load = load
        self.run: scenarios.Run | None = None

    def of_this_turn(self, box: Toolbox, ground: Ground, threads: int) -> scenarios.Run:
        """Recorded anew for the first of the rows."""
        if threads == PREDICTED_THREADS[0]:
            self.run = None
        if self.run is None:
            self.run = scenarios.play(box, ground, ["--threads", str(RECORDED_THREADS)], self.path, self.load)
        return self.run


def predict(logged: Logged, threads: int) -> scenarios.Measure:
    """Predicts from the log at four threads, measures what was predicted."""

    def take(box: Toolbox, ground: Ground) -> scenarios.Values:
        recorded = logged.of_this_turn(box, ground, threads)
        answer = ask(box, ["--controller", "off", "--threads", str(threads), str(recorded.log)])
        measured = scenarios.play(box, ground, ["--threads", str(threads)], logged.path, logged.load)
        queue = answer["answers"][0]["queue"]
        values: scenarios.Values = {}
        for name, part in QUANTILES.items():
            values[predicted(name)] = queue[f"{name}_ms"]
            values[real(name)] = waits_ms(measured.records, part)
        # How the machine itself was: the same handlers on the same processor.
        values["run p95 recorded, ms"] = run_p95_ms(recorded)
        values["run p95 measured, ms"] = run_p95_ms(measured)
        return values

    return take


def predicted(name: str) -> str:
    """The column of a percentile."""
    return f"{name} predicted, ms"


def real(name: str) -> str:
    """The column of a percentile."""
    return f"{name} measured, ms"


def verdict(found: Samples) -> str:
    """What the medians of all repetitions say about the bar."""
    pairs = {
        f"{name} of {row}": (median(values, predicted(name)), median(values, real(name)))
        for row, values in found.items()
        for name in QUANTILES
        if values
    }
    off = [
        name for name, (predicted_ms, measured_ms) in pairs.items() if not within(predicted_ms, measured_ms)
    ]
    text = f"By the medians {len(pairs) - len(off)} of {len(pairs)} are within 15 % or 2 ms"
    return f"{text}; not: {', '.join(off)}." if off else f"{text}."


def median(values: list[scenarios.Values], column: str) -> float:
    """Of a column, over all repetitions."""
    return statistics.median(one[column] for one in values)


def run_p95_ms(run: scenarios.Run) -> float:
    """How long 95 of 100 handlers had their threads at most."""
    return 1000 * records.quantile([one.run_s for one in run.records], 0.95)


def ask(box: Toolbox, flags: list[str]) -> dict[str, Any]:
    """One answer of `milepost whatif`. Raises RunFailed."""
    argv = [str(box.milepost), "whatif", "--json", "--force", *flags]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    except json.JSONDecodeError as cause:
        raise scenarios.RunFailed(done.stderr.strip()[-300:]) from cause


def waits_ms(found: list[Record], part: float) -> float:
    """A quantile of the queue times."""
    return 1000 * records.quantile([one.queue_s for one in found], part)


def within(predicted_ms: float, measured_ms: float) -> bool:
    """The bar."""
    return math.isclose(predicted_ms, measured_ms, rel_tol=0.15) or abs(predicted_ms - measured_ms) <= 2
