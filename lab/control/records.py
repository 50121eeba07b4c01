"""What the server's own log says of one run: one request a line, as JSON."""

from __future__ import annotations

import datetime
import json
import math
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Record:
    """One request; times in seconds, `arrived_s` since 1970."""

    arrived_s: float
    queue_s: float
    run_s: float
    total_s: float
    status: int
    threads: int


def read(path: Path, under: str) -> list[Record]:
    """All requests whose target begins with `under`, by their arrival."""
    found = []
    for line in path.read_text().splitlines():
        one = json.loads(line)
        if not one["target"].startswith(under):
            continue
        arrived = datetime.datetime.fromisoformat(one["time"]).timestamp()
        found.append(
            Record(
                arrived, one["queue"], one["run"], one["total"], one["status"], int(one.get("threads") or 0)
            )
        )
    return sorted(found, key=lambda record: record.arrived_s)


def quantile(values: list[float], part: float) -> float:
    """The nearest rank: the smallest value that so many are not above; NaN of nothing."""
    if not values:
        return math.nan
    ranked = sorted(values)
    return ranked[max(1, math.ceil(part * len(ranked))) - 1]


def windows(records: list[Record], begin_s: float, every_s: float) -> list[list[Record]]:
    """The records by the window of their arrival, from `begin_s` on."""
    if not records:
        return []
    found: list[list[Record]] = [[] for _ in range(int((records[-1].arrived_s - begin_s) / every_s) + 1)]
    for record in records:
        index = int((record.arrived_s - begin_s) / every_s)
        if 0 <= index < len(found):
            found[index].append(record)
    return found


def mean_threads(records: list[Record]) -> float:
    """Threads averaged over time, as the requests saw them when they came."""
    by_tenth: dict[int, list[int]] = {}
    for record in records:
        by_tenth.setdefault(int(record.arrived_s * 10), []).append(record.threads)
    means = [sum(seen) / len(seen) for seen in by_tenth.values()]
    return sum(means) / len(means) if means else math.nan
