"""`--statsd`: what a StatsD server is told once a second, beside what clients have asked."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from serving import Milepost, free_port, run, until

APP = """
def app(environ, start_response):
    status = environ["QUERY_STRING"] or "200"
    start_response(status + " x", [("Content-Type", "text/plain")])
    return [b"done"]
"""


class Receiver:
    """A StatsD server."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.2)
        self.port: int = self._socket.getsockname()[1]
        self.counts: Counter[str] = Counter()
        self.gauges: dict[str, float] = {}
        self.longest = 0

    def read(self) -> None:
        """Takes what has come until now."""
        while True:
            try:
                datagram = self._socket.recv(65536)
            except TimeoutError:
                return
            self.longest = max(self.longest, len(datagram))
            for line in datagram.decode().split("\n"):
                name, _, rest = line.partition(":")
                value, _, kind = rest.partition("|")
                if kind == "c":
                    self.counts[name] += int(value)
                else:
                    assert kind == "g", line
                    self.gauges[name] = float(value)

    def has(self, name: str, count: int) -> bool:
        self.read()
        assert self.counts[name] <= count, (name, self.counts[name])
        return self.counts[name] == count

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with closing(Receiver()) as one:
        yield one


@pytest.fixture
def app(tmp_path: Path) -> str:
    (tmp_path / "app.py").write_text(APP)
    return "app:app"


def ask(server: Milepost, count: int, status: str = "200") -> None:
    with server.connect() as client:
        for _ in range(count):
            assert client.ask("GET", f"/?{status}").status == int(status)


def test_counts_are_those_of_the_clients_and_zeros_are_told(
    serve: Callable[..., Milepost], app: str, receiver: Receiver
) -> None:
    server = serve(app, "--threads", "3:3", "--statsd", f"localhost:{receiver.port}")
    assert until(lambda: receiver.read() or "milepost.workers" in receiver.gauges)
    ask(server, 20)
    ask(server, 5, "404")
    ask(server, 2, "500")
    assert until(lambda: receiver.has("milepost.requests", 27))
    expect = {"2xx": 20, "3xx": 0, "4xx": 5, "5xx": 2, "1xx": 0, "none": 0}
    found = {name: receiver.counts[f"milepost.request.status.{name}"] for name in expect}
    assert found == expect
    assert set(expect) <= {name.rpartition(".")[2] for name in receiver.counts}
    assert until(lambda: receiver.has("milepost.pool.default.requests", 27))
    assert receiver.counts["milepost.pool.default.failed"] == 2
    assert receiver.gauges["milepost.pool.default.threads"] == 3
    assert receiver.gauges["milepost.workers"] == 1
    assert receiver.gauges["milepost.backlog"] == 0
    assert receiver.longest <= 1400


def test_a_server_that_is_not_there_is_told_of_once_and_slows_nothing(
    serve: Callable[..., Milepost], app: str
) -> None:
    port = free_port()
    server = serve(app, "--statsd", f"127.0.0.1:{port}", "--statsd-prefix", "shop.")
    ask(server, 10)
    assert until(lambda: f"statsd: 127.0.0.1:{port}: " in server.errors)
    ask(server, 10)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as late:
        late.bind(("127.0.0.1", port))
        late.settimeout(20)
        assert late.recv(65536).startswith(b"shop.requests:")
    assert server.errors.count("statsd: ") == 1


def test_wrong_addresses_are_refused(tmp_path: Path) -> None:
    for text in ("example.com:8125", "127.0.0.1", "8125", "127.0.0.1:0"):
        told = run(tmp_path, "check", "--static", "/=.", "--statsd", text)
        assert told.returncode != 0 and "--statsd" in told.stdout + told.stderr, text
    told = run(tmp_path, "check", "--static", "/=.", "--statsd", "8125")
    assert "write `127.0.0.1:8125`" in told.stdout + told.stderr
