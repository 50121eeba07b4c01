"""How well an event loop keeps up: what is measured of it, and what begins while it does not."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from frames import WebSocket

from benching import bench
from raw import request
from serving import APPS, LOOPS, Milepost, tables, until
from supervising import Supervised

# `/open` opens the gate of those that wait at `/wait`. `/hinder` starts a task that blocks the loop in each
# of its steps, `/compute` one that uses all of a processor in steps that nobody notices.
APP = """
import asyncio
import threading
import time
from pathlib import Path

import anyio.to_thread

gate = asyncio.Event()
door = threading.Event()
inside = 0
most = 0


async def hinder():
    # Each step blocks until the test writes a byte; the task ends once the test closes the pipe.
    with open("steps", "rb", buffering=0) as steps:
        while steps.read(1):
            await asyncio.sleep(0)


async def compute():
    while not Path("enough").exists():
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass
        await asyncio.sleep(0)


async def background():
    with open("fifo") as fifo:
        fifo.read()


async def app(scope, receive, send):
    global inside, most, task
    if scope["type"] == "lifespan":
        raise ValueError("no lifespan")
    path = scope["path"]
    inside += 1
    most = max(most, inside)
    if path == "/wait":
        await gate.wait()
    elif path == "/open":
        gate.set()
        door.set()
    elif path == "/hinder":
        task = asyncio.create_task(hinder())
    elif path == "/compute":
        task = asyncio.create_task(compute())
    elif path == "/pause":
        most = inside
        await asyncio.sleep(0.1)
    elif path == "/stream":
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await gate.wait()
        inside -= 1
        return await send({"type": "http.response.body", "body": b"data: end\\n\\n"})
    elif path == "/burn":
        time.sleep(0.01)
    elif path == "/block":
        with open("fifo") as fifo:
            fifo.read()
    elif path == "/background":
        task = asyncio.create_task(background())
        await asyncio.sleep(0)
    elif path == "/anyio":
        anyio.to_thread.current_default_thread_limiter().total_tokens = 2
        await anyio.to_thread.run_sync(door.wait)
    elif path == "/executor":
        await asyncio.to_thread(door.wait)
    body = str(most if path == "/pause" else inside).encode()
    inside -= 1
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"""


#: Health checks always begin: here the request that lets all others go on.
OPEN = tables("pool_rule", {"pool": "default", "path": "/open", "class": "health"})


@pytest.fixture(params=LOOPS)
def loaded(
    tmp_path: Path, supervise: Callable[..., Supervised], request: pytest.FixtureRequest
) -> Callable[..., Supervised]:
    (tmp_path / "app.py").write_text(APP)
    return lambda *more, **options: supervise("--loop", request.param, *more, **options)


def event_loop(server: Supervised) -> dict[str, Any]:
    (process,) = server.processes()
    found: dict[str, Any] = process["event_loop"]
    return found


def waiting_len(server: Supervised) -> int:
    (process,) = server.processes()
    return sum(pool["waiting"] for pool in process["pools"])


def test_no_more_begin_while_the_loop_is_behind(loaded: Callable[..., Supervised], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "steps")
    server = loaded("--asgi-concurrency", "2:5", "--queue-target", "20s", toml=OPEN)
    assert server.ask("/hinder").status == 200
    clients = [server.connect() for _ in range(7)]
    # The pipe opens once the loop is blocked.
    with (tmp_path / "steps").open("wb", buffering=0) as steps:
        for client in clients:
            client.send(request("GET", "/wait"))
        assert until(lambda: waiting_len(server) == 7)

        def waiting_after_a_step() -> int:
            # What waits has then waited for longer than the lag that counts.
            time.sleep(0.05)
            steps.write(b".")
            return waiting_len(server)

        assert until(lambda: waiting_after_a_step() == 5)
        assert event_loop(server)["inside"] == 2
        assert event_loop(server)["held_back"] > 0
        assert until(lambda: event_loop(server)["lag_ns"] >= 30_000_000)
    # It keeps up again: as many as may be are inside.
    assert until(lambda: waiting_len(server) == 2)
    assert event_loop(server)["inside"] == 5
    assert until(lambda: event_loop(server)["lag_ns"] < 20_000_000)
    assert server.ask("/open").status == 200
    assert [client.reply().status for client in clients] == [200] * 7
    for client in clients:
        client.sock.close()


def test_no_more_begin_while_the_loop_uses_all_of_a_processor(
    loaded: Callable[..., Supervised], tmp_path: Path
) -> None:
    server = loaded("--asgi-concurrency", "2:50", "--queue-target", "20s", toml=OPEN)

    def most_inside() -> int:
        clients = [server.connect() for _ in range(8)]
        for client in clients:
            client.send(request("GET", "/pause"))
        found = max(int(client.reply().text) for client in clients)
        for client in clients:
            client.sock.close()
        return found

    # Event streams are inside for as long as their clients stay, and hold nothing else back.
    streams = [server.connect() for _ in range(3)]
    for stream in streams:
        stream.send(request("GET", "/stream"))
        assert stream.head()[0] == 200
        server.count()
    assert server.ask("/compute").status == 200
    # It is saturated once it was seen to be, for a second: longer than one late look holds requests back.
    assert until(lambda: [most_inside() for _ in range(3)] == [2 + 3] * 3)
    clients = [server.connect() for _ in range(52)]
    for client in clients:
        client.send(request("GET", "/wait"))
    assert until(lambda: waiting_len(server) == 50)
    assert event_loop(server)["inside"] == 2 + 3
    assert event_loop(server)["held_back"] > 0
    (tmp_path / "enough").touch()
    # It has time again: as many as may be are inside.
    assert until(lambda: waiting_len(server) == 2 + 3)
    assert event_loop(server)["inside"] == 50
    assert server.ask("/open").status == 200
    assert [client.reply().status for client in clients] == [200] * 52
    for client in [*clients, *streams]:
        client.sock.close()


def test_health_checks_pass_a_full_loop(loaded: Callable[..., Supervised]) -> None:
    server = loaded("--asgi-concurrency", "1", toml=OPEN)
    first, second = server.connect(), server.connect()
    first.send(request("GET", "/wait"))
    assert until(lambda: event_loop(server)["inside"] == 1)
    second.send(request("GET", "/wait"))
    assert until(lambda: waiting_len(server) == 1)
    assert server.ask("/open").text == "2"
    assert [first.reply().text, second.reply().text] == ["1", "1"]
    for client in (first, second):
        client.sock.close()


def test_under_overload_no_request_waits_for_the_whole_queue_timeout(
    loaded: Callable[..., Supervised], tmp_path: Path
) -> None:
    # The run is over long before `queue_timeout` (30 s): what expires has waited for the time under overload.
    server = loaded()
    more = ("--rate", "250", "--duration", "4s", "-c", "1000")
    done = bench(tmp_path, *more, f"{server.url}/burn", code=None)
    statuses = done.counts["statuses"]
    server.count(sum(statuses.values()))
    (pool,) = server.processes()[0]["pools"]
    assert pool["expired"] > 0, (pool, statuses)
    assert statuses["503"] == pool["expired"] + pool["refused"] + pool["shed"]
    assert statuses["200"] == pool["completed"] > 0


def test_the_status_counts_websockets_that_are_open(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--app-dir", str(APPS), app="websocket_zoo:app")
    clients = [server.connect() for _ in range(2)]
    for open_count, client in enumerate(clients):
        WebSocket(client, "/echo")
        assert event_loop(server)["websockets"] == open_count + 1
    # With the last one nothing else happens in the loop.
    for open_count, client in [(1, clients[0]), (0, clients[1])]:
        client.sock.close()
        assert until(lambda open_count=open_count: event_loop(server)["websockets"] == open_count)


def test_a_loop_that_hangs_shows_while_it_does(loaded: Callable[..., Supervised], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    server = loaded()
    assert event_loop(server)["slow_steps"] == 0
    with server.connect() as blocking, server.connect() as other:
        blocking.send(request("GET", "/block"))
        with (tmp_path / "fifo").open("w") as fifo:
            other.send(request("GET", "/"))
            assert until(lambda: event_loop(server)["lag_ns"] > 300_000_000)
            fifo.write("on")
        assert (blocking.reply().status, other.reply().status) == (200, 200)
    found = event_loop(server)
    assert (found["slow_steps"], found["inside"]) == (1, 0)
    # A wait that is over counts for a second.
    assert until(lambda: event_loop(server)["lag_ns"] < 50_000_000)


def test_a_task_that_blocks_the_loop_is_named_too(loaded: Callable[..., Supervised], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    server = loaded()
    with server.connect() as first, server.connect() as other:
        first.send(request("GET", "/background"))
        with (tmp_path / "fifo").open("w") as fifo:
            other.send(request("GET", "/"))
            assert until(lambda: "a task or a callback blocks the event loop" in server.errors)
            fifo.write("on")
        assert (first.reply().status, other.reply().status) == (200, 200)
    (line,) = (line for line in server.errors.splitlines() if "blocks the event loop" in line)
    assert line.endswith(" (background)")


def test_a_step_that_goes_on_is_named_again(loaded: Callable[..., Supervised], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    server = loaded()
    with server.connect() as blocking:
        blocking.send(request("GET", "/block"))
        with (tmp_path / "fifo").open("w") as fifo:
            assert until(lambda: server.errors.count("/block") == 2)
            fifo.write("on")
        assert blocking.reply().status == 200
    assert server.errors.count("blocks the event loop") == 2


def test_threads_of_the_application_are_counted(loaded: Callable[..., Supervised]) -> None:
    server = loaded()
    clients = [server.connect() for _ in range(5)]
    for client, path in zip(clients, ["/anyio"] * 3 + ["/executor"] * 2, strict=True):
        client.send(request("GET", path))
    assert until(lambda: event_loop(server)["inside"] == 5)

    def found() -> list[int]:
        # Counted at a look of the loop, of which each request makes one.
        assert server.ask("/").status == 200
        told = event_loop(server)
        names = ("anyio_running", "anyio_max", "anyio_waiting", "executor_threads", "executor_waiting")
        return [told[name] for name in names]

    assert until(lambda: found() == [2, 2, 1, 2, 0]), found()
    shown = server.done("status")
    assert "LOOP" in shown
    assert "2/2 +1" in shown
    assert server.ask("/open").status == 200
    assert [client.reply().status for client in clients] == [200] * 5
    for client in clients:
        client.sock.close()


def test_the_page_shows_a_loop_only_where_there_is_one(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    server = supervise("--status-path", "/-/status")
    assert json.loads(server.ask("/-/status").body)["event_loop"] is None
    assert "LOOP" not in server.done("status")
    assert server.processes()[0]["event_loop"] is None


SHORT_AND_LONG = """
import time


async def app(scope, receive, send):
    assert scope["type"] == "http"
    if scope["path"] == "/long":
        time.sleep(1.8)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})
"""


def test_a_step_that_is_a_little_too_long_is_logged_whatever_ran_before(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    (tmp_path / "long_app.py").write_text(SHORT_AND_LONG)
    server = serve("long_app:app", "--app-dir", str(tmp_path), "--slow-step", "1s")
    with server.connect() as client:
        for count in (1, 2):
            # The first begins a look at what runs, which the second must not escape.
            assert client.ask("GET", "/short").status == 200
            assert client.ask("GET", "/long").status == 200
            assert until(lambda count=count: server.errors.count("GET /long") == count, 5)
