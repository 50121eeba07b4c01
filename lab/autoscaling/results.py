"""What a run of the simulation comes to: its figures, its table and its pictures.

Takes fleets that have run. Without matplotlib there are no pictures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import plots
from lab.autoscaling.controllers import is_over
from lab.autoscaling.fleet import Course, Fleet
from lab.autoscaling.loads import Load, between, percentile
from lab.autoscaling.pods import LOST, REFUSED, UNKNOWN

#: Points of a line in a picture.
POINTS = 96
#: The figure to reach: pods in relation to those of the clairvoyant.
RATIO_MAX = 1.2


@dataclass(frozen=True)
class Result:
    """What became of all requests, and what it cost. `late`: over the objective or without reply."""

    objective: float
    pod_hours: float
    requests: int
    p50: float
    p99: float
    late: float
    refused: int
    lost: int
    course: Course
    #: (seconds, p99 of the requests that came from then on).
    p99_course: list[tuple[float, float]]
    #: (seconds, requests that run in the mean when none waits).
    busy_course: list[tuple[float, float]]

    @property
    def is_within(self) -> bool:
        """Whether the p99 is within the objective, refused and lost requests being over it."""
        return self.late <= 0.01


def of(load: Load, fleet: Fleet, course: Course) -> Result:
    """The figures of a run that has come to its end. Requests that have not ended by then do not count."""
    requests = load.requests
    known = [at for at, latency in enumerate(requests.latencies) if latency != UNKNOWN]
    served = sorted(latency for latency in requests.latencies if latency >= 0)
    spans = [load.seconds * part / POINTS for part in range(POINTS + 1)]
    p99_course, busy_course = [], []
    for start, end in zip(spans, spans[1:]):
        asked = between(requests.times, start, end)
        here = sorted(
            latency if latency >= 0 else math.inf
            for latency in (requests.latencies[at] for at in asked)
            if latency != UNKNOWN
        )
        if here:
            p99_course.append((start, percentile(here, 0.99)))
        busy_course.append((start, sum(requests.works[at] for at in asked) / (end - start)))
    return Result(
        objective=load.objective,
        pod_hours=fleet.seconds() / 3600,
        requests=len(known),
        p50=percentile(served, 0.5),
        p99=percentile(served, 0.99),
        late=sum(1 for at in known if is_over(load, at)) / len(known),
        refused=sum(1 for at in known if requests.latencies[at] == REFUSED),
        lost=sum(1 for at in known if requests.latencies[at] == LOST),
        course=course,
        p99_course=p99_course,
        busy_course=busy_course,
    )


def table(rows: Mapping[str, Result], base: str) -> str:
    """Markdown; pods in relation to the row `base`."""
    heads = ("", "pod hours", "ratio", "p50", "p99", "over the objective", "refused", "lost")
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for name, row in rows.items():
        cells = (
            name,
            f"{row.pod_hours:.1f}",
            f"{row.pod_hours / rows[base].pod_hours:.2f}",
            f"{row.p50:.2f} s",
            f"{row.p99:.2f} s",
            f"{100 * row.late:.2f} %",
            str(row.refused),
            str(row.lost),
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(file: Path, title: str, rows: Mapping[str, Result], threads: int) -> None:
    """Two charts over time: pods that are ready, beside those that the load keeps busy; and the p99."""
    first = next(iter(rows.values()))
    length = max(at for at, _ in first.busy_course)
    unit, divisor = ("hours", 3600.0) if length > 7200 else ("minutes", 60.0)
    busy = [(at / divisor, running / threads) for at, running in first.busy_course]
    pods = {"busy, if none waited": plots.Steps(busy, is_reference=True)}
    slow = {"objective": plots.Steps([(0.0, first.objective), (length / divisor, first.objective)], True)}
    for name, row in rows.items():
        pods[name] = plots.Steps([(at / divisor, count) for at, count in _thinned(row.course)])
        slow[name] = plots.Steps([(at / divisor, p99) for at, p99 in row.p99_course])
    plots.stacked(file, title, unit, {"pods": pods, "p99 in s": slow})


def _thinned(course: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Only where the number changes, and the end."""
    kept = [point for before, point in zip([(0.0, -1), *course], course) if point[1] != before[1]]
    return [*kept, course[-1]]
