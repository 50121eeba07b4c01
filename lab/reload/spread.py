"""How evenly connections are spread over drivers, as the server itself counts them.

Takes a row, gives a Sample.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

from lab import measure, process, scenario
from lab.measure import Running
from lab.reload import load, servers
from lab.reload.control import Control
from lab.reload.load import Load
from lab.scenario import Ground, Sample
from lab.toolbox import Toolbox

SHORT = 64
LONG = 16
LONG_DRIVERS = 4
# Each time from other ports, of which the kernel makes other hashes.
ROUNDS = 10
# So many connections to each of eight drivers that chance alone is below 2 %.
CONNECTIONS = 20_000
LOAD_S_MAX = 60
POLL_S = 0.1


def short(row: scenario.Row, box: Toolbox, ground: Ground) -> Sample:
    """Short-lived connections: what each driver accepted, of the mean."""
    with measure.running(row, box, ground) as server:
        control = Control(box.milepost, servers.control_file(server.place))
        before = _accepted(control)
        with load.calling(Load(server.place.port, LOAD_S_MAX, SHORT), box, ground) as calling:
            while (made := calling.so_far()["short"]["connections"]) < CONNECTIONS:
                if calling.clients.child.poll() is not None:
                    raise process.NotReady(f"{made} connections in {LOAD_S_MAX} s say nothing of a spread")
                time.sleep(POLL_S)
            counted = calling.stop()
        after = _accepted(control)
    each = [after[key] - before[key] for key in after]
    mean = sum(each) / len(each)
    values = {"drivers": float(len(each)), "accepted": float(sum(each))}
    values |= {"most_share": max(each) / mean, "least_share": min(each) / mean}
    # What the clients made and what the drivers accepted is the same.
    values["unaccounted_connections"] = abs(counted["short"]["connections"] - sum(each))
    return Sample(values | load.values(counted), 0.0)


def long(row: scenario.Row, box: Toolbox, ground: Ground) -> Sample:
    """A few connections that stay: the greatest difference to an equal share, of several rounds."""
    worst, handed = 0, 0
    with measure.running(row, box, ground) as server:
        control = Control(box.milepost, servers.control_file(server.place))
        for _ in range(ROUNDS):
            control.awaited("all connections are gone", lambda: sum(_open(control)) == 0)
            with _held(server, LONG):
                control.awaited("all connections are counted", lambda: sum(_open(control)) == LONG)
                worst = max(worst, *(abs(count - LONG // LONG_DRIVERS) for count in _open(control)))
        drivers = control.drivers()
        handed = sum(driver["balanced_out"] for driver in drivers)
    values = {"drivers": float(len(drivers)), "rounds": float(ROUNDS), "worst_off": float(worst)}
    return Sample(values | {"balanced_out": float(handed)}, 0.0)


@contextlib.contextmanager
def _held(server: Running, count: int) -> Iterator[None]:
    """So many connections that have had one reply each."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(count):
            address = ("127.0.0.1", server.place.port)
            client = stack.enter_context(socket.create_connection(address, process.REPLY_TIMEOUT_S))
            client.sendall(process.request(server.place.port, scenario.SMALL))
            clients.append(client)
        for client in clients:
            process.read_reply(client)
        yield


def _accepted(control: Control) -> dict[tuple[int, int], int]:
    return {
        (one["slot"], driver["driver"]): driver["accepted"]
        for one in control.processes("ready")
        for driver in one["drivers"]
    }


def _open(control: Control) -> list[int]:
    return [driver["open"] for driver in control.drivers()]
