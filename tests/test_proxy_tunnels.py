"""Connections that change their protocol through a proxy: WebSocket, and any other."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable

import frames
import pytest
import websockets.sync.client
import websockets.sync.server
from frames import BINARY, CLOSE, TEXT, WebSocket, frame
from http2 import Http2
from test_websocket_transports import Stream
from upstreams import Connection, Request, Upstream, answering

from certificates import Authority
from raw import Client, request
from serving import APPS, Milepost, tables, until

UPGRADE = ("Connection: keep-alive, Upgrade", "Upgrade: echo/1")
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo/1\r\nX-Own: 1\r\n\r\n"


def toml_for(url: str, **options: object) -> str:
    """A configuration that passes everything on to this server."""
    toml = tables("route", {"path": "/", "upstream": "back"})
    return toml + tables("upstream", {"name": "back", "servers": [url]} | options)


def switch(client: Client) -> None:
    """Asks for a tunnel, and gets it."""
    client.send(request("GET", "/up", *UPGRADE))
    status, _, headers = client.head()
    assert status == 101
    assert [value for name, value in headers if name.lower() == "upgrade"] == ["echo/1"]
    assert ("X-Own", "1") in headers


def echo(connection: Connection) -> None:
    """Gives back what comes behind the switch, and ends when the other side has."""
    asked = connection.request()
    assert asked is not None
    if asked.header("upgrade") is None:
        connection.reply(b"plain")
        return
    assert asked.header("connection") == "Upgrade" and asked.header("upgrade") == "echo/1"
    connection.send(SWITCHED)
    while data := connection.sock.recv(1 << 16):
        connection.send(data)
    # A client that has closed for good may have had its tunnel reset by now.
    with contextlib.suppress(OSError):
        connection.sock.shutdown(socket.SHUT_WR)


def test_bytes_pass_both_ways_and_ends_one_by_one(serve: Callable[..., Milepost]) -> None:
    with Upstream(echo) as upstream:
        server = serve(toml=toml_for(upstream.url, slots=1))
        with server.connect() as client, server.connect() as second:
            switch(client)
            for size in (1, 5, 70_000, 1):
                data = os.urandom(size)
                client.send(data)
                assert client.exactly(size) == data
            # It holds no slot.
            assert second.ask("GET", "/").body == b"plain"
            client.send(b"last")
            client.sock.shutdown(socket.SHUT_WR)
            assert client.exactly(4) == b"last"
            assert client.is_closed()
            server.count()
        assert until(lambda: len(server.lines) == 2)
        (line,) = (line for line in server.lines if " 101 " in line)
        assert " end=" not in line


def test_an_upstream_may_end_its_side_first(serve: Callable[..., Milepost]) -> None:
    got = []

    def half(connection: Connection) -> None:
        connection.request()
        connection.send(SWITCHED + b"hello")
        connection.sock.shutdown(socket.SHUT_WR)
        got.append(connection.exactly(9))
        assert connection.sock.recv(1) == b""

    with Upstream(half) as upstream:
        server = serve(toml=toml_for(upstream.url))
        with server.connect() as client:
            switch(client)
            assert client.rest() == b"hello"
            client.send(b"from here")
            client.sock.shutdown(socket.SHUT_WR)
            server.count()
        assert until(lambda: len(server.lines) == 1)
        assert got == [b"from here"]


def test_what_a_client_sends_ahead_is_not_lost(serve: Callable[..., Milepost]) -> None:
    with Upstream(echo) as upstream:
        server = serve(toml=toml_for(upstream.url))
        with server.connect() as client:
            client.send(request("GET", "/", *UPGRADE) + b"ahead")
            assert client.head()[0] == 101
            assert client.exactly(5) == b"ahead"
            server.count()


def test_a_client_that_reads_nothing_backs_up_to_itself(serve: Callable[..., Milepost]) -> None:
    """What it sends comes back: once all is full nothing more is taken, and later nothing is missing."""
    block = os.urandom(1 << 20)
    with Upstream(echo) as upstream:
        server = serve(toml=toml_for(upstream.url))
        with server.connect() as client:
            switch(client)
            sent = 0
            client.sock.settimeout(1)
            with contextlib.suppress(TimeoutError):
                # More than kernels hold on the way.
                while sent < 512 << 20:
                    sent += client.sock.send(block[sent % len(block) :])
            assert sent < 512 << 20
            client.sock.settimeout(60)
            client.sock.shutdown(socket.SHUT_WR)
            received = client.rest()
            assert len(received) == sent
            assert received == (block * (sent // len(block) + 1))[:sent]
            server.count()


def test_other_answers_leave_a_connection_of_http(serve: Callable[..., Milepost]) -> None:
    def refuse(connection: Connection, asked: Request) -> None:
        connection.reply(b"no", status="403 Forbidden")

    with Upstream(answering(refuse)) as upstream:
        server = serve(toml=toml_for(upstream.url))
        with server.connect() as client:
            for _ in range(2):
                assert client.ask("GET", "/", *UPGRADE).body == b"no"


@pytest.mark.parametrize("protocol", ["h2c", "HTTP/2.0", "websocket, h2c"])
def test_http_2_is_not_asked_for_behind_the_rules(serve: Callable[..., Milepost], protocol: str) -> None:
    with Upstream(answering(lambda one, _: one.reply(b"plain"))) as upstream:
        server = serve(toml=toml_for(upstream.url))
        with server.connect() as client:
            reply = client.ask("GET", "/", "Connection: Upgrade, HTTP2-Settings", f"Upgrade: {protocol}")
            assert reply.body == b"plain"
        assert upstream.seen[0].header("upgrade") is None
        assert upstream.seen[0].header("connection") is None


def test_an_upstream_that_changes_to_something_else_is_a_502(serve: Callable[..., Milepost]) -> None:
    def other(connection: Connection) -> None:
        connection.request()
        connection.send(SWITCHED.replace(b"echo/1", b"other"))

    with Upstream(other) as upstream:
        server = serve(toml=toml_for(upstream.url))
        with server.connect() as client:
            assert client.ask("GET", "/", *UPGRADE).status == 502


def test_no_more_tunnels_than_may_be_open(serve: Callable[..., Milepost]) -> None:
    with Upstream(echo) as upstream:
        server = serve(toml=toml_for(upstream.url, tunnels_max=1))
        with server.connect() as first, server.connect() as second:
            switch(first)
            assert second.ask("GET", "/up", *UPGRADE).status == 503
            first.sock.shutdown(socket.SHUT_WR)
            assert first.is_closed()
            server.count()
            assert until(lambda: len(server.lines) == 2)
            switch(second)
            server.count()


def test_a_silent_tunnel_is_closed(serve: Callable[..., Milepost]) -> None:
    with Upstream(echo) as upstream:
        server = serve(toml=toml_for(upstream.url, tunnel_idle="300ms"))
        with server.connect() as client:
            switch(client)
            assert client.rest() == b""
            server.count()
        assert until(lambda: any("tunnel_idle" in line for line in server.lines))


def test_tunnels_end_while_the_process_drains(serve: Callable[..., Milepost]) -> None:
    with Upstream(echo) as upstream:
        arguments = ("--drain-timeout", "300s", "--ws-drain", "100ms")
        server = serve(*arguments, toml=toml_for(upstream.url))
        with server.connect() as client:
            switch(client)
            client.send(b"x")
            assert client.exactly(1) == b"x"
            server.signal(signal.SIGTERM)
            assert client.rest() == b""
            server.count()
        assert server.wait() == 0
        assert any("shutdown" in line for line in server.lines)


class EchoServer:
    """A WebSocket server of other people that gives back what it gets, on a thread."""

    def __enter__(self) -> EchoServer:
        self.server = websockets.sync.server.serve(
            self._serve, "127.0.0.1", 0, subprotocols=["chat"], max_size=None
        )
        self.url = f"http://127.0.0.1:{self.server.socket.getsockname()[1]}"
        self.paths: list[str] = []
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def _serve(self, connection: websockets.sync.server.ServerConnection) -> None:
        assert connection.request is not None
        self.paths.append(connection.request.path)
        for message in connection:
            connection.send(message)

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()


@pytest.mark.parametrize("secure", [False, True])
def test_websocket_clients_speak_to_websocket_servers(
    serve: Callable[..., Milepost], authority: Authority, secure: bool
) -> None:
    flags = authority.flags("server", "localhost") if secure else ()
    tls = authority.context() if secure else None
    with EchoServer() as upstream:
        server = serve(*flags, tls=tls, toml=toml_for(upstream.url))
        with server.connect() as raw:
            client = websockets.sync.client.connect(
                "ws://localhost/chat?x=1", sock=raw.sock, subprotocols=["chat"], max_size=None
            )
            with client:
                assert client.subprotocol == "chat"
                for message in ("hello", b"", bytes(10), "x" * 300_000, os.urandom(2_000_000)):
                    client.send(message)
                    assert client.recv() == message
                assert client.ping().wait(60)
            server.count()
        assert until(lambda: len(server.lines) == 1)
        assert upstream.paths == ["/chat?x=1"]
        assert " 101 " in server.lines[0]


def test_streams_of_http2_speak_to_websocket_servers(serve: Callable[..., Milepost]) -> None:
    """RFC 8441 towards the client, RFC 6455 towards the upstream."""
    with EchoServer() as upstream:
        server = serve(toml=toml_for(upstream.url))
        with Http2(server) as client:
            client.until(lambda: client.machine.remote_settings.enable_connect_protocol)
            streams = [
                Stream(client, f"/{number}", ("sec-websocket-protocol", "chat")) for number in range(3)
            ]
            big = bytes(range(256)) * 1024
            for stream in streams:
                assert stream.response.status == 200
                assert stream.response.header("sec-websocket-protocol") == "chat"
                assert stream.response.header("sec-websocket-accept") is None
                stream.send(frame(TEXT, b"hello") + frame(BINARY, big))
            for stream in streams:
                assert stream.read() == (TEXT, b"hello")
                assert stream.read() == (BINARY, big)
            streams[0].send(frames.close(1000))
            assert streams[0].read() == (CLOSE, b"\x03\xe8")
            assert client.response(streams[0].number).is_ended
            client.reset(streams[1].number)
            streams[2].send(frame(TEXT, b"still"))
            assert streams[2].read() == (TEXT, b"still")
        assert until(lambda: len(server.lines) == 3)


@pytest.mark.long
def test_streams_end_while_the_process_drains(serve: Callable[..., Milepost]) -> None:
    with EchoServer() as upstream:
        arguments = ("--drain-timeout", "300s", "--ws-drain", "100ms")
        server = serve(*arguments, toml=toml_for(upstream.url))
        with Http2(server) as client:
            client.until(lambda: client.machine.remote_settings.enable_connect_protocol)
            stream = Stream(client, "/", ("sec-websocket-protocol", "chat"))
            stream.send(frame(TEXT, b"hello"))
            assert stream.read() == (TEXT, b"hello")
            server.signal(signal.SIGTERM)
            client.until(lambda: stream.response.reset is not None)
        assert server.wait() == 0
        assert any("shutdown" in line for line in server.lines)


def test_success_without_a_change_is_none_for_a_stream(serve: Callable[..., Milepost]) -> None:
    """A 200 would accept the WebSocket connection (RFC 8441 section 4)."""
    with Upstream(answering(lambda one, _: one.reply(b"plain"))) as upstream:
        with Http2(serve(toml=toml_for(upstream.url))) as client:
            client.until(lambda: client.machine.remote_settings.enable_connect_protocol)
            assert Stream(client, "/").response.status == 502
        assert upstream.seen[0].header("upgrade") == "websocket"
        assert len(upstream.seen[0].header("sec-websocket-key") or "") == 24


def test_websocket_applications_of_ours_stand_behind(serve: Callable[..., Milepost]) -> None:
    behind = serve("websocket_zoo:app", "--app-dir", str(APPS), log="behind.log")
    front = serve(toml=toml_for(behind.url.rstrip("/")))
    for number in range(3):
        with front.connect() as client:
            connection = WebSocket(client, f"/echo?{number}")
            behind.count()
            for payload in (b"a", bytes(1 << 20)):
                connection.send(BINARY, payload)
                assert connection.read() == (BINARY, payload)
            client.send(frames.close(1000))
            assert connection.closed() == (1000, "")
    assert until(lambda: len(front.lines) == 3 and len(behind.lines) == 3)
