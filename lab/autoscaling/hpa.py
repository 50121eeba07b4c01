"""The Horizontal Pod Autoscaler of Kubernetes (autoscaling/v2): from readings to a number of pods.

Takes readings and times, gives numbers. It follows pkg/controller/podautoscaler of Kubernetes:
replica_calculator.go for the formulas and horizontal.go for `behavior`. It must not know how pods or
requests are simulated.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

#: --horizontal-pod-autoscaler-sync-period, in seconds.
SYNC_SECONDS = 15.0
#: --horizontal-pod-autoscaler-tolerance.
TOLERANCE = 0.1
#: --horizontal-pod-autoscaler-cpu-initialization-period, in seconds.
CPU_INITIALIZATION_SECONDS = 300.0
#: A quotient such as 1.3 / 0.65 may come out just above the whole number that it is; Kubernetes has whole
#: numbers of thousandths.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Policy:
    """How far the number of pods may change in a period."""

    kind: str
    value: float
    period_seconds: float

    def most(self, start: int) -> int:
        """Most pods after a period that began with `start`."""
        return start + int(self.value) if self.kind == "Pods" else math.ceil(start * (1 + self.value / 100))

    def least(self, start: int) -> int:
        """Fewest pods after a period that began with `start`."""
        return start - int(self.value) if self.kind == "Pods" else int(start * (1 - self.value / 100))


@dataclass(frozen=True)
class Behavior:
    """`behavior` of a HorizontalPodAutoscaler; its defaults are those of Kubernetes."""

    up_window_seconds: float = 0.0
    up: tuple[Policy, ...] = (Policy("Pods", 4, 15), Policy("Percent", 100, 15))
    down_window_seconds: float = 300.0
    down: tuple[Policy, ...] = (Policy("Percent", 100, 15),)


@dataclass(frozen=True)
class Usage:
    """What is known of a pod's CPU, in cores: the mean of the window that ended at `taken_at`."""

    cores: float
    taken_at: float
    window_seconds: float


@dataclass(frozen=True)
class PodSeen:
    """A pod that is not being deleted. `ready_at` is None until it is ready."""

    started_at: float
    ready_at: float | None
    usage: Usage | None


def of_average_value(total: float, target: float, pods: int) -> int:
    """Pods by an external metric with a target of type AverageValue, which KEDA uses."""
    ratio = total / (target * pods)
    if abs(1.0 - ratio) <= TOLERANCE:
        return pods
    return _up(total / target)


def of_utilization(
    seen: Sequence[PodSeen], request_cores: float, target: float, pods: int, now: float
) -> int:
    """Pods by CPU in relation to the request. Pods that have just become ready do not count as readings."""
    missing = sum(1 for pod in seen if pod.usage is None)
    unready = [pod for pod in seen if pod.usage and _is_unready(pod, pod.usage, now)]
    cores = [pod.usage.cores for pod in seen if pod.usage and pod not in unready]
    if not cores:
        return pods

    def ratio_of(readings: list[float]) -> float:
        return sum(readings) / (request_cores * len(readings)) / target

    ratio = ratio_of(cores)
    counts_unready = bool(unready) and ratio > 1.0
    if not counts_unready and not missing:
        return pods if abs(1.0 - ratio) <= TOLERANCE else _up(ratio * len(cores))
    if missing and ratio < 1.0:
        cores += [request_cores * max(1.0, target)] * missing
    elif missing and ratio > 1.0:
        cores += [0.0] * missing
    if counts_unready:
        cores += [0.0] * len(unready)
    again = ratio_of(cores)
    turned = (ratio < 1.0 < again) or (again < 1.0 < ratio)
    if abs(1.0 - again) <= TOLERANCE or turned:
        return pods
    wanted = _up(again * len(cores))
    # The number of readings that count may not turn the direction either.
    is_against = (again < 1.0 and wanted > pods) or (again > 1.0 and wanted < pods)
    return pods if is_against else wanted


def _is_unready(pod: PodSeen, usage: Usage, now: float) -> bool:
    if pod.ready_at is None:
        return True
    is_young = now < pod.started_at + CPU_INITIALIZATION_SECONDS
    return is_young and usage.taken_at < pod.ready_at + usage.window_seconds


def _up(number: float) -> int:
    return math.ceil(number - ROUNDING)


@dataclass
class Scaler:
    """Holds what `behavior` needs to know: earlier recommendations and earlier changes."""

    behavior: Behavior
    pods_min: int
    pods_max: int
    _recommended: deque[tuple[float, int]] = field(default_factory=deque)
    _changes: deque[tuple[float, int]] = field(default_factory=deque)

    def decide(self, wanted: int, pods: int, now: float) -> int:
        """The number of pods from `now` on, where the formula wants `wanted` and there are `pods`."""
        bounded = min(max(self._stabilized(wanted, pods, now), self.pods_min), self.pods_max)
        if bounded > pods:
            limit = max(policy.most(self._start(pods, now, policy)) for policy in self.behavior.up)
            bounded = min(bounded, max(limit, pods))
        elif bounded < pods:
            limit = min(policy.least(self._start(pods, now, policy)) for policy in self.behavior.down)
            bounded = max(bounded, min(limit, pods))
        if bounded != pods:
            self._changes.append((now, bounded - pods))
        return bounded

    def _stabilized(self, wanted: int, pods: int, now: float) -> int:
        rules = self.behavior
        self._recommended.append((now, wanted))
        longest = max(rules.up_window_seconds, rules.down_window_seconds)
        while self._recommended[0][0] < now - longest:
            self._recommended.popleft()
        up = min(n for at, n in self._recommended if at > now - rules.up_window_seconds or at == now)
        down = max(n for at, n in self._recommended if at > now - rules.down_window_seconds or at == now)
        return min(max(pods, up), down)

    def _start(self, pods: int, now: float, policy: Policy) -> int:
        """Pods at the beginning of the policy's period that ends now."""
        return pods - sum(change for at, change in self._changes if at > now - policy.period_seconds)
