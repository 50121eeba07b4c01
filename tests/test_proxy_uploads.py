"""Bodies of requests that pass a proxy while they arrive."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

import pytest
from http2 import Http2
from upstreams import Connection, Upstream

from raw import request
from serving import Milepost, tables, until


def proxy(
    serve: Callable[..., Milepost],
    upstream: Upstream,
    route: dict[str, object] | None = None,
    **options: object,
) -> Milepost:
    """A server that passes everything on to this upstream."""
    toml = tables("route", {"path": "/", "upstream": "back"} | (route or {}))
    return serve(toml=toml + tables("upstream", {"name": "back", "servers": [upstream.url]} | options))


def count_chunks(connection: Connection) -> None:
    """Answers each chunk by one, at once: a response that runs beside its request."""
    asked = connection.head()
    assert asked is not None and asked.header("transfer-encoding") == "chunked"
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n"
    connection.send(head.encode())
    while size := int(connection.until(b"\r\n")[:-2], 16):
        data = connection.exactly(size)
        assert connection.exactly(2) == b"\r\n"
        connection.send(b"%x\r\n%s\r\n" % (size, data))
    assert connection.exactly(2) == b"\r\n"
    connection.send(b"0\r\n\r\n")


@pytest.mark.parametrize("kind", ["setting", "route"])
def test_each_piece_arrives_before_the_next_one_is_sent(serve: Callable[..., Milepost], kind: str) -> None:
    options = {"stream_requests": True} if kind == "setting" else {}
    route = {"stream_requests": True} if kind == "route" else {}
    with Upstream(count_chunks) as upstream:
        server = proxy(serve, upstream, route, **options)
        with server.connect() as client:
            client.send(request("POST", "/", "Transfer-Encoding: chunked"))
            for number in range(100):
                piece = b"piece %d" % number
                client.send(b"%x\r\n%s\r\n" % (len(piece), piece))
                if number == 0:
                    assert client.head()[0] == 200
                assert client.chunk() == piece
            client.send(b"0\r\n\r\n")
            assert client.chunk() == b""
            server.count()


def test_streams_of_http2_are_passed_on_likewise(serve: Callable[..., Milepost]) -> None:
    with Upstream(count_chunks) as upstream, Http2(proxy(serve, upstream, stream_requests=True)) as client:
        stream = client.begin("/", method="POST", ends=False)
        response = client.responses[stream]
        client.server.count()
        sent = b""
        for number in range(20):
            piece = b"piece %d" % number
            client.machine.send_data(stream, piece)
            client.flush()
            sent += piece
            client.until(lambda: bytes(response.body) == sent)  # noqa: B023
        client.machine.end_stream(stream)
        client.flush()
        assert client.response(stream).is_ended


@pytest.mark.parametrize(
    ("client", "protocol"), [("HTTP/1.1", "http1"), ("HTTP/1.1", "http2"), ("HTTP/2", "http1")]
)
def test_the_type_of_a_body_holds_no_slot(serve: Callable[..., Milepost], client: str, protocol: str) -> None:
    """Calls of gRPC go from clients of HTTP/2 to servers of HTTP/2; other requests wait for their bodies."""
    toml = "body_timeout = '500ms'\n" + tables("route", {"path": "/", "upstream": "back"})
    with Upstream(lambda connection: None) as upstream, contextlib.ExitStack() as stack:
        back = {"name": "back", "servers": [upstream.url], "protocol": protocol, "slots": 1}
        server = serve(toml=toml + tables("upstream", back))
        if client == "HTTP/2":
            streams = stack.enter_context(Http2(server))
            held = streams.begin("/", ("content-type", "application/grpc"), method="POST", ends=False)
            streams.machine.send_data(held, b"x")
            streams.flush()
            server.count()
            assert streams.response(held).status == 408
        else:
            one = stack.enter_context(server.connect())
            grpc = ["Content-Type: application/grpc", "Transfer-Encoding: chunked"]
            one.send(request("POST", "/", *grpc) + b"1\r\nx\r\n")
            assert one.reply().status == 408
        assert upstream.connections == 0


def test_a_long_body_of_known_length_keeps_it(serve: Callable[..., Milepost]) -> None:
    body = bytes(n * 7 % 251 for n in range(3_000_000))
    begun = threading.Event()

    def take(connection: Connection) -> None:
        asked = connection.head()
        assert asked is not None and asked.header("content-length") == str(len(body))
        first = connection.exactly(1000)
        begun.set()
        connection.reply(b"%d" % (first + connection.exactly(len(body) - 1000) == body))

    with Upstream(take) as upstream:
        server = proxy(serve, upstream, stream_requests=True)
        with server.connect() as client:
            whole = request("POST", "/", body=body)
            client.send(whole[:100_000])
            assert begun.wait(60)
            client.send(whole[100_000:])
            assert client.reply().body == b"1"


def test_a_client_that_waits_is_invited_when_the_upstream_is_there(serve: Callable[..., Milepost]) -> None:
    asked_for = threading.Event()

    def take(connection: Connection) -> None:
        asked = connection.head()
        assert asked is not None and asked.header("expect") is None
        asked_for.set()
        connection.reply(connection.exactly(5))

    with Upstream(take) as upstream:
        server = proxy(serve, upstream, stream_requests=True)
        with server.connect() as client:
            client.send(request("POST", "/", "Expect: 100-continue", "Content-Length: 5"))
            assert client.head()[0] == 100
            assert asked_for.wait(60)
            client.send(b"hello")
            assert client.reply().body == b"hello"


def test_an_early_answer_reaches_a_client_that_still_sends(serve: Callable[..., Milepost]) -> None:
    def early(connection: Connection) -> None:
        if connection.head() is not None:
            connection.reply(b"no", status="413 Too Large")
            with contextlib.suppress(OSError):
                while connection.sock.recv(1 << 16):
                    pass

    with Upstream(early) as upstream:
        server = proxy(serve, upstream, stream_requests=True)
        with server.connect() as client:
            client.send(request("POST", "/", "Content-Length: 1000000") + b"x" * 200_000)
            reply = client.reply()
            assert (reply.status, reply.body) == (413, b"no")


@pytest.mark.parametrize("coding", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
def test_a_body_that_breaks_off_does_not_look_whole(serve: Callable[..., Milepost], coding: str) -> None:
    got, begun, left = [], threading.Event(), threading.Event()

    def take(connection: Connection) -> None:
        connection.head()
        got.append(connection.until(b"hello"))
        begun.set()
        while data := connection.sock.recv(1 << 16):
            got.append(data)
        left.set()

    with Upstream(take) as upstream:
        server = proxy(serve, upstream, stream_requests=True)
        with server.connect() as client:
            client.send(request("POST", "/", coding) + b"5\r\nhello\r\n")
            assert begun.wait(60)
            client.sock.shutdown(socket.SHUT_WR)
            assert left.wait(60)
            server.count()
        assert until(lambda: len(server.lines) == 1)
        assert b"hello" in b"".join(got) and b"0\r\n\r\n" not in b"".join(got)
        assert "end=peer-gone" in server.lines[0]
