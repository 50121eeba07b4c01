"""Cases of HTTP at which ASGI servers differ: odd headers, ends of connections, what comes early or late."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import frames
import pytest
from frames import TEXT, frame

from raw import Client, request
from serving import LOOPS, Milepost, until

APP = """
import asyncio
import json
import urllib.parse

seen = []
gate = asyncio.Event()


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        seen.append({key: str(value) for key, value in scope.items()})
        await send({"type": "lifespan.startup.complete"})
        await receive()
        return await send({"type": "lifespan.shutdown.complete"})
    path, query = scope["path"], urllib.parse.unquote_to_bytes(scope["query_string"])
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        event = await receive()
        return await send({"type": "websocket.send", "text": event["text"]})
    if path == "/value":
        return await answer(send, b"", [(b"x-value", query)])
    if path == "/name":
        return await answer(send, b"", [(query, b"value")])
    if path == "/connection":
        return await answer(send, b"", [(b"connection", query)])
    if path == "/first":
        return await answer(send, json.dumps(await first(receive)).encode())
    if path == "/returns":
        await answer(send, b"all")
        return 123
    if path == "/seen":
        return await answer(send, json.dumps(seen).encode())
    if path == "/waits":
        seen.append("waits")
        await gate.wait()
    if path == "/go":
        gate.set()
    await answer(send, b"done")
    if path == "/behind":
        seen.append(await first(receive))


async def first(receive):
    event = await receive()
    return {key: value.decode() if isinstance(value, bytes) else value for key, value in event.items()}


async def answer(send, body, headers=()):
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""


@pytest.fixture(params=LOOPS)
def server(
    serve: Callable[..., Milepost], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Milepost]:
    (tmp_path / "app.py").write_text(APP)
    yield serve("app:app", "--loop", request.param, "--idle-timeout", "500ms", "--drain-timeout", "20s")


@pytest.fixture
def client(server: Milepost) -> Iterator[Client]:
    with server.connect() as connection:
        yield connection


def head_lines(client: Client) -> list[bytes]:
    """The lines of a head as they came."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        data += client.exactly(1)
    client.count()
    return data.split(b"\r\n")[:-2]


def test_values_of_headers_pass_as_they_are(client: Client) -> None:
    for value, quoted in [
        (b"<c>", "%3Cc%3E"),
        (b"a\tb", "a%09b"),
        (b"a b", "a%20b"),
        ("<µ>".encode(), "%3C%C2%B5%3E"),
        (b"\xe9", "%E9"),
        (b"", ""),
    ]:
        client.send(request("GET", f"/value?{quoted}"))
        lines = head_lines(client)
        assert b"x-value: " + value in lines or (not value and b"x-value:" in map(bytes.strip, lines)), lines


@pytest.mark.parametrize("value", ["%00", "%0D", "%0A", "a%0D%0Ab:%20c", "%7F", "%1F"])
def test_values_that_could_split_a_response_are_refused(client: Client, value: str) -> None:
    reply = client.ask("GET", f"/value?{value}")
    assert (reply.status, reply.header("x-value"), reply.header("b")) == (500, None, None)


def test_names_that_are_no_tokens_are_refused(server: Milepost, client: Client) -> None:
    for byte in ' \0()<>@,;:[]{}="\\\t\x7f/?\x80\r\n':
        quoted = f"bad%{ord(byte):02X}name"
        reply = client.ask("GET", f"/name?{quoted}")
        assert reply.status == 500, byte
        assert not any("bad" in name for name, _ in reply.headers)
    assert client.ask("GET", "/name?").status == 500
    # Those that a token may have.
    for byte in "!#$%&'*+-.^_`|~":
        assert client.ask("GET", f"/name?x%{ord(byte):02X}name").header(f"x{byte}name") == "value"


def test_a_request_without_a_body_begins_with_an_empty_event(client: Client) -> None:
    for method in ("GET", "POST", "DELETE"):
        reply = client.ask(method, "/first")
        assert json.loads(reply.body) == {"type": "http.request", "body": "", "more_body": False}


def test_what_an_application_returns_does_not_matter(server: Milepost, client: Client) -> None:
    for _ in range(2):
        assert client.ask("GET", "/returns").body == b"all"
    assert "error" not in server.errors


def test_behind_the_response_there_is_the_end_alone(server: Milepost, client: Client) -> None:
    assert client.ask("POST", "/behind", body=b"never read").body == b"done"

    def seen() -> object:
        return json.loads(client.ask("GET", "/seen").body)[1:]

    assert until(lambda: seen() == [{"type": "http.disconnect"}])


def test_the_scope_of_the_lifespan_is_complete(client: Client) -> None:
    assert json.loads(client.ask("GET", "/seen").body)[0] == {
        "type": "lifespan",
        "asgi": "{'version': '3.0', 'spec_version': '2.0'}",
        "state": "{}",
    }


@pytest.mark.parametrize("tokens", ["Close", "keep-alive, close", " keep-alive ,  CLOSE ", "close, x"])
def test_a_client_ends_its_connection_by_any_spelling_of_close(client: Client, tokens: str) -> None:
    client.send(request("GET", "/", f"Connection: {tokens}") + request("GET", "/waits"))
    reply = client.reply()
    assert (reply.body, reply.all("connection")) == (b"done", ["close"])
    # What follows is no request.
    assert client.is_closed()


@pytest.mark.parametrize("tokens", ["Close", "keep-alive, Close", "close"])
def test_an_application_ends_the_connection_by_any_spelling_of_close(client: Client, tokens: str) -> None:
    reply = client.ask("GET", f"/connection?{tokens.replace(' ', '%20')}")
    assert (reply.status, reply.all("connection")) == (200, ["close"])
    assert client.is_closed()


def test_http_1_0_keeps_a_connection_where_both_ends_say_so(client: Client) -> None:
    for _ in range(2):
        client.send(request("GET", "/", "Connection: keep-alive", version="HTTP/1.0"))
        reply = client.reply()
        assert (reply.body, [value.lower() for value in reply.all("connection")]) == (b"done", ["keep-alive"])
    client.send(request("GET", "/", version="HTTP/1.0"))
    assert client.reply().closes
    assert client.is_closed()


def test_an_early_response_leaves_the_connection_to_the_next_request(client: Client) -> None:
    client.send(request("POST", "/", "Content-Length: 150000") + bytes(100_000))
    assert client.reply().body == b"done"
    client.send(bytes(50_000) + request("GET", "/first"))
    assert json.loads(client.reply().body)["type"] == "http.request"


def test_idle_connections_end_and_those_of_websockets_do_not(server: Milepost, client: Client) -> None:
    with server.connect() as idle:
        assert idle.ask("GET", "/").body == b"done"
        # The handshake is pipelined behind a request.
        client.send(request("GET", "/") + frames.handshake("/ws"))
        assert client.reply().body == b"done"
        assert client.head()[0] == 101
        client.count()
        # When this one is closed for its silence, the other has been silent for as long.
        assert idle.is_closed()
    client.send(frame(TEXT, b"still here"))
    assert client.exactly(12) == b"\x81\x0astill here"
    client.send(frames.close(1000))


def test_a_request_that_runs_at_the_end_of_the_server_is_answered(server: Milepost, client: Client) -> None:
    with server.connect() as other, server.connect() as idle:
        assert idle.ask("GET", "/").body == b"done"
        client.send(request("GET", "/waits"))
        assert until(lambda: "waits" in json.loads(other.ask("GET", "/seen").body))
        other.send(request("GET", "/go", "X-Late: 1")[:-2])
        server.signal(signal.SIGTERM)
        # The one that has begun its request may end it; the silent one is closed at once.
        assert idle.is_closed()
        other.send(b"\r\n")
        assert other.reply().body == b"done"
        reply = client.reply()
        assert (reply.body, reply.closes) == (b"done", True)
        assert client.is_closed()
    assert server.wait() == 0


@pytest.mark.parametrize("name", ["not-websocket", "websocket2", "websocket/13"])
def test_an_upgrade_to_what_is_nearly_a_websocket_is_a_request(client: Client, name: str) -> None:
    reply = client.ask("GET", "/", "Connection: Upgrade", f"Upgrade: {name}", "Sec-WebSocket-Version: 13")
    assert (reply.status, reply.body) == (200, b"done")


LIFESPAN = """
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        if {at!r} == "startup":
            await send({{"type": "lifespan.startup.failed", "message": "not today"}})
            raise RuntimeError("said twice")
        await send({{"type": "lifespan.startup.complete"}})
        await receive()
        await send({{"type": "lifespan.shutdown.failed", "message": "not today"}})
        raise RuntimeError("said twice")
    await send({{"type": "http.response.start", "status": 200}})
    await send({{"type": "http.response.body", "body": b"served"}})
"""


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_a_startup_that_fails_and_raises_says_the_message(tmp_path: Path, mode: str) -> None:
    (tmp_path / "app.py").write_text(LIFESPAN.format(at="startup"))
    with pytest.raises(AssertionError, match="the startup of the application failed: not today"):
        Milepost(tmp_path, "app:app", "--lifespan", mode)


@pytest.mark.parametrize("mode", ["auto", "on"])
def test_a_shutdown_that_fails_and_raises_says_the_message(
    serve: Callable[..., Milepost], tmp_path: Path, mode: str
) -> None:
    (tmp_path / "app.py").write_text(LIFESPAN.format(at="shutdown"))
    server = serve("app:app", "--lifespan", mode)
    with server.connect() as client:
        assert client.ask().body == b"served"
    assert server.stop() == 0
    assert "the shutdown of the application failed: not today" in server.errors
