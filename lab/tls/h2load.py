"""h2load, the generator for kept connections of HTTPS and HTTP/2: runs it on its own core.

A closed loop for a time; it knows no percentiles.
"""

from __future__ import annotations

import functools
import math
import re
import subprocess

from lab.generator import Counted, GeneratorFailed, children_cpu_s
from lab.scenario import By
from lab.toolbox import Toolbox

EXIT_GRACE_S = 30
# The one that both ends of every row can do: another would be another amount of work.
CIPHER = "TLS_AES_128_GCM_SHA256"
REQUESTS = re.compile(
    r"requests: \d+ total, \d+ started, \d+ done, (\d+) succeeded, (\d+) failed, \d+ errored, (\d+) timeout"
)
FINISHED = re.compile(r"finished in ([\d.]+)(us|ms|s|m)")
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


def by(streams: int, *options: str, scheme: str = "https", path: str | None = None) -> By:
    """The load of so many requests at once on each connection, of `path` if that is another one."""
    return functools.partial(_run, streams, options, scheme, path)


def _run(
    streams: int,
    options: tuple[str, ...],
    scheme: str,
    own_path: str | None,
    _box: Toolbox,
    port: int,
    path: str,
    connections: int,
    seconds: int,
    core: int,
) -> Counted:
    command = ["taskset", "-c", str(core), "h2load", "-D", str(seconds), "-c", str(connections)]
    command += ["-m", str(streams), "--tls13-ciphers", CIPHER, *options]
    before_s = children_cpu_s()
    try:
        done = subprocess.run(
            [*command, f"{scheme}://127.0.0.1:{port}{own_path or path}"],
            capture_output=True,
            text=True,
            timeout=seconds + EXIT_GRACE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as cause:
        raise GeneratorFailed(f"h2load did not end within {seconds + EXIT_GRACE_S} s") from cause
    cpu_s = children_cpu_s() - before_s
    if scheme == "https" and f"Cipher: {CIPHER}" not in done.stdout:
        raise GeneratorFailed(f"the server does not speak {CIPHER}")
    return read(done.stdout or done.stderr, cpu_s)


def read(text: str, cpu_s: float) -> Counted:
    """What h2load printed. Raises GeneratorFailed."""
    finished, counts = FINISHED.search(text), REQUESTS.search(text)
    if not finished or not counts:
        raise GeneratorFailed(f"h2load said: {text.strip()[-200:]}")
    succeeded, failed, timeouts = map(int, counts.groups())
    return Counted(
        responses=succeeded,
        duration_s=float(finished[1]) * SECONDS[finished[2]],
        p50_us=math.nan,
        p99_us=math.nan,
        max_us=math.nan,
        # What failed includes what timed out and what had an error.
        faults=failed - timeouts,
        timeouts=timeouts,
        cpu_s=cpu_s,
        invalid=False,
    )
