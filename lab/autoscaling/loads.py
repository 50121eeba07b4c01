"""The loads of the simulation: a step and a day, of made and of recorded requests.

Takes a seed, or a recording, gives requests. A recording is a file with a line for each request:
microseconds since the request before, and microseconds that it ran. An access log of Milepost is one too.
"""

from __future__ import annotations

import bisect
import datetime
import json
import math
import random
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import toolbox
from lab.autoscaling.pods import UNKNOWN, Requests

DAY_SECONDS = 86_400.0
#: The load of a day by the hour, as a part of its peak: low at night, two peaks.
HOURS = (
    0.45, 0.34, 0.27, 0.24, 0.23, 0.25, 0.33, 0.48, 0.65, 0.78, 0.86, 0.90,
    0.87, 0.85, 0.86, 0.88, 0.90, 0.92, 0.95, 1.00, 0.98, 0.90, 0.76, 0.60,
)  # fmt: skip
#: What the load of ten minutes differs from the curve (standard deviation).
UNREST = 0.05
#: A latency objective is the p99 of run times, times this.
OBJECTIVE_FACTOR = 1.2

#: Requests a second by the time.
Rate = Callable[[float], float]
#: (seconds between two requests at a rate of one a second, seconds of run time), without an end.
Stream = Iterator[tuple[float, float]]


@dataclass(frozen=True)
class Load:
    """Requests for a simulated time."""

    requests: Requests
    seconds: float
    objective: float
    rate: Rate


def step(busy: float, mean: float, before: float = 600.0, after: float = 3000.0) -> tuple[Rate, float]:
    """`busy` requests run at once in the mean of the first time, four times as many afterwards."""
    return (lambda now: (busy if now < before else 4 * busy) / mean), before + after


def day(peak: float, mean: float, seed: int) -> tuple[Rate, float]:
    """At the peak `peak` requests run at once in the mean."""
    unrest = random.Random(seed)
    factors = [math.exp(unrest.gauss(0, UNREST)) for _ in range(int(DAY_SECONDS / 600) + 1)]

    def rate(now: float) -> float:
        hour, part = divmod(now / 3600, 1)
        first, second = HOURS[int(hour) % 24], HOURS[int(hour + 1) % 24]
        return (first + (second - first) * part) * peak / mean * factors[int(now / 600)]

    return rate, DAY_SECONDS


def made(mean: float, variation: float, seed: int) -> Stream:
    """Independent arrivals, and log-normal run times: mean, and standard deviation by the mean."""
    lots = random.Random(seed)
    sigma = math.sqrt(math.log(1 + variation**2))
    middle = math.log(mean) - sigma**2 / 2
    while True:
        yield lots.expovariate(1.0), lots.lognormvariate(middle, sigma)


def repeated(recording: Sequence[tuple[float, float]], seed: int) -> Stream:
    """The recording again and again, each time from another place on."""
    lots = random.Random(seed)
    mean = sum(gap for gap, _ in recording) / len(recording)
    while True:
        start = lots.randrange(len(recording))
        for gap, run in (*recording[start:], *recording[:start]):
            yield gap / mean, run


def load(stream: Stream, rate: Rate, seconds: float) -> Load:
    """The requests of a stream at a rate that changes."""
    now = 0.0
    times, works = array("d"), array("d")
    for gap, work in stream:
        now += gap / rate(now)
        if now >= seconds:
            break
        times.append(now)
        works.append(work)
    objective = OBJECTIVE_FACTOR * percentile(sorted(works), 0.99)
    return Load(Requests(times, works, array("d", [UNKNOWN]) * len(times)), seconds, objective, rate)


def percentile(ordered: Sequence[float], part: float) -> float:
    """Of numbers in order, by the nearest rank."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def between(times: Sequence[float], start: float, end: float) -> range:
    """The numbers of the requests that come from `start` on and before `end`."""
    return range(bisect.bisect_left(times, start), bisect.bisect_left(times, end))


def read(file: Path) -> list[tuple[float, float]]:
    """A recording or an access log with phases: (seconds since the request before, run time)."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    try:
        if lines and re.fullmatch(r"\d+ \d+", lines[0]):
            pairs = [line.split() for line in lines]
            found = [(int(gap) / 1e6, int(run) / 1e6) for gap, run in pairs]
        else:
            seen = sorted(filter(None, map(_logged, lines)))
            starts = [at for at, _ in seen]
            found = [(at - before, run) for before, (at, run) in zip(starts[:1] + starts, seen)]
    except ValueError as cause:
        raise toolbox.Unusable(f"{file}: {cause}") from cause
    if len(found) < 100 or not sum(gap for gap, _ in found):
        raise toolbox.Unusable(f"{file}: fewer than 100 requests with a run time")
    return found


def write(file: Path, recording: Sequence[tuple[float, float]]) -> None:
    """Keeps what is needed of a log."""
    file.write_text("".join(f"{round(gap * 1e6)} {round(run * 1e6)}\n" for gap, run in recording))


def _logged(line: str) -> tuple[float, float] | None:
    """(time of arrival, run time) of a request that a worker ran."""
    if line.startswith("{"):
        entry = json.loads(line)
        if entry["worker"] == "-":
            return None
        return _since_1970(entry["time"]), float(entry["run"])
    worker = re.search(r" run=([\d.]+) .* worker=(\S+) at=([\d.]+)", line)
    if not worker or worker.group(2) == "-":
        return None
    return float(worker.group(3)), float(worker.group(1))


def _since_1970(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()
