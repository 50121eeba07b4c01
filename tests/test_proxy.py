"""Requests that an upstream answers: what goes out, what comes back, what is counted and logged."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from upstreams import Connection, Request, Upstream, answering

from raw import Client, CutShort, chunked, request
from serving import Milepost, free_port, tables, until


def hello(connection: Connection, asked: Request) -> None:
    connection.reply(b"" if asked.method == "HEAD" else b"hello", "Content-Type: text/plain")


def proxy(
    serve: Callable[..., Milepost], *upstreams: Upstream, more: str = "", **options: object
) -> Milepost:
    """A server that passes everything on to these upstreams."""
    urls = [upstream.url for upstream in upstreams]
    toml = tables("route", {"path": "/", "upstream": "back"})
    toml += tables("upstream", {"name": "back", "servers": urls} | options)
    return serve(toml=more + toml)


def test_a_response_of_an_upstream_comes_as_it_was_given(serve: Callable[..., Milepost]) -> None:
    def respond(connection: Connection, asked: Request) -> None:
        connection.reply(
            b"hello",
            "Content-Type: text/x-test",
            "Set-Cookie: a=1",
            "Set-Cookie: b=2",
            "Date: Thu, 01 Jan 1970 00:00:00 GMT",
            "Server: theirs",
            "Connection: keep-alive, X-Own",
            "X-Own: falls",
            "Keep-Alive: timeout=5",
            status="203 Sometimes",
        )

    with Upstream(answering(respond)) as upstream, proxy(serve, upstream).connect() as client:
        reply = client.ask("GET", "/a/b?c=d")
        assert (reply.status, reply.reason, reply.body) == (203, "Sometimes", b"hello")
        assert reply.all("set-cookie") == ["a=1", "b=2"]
        assert reply.header("content-type") == "text/x-test"
        assert reply.header("date") == "Thu, 01 Jan 1970 00:00:00 GMT"
        assert reply.header("server") == "theirs"
        assert reply.header("x-own") is None and reply.header("keep-alive") is None
        assert upstream.seen[0].line == "GET /a/b?c=d HTTP/1.1"


def test_an_upstream_hears_who_asks_and_nothing_of_the_connection(serve: Callable[..., Milepost]) -> None:
    untrusting = "trusted_proxies = []\n"
    with (
        Upstream(answering(hello)) as upstream,
        proxy(serve, upstream, more=untrusting).connect() as client,
    ):
        client.ask(
            "GET",
            "/",
            "X-Forwarded-For: 6.6.6.6",
            "Forwarded: for=6.6.6.6",
            "Connection: X-Mine, X-Forwarded-For",
            "X-Mine: falls",
            "X-Other: stays",
            "Proxy-Authorization: secret",
            "TE: gzip",
        )
        (asked,) = upstream.seen
        assert asked.header("host") == "test"
        assert asked.header("x-forwarded-for") == "127.0.0.1"
        assert asked.header("x-forwarded-proto") == "http"
        assert asked.header("x-forwarded-host") == "test"
        assert asked.header("x-other") == "stays"
        for name in ("forwarded", "x-mine", "proxy-authorization", "te", "connection", "transfer-encoding"):
            assert asked.header(name) is None, name


@pytest.mark.parametrize("size", [0, 1, 100, 5_000, 3_000_000])
def test_a_body_arrives_whole(serve: Callable[..., Milepost], size: int) -> None:
    body = bytes(n * 7 % 251 for n in range(size))
    with (
        Upstream(answering(lambda one, asked: one.reply(asked.body))) as upstream,
        proxy(serve, upstream).connect() as client,
    ):
        assert client.ask("POST", "/", body=body).body == body
        client.send(request("PUT", "/", "Transfer-Encoding: chunked") + chunked(b"x", body + b"y"))
        assert client.reply().body == b"x" + body + b"y"
        assert [asked.header("content-length") for asked in upstream.seen] == [str(size), str(size + 2)]
        assert upstream.connections == 1


def test_responses_of_all_framings(serve: Callable[..., Milepost]) -> None:
    def respond(connection: Connection, asked: Request) -> None:
        match asked.target:
            case "/chunked":
                connection.reply_chunked([b"ab", b"c" * 70_000, b"d"])
            case "/close":
                connection.send(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
                connection.sock.shutdown(socket.SHUT_WR)
            case "/none":
                connection.send(b"HTTP/1.1 204 No Content\r\n\r\n")
            case "/head":
                connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n")
            case "/not-modified":
                connection.send(b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n')
            case "/long":
                connection.reply(b"l" * 2_000_000)

    with Upstream(answering(respond)) as upstream, proxy(serve, upstream).connect() as client:
        assert client.ask("GET", "/chunked").body == b"ab" + b"c" * 70_000 + b"d"
        assert client.ask("GET", "/none").status == 204
        head = client.ask("HEAD", "/head")
        assert (head.status, head.header("content-length")) == (200, "77")
        assert client.ask("GET", "/not-modified").header("etag") == '"x"'
        assert client.ask("GET", "/long").body == b"l" * 2_000_000
        assert upstream.connections == 1
        assert client.ask("GET", "/close").body == b"until the end"
        assert client.ask("GET", "/none").status == 204
        assert upstream.connections == 2


def test_a_client_of_http_1_0_gets_an_end_that_it_knows(serve: Callable[..., Milepost]) -> None:
    with Upstream(answering(lambda one, _: one.reply_chunked([b"a", b"b"]))) as upstream:
        server = proxy(serve, upstream)
        with server.connect() as client:
            client.send(request("GET", "/", version="HTTP/1.0", host=None))
            reply = client.reply()
            assert (reply.body, reply.framing) == (b"ab", "close")
        assert upstream.seen[0].header("host") == f"127.0.0.1:{upstream.port}"


def test_an_upstream_that_cannot_be_reached_is_a_502(serve: Callable[..., Milepost]) -> None:
    port = free_port()
    toml = tables("route", {"path": "/", "upstream": "back"})
    toml += tables("upstream", {"name": "back", "servers": [f"http://127.0.0.1:{port}"]})
    server = serve(toml=toml)
    with server.connect() as client:
        assert client.ask("POST", "/", body=b"x").status == 502
        assert client.ask("GET", "/").status == 502
    assert until(lambda: f"the upstream cannot be reached (127.0.0.1:{port})" in server.errors)


def test_a_failure_is_named_to_the_client_where_that_is_asked_for(serve: Callable[..., Milepost]) -> None:
    def end(connection: Connection) -> None:
        connection.request()

    port = free_port()
    toml = tables("route", {"path": "/gone", "upstream": "gone"}, {"path": "/", "upstream": "back"})
    with Upstream(end) as upstream:
        toml += tables(
            "upstream",
            {"name": "gone", "servers": [f"http://127.0.0.1:{port}"], "proxy_status": True},
            {"name": "back", "servers": [upstream.url], "proxy_status": True},
        )
        with serve(toml=toml).connect() as client:
            gone = client.ask("GET", "/gone").header("proxy-status")
            assert gone == "milepost; error=connection_refused"
            cut = client.ask("POST", "/", body=b"x").header("proxy-status")
            assert cut == "milepost; error=connection_terminated"


BAD = {
    "nonsense": b"220 smtp.example ESMTP\r\n",
    "http 0.9": b"<html>hello</html>",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na",
    "two framings": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"1\r\na\r\n0\r\n\r\n",
    "unknown coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "fold": b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "bare line feed": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    "nul": b"HTTP/1.1 200 OK\r\nX: \0\r\nContent-Length: 0\r\n\r\n",
    "long head": b"HTTP/1.1 200 OK\r\n" + b"X: " + b"a" * 1_000_000 + b"\r\n\r\n",
    "switch": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "cut head": b"HTTP/1.1 200 OK\r\nContent-",
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_response_is_a_502_and_ends_its_connection(
    serve: Callable[..., Milepost], bad: str
) -> None:
    def serve_one(connection: Connection) -> None:
        if connection.number == 1:
            connection.request()
            connection.send(BAD[bad])
            connection.sock.close() if bad == "cut head" else connection.sock.recv(1)
        else:
            answering(hello)(connection)

    with Upstream(serve_one) as upstream:
        server = proxy(serve, upstream)
        with server.connect() as client:
            assert client.ask("GET", "/").status == 502
            reply = client.ask("GET", "/")
            assert (reply.status, reply.body) == (200, b"hello")
        assert upstream.connections == 2
        wanted = [" 502 ", "upstream: "]
        assert until(lambda: sum(all(w in line for w in wanted) for line in server.lines) == 1)


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
    ],
)
def test_a_body_that_is_cut_stays_cut(serve: Callable[..., Milepost], start: bytes) -> None:
    def cut(connection: Connection) -> None:
        connection.request()
        connection.send(start)

    with Upstream(cut) as upstream:
        server = proxy(serve, upstream)
        with server.connect() as client, pytest.raises(CutShort):
            client.send(request())
            client.reply()
        server.count()
        assert until(lambda: any("cut" in line for line in server.lines))
        assert len(upstream.seen) == 1


def test_bytes_behind_a_response_reach_nobody(serve: Callable[..., Milepost]) -> None:
    one = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none"
    sent = threading.Event()

    def too_much(connection: Connection, asked: Request) -> None:
        if asked.target == "/at-once":
            connection.send(one + one.replace(b"one", b"two"))
        else:
            connection.send(one)
            connection.send(one.replace(b"one", b"two"))
            sent.set()

    with Upstream(answering(too_much)) as upstream, proxy(serve, upstream).connect() as client:
        for target in ("/at-once", "/later") * 5:
            sent.clear()
            assert client.ask("GET", target).body == b"one"
            assert target == "/at-once" or sent.wait(60)
        assert upstream.connections == 10


def test_a_connection_that_ended_meanwhile_costs_no_request(serve: Callable[..., Milepost]) -> None:
    closed = threading.Event()

    def once(connection: Connection) -> None:
        if connection.request() is not None:
            connection.reply(b"one")
            connection.sock.close()
            closed.set()

    with Upstream(once) as upstream, proxy(serve, upstream).connect() as client:
        for method in ("GET", "POST") * 5:
            closed.clear()
            assert client.ask(method, "/", body=b"x").status == 200
            assert closed.wait(60)
        assert len(upstream.seen) == 10


def test_a_request_is_repeated_only_if_nothing_can_be_done_twice(serve: Callable[..., Milepost]) -> None:
    """Upstreams that take each request once without an answer, at the end of a connection that was kept."""
    known: set[str] = set()

    def once_in_vain(connection: Connection) -> None:
        while (asked := connection.request()) is not None:
            if asked.target != "/kept" and asked.target not in known:
                known.add(asked.target)
                return
            connection.reply(b"one")

    # The second one is asked where the first ended the connection late enough to have had the request.
    with Upstream(once_in_vain) as one, Upstream(once_in_vain) as other:
        server = proxy(serve, one, other, eject_after=100)
        with server.connect() as client:
            for method, headers, times in [
                ("GET", [], 2),
                ("PUT", [], 2),
                ("POST", [], 1),
                ("POST", ["Idempotency-Key: 1"], 2),
            ]:
                for _ in range(4):
                    assert client.ask("GET", "/kept").status == 200
                target = f"/{method}{times}"
                reply = client.ask(method, target, *headers, body=b"x")
                assert reply.status == (200 if times == 2 else 502), target
                asked = [asked.method for asked in one.seen + other.seen if asked.target == target]
                assert asked == [method] * times, target


def test_what_a_server_has_had_for_a_while_counts_as_a_try(serve: Callable[..., Milepost]) -> None:
    def late(connection: Connection) -> None:
        if connection.request() is not None:
            connection.reply(b"kept")
            if connection.request() is not None:
                # As long as no end takes that has crossed a request.
                time.sleep(1)

    with Upstream(late) as upstream, proxy(serve, upstream, retries=0).connect() as client:
        assert client.ask("GET", "/").body == b"kept"
        assert client.ask("GET", "/").status == 502
        assert len(upstream.seen) == 2


def test_a_silent_upstream_is_a_504(serve: Callable[..., Milepost]) -> None:
    stop = threading.Event()
    with (
        Upstream(answering(lambda one, _: stop.wait(60) and None)) as upstream,
        proxy(serve, upstream, response_timeout="500ms").connect() as client,
    ):
        began = time.monotonic()
        assert client.ask("GET", "/").status == 504
        assert 0.4 < time.monotonic() - began < 20
        stop.set()


def test_early_answers_end_the_connection_not_the_client(serve: Callable[..., Milepost]) -> None:
    """An upstream that answers before it has read the body."""

    def early(connection: Connection) -> None:
        if connection.head() is not None:
            connection.reply(b"no", status="413 Too Large")

    with Upstream(early) as upstream, proxy(serve, upstream).connect() as client:
        reply = client.ask("POST", "/", body=b"x" * 5_000_000)
        assert (reply.status, reply.body) == (413, b"no")
        assert upstream.connections == 1


def test_a_slow_client_holds_no_upstream(serve: Callable[..., Milepost]) -> None:
    done = threading.Event()

    def respond(connection: Connection, asked: Request) -> None:
        connection.reply(b"x" * 20_000_000)
        done.set()

    with Upstream(answering(respond)) as upstream:
        server = proxy(serve, upstream, slots=1)
        with server.connect(receive_buffer_bytes=4096) as slow:
            slow.send(request())
            assert done.wait(60)
            with server.connect() as other:
                assert len(other.ask("GET", "/").body) == 20_000_000
            assert len(slow.reply().body) == 20_000_000


def test_requests_wait_for_a_slot_and_are_logged_so(serve: Callable[..., Milepost]) -> None:
    inside, most = 0, 0
    lock = threading.Lock()

    def respond(connection: Connection, asked: Request) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.02)
        with lock:
            inside -= 1
        connection.reply(b"ok")

    with Upstream(answering(respond)) as upstream, contextlib.ExitStack() as stack:
        server = proxy(serve, upstream, slots=2)
        clients: list[Client] = [stack.enter_context(server.connect()) for _ in range(10)]
        for client in clients:
            client.send(request())
        for client in clients:
            assert client.reply().body == b"ok"
        assert most == 2
        assert upstream.connections == 2
        assert until(lambda: len(server.lines) == 10)
        waits = [float(line.split(" queue=")[1].split()[0]) for line in server.lines]
        assert sum(wait > 0.01 for wait in waits) >= 8, waits


def test_a_unix_socket_is_an_upstream(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    path = str(tmp_path / "up.sock")
    toml = tables("route", {"path": "/", "upstream": "back"})
    toml += tables("upstream", {"name": "back", "servers": [f"unix:{path}"]})
    with Upstream(answering(hello), path=path), serve(toml=toml).connect() as client:
        assert client.ask("GET", "/").body == b"hello"


def test_the_command_line_makes_a_proxy(serve: Callable[..., Milepost]) -> None:
    with Upstream(answering(hello)) as upstream:
        server = serve("--proxy", f"/api={upstream.url}")
        with server.connect() as client:
            assert client.ask("GET", "/api/x").body == b"hello"
            assert client.ask("GET", "/other").status == 404
        assert [asked.target for asked in upstream.seen] == ["/api/x"]


def test_a_client_that_leaves_ends_its_request(serve: Callable[..., Milepost]) -> None:
    left, asked = threading.Event(), threading.Event()

    def wait(connection: Connection) -> None:
        connection.request()
        asked.set()
        with contextlib.suppress(OSError):
            if connection.sock.recv(1) == b"":
                left.set()

    with Upstream(wait) as upstream:
        server = proxy(serve, upstream)
        with server.connect() as client:
            client.send(request())
            assert asked.wait(60)
        server.count()
        assert left.wait(60)
        assert until(lambda: any("peer-gone" in line for line in server.lines))


def test_a_route_changes_headers_and_strips_its_path(serve: Callable[..., Milepost]) -> None:
    route = """
[[route]]
path = "/api"
upstream = "back"
strip = true
request_headers = { set = { X-Who = "{client} {scheme}", X-Id = "{request_id}" }, remove = ["cookie"] }
response_headers = { set = { X-Way = "milepost" }, remove = ["x-inner"] }
"""
    with Upstream(answering(lambda one, _: one.reply(b"ok", "X-Inner: 1"))) as upstream:
        server = serve(toml=route + tables("upstream", {"name": "back", "servers": [upstream.url]}))
        with server.connect() as client:
            reply = client.ask("GET", "/api/x?y=1", "Cookie: a=1", "X-Who: forged", "X-Kept: 1")
            assert (reply.header("x-way"), reply.header("x-inner")) == ("milepost", None)
            assert client.ask("GET", "/api").status == 200
        asked, bare = upstream.seen
        assert (asked.target, bare.target) == ("/x?y=1", "/")
        assert asked.header("x-who") == "127.0.0.1 http"
        assert asked.header("cookie") is None and asked.header("x-kept") == "1"
        assert until(lambda: len(server.lines) == 2)
        assert f"id={asked.header('x-id')}" in server.lines[0]


def test_an_upstream_hears_when_the_request_came_and_what_it_is_called(
    serve: Callable[..., Milepost],
) -> None:
    with Upstream(answering(hello)) as upstream:
        server = proxy(serve, upstream, more='request_id_header = "X-Request-ID"\n')
        before = time.time()
        with server.connect() as client:
            reply = client.ask("GET", "/")
        (asked,) = upstream.seen
        start = asked.header("x-request-start") or ""
        assert start.startswith("t=")
        assert before - 1 < int(start[2:]) / 1e6 < time.time() + 1
        assert asked.header("x-request-id") == reply.header("x-request-id")
        assert asked.header("x-request-id") is not None
