"""Slow clients hold no pool thread: neither those that send slowly nor those that never read."""

from __future__ import annotations

import hashlib
import json
import os
import select
from collections.abc import Callable
from pathlib import Path

import pytest

from raw import Client, request
from serving import DEADLINE_S, Milepost

THREADS = 2
SLOW = 40


def others_are_served(server: Milepost) -> None:
    """Every other client gets its answers, on connections old and new."""
    with server.connect() as client:
        for n in range(50):
            assert json.loads(client.ask("POST", f"/body?n={n}", body=b"x" * 100).body)["n"] == str(n)
    for _ in range(20):
        with server.connect() as client:
            assert client.ask("GET", "/hello").body == b"hello"


@pytest.fixture
def server(serve: Callable[..., Milepost]) -> Milepost:
    # On a busy machine the making of large replies takes so long that the pool would be overloaded; here
    # threads count, not how fast they are.
    patience = ("--queue-target", "10s", "--overload-timeout", "30s")
    return serve("zoo:app", "--threads", f"{THREADS}:{THREADS}", "--drivers", "1", *patience)


def leave(server: Milepost, clients: list[Client]) -> None:
    for client in clients:
        client.sock.close()
    server.exchanges += len(clients)


@pytest.mark.parametrize(
    "target", ["/large?bytes=4000000&length=1", "/large?bytes=4000000", "/large?bytes=4000000&part=4000000"]
)
def test_readers_that_never_read_hold_no_thread(server: Milepost, target: str) -> None:
    slow = [server.connect(receive_buffer_bytes=4096) for _ in range(SLOW)]
    for client in slow:
        client.send(request("GET", target))
    others_are_served(server)
    leave(server, slow)


def test_a_slow_reader_gets_all_of_it_in_the_end(server: Milepost) -> None:
    """The reply waits in memory and in a file; the application is long done."""
    slow = [server.connect(receive_buffer_bytes=4096) for _ in range(THREADS * 2)]
    for client in slow:
        client.send(request("GET", "/large?bytes=8000000"))
    others_are_served(server)
    for client in slow:
        with client:
            reply = client.reply()
            assert hashlib.sha256(reply.body).hexdigest() == reply.header("x-sha256")


@pytest.mark.parametrize("sent", [b"", b"x", b"x" * 50_000])
def test_uploads_that_never_end_hold_no_thread(server: Milepost, sent: bytes) -> None:
    slow = [server.connect() for _ in range(SLOW)]
    for client in slow:
        client.send(request("POST", "/body", "Content-Length: 200000") + sent)
    others_are_served(server)
    leave(server, slow)


def test_half_sent_heads_hold_no_thread(server: Milepost) -> None:
    slow = [server.connect() for _ in range(SLOW)]
    for client in slow:
        client.send(b"GET /hello HTTP/1.1\r\nHos")
    others_are_served(server)
    for client in slow:
        with client:
            client.send(b"t: x\r\n\r\n")
            assert client.reply().body == b"hello"


def test_a_full_queue_refuses_with_503_at_once(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    patience = ("--queue-target", "10s", "--overload-timeout", "30s")
    server = serve("zoo:app", "--threads", "1:1", "--drivers", "1", "--queue-len-max", "2", *patience)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    holder = server.connect()
    holder.send(request("GET", f"/gate?name={gate}"))
    hold = os.open(gate, os.O_WRONLY)
    waiting = [server.connect() for _ in range(10)]
    for client in waiting:
        client.send(request("GET", "/hello"))
    # Eight of ten find the queue full; they are answered while the thread is still held.
    refused: list[Client] = []
    while len(refused) < 8:
        ready, _, _ = select.select([c.sock for c in waiting if c not in refused], [], [], DEADLINE_S)
        assert ready, "nobody was refused"
        for client in [c for c in waiting if c.sock in ready]:
            reply = client.reply()
            assert reply.status == 503
            assert 1 <= int(reply.header("retry-after")) <= 60
            refused.append(client)
    os.close(hold)
    assert holder.reply().body == b"released"
    for client in waiting:
        if client not in refused:
            assert client.reply().body == b"hello"
    assert server.stop() == 0
    assert sum(" 503 " in line for line in server.lines) == 8


def test_hundreds_of_idle_connections_cost_nobody_anything(server: Milepost) -> None:
    idle = [server.connect() for _ in range(400)]
    for client in idle[::2]:
        client.ask("GET", "/hello")
    others_are_served(server)
    for client in idle:
        assert client.ask("GET", "/hello").status == 200
        client.sock.close()


def test_connections_over_the_bound_wait_and_are_served(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--connections-max", "20", "--drivers", "1")
    first = [server.connect() for _ in range(20)]
    for client in first:
        client.ask("GET", "/hello")
    more = [server.connect() for _ in range(20)]
    for client in more:
        client.send(request("GET", "/hello"))
    for client in first:
        client.sock.close()
    for client in more:
        with client:
            assert client.reply().body == b"hello"
