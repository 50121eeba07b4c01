"""The requests that proxies balance: times of arrival and of service from a seed, the same for every proxy.

Also what one queue for all threads would make of exactly these requests.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import generator
from lab.toolbox import Toolbox

# Milliseconds of a thread, and how many of a hundred requests take them.
WEIGHTS = {2: 60, 20: 30, 120: 10}
MEAN_S = sum(ms * weight for ms, weight in WEIGHTS.items()) / sum(WEIGHTS.values()) / 1e3
# The variance of log-normal times, over the squared mean: a website with some slow pages.
HEAVY_CS2 = 13
# Of each upstream.
THREADS = 4
UPSTREAMS = 4
# How much longer each request takes at the slow one.
SLOW_TIMES = 10
SEED = 1
# Any time after 1970: a replay counts from the first request.
BEGIN_S = 1_700_000_000
# Of the lines of a sequence's file.
FORMAT = "{at} {method} {target}"
# Milliseconds of the next request.
Law = Callable[[random.Random], float]


def mixed(chance: random.Random) -> float:
    """One of WEIGHTS."""
    return float(chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0])


def heavy(chance: random.Random) -> float:
    """Log-normal, with the mean of WEIGHTS."""
    variance = math.log(1 + HEAVY_CS2)
    return chance.lognormvariate(math.log(1e3 * MEAN_S) - variance / 2, math.sqrt(variance))


@dataclass(frozen=True)
class Asked:
    """One request: when it arrives, and how long a thread takes for it."""

    at_s: float
    run_s: float


def rate(load: float, upstreams: int = UPSTREAMS) -> float:
    """Requests a second that are this share of what so many upstreams can do."""
    return load * upstreams * THREADS / MEAN_S


def sequence(law: Law, per_second: float, seconds: float, seed: int = SEED) -> list[Asked]:
    """The requests of so many seconds, which arrive independently of each other."""
    gaps, runs = random.Random(f"gaps {seed}"), random.Random(f"runs {seed}")
    requests = []
    at_s = gaps.expovariate(per_second)
    while at_s < seconds:
        # As precise as its target says.
        requests.append(Asked(at_s, round(law(runs), 3) / 1e3))
        at_s += gaps.expovariate(per_second)
    return requests


def replay(
    requests: Sequence[Asked], box: Toolbox, port: int, connections: int, folder: Path, core: int
) -> generator.Counted:
    """Sends the requests, each at its time. Raises GeneratorFailed."""
    file = folder / "sequence.log"
    file.write_text("".join(f"{BEGIN_S + one.at_s:.6f} GET /{one.run_s * 1e3:.3f}\n" for one in requests))
    lasts_s = math.ceil(requests[-1].at_s)
    more = ["--replay", str(file), "--replay-format", FORMAT]
    return generator.run(box, port, "/", connections, lasts_s, core, *more)


def central_queue(requests: Sequence[Asked], threads: int) -> list[float]:
    """Latencies in µs, in order: first come, first served, by whichever thread is free."""
    free = [0.0] * threads
    latencies = []
    for one in requests:
        begin_s = max(one.at_s, heapq.heappop(free))
        heapq.heappush(free, begin_s + one.run_s)
        latencies.append((begin_s - one.at_s + one.run_s) * 1e6)
    return sorted(latencies)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The least of the values that so many are not above."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
