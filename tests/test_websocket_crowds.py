"""Many WebSocket connections at once: what they cost, and that none is lost without a close frame.

Run by `make conformance`: the clients are a process of their own (crowd.py) with thousands of sockets.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raw import request
from serving import APPS, DEADLINE_S, until
from supervising import Supervised, status_field

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

IDLE = 10_000
AGAIN = 1_000
RELOADS = 100
#: Of one silent connection, beside what its application has.
SERVER_BYTES_MAX = 6 << 10
DEFLATED_BYTES_MAX = 70 << 10

#: What an application has of its own for each silent connection: scope, coroutine, task and a future.
OWN_OBJECTS = """
import asyncio
import sys

from scripted import app


def resident():
    with open("/proc/self/status") as status:
        return int(status.read().split("VmRSS:")[1].split()[0]) << 10


def scope():
    # Strings and bytes that a server makes for each connection are made here too.
    address = ("127.0.0.1", int("40000"))
    return {
        "type": "websocket",
        "asgi": dict(version="3.0", spec_version="2.5"),
        "http_version": "1.1",
        "scheme": "ws",
        "path": "/%s" % "idle",
        "raw_path": b"/%s" % b"idle",
        "query_string": b"accept+%s" % b"quiet",
        "root_path": "",
        "headers": [(b"host", b"value %d" % number) for number in range(5)],
        "client": address,
        "server": address,
        "state": {},
        "subprotocols": [],
        "extensions": {"websocket.http.response": {}},
    }


async def main(count):
    loop = asyncio.get_running_loop()

    async def send(event):
        pass

    def receives():
        events = [{"type": "websocket.connect"}]

        async def receive():
            return events.pop() if events else await loop.create_future()

        return receive

    before = resident()
    tasks = [asyncio.ensure_future(app(scope(), receives(), send)) for _ in range(count)]
    await asyncio.sleep(0.5)
    print((resident() - before) // count)
    for task in tasks:
        task.cancel()


asyncio.run(main(int(sys.argv[1])))
"""


class Crowd:
    """A running crowd.py."""

    def __init__(self, server: Supervised, count: int, target: str, *options: str) -> None:
        assert isinstance(server.address, tuple)
        host, port = server.address
        words = [str(Path(__file__).parent / "crowd.py"), host, str(port), str(count), target, *options]
        self.process = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "open\n"

    def ends(self, timeout_s: float) -> dict[str, Any]:
        out, _ = self.process.communicate(timeout=timeout_s)
        assert self.process.returncode == 0, out
        told: dict[str, Any] = json.loads(out)
        return told


def resident_bytes(pid: int) -> int:
    return int(status_field(pid, "VmRSS")[0]) << 10


@pytest.fixture(autouse=True)
def descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < IDLE + 1000:
        pytest.skip(f"needs {IDLE + 1000} descriptors for each process, and may have {hard}")


def own_bytes() -> int:
    done = subprocess.run(
        [sys.executable, "-c", OWN_OBJECTS, str(IDLE)], cwd=APPS, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.parametrize(("options", "bound"), [((), SERVER_BYTES_MAX), (("--deflate",), DEFLATED_BYTES_MAX)])
def test_ten_thousand_silent_connections_are_small_and_are_closed_one_by_one(
    supervise: Callable[..., Supervised], options: tuple[str, ...], bound: int
) -> None:
    times = ("--ws-drain", "10s", "--drain-timeout", "60s", "--ws-ping-interval", "off")
    server = supervise("--app-dir", str(APPS), *times, app="scripted:app", log=None)
    server.ask("/seen/idle")
    (pid,) = server.pids()
    before = resident_bytes(pid)
    # The script notes nothing while it is silent.
    crowd = Crowd(server, IDLE, "/idle?accept+quiet", *options)
    assert until(lambda: server.status()["processes"][0]["event_loop"]["websockets"] == IDLE)
    each = (resident_bytes(pid) - before) // IDLE
    own = own_bytes()
    print(f"{each} bytes for each connection, {own} of them the application's")
    server.done("reload")
    # New clients get the new process at once.
    assert server.ask("/seen/idle").status == 200
    told = crowd.ends(120)
    assert (told["codes"], told["cut"], told["refused"]) == ({"1012": IDLE}, 0, 0)
    # Spread over `ws_drain`: no tenth of the time has far more than its share.
    tenths = [0] * 11
    for at in told["times"]:
        tenths[min(int(at), 10)] += 1
    print("close frames in each second", tenths)
    assert max(tenths) < IDLE // 10 * 3, tenths
    assert each - own <= bound, (each, own)
    server.settled(1)
    assert "Traceback" not in server.errors


def test_a_hundred_reloads_lose_no_connection(supervise: Callable[..., Supervised]) -> None:
    times = ("--ws-drain", "300ms", "--drain-timeout", "60s")
    server = supervise("--app-dir", str(APPS), *times, app="scripted:app", log=None)
    crowd = Crowd(server, AGAIN, "/again?accept+quiet", "--again")
    for _ in range(RELOADS):
        server.done("reload")
        server.settled(1)
    told = crowd.ends(DEADLINE_S)
    assert (told["cut"], told["refused"], told["open"]) == (0, 0, AGAIN), told
    print("close frames", told["codes"])
    assert list(told["codes"]) == ["1012"] and told["codes"]["1012"] >= AGAIN * RELOADS // 2
    assert "Traceback" not in server.errors


STALLED = 100
#: Of one stream that is not read: what waits to be sent, a piece more, and the task.
STALLED_BYTES_MAX = 400 << 10


def test_a_hundred_streams_that_are_not_read_keep_their_bounds(supervise: Callable[..., Supervised]) -> None:
    times = ("--send-timeout", "300s", "--stream-wait-timeout", "300s")
    server = supervise("--app-dir", str(APPS), *times, app="scripted:app", log=None)
    server.ask("/seen/stall")
    (pid,) = server.pids()
    before = resident_bytes(pid)
    clients = [server.connect(receive_buffer_bytes=1 << 14) for _ in range(STALLED)]
    for client in clients:
        client.send(request("GET", "/stall?events+flood"))

    def inside() -> int:
        return int(server.status()["processes"][0]["event_loop"]["inside"])

    assert until(lambda: inside() == STALLED)
    sizes = []
    for _ in range(20):
        for _ in range(50):
            assert server.ask("/seen/nothing").body == b"[]"
        sizes.append(resident_bytes(pid) - before)
    print("bytes for each stream", [size // STALLED for size in sizes])
    assert max(sizes) <= STALLED * STALLED_BYTES_MAX
    # Flat: the last quarter is no more than the first one, but for what 50 requests leave.
    assert max(sizes[-5:]) - max(sizes[:5]) <= 4 << 20, sizes
    for client in clients:
        client.sock.close()
    assert until(lambda: inside() == 0)
