"""wrk, the generator that ours is compared with: runs it on its own core and gives what it counted.

wrk is a closed loop, and since version 4 it always back-fills latencies above twice the mean
cycle: its percentiles are not looked at here.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.generator import Counted, GeneratorFailed, children_cpu_s
from lab.toolbox import Toolbox

SCRIPT = Path(__file__).with_name("wrk.lua")
# wrk drops latencies above its timeout from the percentiles and counts them as timeouts.
REPLY_TIMEOUT_S = 4
EXIT_GRACE_S = 20


def run(
    _box: Toolbox, port: int, path: str, connections: int, seconds: int, core: int, *more: str
) -> Counted:
    """Loads `path` for `seconds` with one wrk thread on `core`. Raises GeneratorFailed."""
    command = ["taskset", "-c", str(core), "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
    command += [
        "--timeout",
        f"{REPLY_TIMEOUT_S}s",
        "-s",
        str(SCRIPT),
        *more,
        f"http://127.0.0.1:{port}{path}",
    ]
    cpu_s = children_cpu_s()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + EXIT_GRACE_S, check=False
        )
    except subprocess.TimeoutExpired as cause:
        raise GeneratorFailed(f"wrk did not end within {seconds + EXIT_GRACE_S} s") from cause
    cpu_s = children_cpu_s() - cpu_s
    for line in done.stdout.splitlines():
        if line.startswith("COUNTED "):
            return _read(line, cpu_s)
    raise GeneratorFailed(f"wrk said: {(done.stderr or done.stdout).strip()[:200]}")


def _read(line: str, cpu_s: float) -> Counted:
    value = {key: int(number) for key, number in (pair.split("=") for pair in line.split()[1:])}
    return Counted(
        responses=value["responses"],
        duration_s=value["duration_us"] / 1e6,
        p50_us=value["p50_us"],
        p99_us=value["p99_us"],
        max_us=value["max_us"],
        faults=value["connect"] + value["read"] + value["write"] + value["status"],
        timeouts=value["timeout"],
        cpu_s=cpu_s,
        invalid=False,
    )
