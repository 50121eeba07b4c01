"""The scenarios: what is started, how it is loaded, and the numbers that come out of its log."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import fixtures, process
from lab.control import records
from lab.control.records import Record
from lab.scenario import Ground
from lab.toolbox import Toolbox

HERE = Path(__file__).parent.resolve()
TARGET_S = 0.005
WINDOW_S = 0.5
Values = dict[str, float]
Measure = Callable[[Toolbox, Ground], Values]


class RunFailed(process.NotReady):
    """The generator gave no result; the text is what it said."""


@dataclass(frozen=True)
class Run:
    """One run of one server: the records of its log, and what the generator counted."""

    records: list[Record]
    outcome: dict[str, Any]
    log: Path


def play(
    box: Toolbox,
    ground: Ground,
    flags: list[str],
    path: str,
    load: list[str],
    may_sleep: bool = False,
    app: str = "app:app",
) -> Run:
    """Starts a server with `flags`, loads `path` with it, stops it, reads its log. Its processor may fall
    asleep between requests only if `may_sleep`: a virtual one wakes when its host has time for it."""
    folder = Path(tempfile.mkdtemp(dir=ground.directory))
    port = process.free_port()
    log = folder / "access.log"
    argv = [str(box.milepost), "serve", app, "--app-dir", str(HERE), "--bind", f"127.0.0.1:{port}"]
    argv += ["--drivers", "1", "--access-log", str(log), "--access-log-format", "json", *flags]
    command = process.Command(argv, folder / "output", folder)
    with kept_awake(ground, may_sleep), process.started(command, ground.server_core) as child:
        process.wait_ready(child, command, port, "/ready")
        outcome = generate(box, ground, f"http://127.0.0.1:{port}{path}", load)
    return Run(records.read(log, path.split("?")[0]), outcome, log)


def kept_awake(ground: Ground, may_sleep: bool) -> contextlib.AbstractContextManager[None]:
    """Keeps the processors awake, unless they may sleep."""
    return contextlib.nullcontext() if may_sleep else fixtures.awake(ground)


def generate(box: Toolbox, ground: Ground, url: str, load: list[str]) -> dict[str, Any]:
    """One run of `milepost bench`. Raises RunFailed."""
    argv = [str(box.milepost), "bench", "--quiet", "--json", "-", "--threads", "1"]
    argv += ["--cpus", str(ground.client_core), "--timeout", "20s", *load, url]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    try:
        outcome: dict[str, Any] = json.loads(done.stdout)["runs"][0]
        return outcome
    except (json.JSONDecodeError, KeyError, IndexError) as cause:
        raise RunFailed((done.stderr or done.stdout).strip()[-300:]) from cause


def open_loop(rate: str, connections: int = 256) -> list[str]:
    """Requests at a rate, whatever becomes of them; refused ones are replies too."""
    load = ["--rate", rate, "--arrivals", "poisson", "--connections", str(connections)]
    return [*load, "--expect-status", "200,503"]


# Step load: 1 x, 4 x, 1 x, with handlers that sleep 20 ms


STEP_RATE, STEP_S = 120, 20


def step(flags: list[str]) -> Measure:
    """The load is four times as high for a while."""

    def take(box: Toolbox, ground: Ground) -> Values:
        rate = f"{STEP_RATE}:{STEP_S}s,{4 * STEP_RATE}:{STEP_S}s,{STEP_RATE}:{STEP_S}s"
        run = play(box, ground, flags, "/sleep?ms=20", open_loop(rate))
        begin = run.records[0].arrived_s
        return {
            "p95 queue at 1 x, ms": p95_ms(run.records, begin + 5, begin + STEP_S),
            "under the target after the step, s": back_after(run.records, begin + STEP_S),
            "p95 queue at 4 x from 2 s on, ms": p95_ms(run.records, begin + STEP_S + 2, begin + 2 * STEP_S),
            "mean threads": records.mean_threads(run.records),
            "threads at the end": float(run.records[-1].threads),
            "requests refused": float(refused(run.records)),
        }

    return take


def p95_ms(found: list[Record], begin_s: float, end_s: float) -> float:
    """The queue time that 95 of 100 requests of that time kept."""
    return 1000 * records.quantile([one.queue_s for one in found if begin_s <= one.arrived_s < end_s], 0.95)


def back_after(found: list[Record], step_s: float) -> float:
    """Seconds until the first of three windows in a row whose p95 of queue times is within the target."""
    after = [one for one in found if step_s <= one.arrived_s < step_s + STEP_S]
    good = [
        records.quantile([one.queue_s for one in window], 0.95) <= TARGET_S
        for window in records.windows(after, step_s, WINDOW_S)
    ]
    for index in range(len(good) - 2):
        if all(good[index : index + 3]):
            return index * WINDOW_S
    return math.inf


def refused(found: list[Record]) -> int:
    """Requests that got 503."""
    return sum(one.status == 503 for one in found)


# Work under the interpreter's lock


def bound(flags: list[str], seconds: int) -> Measure:
    """64 clients, each asks again at once."""

    def take(box: Toolbox, ground: Ground) -> Values:
        load = ["--connections", "64", "--duration", f"{seconds}s", "--expect-status", "200,503"]
        run = play(box, ground, flags, "/cpu?ms=5", load)
        end = run.records[-1].arrived_s
        late = [one for one in run.records if one.arrived_s > end - seconds / 3]
        served = [one for one in late if one.status == 200]
        return {
            "requests a second": len(served) / (seconds / 3),
            "threads, mean of the last third": records.mean_threads(late),
            "requests refused": float(refused(run.records)),
        }

    return take


# Twice the capacity


CALM_S = 10


def overload(size: list[str], shedding: list[str], path: str, seconds: int, app: str = "app:app") -> Measure:
    """What clients that wait for replies get is the capacity; then half of it, twice of it, half of it."""

    def take(box: Toolbox, ground: Ground) -> Values:
        load = ["--connections", "32", "--duration", f"{CALM_S}s"]
        capacity = capacity_of(play(box, ground, size, path, load, app=app).records)
        flags = [*size, *shedding]
        rate = f"{capacity / 2:.0f}:{CALM_S}s,{2 * capacity:.0f}:{seconds}s,{capacity / 2:.0f}:{CALM_S}s"
        run = play(box, ground, flags, path, open_loop(rate, 1024), app=app)
        begin = run.records[0].arrived_s + CALM_S
        end = begin + seconds
        # The first second is what it takes to see that it is no burst.
        during = [one for one in run.records if begin + 1 <= one.arrived_s < end]
        served = [one for one in during if one.status == 200]
        away = [one.total_s for one in during if one.status == 503]
        after = [one for one in run.records if one.arrived_s >= end]
        # The last ones are refused because the server is stopped.
        last = run.records[-1].arrived_s - WINDOW_S
        late = [one.arrived_s for one in after if one.status == 503 and one.arrived_s < last]
        return {
            "capacity, requests/s": capacity,
            "goodput of capacity": len(served) / (seconds - 1) / capacity,
            "accepted: p99 queue, ms": 1000 * records.quantile([one.queue_s for one in served], 0.99),
            "accepted: p99 total less run, ms": 1000
            * records.quantile([one.total_s - one.run_s for one in served], 0.99),
            "refused: p99, ms": 1000 * records.quantile(away, 0.99),
            "refused: longest, ms": 1000 * max(away, default=math.nan),
            "recovered after, s": max(late, default=end) - end,
        }

    return take


def capacity_of(found: list[Record]) -> float:
    """Requests a second, without the first and the last second."""
    begin, end = found[0].arrived_s + 1, found[-1].arrived_s - 1
    return len([one for one in found if begin <= one.arrived_s < end]) / (end - begin)


# Hand-over on an idle server


IDLE_RATE, IDLE_S = 20, 60


def idle(flags: list[str], may_sleep: bool) -> Measure:
    """Twenty requests a second to a handler that does nothing."""

    def take(box: Toolbox, ground: Ground) -> Values:
        load = ["--rate", str(IDLE_RATE), "--duration", f"{IDLE_S}s", "--connections", "1"]
        run = play(box, ground, flags, "/nothing", load, may_sleep)
        waits = [one.queue_s for one in run.records]
        return {
            "arrived to started: p50, µs": 1e6 * records.quantile(waits, 0.5),
            "p99, µs": 1e6 * records.quantile(waits, 0.99),
        }

    return take


def woken(may_sleep: bool) -> Measure:
    """One thread wakes another as often, on the same processor, and nothing else: what this machine needs."""

    def take(box: Toolbox, ground: Ground) -> Values:
        argv = ["taskset", "-c", str(ground.server_core), box.programs["wake"], str(IDLE_RATE), str(IDLE_S)]
        try:
            with kept_awake(ground, may_sleep):
                done = subprocess.run(argv, capture_output=True, text=True, timeout=IDLE_S + 30, check=True)
        except subprocess.SubprocessError as cause:
            raise RunFailed(str(cause)) from cause
        found = json.loads(done.stdout)
        return {"arrived to started: p50, µs": found["p50_us"], "p99, µs": found["p99_us"]}

    return take
