"""How long no request is served after the only process was killed.

Takes a row, gives a Sample.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import time

from lab import measure, process, scenario
from lab.measure import Running
from lab.reload import lifecycle
from lab.scenario import Ground, Sample
from lab.toolbox import Toolbox

REPLY_TIMEOUT_S = 20.0
# The server has come to rest, and so have its counters and its code's pages.
SETTLE_S = 1.0


def restarted(row: scenario.Row, box: Toolbox, ground: Ground) -> Sample:
    """From the kill to the next good reply, without what the application's import takes."""
    with measure.running(row, box, ground) as server:
        time.sleep(SETTLE_S)
        victim = _serving(server)
        waiting = os.pidfd_open(victim)
        try:
            began_s = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            # Until it is gone it could still have the connection.
            select.select([waiting], [], [], REPLY_TIMEOUT_S)
        finally:
            os.close(waiting)
        reply, refused = _first_good(server.place.port)
        took_s = time.monotonic() - began_s
    import_s = float(_header(reply, "X-Import-S"))
    if int(_header(reply, "X-Pid")) == victim:
        raise process.NotReady("the killed process has answered")
    values = {"took_s": took_s, "import_s": import_s, "restart_s": took_s - import_s}
    return Sample(values | {"refused": float(refused)}, 0.0)


def _serving(server: Running) -> int:
    """The process that answers."""
    return int(_header(process.fetch(server.place.port, scenario.SMALL), "X-Pid"))


def _first_good(port: int) -> tuple[bytes, int]:
    """The next 200, and how many connections were in vain before. Raises NotReady."""
    deadline_s = time.monotonic() + REPLY_TIMEOUT_S
    refused = 0
    while time.monotonic() < deadline_s:
        try:
            with socket.create_connection(("127.0.0.1", port), REPLY_TIMEOUT_S) as client:
                client.settimeout(REPLY_TIMEOUT_S)
                client.sendall(process.request(port, scenario.SMALL))
                reply = process.read_reply(client)
        except OSError:
            reply = b""
        if b" 200 " in reply.split(b"\r\n", 1)[0]:
            return reply, refused
        refused += 1
        time.sleep(lifecycle.POLL_S / 10)
    raise process.NotReady(f"no good reply within {REPLY_TIMEOUT_S:.0f} s of the kill")


def _header(reply: bytes, name: str) -> str:
    found = re.search(rf"(?im)^{name}: *(\S+)", reply.split(b"\r\n\r\n", 1)[0].decode("latin-1"))
    if not found:
        raise process.NotReady(f"a reply without {name}")
    return found[1]
