"""weighttp, the generator of one of the published observations: runs it on its own core.

weighttp counts requests, not seconds, and knows no latencies: a short run finds the rate first.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Sequence

from lab.generator import Counted, GeneratorFailed, children_cpu_s
from lab.toolbox import Toolbox

PROBE_REQUESTS = 2_000
EXIT_GRACE_S = 60
FINISHED = re.compile(r"finished in (\d+) sec, (\d+) millisec and (\d+) microsec")
REQUESTS = re.compile(r"(\d+) total, (\d+) started, (\d+) done, (\d+) succeeded, (\d+) failed")


def run(
    _box: Toolbox, port: int, path: str, connections: int, seconds: int, core: int, *more: str
) -> Counted:
    """Loads `path` for about `seconds` with one thread on `core`. Raises GeneratorFailed."""
    url = f"http://127.0.0.1:{port}{path}"
    probe = requests(url, max(PROBE_REQUESTS, connections), connections, core, ("-k", *more))
    wanted = max(connections, round(probe.responses / probe.duration_s * seconds))
    return requests(url, wanted, connections, core, ("-k", *more))


def requests(url: str, count: int, connections: int, core: int, options: Sequence[str]) -> Counted:
    """`count` requests on `connections` connections. Raises GeneratorFailed."""
    if shutil.which("weighttp") is None:
        raise GeneratorFailed("weighttp is not installed (https://github.com/lighttpd/weighttp)")
    command = ["taskset", "-c", str(core), "weighttp", "-t", "1", "-c", str(connections), "-n", str(count)]
    before_s = children_cpu_s()
    try:
        done = subprocess.run(
            [*command, *options, url], capture_output=True, text=True, timeout=EXIT_GRACE_S, check=False
        )
    except subprocess.TimeoutExpired as cause:
        raise GeneratorFailed(f"weighttp did not end within {EXIT_GRACE_S} s") from cause
    return read(done.stdout or done.stderr, children_cpu_s() - before_s)


def read(text: str, cpu_s: float) -> Counted:
    """What weighttp printed. Raises GeneratorFailed."""
    finished, counts = FINISHED.search(text), REQUESTS.search(text)
    if not finished or not counts:
        raise GeneratorFailed(f"weighttp said: {text.strip()[:200]}")
    seconds, milliseconds, microseconds = map(int, finished.groups())
    return Counted(
        responses=int(counts[4]),
        duration_s=seconds + milliseconds / 1e3 + microseconds / 1e6,
        p50_us=math.nan,
        p99_us=math.nan,
        max_us=math.nan,
        faults=int(counts[5]),
        timeouts=0,
        cpu_s=cpu_s,
        invalid=False,
    )
