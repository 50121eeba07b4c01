"""1 KB of `x`, and which process has answered: the application of `lab reload`, the same for every server.

`X-Pid` is the process, `X-Import-S` the seconds that its import took; BENCH_IMPORT_S makes it longer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

BEGAN_S = time.monotonic()
BODY = b"x" * 1024
if pause_s := os.environ.get("BENCH_IMPORT_S"):
    time.sleep(float(pause_s))
IMPORT_S = time.monotonic() - BEGAN_S


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """1 KB whatever is asked."""
    # Asked each time: a process that was forked after the import is not the one that imported.
    fields = [("X-Pid", str(os.getpid())), ("X-Import-S", f"{IMPORT_S:.6f}")]
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "1024"), *fields])
    return [BODY]
