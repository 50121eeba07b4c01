"""Responses whose pieces are worth nothing later: event streams and their like, through a proxy."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest
from upstreams import Connection, Request, Upstream, answering

from raw import CutShort, request
from serving import Milepost, tables, until

EVENTS = 500


def proxy(serve: Callable[..., Milepost], upstream: Upstream, *arguments: str, **options: object) -> Milepost:
    """A server that passes everything on to this upstream."""
    toml = tables("route", {"path": "/", "upstream": "back"})
    toml += tables("upstream", {"name": "back", "servers": [upstream.url]} | options)
    return serve(*arguments, toml=toml)


LIVE = {
    "event stream": "Content-Type: text/event-stream",
    "unbuffered": "X-Accel-Buffering: no",
    "unstored": "Cache-Control: no-store",
    "grpc": "Content-Type: application/grpc+proto",
}


@pytest.mark.parametrize("kind", LIVE)
def test_each_piece_arrives_before_the_next_one_is_made(serve: Callable[..., Milepost], kind: str) -> None:
    """The upstream makes an event when the client has the one before; one that waits ends the test."""
    arrived = threading.Semaphore(0)

    def respond(connection: Connection, asked: Request) -> None:
        connection.send(f"HTTP/1.1 200 OK\r\n{LIVE[kind]}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        for number in range(EVENTS):
            assert arrived.acquire(timeout=60)
            event = b"data: %d\n\n" % number
            connection.send(b"%x\r\n%s\r\n" % (len(event), event))
        connection.send(b"0\r\n\r\n")

    with Upstream(answering(respond)) as upstream:
        server = proxy(serve, upstream)
        with server.connect() as client:
            client.send(request("GET", "/", "Accept-Encoding: gzip, br, zstd"))
            status, _, headers = client.head()
            assert (status, dict(headers).get("content-encoding")) == (200, None)
            for number in range(EVENTS):
                arrived.release()
                assert client.chunk() == b"data: %d\n\n" % number
            assert client.chunk() == b""
            server.count()


def test_an_event_stream_without_events_has_its_head_at_once(serve: Callable[..., Milepost]) -> None:
    left = threading.Event()

    def silent(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        if connection.sock.recv(1) == b"":
            left.set()

    with Upstream(silent) as upstream:
        server = proxy(serve, upstream)
        with server.connect() as client:
            client.send(request())
            assert client.head()[0] == 200
        assert left.wait(60)
        server.count()
        assert until(lambda: any("peer-gone" in line for line in server.lines))


def test_little_of_a_live_response_is_kept_for_a_client_that_reads_nothing(
    serve: Callable[..., Milepost],
) -> None:
    """Beyond what kernels and the bound hold, the upstream has to wait: it never gets all of it out."""
    size = 64 << 20
    is_full, left = threading.Event(), threading.Event()

    def flood(connection: Connection) -> None:
        connection.request()
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        connection.sock.settimeout(1)
        sent = 0
        try:
            while sent < size:
                sent += connection.sock.send(b"x" * 65536)
        except TimeoutError:
            is_full.set()
        connection.sock.settimeout(60)
        left.wait(60)

    with Upstream(flood) as upstream:
        server = proxy(serve, upstream)
        with server.connect(receive_buffer_bytes=4096) as client:
            client.send(request())
            assert is_full.wait(60)
        left.set()
        server.count()


def test_event_streams_end_while_the_process_drains(serve: Callable[..., Milepost]) -> None:
    def endless(connection: Connection) -> None:
        connection.request()
        connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        connection.send(b"3\r\none\r\n")
        connection.sock.recv(1)

    with Upstream(endless) as upstream:
        server = proxy(
            serve, upstream, "--drain-timeout", "300s", "--ws-drain", "100ms", response_timeout="1h"
        )
        with server.connect() as client:
            client.send(request())
            assert client.head()[0] == 200
            assert client.chunk() == b"one"
            server.signal(signal.SIGTERM)
            with pytest.raises(CutShort):
                client.chunk()
            server.count()
        assert server.wait() == 0
        assert any("shutdown" in line for line in server.lines)
