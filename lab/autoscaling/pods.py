"""One pod of the simulation: threads, a queue, and Milepost's own rules for it by their defaults.

Takes requests with the time and the processor time that they need, gives their ends to the heap of events.
It must not know why there are pods, nor how many.

What is as in crates/queueing: the queue's places, the test for overload (control/overload.rs), the refusals
of a saturated and of an overloaded pool, newest first under overload. A look at the queue every 100 ms
begins when more requests wait than run, and ends when the pool is calm, so that short queues cost no time.
"""

from __future__ import annotations

import enum
import heapq
import itertools
import math
import statistics
from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

TICK_SECONDS = 0.1
QUEUE_LEN_MAX = 1024
QUEUE_TARGET_SECONDS = 0.005
QUEUE_TIMEOUT_SECONDS = 30.0
#: The least `overload_timeout` when it is `auto`; three median runs if those are longer.
OVERLOAD_SECONDS_MIN = 1.0
FLOW_SECONDS_MAX = 30.0
RUNS_LEN = 63
#: As SECONDS and TRIES in crates/supervisor/src/demand.rs.
DEMAND_SECONDS = 8
TRIES = 2
#: The latency of a request that has got no reply of the application.
REFUSED = -1.0
LOST = -2.0
#: Not ended yet.
UNKNOWN = -3.0

#: (time, number of the request or -1 - number of the pod for a look, pod, version)
Event = tuple[float, int, "Pod", int]


class Pressure(enum.IntEnum):
    """As the server's enum of this name."""

    CALM = 0
    SATURATED = 1
    OVERLOADED = 2


class Totals(NamedTuple):
    """What had arrived and was completed by a moment."""

    at: float
    arrived: int
    completed: int


class Sample(NamedTuple):
    """Of a second."""

    running: int
    waiting: int
    completed: int
    refused: int


@dataclass
class Requests:
    """When requests come, how long they run when nothing else does, and what became of them."""

    times: array[float]
    works: array[float]
    latencies: array[float]


@dataclass
class Looks:
    """What the looks at a pod's queue remember; bits as in control/overload.rs, the latest the lowest."""

    late: int = 0
    standing: int = 0
    rising: int = 0
    refusals: int = 0
    refused: int = 0
    wait_min: float | None = None
    totals: deque[Totals] = field(default_factory=deque)


class Pod:
    """A pod. `inside` counts requests that run or wait."""

    __slots__ = (
        "arrived", "completed", "cpu_at", "cpu_seconds", "created", "deleted", "expected_ready", "inside",
        "is_looked_at", "looks", "number", "overload_seconds", "pressure", "ready", "refused", "requests",
        "running", "runs", "samples", "share", "speeds", "threads", "version", "virtual", "waiting",
    )  # fmt: skip

    def __init__(self, number: int, threads: int, share: float, requests: Requests, created: float) -> None:
        self.number, self.threads, self.share, self.requests = number, threads, share, requests
        self.created, self.expected_ready = created, created
        self.ready: float | None = None
        self.deleted: float | None = None
        self.inside = self.arrived = self.completed = self.refused = self.version = 0
        # Requests that run: (the virtual time at which they end, number).
        self.running: list[tuple[float, int]] = []
        self.waiting: deque[int] = deque()
        self.virtual, self.cpu_at, self.cpu_seconds = 0.0, created, 0.0
        self.runs: deque[float] = deque(maxlen=RUNS_LEN)
        self.samples: deque[Sample] = deque(maxlen=DEMAND_SECONDS + 1)
        self.pressure, self.is_looked_at, self.looks = Pressure.CALM, False, Looks()
        self.overload_seconds = OVERLOAD_SECONDS_MIN
        # One processor for all threads: where they want more, all become slower by the same part.
        self.speeds = [1.0 / max(1.0, running * share) for running in range(threads + 1)]

    def advance(self, now: float) -> None:
        """Counts virtual and processor time up to `now`."""
        count = len(self.running)
        step = (now - self.cpu_at) * self.speeds[count]
        self.virtual += step
        self.cpu_seconds += step * count * self.share
        self.cpu_at = now

    def sample(self) -> None:
        """What the server does every second."""
        self.samples.append(Sample(len(self.running), len(self.waiting), self.completed, self.refused))

    def demand(self) -> float:
        """As in crates/supervisor/src/demand.rs: how many requests would run at once if none waited."""
        waiting = len(self.waiting)
        if len(self.samples) < 2:
            return len(self.running) + waiting
        first, last = self.samples[0], self.samples[-1]
        seconds = len(self.samples) - 1
        busy = sum(sample.running for sample in itertools.islice(self.samples, 1, None))
        completed = last.completed - first.completed
        refused = TRIES * (last.refused - first.refused)
        if completed == 0:
            return busy / seconds + waiting + refused
        run = min(busy / completed, DEMAND_SECONDS)
        more = refused + waiting - first.waiting
        return max(0.0, busy / seconds + more / seconds * run) + waiting * (run / DEMAND_SECONDS)

    def offer(self, request: int, now: float, events: list[Event]) -> None:
        """A request comes."""
        self.arrived += 1
        if len(self.running) < self.threads:
            self.inside += 1
            self._start(request, now, events)
            return
        if not self._admits():
            self.refuse(request)
            return
        self.inside += 1
        self.waiting.append(request)
        if not self.is_looked_at and len(self.waiting) > self.threads:
            self.is_looked_at, self.looks = True, Looks(refused=self.refused)
            heapq.heappush(events, (now + TICK_SECONDS, -1 - self.number, self, 0))

    def _admits(self) -> bool:
        waiting = len(self.waiting)
        if waiting >= QUEUE_LEN_MAX:
            return False
        if self.pressure == Pressure.CALM or not self.runs:
            return True
        seconds = QUEUE_TIMEOUT_SECONDS / 2
        if self.pressure == Pressure.OVERLOADED:
            seconds = self.overload_seconds / 4
        return waiting < max(int(self._per_second() * seconds), self.threads)

    def _per_second(self) -> float:
        return self.threads / statistics.fmean(self.runs)

    def _start(self, request: int, now: float, events: list[Event]) -> None:
        self.advance(now)
        before = self.speeds[len(self.running)]
        heapq.heappush(self.running, (self.virtual + self.requests.works[request], request))
        if self.running[0][1] == request or self.speeds[len(self.running)] != before:
            self._schedule(now, events)

    def _schedule(self, now: float, events: list[Event]) -> None:
        """The next end is in the heap of events; earlier entries are void by their version."""
        self.version += 1
        if self.running:
            ends, request = self.running[0]
            wait = (ends - self.virtual) / self.speeds[len(self.running)]
            heapq.heappush(events, (now + wait, request, self, self.version))

    def end_first(self, now: float, events: list[Event]) -> None:
        """The request that was to end next has ended, and the next one that waits runs."""
        self.advance(now)
        _, request = heapq.heappop(self.running)
        self.completed += 1
        self.inside -= 1
        self.requests.latencies[request] = now - self.requests.times[request]
        self.runs.append(self.requests.works[request] / self.speeds[-1])
        if self.waiting:
            if self.is_looked_at:
                self._note_wait(now - self.requests.times[self.waiting[0]])
            newest = self.pressure == Pressure.OVERLOADED
            following = self.waiting.pop() if newest else self.waiting.popleft()
            heapq.heappush(self.running, (self.virtual + self.requests.works[following], following))
        self._schedule(now, events)

    def _note_wait(self, wait: float) -> None:
        least = self.looks.wait_min
        self.looks.wait_min = wait if least is None else min(least, wait)

    def refuse(self, request: int) -> None:
        """The request gets 503."""
        self.refused += 1
        self.requests.latencies[request] = REFUSED

    def look(self, now: float, events: list[Event]) -> None:
        """What the server does every 100 ms: gives up what has waited too long, and judges the pressure."""
        times = self.requests.times
        timeout = QUEUE_TIMEOUT_SECONDS
        if self.pressure == Pressure.OVERLOADED:
            timeout = self.overload_seconds
        while self.waiting and now - times[self.waiting[0]] >= timeout:
            self.inside -= 1
            self.refuse(self.waiting.popleft())
        self.pressure = self._judged(now, now - times[self.waiting[0]] if self.waiting else 0.0)
        self.looks.wait_min = None
        if self.pressure == Pressure.CALM and len(self.waiting) <= self.threads:
            self.is_looked_at = False
        else:
            heapq.heappush(events, (now + TICK_SECONDS, -1 - self.number, self, 0))

    def _judged(self, now: float, oldest: float) -> Pressure:
        looks = self.looks
        least = 0.0
        if self.waiting:
            least = oldest if looks.wait_min is None else looks.wait_min
        looks.late = _shifted(looks.late, oldest > QUEUE_TARGET_SECONDS, 10)
        looks.standing = _shifted(looks.standing, least > QUEUE_TARGET_SECONDS, 5)
        looks.refusals = _shifted(looks.refusals, self.refused > looks.refused, 5)
        looks.refused = self.refused
        while looks.totals and now - looks.totals[0].at > FLOW_SECONDS_MAX:
            looks.totals.popleft()
        looks.totals.append(Totals(now, self.arrived, self.completed))
        median = statistics.median(self.runs) if self.runs else 0.0
        self.overload_seconds = min(max(OVERLOAD_SECONDS_MIN, 3 * median), QUEUE_TIMEOUT_SECONDS)
        is_long = len(self.waiting) > len(self.running)
        looks.rising = _shifted(looks.rising, is_long and self._is_rising(self.overload_seconds), 2)
        return self._next_pressure()

    def _next_pressure(self) -> Pressure:
        looks, late = self.looks, self.looks.late.bit_count()
        needed = {Pressure.CALM: 8, Pressure.SATURATED: 3, Pressure.OVERLOADED: 0}[self.pressure]
        is_refusing = self.pressure == Pressure.OVERLOADED and looks.refusals and not self._is_less()
        if late < needed:
            return Pressure.CALM
        if is_refusing or (looks.rising.bit_count() == 2 and looks.standing.bit_count() == 5):
            return Pressure.OVERLOADED
        return Pressure.SATURATED

    def _is_rising(self, span: float) -> bool:
        """Whether more arrive than are completed, by more than chance makes of it."""
        for seconds, chance in ((span, 2.0), (span / 2, 1.5)):
            _, arrived, completed = self._flow(seconds)
            if arrived <= completed + chance * math.sqrt(arrived):
                return False
        return True

    def _is_less(self) -> bool:
        lasted, arrived, _ = self._flow(5 * TICK_SECONDS)
        return bool(self.runs) and arrived + 2 * math.sqrt(arrived) < self._per_second() * lasted

    def _flow(self, seconds: float) -> tuple[float, int, int]:
        last = self.looks.totals[-1]
        first = last
        for totals in reversed(self.looks.totals):
            if last.at - totals.at > seconds + TICK_SECONDS / 2:
                break
            first = totals
        return last.at - first.at, last.arrived - first.arrived, last.completed - first.completed

    def lose_all(self) -> None:
        """Kubernetes kills the pod."""
        for request in (*(request for _, request in self.running), *self.waiting):
            self.requests.latencies[request] = LOST
        self.running.clear()
        self.waiting.clear()
        self.inside = 0
        self.version += 1


def _shifted(bits: int, bit: bool, length: int) -> int:
    return (bits << 1 | bit) & ((1 << length) - 1)
