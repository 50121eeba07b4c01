"""Traces: the context of a request in the application, at an upstream, in logs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from upstreams import Connection, Request, Upstream, answering

from raw import Client
from serving import APPS, Milepost, tables, until

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"traceparent: 00-{TRACE}-{SPAN}-01"
HEADER = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
IDS = 'traces = "ids"\n'
JSON_LOGS = 'access_log_format = "json"\n'


def context(text: str | None) -> tuple[str, str, str]:
    """Trace, span and flags of a header."""
    found = HEADER.fullmatch(text or "")
    assert found, text
    return found[1], found[2], found[3]


def of_wsgi(client: Client, *headers: str) -> dict[str, str]:
    """The headers of a trace that a WSGI application has."""
    environ = json.loads(client.ask("GET", "/environ", *headers).body)
    keys = {"HTTP_TRACEPARENT": "traceparent", "HTTP_TRACESTATE": "tracestate"}
    return {name: environ[key] for key, name in keys.items() if key in environ}


def of_asgi(client: Client, *headers: str) -> dict[str, str]:
    """The headers of a trace that an ASGI application has, each at most once."""
    scope = json.loads(client.ask("GET", "/scope", *headers).body)["scope"]
    pairs = [[text.removeprefix("bytes:") for text in pair] for pair in scope["headers"]]
    found = [(name, value) for name, value in pairs if name.startswith("trace")]
    assert len(found) == len(dict(found))
    return dict(found)


APPLICATIONS = [("zoo:app", of_wsgi), ("asgi_zoo:app", of_asgi)]


def logged(server: Milepost, length: int) -> list[dict[str, object]]:
    """The lines of the access log, once there are so many."""
    assert until(lambda: len(server.lines) == length)
    return [json.loads(line) for line in server.lines]


@pytest.mark.parametrize(("app", "headers"), APPLICATIONS, ids=["wsgi", "asgi"])
def test_an_application_gets_the_place_of_its_request_in_the_trace(
    serve: Callable[..., Milepost], app: str, headers: Callable[..., dict[str, str]]
) -> None:
    server = serve(app, "--app-dir", str(APPS), toml=IDS + JSON_LOGS)
    with server.connect() as client:
        continued = headers(client, PARENT, "tracestate: a=1")
        begun = headers(client, "traceparent: nonsense", "tracestate: a=1")
        twice = headers(client, PARENT, PARENT)
        bare = headers(client)
    assert continued["tracestate"] == "a=1"
    # What vendors said of a trace that is not continued belongs to no trace.
    assert "tracestate" not in begun
    contexts = [context(seen["traceparent"]) for seen in (continued, begun, twice, bare)]
    assert contexts[0][0] == TRACE and contexts[0][1] != SPAN and contexts[0][2] == "01"
    assert len({trace for trace, _, _ in contexts}) == 4
    lines = logged(server, 4)
    assert [(line["trace_id"], line["span_id"]) for line in lines] == [seen[:2] for seen in contexts]
    assert [line["id"] for line in lines] == [line["span_id"] for line in lines]


@pytest.mark.parametrize(("app", "headers"), APPLICATIONS, ids=["wsgi", "asgi"])
def test_without_traces_an_application_gets_what_the_client_sent(
    serve: Callable[..., Milepost], app: str, headers: Callable[..., dict[str, str]]
) -> None:
    server = serve(app, "--app-dir", str(APPS), toml=JSON_LOGS)
    with server.connect() as client:
        assert headers(client, PARENT, "tracestate: a=1") == {
            "traceparent": f"00-{TRACE}-{SPAN}-01",
            "tracestate": "a=1",
        }
        assert headers(client) == {}
    assert not any("trace_id" in line for line in logged(server, 2))


def hello(connection: Connection, asked: Request) -> None:
    connection.reply(b"hello")


def proxy(upstream: Upstream) -> str:
    """The settings that pass everything on."""
    return tables("route", {"path": "/", "upstream": "back"}) + tables(
        "upstream", {"name": "back", "servers": [upstream.url]}
    )


def test_an_upstream_gets_the_place_of_its_request_in_the_trace(serve: Callable[..., Milepost]) -> None:
    with Upstream(answering(hello)) as upstream:
        server = serve(toml=IDS + JSON_LOGS + proxy(upstream))
        with server.connect() as client:
            client.ask("GET", "/", PARENT, "tracestate: a=1", "tracestate: b=2")
            client.ask("GET", "/", PARENT.replace("-01", "-zz"), "tracestate: a=1")
        continued, begun = upstream.seen
    assert [asked.all("tracestate") for asked in (continued, begun)] == [["a=1", "b=2"], []]
    contexts = [context(asked.header("traceparent")) for asked in (continued, begun)]
    assert contexts[0][0] == TRACE and contexts[0][1] != SPAN
    assert contexts[1][0] != TRACE
    lines = logged(server, 2)
    assert [line["trace_id"] for line in lines] == [trace for trace, _, _ in contexts]
    # The parent there is the span of the request at the upstream, below that of the request.
    assert all(line["span_id"] != span for line, (_, span, _) in zip(lines, contexts, strict=True))


@pytest.mark.parametrize("trusted", [True, False])
def test_only_trusted_proxies_name_a_trace_if_that_is_asked_for(
    serve: Callable[..., Milepost], tmp_path: Path, trusted: bool
) -> None:
    (tmp_path / "a.txt").write_text("a")
    proxies = "127.0.0.0/8" if trusted else "192.0.2.1"
    more = f'traces_parents = "trusted"\ntrusted_proxies = ["{proxies}"]\nstatic = ["/={tmp_path}"]\n'
    server = serve(toml=IDS + JSON_LOGS + more)
    with server.connect() as client:
        assert client.ask("GET", "/a.txt", PARENT).status == 200
    (line,) = logged(server, 1)
    assert (line["trace_id"] == TRACE) is trusted


def test_lines_of_both_logs_name_the_trace(serve: Callable[..., Milepost]) -> None:
    template = 'access_log_format = "{trace_id} {span_id} {status}"\nerror_log_format = "json"\n'
    with Upstream(lambda connection: connection.reset()) as upstream:
        server = serve(toml=IDS + template + proxy(upstream))
        with server.connect() as client:
            assert client.ask("GET", "/", PARENT).status == 502
    assert until(lambda: len(server.lines) == 1)
    trace, span, status = server.lines[0].split()
    assert (trace, status) == (TRACE, "502")
    assert re.fullmatch("[0-9a-f]{16}", span)
    events = [json.loads(line) for line in server.stderr if line.startswith("{")]
    assert [(e["trace_id"], e["id"]) for e in events if "trace_id" in e] == [(TRACE, span)]


def test_the_usual_form_of_the_log_ends_with_the_trace(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a")
    server = serve(toml=f'{IDS}static = ["/={tmp_path}"]\n')
    with server.connect() as client:
        client.ask("GET", "/a.txt", PARENT)
    assert until(lambda: len(server.lines) == 1)
    assert re.search(rf" trace_id={TRACE} span_id=[0-9a-f]{{16}}$", server.lines[0].rstrip())
