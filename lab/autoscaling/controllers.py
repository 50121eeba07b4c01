"""Who decides about pods: the chart's rule, the HPA on CPU, and one that knows the load in advance."""

from __future__ import annotations

import math

from lab.autoscaling import hpa
from lab.autoscaling.chart import Rule
from lab.autoscaling.fleet import Controller, Course, Fleet, Machine, Metrics
from lab.autoscaling.hpa import Behavior, Scaler
from lab.autoscaling.loads import Load, between
from lab.autoscaling.pods import UNKNOWN

PODS_MAX = 100
#: Part of the requests of an interval that may be over the objective.
OVER_PART = 0.01
#: Requests that run longer than the objective do not get faster by pods. Where chance has many of them in an
#: interval, so many more may be over it.
OVER_PART_BESIDE = 0.005
TRIAL_PARTS = 4


def by_rule(rule: Rule) -> Controller:
    """KEDA's metrics-api scaler as the chart sets it, with the CPU beside it.

    KEDA asks the pods at each sync of the HPA. Of several metrics the HPA takes the one that wants most pods.
    """
    scaler = Scaler(rule.behavior, rule.pods_min, PODS_MAX)

    def decide(fleet: Fleet, metrics: Metrics) -> int:
        pods = len(fleet.pods)
        wanted = hpa.of_average_value(fleet.load(), rule.target, pods)
        if rule.cpu_target:
            seen = metrics.seen(fleet)
            by_usage = hpa.of_utilization(seen, rule.request_cores, rule.cpu_target, pods, fleet.now)
            wanted = max(wanted, by_usage)
        return scaler.decide(wanted, pods, fleet.now)

    return decide


def by_cpu(rule: Rule, target: float) -> Controller:
    """An HPA on CPU with Kubernetes' own behaviour."""
    scaler = Scaler(Behavior(), rule.pods_min, PODS_MAX)

    def decide(fleet: Fleet, metrics: Metrics) -> int:
        pods, seen = len(fleet.pods), metrics.seen(fleet)
        wanted = hpa.of_utilization(seen, rule.request_cores, target, pods, fleet.now)
        return scaler.decide(wanted, pods, fleet.now)

    return decide


def clairvoyant(load: Load, machine: Machine, rule: Rule, interval: float, seed: int) -> tuple[Fleet, Course]:
    """The fewest pods of each interval with which 99 % of its requests are within the objective.

    New pods are ready when the interval begins. The time in which they start counts as theirs.
    """
    fleet, course, count = Fleet(machine, load.requests, seed), [], rule.pods_min
    while fleet.now < load.seconds:
        fleet, chosen = _interval(fleet, load, rule, count, min(fleet.now + interval, load.seconds))
        course.append((fleet.now - interval, chosen))
        fleet.lived += max(0, chosen - count) * sum(machine.start_seconds) / 2
        count = chosen
    return fleet, course


def _interval(fleet: Fleet, load: Load, rule: Rule, count: int, end: float) -> tuple[Fleet, int]:
    """The fleet at the end of the interval with the fewest pods that do, and their number."""
    start, asked = fleet.now, between(load.requests.times, fleet.now, end)
    lost_anyway = sum(1 for request in asked if load.requests.works[request] >= load.objective)
    allowed = max(OVER_PART * len(asked), lost_anyway + OVER_PART_BESIDE * len(asked))

    def tried(pods: int) -> Fleet | None:
        for request in asked:
            load.requests.latencies[request] = UNKNOWN
        trial = fleet.fork()
        trial.scale(pods, is_ready=True)
        # Most trials with too few pods are known to fail long before the end.
        for part in range(1, TRIAL_PARTS + 1):
            trial.run(start + (end - start) * part / TRIAL_PARTS)
            come = range(asked.start, trial.following)
            if sum(1 for request in come if is_over(load, request, trial.now)) > allowed:
                return None
        return trial

    # The last trial is the one that is kept, because it has written the latencies.
    pods, least = count, rule.pods_min
    while pods > least and tried(pods - 1):
        pods -= 1
    while not (found := tried(pods)):
        pods += 1
    return found, pods


def is_over(load: Load, request: int, now: float = math.inf) -> bool:
    """Whether a request has taken longer than the objective, or got no reply of the application."""
    latency = load.requests.latencies[request]
    if latency == UNKNOWN:
        return now - load.requests.times[request] > load.objective
    return latency < 0 or latency > load.objective
