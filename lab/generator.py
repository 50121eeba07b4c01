"""The load generator: `milepost bench` on its own core, and what it counted.

A closed loop: its percentiles compare servers in one run and are not what an open system would see.
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
from dataclasses import dataclass
from typing import Any

from lab.toolbox import Toolbox

REPLY_TIMEOUT_S = 4
EXIT_GRACE_S = 20


class GeneratorFailed(Exception):
    """The generator did not start, did not end, or printed nothing that can be read."""


@dataclass(frozen=True)
class Counted:
    """One run. `responses` are right replies; `faults` are requests without one, timeouts apart;
    `resumed_share` are connections that resumed a TLS session, where there was TLS."""

    responses: int
    duration_s: float
    p50_us: float
    p99_us: float
    max_us: float
    faults: int
    timeouts: int
    cpu_s: float
    invalid: bool
    resumed_share: float = math.nan


def run(
    box: Toolbox,
    port: int,
    path: str,
    connections: int,
    seconds: int,
    core: int,
    *more: str,
    scheme: str = "http",
) -> Counted:
    """Loads `path` for `seconds` with one thread on `core`, or replays a recording that takes as long.

    Raises GeneratorFailed.
    """
    command = [str(box.milepost), "bench", "--quiet", "--json", "-", "--threads", "1", "--cpus", str(core)]
    command += ["--connections", str(connections)]
    # A duration would leave out the requests at the end of a recording that take long.
    command += [] if "--replay" in more else ["--duration", f"{seconds}s"]
    command += ["--timeout", f"{REPLY_TIMEOUT_S}s", *more, f"{scheme}://127.0.0.1:{port}{path}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + EXIT_GRACE_S, check=False
        )
    except subprocess.TimeoutExpired as cause:
        raise GeneratorFailed(f"the generator did not end within {seconds + EXIT_GRACE_S} s") from cause
    try:
        return _read(json.loads(done.stdout)["runs"][0], scheme)
    except (json.JSONDecodeError, KeyError, IndexError, TypeError) as cause:
        said = (done.stderr or done.stdout).strip()[:200]
        raise GeneratorFailed(f"the generator said: {said}") from cause


def _read(outcome: dict[str, Any], scheme: str) -> Counted:
    counts, latency, generator = outcome["counts"], outcome["times"]["latency"], outcome["generator"]
    failures = counts["failures"]
    return Counted(
        responses=counts["answered"],
        duration_s=outcome["seconds"],
        p50_us=latency["p50_us"],
        # With too few beyond it the longest stands for the 99th percentile.
        p99_us=latency["max_us"] if latency["p99_us"] is None else latency["p99_us"],
        max_us=latency["max_us"],
        faults=sum(failures.values()) - failures["timeout"],
        timeouts=failures["timeout"],
        cpu_s=sum(thread["cpu_s"] for thread in generator["threads"]),
        invalid=any(remark["weight"] == "invalid" for remark in outcome["remarks"]),
        resumed_share=counts["resumed"] / max(1, counts["connections"]) if scheme == "https" else math.nan,
    )


def children_cpu_s() -> float:
    """The processor time of all children that have ended and were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
