"""A machine that stands still: what the error log says of it."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

from serving import Milepost, until


def test_a_stall_is_told_with_its_cause(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    server = serve("--static", f"/={tmp_path}")
    supervisor = server.process.pid
    # It has looked at the machine before.
    time.sleep(1.5)
    os.kill(supervisor, signal.SIGSTOP)
    time.sleep(2.5)
    os.kill(supervisor, signal.SIGCONT)
    said = re.compile(r"the machine stood still for [12]\.\d s: \w")
    assert until(lambda: any(said.search(line) for line in server.stderr)), server.stderr
    with server.connect() as client:
        assert client.ask("GET", "/nothing").status == 404
