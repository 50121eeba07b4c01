"""The mix of requests that proxies balance, and what one queue for all threads would make of it."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence

# Milliseconds of a thread, and how many of a hundred requests take them.
WEIGHTS = {2: 60, 20: 30, 120: 10}
REQUESTS_FILE = "".join(
    f'[[request]]\ntarget = "/{ms}"\nweight = {weight}\n\n' for ms, weight in WEIGHTS.items()
)
MEAN_S = sum(ms * weight for ms, weight in WEIGHTS.items()) / sum(WEIGHTS.values()) / 1e3
# Of each upstream.
THREADS = 4
UPSTREAMS = 4
# How much longer each request takes at the slow one.
SLOW_TIMES = 10
SEED = 1


def rate(load: float, upstreams: int = UPSTREAMS) -> float:
    """Requests a second that are this share of what so many upstreams can do."""
    return load * upstreams * THREADS / MEAN_S


def central_queue(threads: int, per_second: float, seconds: int) -> list[float]:
    """Latencies in µs, in order: first come, first served, by whichever thread is free."""
    chance = random.Random(SEED)
    free = [0.0] * threads
    now_s = 0.0
    latencies = []
    # Far longer than a measurement, so that its own chance does not count.
    while now_s < 100 * seconds:
        now_s += chance.expovariate(per_second)
        (ms,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        begin_s = max(now_s, heapq.heappop(free))
        heapq.heappush(free, begin_s + ms / 1e3)
        latencies.append((begin_s - now_s) * 1e6 + ms * 1e3)
    return sorted(latencies)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The least of the values that so many are not above."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
