"""What a request found at its queue, and what a proxy says of the time before: in the environ and in the log.

The application holds requests at gates (named pipes), so the order of everything is known and nothing is
timed. How long a request had waited in front is claimed to be minutes, which no slow machine can add.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raw import Client, request
from serving import DEADLINE_S, Milepost, until

APP = """
import json

def app(environ, start_response):
    if environ["QUERY_STRING"]:
        with open(environ["QUERY_STRING"]) as gate:
            gate.read()
    phases = environ["milepost.phases"]
    body = json.dumps({name: phases[name] for name in phases}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
"""
NAMES = ("waiting", "threads", "idle", "from_queue")
WAITED_S = 300


@pytest.fixture
def served(serve: Callable[..., Milepost], tmp_path: Path) -> Callable[..., Milepost]:
    (tmp_path / "queue_app.py").write_text(APP)

    def start(*arguments: str, **more: str) -> Milepost:
        # However long they wait at their gates, the pool is not overloaded.
        options = (
            "--threads",
            "2:2",
            "--drivers",
            "1",
            "--status-path",
            "/-/status",
            "--queue-target",
            "10s",
        )
        return serve("queue_app:app", *options, *arguments, **more)

    return start


def pool_of(client: Client) -> dict[str, int]:
    """The counters of the pool."""
    found: dict[str, int] = json.loads(client.ask("GET", "/-/status").body)["pool"]
    return found


def facts(found: dict[str, object]) -> tuple[object, ...]:
    return tuple(found[name] for name in NAMES)


def facts_of_json(line: str) -> tuple[object, ...]:
    found = json.loads(line)
    return facts(found | {"from_queue": found["queued"]})


def facts_of_line(line: str) -> tuple[object, ...]:
    """Of a line with phases."""
    text = dict(re.findall(r" (\w+)=(\S+)", line))
    return (*(int(text[name]) for name in NAMES[:3]), text.get("queued") == "yes")


def hold(client: Client, gate: Path, path: str) -> int:
    """Has a request run until the descriptor that it gives is closed."""
    os.mkfifo(gate)
    client.send(request("GET", f"{path}?{gate}"))
    # Returns when the application has it open at the other end: a thread has the request.
    return os.open(gate, os.O_WRONLY)


@pytest.mark.parametrize("form", ["phases", "json"])
def test_each_request_knows_what_it_found(served: Callable[..., Milepost], tmp_path: Path, form: str) -> None:
    server = served("--access-log-format", form)
    clients = [server.connect() for _ in range(5)]
    watcher = server.connect()
    # A thread that is only about to sit down counts as idle; those that have run something sit.
    for gate in [hold(clients[n], tmp_path / f"first-{n}", "/first") for n in (0, 1)]:
        os.close(gate)
    assert [client.reply().status for client in clients[:2]] == [200, 200]
    assert until(lambda: pool_of(watcher)["idle"] == 2, DEADLINE_S)
    opened = [hold(clients[n], tmp_path / f"gate-{n}", f"/{n + 1}") for n in (0, 1)]
    for number, client in zip((3, 4, 5), clients[2:]):
        client.send(request("GET", f"/{number}"))
        assert until(lambda waiting=number - 2: pool_of(watcher)["waiting"] == waiting, DEADLINE_S)
        # That counts those that the driver still keeps; it hands them on before it reads again.
        pool_of(watcher)
    os.close(opened[0])
    found = [json.loads(client.reply().body) for client in (clients[0], *clients[2:])]
    os.close(opened[1])
    found.insert(1, json.loads(clients[1].reply().body))
    expected = [
        (0, 2, 2, False),
        (0, 2, 1, False),
        (0, 2, 0, True),
        (1, 2, 0, True),
        (2, 2, 0, True),
    ]
    assert [facts(phases) for phases in found] == expected
    assert all(phases["before"] == 0 for phases in found)
    for client in (*clients, watcher):
        client.sock.close()
    assert server.stop() == 0
    lines = {}
    for line in server.lines:
        if asked := re.search(r'[ "]/(\d)[? "]', line):
            lines[int(asked[1])] = facts_of_json(line) if form == "json" else facts_of_line(line)
    assert [lines[number] for number in range(1, 6)] == expected


def connect_from(address: str, server: Milepost) -> Client:
    sock = socket.create_connection(server.address, DEADLINE_S, source_address=(address, 0))
    return Client(sock, server.count)


def before_s(client: Client, *fields: str) -> float:
    """What the application is told."""
    found: float = json.loads(client.ask("GET", "/", *fields).body)["before"]
    return found


@pytest.mark.parametrize(
    "form",
    ["t={:.3f}", "{:.6f}", "t={:.0f}000", "{:.0f}000000", "t={:.0f}000000000"],
)
def test_a_trusted_proxy_tells_of_the_time_before(served: Callable[..., Milepost], form: str) -> None:
    server = served("--trusted-proxies", "127.0.0.2", "--queue-timeout", "1h")
    # Rounded up to a second, or cut.
    started = form.format(time.time() - WAITED_S)
    with connect_from("127.0.0.2", server) as client:
        for name in ("X-Request-Start", "X-Queue-Start"):
            assert WAITED_S - 1 <= before_s(client, f"{name}: {started}") < WAITED_S + DEADLINE_S
        assert before_s(client) == 0
        assert before_s(client, "X-Request-Start: soon") == 0
        assert before_s(client, f"X-Request-Start: {time.time() + 60:.3f}") == 0
        assert before_s(client, f"X-Request-Start: {time.time() - 660:.3f}") == 0
    assert server.stop() == 0
    told = [float(found[1]) for line in server.lines if (found := re.search(r" before=(\S+)", line))]
    assert len(told) == 2 and all(WAITED_S - 1 <= seconds < WAITED_S + DEADLINE_S for seconds in told)


@pytest.mark.parametrize(
    "arguments", [("--trusted-proxies", "off"), ("--trusted-proxies", "127.0.0.2, 10.0.0.0/8")]
)
def test_nobody_else_is_believed(served: Callable[..., Milepost], arguments: tuple[str, ...]) -> None:
    server = served(*arguments)
    with connect_from("127.0.0.3", server) as client:
        assert before_s(client, f"X-Request-Start: t={time.time() - WAITED_S:.3f}") == 0
    assert server.stop() == 0
    assert not any(" before=" in line for line in server.lines)


def started() -> str:
    return f"X-Request-Start: t={time.time() - WAITED_S:.3f}"


def test_what_waited_too_long_in_front_is_refused(served: Callable[..., Milepost]) -> None:
    minutes = ("--queue-timeout", "4m", "--overload-timeout", "4m")
    server = served("--trusted-proxies", "127.0.0.1", *minutes)
    with server.connect() as client:
        assert client.ask("GET", "/", started()).status == 503
    with server.connect() as client:
        assert before_s(client) == 0
    assert server.stop() == 0
    assert sum('cause="waited too long' in line for line in server.lines) == 1


def test_a_unix_socket_of_our_own_user_is_believed(served: Callable[..., Milepost], tmp_path: Path) -> None:
    options = ("--trusted-proxies", "unix", "--queue-timeout", "1h")
    with served(*options, bind=f"unix:{tmp_path}/s").connect() as client:
        assert WAITED_S - 1 <= before_s(client, started()) < WAITED_S + DEADLINE_S
