"""Overload with default settings: what is refused, and what is only long and loses nothing."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raw import request
from serving import Milepost, run

# Sleeps as long as the path says, in ms.
SLEEPING = """
import time


def app(environ, start_response):
    time.sleep(int(environ["PATH_INFO"][1:]) / 1000)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "4")])
    return [b"done"]
"""


@pytest.fixture
def server(tmp_path: Path, serve: Callable[..., Milepost]) -> Iterator[Milepost]:
    """Four threads, nothing else said, and runs of 20 ms of late."""
    (tmp_path / "app.py").write_text(SLEEPING)
    server = serve("app:app")
    with server.connect() as client:
        for _ in range(40):
            assert client.ask("GET", "/20").status == 200
    yield server


def test_five_seconds_of_work_at_once_are_all_done(server: Milepost) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(200)]
        for client in clients:
            client.send(request("GET", "/100"))
        assert Counter(client.reply().status for client in clients) == {200: 200}


def test_clients_that_wait_for_their_replies_are_never_refused(server: Milepost) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(8)]
        for client in clients:
            client.send(request("GET", "/2000"))
        statuses = []
        for client in clients:
            statuses.append(client.reply().status)
            client.send(request("GET", "/2000"))
        statuses += [client.reply().status for client in clients]
        refused = [line for line in server.lines if " 503 " in line]
        assert Counter(statuses) == {200: 16}, (refused, server.lines[40:])


def test_more_than_the_pool_completes_is_refused_soon(server: Milepost, tmp_path: Path) -> None:
    # Three times what four threads do in a second.
    load = ("-r", "120", "-d", "5s", "-c", "600")
    assert run(tmp_path, "bench", f"{server.url}/100", *load).stdout
    assert server.stop() == 0
    server.count(len(server.lines) - server.exchanges)
    refused = [line for line in server.lines if " 503 " in line]
    served = [line for line in server.lines if " 200 " in line]
    assert len(served) > 100
    assert any('cause="pool is overloaded"' in line for line in refused), refused[:3]
    # Far below what the queue has places for.
    assert max(int(line.split(" waiting=")[1].split(" ")[0]) for line in served) < 150
