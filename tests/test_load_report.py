"""Being a good upstream: what trusted proxies are told, the load as JSON, and a Milepost in front of one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raw import Client, Reply, request
from serving import Milepost, tables, until

FORWARDED = "X-Forwarded-For: 192.0.2.7"
FIELD = "endpoint-load-metrics"
APP = """
def app(environ, start_response):
    if environ["PATH_INFO"] == "/gate":
        with open(environ["QUERY_STRING"]) as gate:
            gate.read()
    own = [("endpoint-load-metrics", "TEXT cpu_utilization=1")] if environ["PATH_INFO"] == "/own" else []
    start_response("200 OK", [("Content-Type", "text/plain"), *own])
    return [b"done"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def metrics(reply: Reply) -> dict[str, float]:
    """The metrics of a response, without the words before their names."""
    [value] = reply.all(FIELD)
    form, pairs = value.split(" ", 1)
    assert form == "TEXT"
    names_values = (pair.split("=") for pair in pairs.split(","))
    return {name.removeprefix("named_metrics."): float(number) for name, number in names_values}


def hold(server: Milepost, folder: Path, name: str) -> tuple[Client, Any]:
    """A request that runs until the file descriptor is closed."""
    gate = folder / name
    os.mkfifo(gate)
    client = server.connect()
    client.send(request("GET", f"/gate?{gate}"))
    # Opening waits until the application has opened the other end.
    return client, os.open(gate, os.O_WRONLY)


def test_a_forwarded_request_is_told_the_load(serve: Callable[..., Milepost], folder: Path) -> None:
    server = serve("app:app", "--threads", "3:3")
    held, gate = hold(server, folder, "gate")
    with server.connect() as client:
        found = metrics(client.ask("GET", "/", FORWARDED))
        assert (found["threads"], found["running"], found["waiting"]) == (3, 2, 0)
        assert found["application_utilization"] == pytest.approx(2 / 3, abs=0.001)
        assert 0 <= found["cpu_utilization"] <= 1
        assert found["request_run_ms"] > 0
        assert {"rps_fractional", "eps", "queue_ms", "request_queue_ms"} <= found.keys()
        # An application that knows its load better tells it itself.
        assert client.ask("GET", "/own", FORWARDED).all(FIELD) == ["TEXT cpu_utilization=1"]
        # What the driver responds to is told the load as well.
        assert metrics(client.ask("OPTIONS", "*", FORWARDED))["threads"] == 3
    os.close(gate)
    with held:
        assert held.reply().text == "done"


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ((), ()),
        ((), ("Forwarded: for=192.0.2.7",)),
        (("--trusted-proxies", "192.0.2.1"), (FORWARDED,)),
        (("--load-report", "off"), (FORWARDED,)),
    ],
    ids=["not forwarded", "by a header that does not count", "by a stranger", "turned off"],
)
def test_nobody_else_is_told_the_load(
    serve: Callable[..., Milepost], folder: Path, arguments: tuple[str, ...], headers: tuple[str, ...]
) -> None:
    with serve("app:app", *arguments).connect() as client:
        reply = client.ask("GET", "/", *headers)
        assert (reply.status, reply.all(FIELD)) == (200, [])


def test_a_path_tells_the_load_while_all_threads_are_busy(
    serve: Callable[..., Milepost], folder: Path
) -> None:
    server = serve("app:app", "--threads", "1:1", "--load-path", "/-/load")
    held, gate = hold(server, folder, "gate")
    with server.connect() as waiting, server.connect() as client:
        waiting.send(request("GET", "/"))

        def load() -> dict[str, Any]:
            reply = client.ask("GET", "/-/load")
            assert (reply.status, reply.header("Content-Type")) == (200, "application/json")
            assert reply.header("Cache-Control") == "no-store"
            return json.loads(reply.text)

        # A report may be some milliseconds older than the request that waits.
        assert until(lambda: load()["named_metrics"]["waiting"] == 1)
        found = load()
        assert found["application_utilization"] == 2
        named = found["named_metrics"]
        assert (named["running"], named["waiting"], named["threads"]) == (1, 1, 1)
        os.close(gate)
        assert waiting.reply().text == "done"
    with held:
        assert held.reply().text == "done"


def test_a_proxy_logs_what_the_server_tells_and_tells_it_to_nobody(
    serve: Callable[..., Milepost], folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    back = serve("app:app")
    host, port = back.address
    toml = tables("route", {"path": "/", "upstream": "back"})
    toml += tables("upstream", {"name": "back", "servers": [f"http://{host}:{port}"]})
    with Milepost(tmp_path_factory.mktemp("front"), toml=toml) as front:
        with front.connect() as client:
            reply = client.ask("GET", "/")
            assert (reply.text, reply.all(FIELD)) == ("done", [])
        # The proxy's connection is none that counts for itself.
        back.count()
        front.stop()
        [line] = front.lines
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        assert float(fields["upstream_run"]) > 0
        assert float(fields["upstream_queue"]) >= 0
        assert float(fields["upstream_run"]) <= float(fields["run"])
