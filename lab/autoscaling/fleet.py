"""The pods of an application: arrivals, balancing, starts, ends, and a controller's syncs.

Takes requests and a controller, gives what became of the requests and how long pods lived. Times are in
seconds from the beginning. The same seed gives the same run.
"""

from __future__ import annotations

import copy
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from lab.autoscaling.hpa import SYNC_SECONDS, PodSeen, Usage
from lab.autoscaling.pods import Event, Pod, Requests

#: --metric-resolution of the metrics server is as long as the period of syncs. A sync is so long behind the
#: last scrape: the middle, as their phase is not known.
SYNC_OFFSET = 7.5

#: A server counts the requests that run so often.
SAMPLE_SECONDS = 1.0

INSIDE = attrgetter("inside")


@dataclass(frozen=True)
class Machine:
    """What pods are and how they are reached."""

    threads: int
    #: Processor time of a request as a part of its run time.
    share: float
    balance: str = "least"
    #: From the creation of a pod until it is ready; its image is on the node.
    start_seconds: tuple[float, float] = (5.0, 20.0)
    prestop_seconds: float = 5.0
    drain_seconds: float = 30.0


@dataclass
class Fleet:
    """All pods at a moment."""

    machine: Machine
    requests: Requests
    seed: int
    now: float = 0.0
    following: int = 0
    events: list[Event] = field(default_factory=list)
    #: Pods that are not being deleted, the oldest first; and those of them that get requests.
    pods: list[Pod] = field(default_factory=list)
    ready: list[Pod] = field(default_factory=list)
    leaving: list[Pod] = field(default_factory=list)
    #: How long those that have ended have lived.
    lived: float = 0.0
    made: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.sampled = self.now

    def scale(self, count: int, is_ready: bool = False) -> None:
        """From now on there are `count` pods: new ones start, the youngest end."""
        while len(self.pods) < count:
            pod = Pod(self.made, self.machine.threads, self.machine.share, self.requests, self.now)
            self.made += 1
            self.pods.append(pod)
            pod.expected_ready = self.now + (
                0.0 if is_ready else self.random.uniform(*self.machine.start_seconds)
            )
        # Those that are not ready end first, then the youngest.
        while len(self.pods) > count:
            pod = max(self.pods, key=lambda pod: (pod.ready is None, pod.created, pod.number))
            self.pods.remove(pod)
            pod.deleted = self.now
            if pod.ready is None:
                self.lived += self.now - pod.created
            else:
                self.ready.remove(pod)
                self.leaving.append(pod)
        self._change_pods()

    def run(self, until: float) -> None:
        """Everything up to this time."""
        while self.now < until:
            at = min([until, *self._changes_ahead()])
            self._serve(at)
            self.now = at
            if at - self.sampled >= SAMPLE_SECONDS:
                self.sampled = at
                for pod in self.ready:
                    pod.sample()
            self._change_pods()

    def _changes_ahead(self) -> list[float]:
        starts = [pod.expected_ready for pod in self.pods if pod.ready is None]
        sample = self.sampled + SAMPLE_SECONDS
        return [*starts, *(self._leaves_at(pod) for pod in self.leaving), sample]

    def _leaves_at(self, pod: Pod) -> float:
        """When to look again at a pod that is being deleted: after preStop, each second, and at the kill."""
        assert pod.deleted is not None
        first = pod.deleted + self.machine.prestop_seconds
        return first if self.now < first else min(self.now + 1.0, first + self.machine.drain_seconds)

    def _change_pods(self) -> None:
        for pod in self.pods:
            if pod.ready is None and pod.expected_ready <= self.now:
                pod.ready = self.now
                self.ready.append(pod)
        for pod in list(self.leaving):
            assert pod.deleted is not None
            # The same sums as in `_leaves_at`: another order may come out just below.
            first = pod.deleted + self.machine.prestop_seconds
            if self.now < first or (pod.inside and self.now < first + self.machine.drain_seconds):
                continue
            pod.lose_all()
            self.leaving.remove(pod)
            self.lived += self.now - pod.created

    def _serve(self, until: float) -> None:
        times, events, ready = self.requests.times, self.events, self.ready
        following, count = self.following, len(self.requests.times)
        pick = self.random.choice if self.machine.balance == "random" else None
        arrival = times[following] if following < count else until
        while True:
            if events and events[0][0] <= arrival:
                at, request, pod, version = events[0]
                if at >= until:
                    break
                heapq.heappop(events)
                if request < 0:
                    pod.look(at, events)
                elif version == pod.version:
                    pod.end_first(at, events)
            elif arrival < until:
                pod = pick(ready) if pick else min(ready, key=INSIDE)
                pod.offer(following, arrival, events)
                following += 1
                arrival = times[following] if following < count else until
            else:
                break
        self.following = following

    def load(self) -> float:
        """What KEDA adds up: `utilization` of `/load` of each ready pod."""
        return sum(pod.demand() for pod in self.ready) / self.machine.threads

    def seconds(self) -> float:
        """How long all pods have lived, together."""
        return self.lived + sum(self.now - pod.created for pod in (*self.pods, *self.leaving))

    def fork(self) -> Fleet:
        """A copy for a trial. Requests are shared: the last run of a request is what is known of it."""
        return copy.deepcopy(self, {id(self.requests): self.requests})


class Metrics:
    """The metrics server: the processor time of each pod, read every 15 s."""

    def __init__(self) -> None:
        self.read: dict[int, tuple[float, float]] = {}
        self.usage: dict[int, Usage] = {}

    def scrape(self, fleet: Fleet) -> None:
        """Reads all pods."""
        read: dict[int, tuple[float, float]] = {}
        for pod in fleet.pods:
            pod.advance(fleet.now)
            read[pod.number] = (fleet.now, pod.cpu_seconds)
            if before := self.read.get(pod.number):
                window = fleet.now - before[0]
                cores = (pod.cpu_seconds - before[1]) / window
                self.usage[pod.number] = Usage(cores, fleet.now, window)
        self.read = read

    def seen(self, fleet: Fleet) -> list[PodSeen]:
        """All pods, as the controller sees them."""
        return [PodSeen(pod.created, pod.ready, self.usage.get(pod.number)) for pod in fleet.pods]


#: The number of pods from now on.
Controller = Callable[[Fleet, Metrics], int]
#: The number of pods over time: (seconds, pods that are ready).
Course = list[tuple[float, int]]


def controlled(fleet: Fleet, controller: Controller, pods: int, until: float) -> Course:
    """A run in which a controller decides at each sync. It begins with pods that are ready."""
    metrics, course = Metrics(), []
    fleet.scale(pods, is_ready=True)
    while fleet.now < until:
        metrics.scrape(fleet)
        course.append((fleet.now, len(fleet.ready)))
        fleet.run(min(fleet.now + SYNC_OFFSET, until))
        fleet.scale(controller(fleet, metrics))
        course.append((fleet.now, len(fleet.ready)))
        fleet.run(min(fleet.now + SYNC_SECONDS - SYNC_OFFSET, until))
    return course
