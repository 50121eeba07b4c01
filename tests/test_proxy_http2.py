"""Requests that an upstream answers over HTTP/2: heads, bodies, trailers, connections and faults."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import hyperframe.frame
import pytest
from http2 import Http2
from http2_upstreams import Http2Peer, Stream, answering_http2, over_http2
from upstreams import Connection, Upstream, answering

from certificates import Authority
from raw import CutShort, chunked, request
from serving import Milepost, tables, until

REFUSED_STREAM, INTERNAL_ERROR, CANCEL = 7, 2, 8


def hello(peer: Http2Peer, asked: Stream) -> None:
    peer.reply(asked, b"" if asked.header(":method") == "HEAD" else b"hello", ("content-type", "text/plain"))


def proxy(
    serve: Callable[..., Milepost], *upstreams: Upstream, more: str = "", **options: object
) -> Milepost:
    """A server that passes everything on to these upstreams over HTTP/2."""
    urls = [upstream.url for upstream in upstreams]
    toml = tables("route", {"path": "/", "upstream": "back"})
    toml += tables("upstream", {"name": "back", "servers": urls, "protocol": "http2"} | options)
    return serve(toml="drivers = 1\n" + more + toml)


def test_a_request_and_its_response_pass(serve: Callable[..., Milepost]) -> None:
    seen: list[Stream] = []

    def respond(peer: Http2Peer, asked: Stream) -> None:
        seen.append(asked)
        fields = [("set-cookie", "a=1"), ("set-cookie", "b=2"), ("x-own", "stays"), ("server", "theirs")]
        peer.reply(asked, b"hello", *fields, status=203)

    with Upstream(answering_http2(respond)) as upstream:
        server = proxy(serve, upstream, more="trusted_proxies = []\n")
        with server.connect() as client:
            headers = ["X-Other: stays", "Connection: X-Mine", "X-Mine: falls", "TE: trailers, gzip"]
            reply = client.ask("GET", "/a/b?c=d", "X-Forwarded-For: 6.6.6.6", *headers)
            assert (reply.status, reply.body) == (203, b"hello")
            assert reply.all("set-cookie") == ["a=1", "b=2"]
            assert (reply.header("x-own"), reply.header("server")) == ("stays", "theirs")
            client.ask("GET", "/again")
        (asked, _) = seen
        pseudo = {name: value for name, value in asked.headers if name.startswith(":")}
        assert pseudo == {":method": "GET", ":scheme": "http", ":authority": "test", ":path": "/a/b?c=d"}
        assert asked.header("x-forwarded-for") == "127.0.0.1"
        assert (asked.header("x-other"), asked.header("te")) == ("stays", "trailers")
        for name in ("host", "connection", "x-mine", "transfer-encoding", "content-length"):
            assert asked.header(name) is None, name
        assert upstream.connections == 1
        server.stop()
        assert ["reused=yes" in line for line in server.lines] == [False, True], server.lines


def test_what_http2_cannot_say_as_it_was_sent_is_escaped_or_refused(serve: Callable[..., Milepost]) -> None:
    with Upstream(answering_http2(lambda peer, asked: peer.reply(asked, asked.path.encode()))) as upstream:
        with proxy(serve, upstream).connect() as client:
            assert client.ask("GET", '/a`b|c?x=^`<>"{}[]').text == "/a%60b%7Cc?x=%5E%60%3C%3E%22%7B%7D%5B%5D"
            assert client.ask("GET", "/a|b").text == "/a|b"
            assert client.ask("GET", "/", host="a%20b").status == 400


@pytest.mark.parametrize("size", [0, 1, 100, 5_000, 3_000_000])
@pytest.mark.parametrize("streams", [False, True])
def test_a_body_arrives_whole(serve: Callable[..., Milepost], size: int, streams: bool) -> None:
    body = bytes(n * 7 % 251 for n in range(size))
    with (
        Upstream(answering_http2(lambda peer, asked: peer.reply(asked, asked.body))) as upstream,
        proxy(serve, upstream, stream_requests=streams).connect() as client,
    ):
        assert client.ask("POST", "/", body=body).body == body
        client.send(request("PUT", "/", "Transfer-Encoding: chunked") + chunked(b"x", body + b"y"))
        assert client.reply().body == b"x" + body + b"y"
        assert upstream.connections == 1


def test_many_requests_share_one_connection(serve: Callable[..., Milepost]) -> None:
    def serve_peer(peer: Http2Peer) -> None:
        asked = [peer.request() for _ in range(20)]
        for stream in reversed(asked):
            peer.reply(stream, stream.path.encode())
        peer.until(lambda: False)

    with Upstream(over_http2(serve_peer)) as upstream:
        server = proxy(serve, upstream, slots=50)
        clients = [server.connect() for _ in range(20)]
        for number, client in enumerate(clients):
            client.send(request("GET", f"/{number}"))
        for number, client in enumerate(clients):
            assert client.reply().body == f"/{number}".encode()
            client.sock.close()
        assert upstream.connections == 1


def test_a_second_connection_is_made_when_all_streams_are_taken(serve: Callable[..., Milepost]) -> None:
    together = threading.Barrier(2)

    def respond(peer: Http2Peer, asked: Stream) -> None:
        together.wait(30)
        peer.reply(asked, str(peer.number).encode())

    with Upstream(answering_http2(respond, streams_max=1)) as upstream:
        server = proxy(serve, upstream, slots=50)
        with server.connect() as one, server.connect() as other:
            one.send(request("GET", "/"))
            other.send(request("GET", "/"))
            assert {one.reply().body, other.reply().body} == {b"1", b"2"}
        assert upstream.connections == 2


def test_head_requests_and_responses_without_a_body(serve: Callable[..., Milepost]) -> None:
    def respond(peer: Http2Peer, asked: Stream) -> None:
        match asked.path:
            case "/head":
                peer.begin(asked, ("content-length", "77"), ends=True)
            case "/none":
                peer.begin(asked, status=204, ends=True)
            case "/not-modified":
                peer.begin(asked, ("etag", '"x"'), status=304)
                peer.data(asked, b"", ends=True)
            case "/empty":
                peer.begin(asked, ends=True)

    with Upstream(answering_http2(respond)) as upstream, proxy(serve, upstream).connect() as client:
        head = client.ask("HEAD", "/head")
        assert (head.status, head.header("content-length")) == (200, "77")
        assert client.ask("GET", "/none").status == 204
        assert client.ask("GET", "/not-modified").status == 304
        empty = client.ask("GET", "/empty")
        assert (empty.status, empty.header("content-length"), empty.body) == (200, "0", b"")
        assert upstream.connections == 1


def test_early_hints_and_trailers_pass(serve: Callable[..., Milepost]) -> None:
    def respond(peer: Http2Peer, asked: Stream) -> None:
        peer.begin(asked, ("link", "</a.css>; rel=preload"), status=103)
        peer.begin(asked, ("trailer", "x-sum"))
        peer.data(asked, b"hello")
        peer.trailers(asked, ("x-sum", "5"), ("content-length", "9"))

    with Upstream(answering_http2(respond)) as upstream:
        server = proxy(serve, upstream)
        with Http2(server) as client:
            response = client.ask("/")
            assert (response.status, response.body, response.trailers) == (200, b"hello", [("x-sum", "5")])
            assert response.interim == [(103, [("link", "</a.css>; rel=preload")])]
        with server.connect() as plain:
            plain.send(request("GET", "/", "TE: trailers", "Connection: TE"))
            plain.head()
            expected = b"5\r\nhello\r\n0\r\nx-sum: 5\r\n\r\n"
            assert plain.exactly(len(expected)) == expected
            server.count()
        with server.connect() as plain:
            assert plain.ask("GET", "/").body == b"hello"


def test_trailers_of_chunked_responses_pass(serve: Callable[..., Milepost]) -> None:
    def respond(connection: Connection, _: object) -> None:
        head = b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.send(head + b"5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n")

    with Upstream(answering(respond)) as upstream:
        server = proxy(serve, upstream, protocol="http1")
        with Http2(server) as client:
            response = client.ask("/")
            assert (response.body, response.trailers) == (b"hello", [("x-sum", "5")])
        with server.connect() as plain:
            plain.send(request("GET", "/", "TE: trailers", "Connection: TE"))
            plain.head()
            expected = b"5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n"
            assert plain.exactly(len(expected)) == expected
            server.count()


def test_a_slow_client_does_not_stop_other_streams(serve: Callable[..., Milepost]) -> None:
    big = b"b" * 20_000_000
    came, sent = threading.Event(), threading.Event()

    def serve_peer(peer: Http2Peer) -> None:
        slow = peer.request()
        came.set()
        peer.begin(slow, ("content-type", "text/event-stream"))
        # More than the windows of the stream and the sockets take.
        window = peer.machine.local_flow_control_window(slow.number)
        peer.data(slow, big[:window])
        fast = peer.request()
        peer.reply(fast, b"fast")
        sent.set()
        peer.data(slow, big[window:], ends=True)
        peer.until(lambda: False)

    with Upstream(over_http2(serve_peer)) as upstream:
        server = proxy(serve, upstream)
        with server.connect() as slow, server.connect() as fast:
            slow.send(request("GET", "/slow"))
            assert came.wait(30)
            assert fast.ask("GET", "/fast").body == b"fast"
            assert sent.wait(30)
            assert slow.reply().body == big


def test_the_window_of_a_connection_holds_those_of_all_its_streams(serve: Callable[..., Milepost]) -> None:
    windows: list[int] = []

    def respond(peer: Http2Peer, asked: Stream) -> None:
        # Else slow clients of some streams stop the others.
        windows.append(peer.machine.outbound_flow_control_window)
        windows.append(peer.machine.remote_settings.initial_window_size)
        peer.reply(asked, b"hello")

    streams_max = 1_000
    with Upstream(answering_http2(respond, streams_max)) as upstream:
        with proxy(serve, upstream).connect() as client:
            assert client.ask("GET", "/").body == b"hello"
    of_connection, of_stream = windows
    assert of_connection >= streams_max * of_stream


def test_small_frames_for_a_slow_client_do_not_end_the_connection(serve: Callable[..., Milepost]) -> None:
    def serve_peer(peer: Http2Peer) -> None:
        slow = peer.request()
        peer.begin(slow, ("content-type", "text/event-stream"))
        frame = hyperframe.frame.DataFrame(slow.number, b"x").serialize()
        # All that the window of the stream takes, most of which waits.
        peer.sock.sendall(frame * 250_000)
        hello(peer, peer.request())
        peer.reset(slow, CANCEL)
        peer.until(lambda: False)

    with Upstream(over_http2(serve_peer)) as upstream:
        server = proxy(serve, upstream)
        with server.connect(receive_buffer_bytes=4096) as slow, server.connect() as fast:
            slow.send(request("GET", "/slow"))
            slow.head()
            assert fast.ask("GET", "/fast").body == b"hello"
            assert upstream.connections == 1
        server.count()


def test_a_client_that_leaves_resets_its_stream(serve: Callable[..., Milepost]) -> None:
    came, reset = threading.Event(), threading.Event()

    def serve_peer(peer: Http2Peer) -> None:
        asked = peer.request()
        came.set()
        peer.until(lambda: asked.reset is not None)
        assert asked.reset == CANCEL
        reset.set()
        hello(peer, peer.request())
        peer.until(lambda: False)

    with Upstream(over_http2(serve_peer)) as upstream:
        server = proxy(serve, upstream)
        with server.connect() as client:
            client.send(request("GET", "/"))
            assert came.wait(30)
        assert reset.wait(30)
        server.count()
        with server.connect() as client:
            assert client.ask("GET", "/").body == b"hello"
        assert upstream.connections == 1


def test_an_answer_before_the_body_has_been_sent_passes(serve: Callable[..., Milepost]) -> None:
    def serve_peer(peer: Http2Peer) -> None:
        asked = peer.head()
        peer.reply(asked, b"no", status=413)
        hello(peer, peer.request())
        peer.until(lambda: False)

    with Upstream(over_http2(serve_peer)) as upstream:
        server = proxy(serve, upstream)
        with server.connect() as client:
            assert client.ask("POST", "/", body=b"x" * 3_000_000).status == 413
            assert client.ask("GET", "/").body == b"hello"
        assert upstream.connections == 1


def test_streams_above_the_last_one_of_a_goaway_are_sent_again(serve: Callable[..., Milepost]) -> None:
    came = threading.Event()

    def serve_peer(peer: Http2Peer) -> None:
        if peer.number == 1:
            first = peer.request()
            came.set()
            second = peer.request()
            peer.go_away(first.number)
            assert second.path == "/second"
            peer.reply(first, b"from the old one")
        else:
            asked = peer.request()
            peer.reply(asked, f"{asked.path} from the new one".encode())
        peer.until(lambda: False)

    with Upstream(over_http2(serve_peer)) as upstream:
        server = proxy(serve, upstream, slots=50)
        with server.connect() as one, server.connect() as other:
            one.send(request("GET", "/first"))
            assert came.wait(30)
            # Whatever may not be done twice.
            other.send(request("POST", "/second", "Content-Length: 0"))
            bodies = [one.reply().body, other.reply().body]
            assert bodies == [b"from the old one", b"/second from the new one"]


def test_a_connection_with_goaway_gets_no_new_stream(serve: Callable[..., Milepost]) -> None:
    def respond(peer: Http2Peer, asked: Stream) -> None:
        peer.reply(asked, str(peer.number).encode())
        peer.go_away(asked.number)

    with Upstream(answering_http2(respond)) as upstream, proxy(serve, upstream).connect() as client:
        assert [client.ask("POST", "/", body=b"x").body for _ in range(3)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("code", "method", "status"),
    [
        (REFUSED_STREAM, "POST", 200),
        (INTERNAL_ERROR, "POST", 502),
        (INTERNAL_ERROR, "GET", 200),
        (CANCEL, "POST", 502),
    ],
)
def test_a_reset_stream_is_sent_again_where_it_may_be(
    serve: Callable[..., Milepost], code: int, method: str, status: int
) -> None:
    tries: list[Stream] = []

    def respond(peer: Http2Peer, asked: Stream) -> None:
        tries.append(asked)
        if len(tries) == 1:
            peer.reset(asked, code)
        else:
            hello(peer, asked)

    with Upstream(answering_http2(respond)) as one, Upstream(answering_http2(respond)) as other:
        server = proxy(serve, one, other)
        with server.connect() as client:
            assert client.ask(method, "/", body=b"x" if method == "POST" else b"").status == status
            assert len(tries) == (2 if status == 200 else 1)
            assert client.ask("GET", "/").body == b"hello"


@pytest.mark.parametrize(
    ("before", "behind", "status"),
    [([], [b"hello"], 200), ([b"hel"], [b"lo"], 200), ([b"h"] * 30, [], 200), ([b"x" * 20_000], [b"y"], 502)],
    ids=["nothing had come", "some had come", "all had come", "much had come"],
)
@pytest.mark.parametrize("ends", ["reset", "goaway"])
def test_a_body_that_arrives_is_sent_again_where_its_request_was_not_processed(
    serve: Callable[..., Milepost], before: list[bytes], behind: list[bytes], status: int, ends: str
) -> None:
    """What cannot be done twice is sent again, with what its first server has had of the body."""
    heads: list[Stream] = []
    come, refused = threading.Event(), threading.Event()
    given = b"".join(before)

    def respond(peer: Http2Peer) -> None:
        asked = peer.head()
        heads.append(asked)
        if len(heads) > 1:
            peer.until(lambda: asked.is_ended)
            peer.reply(asked, asked.body)
        else:
            come.set()
            peer.until(lambda: len(asked.body) == len(given) and asked.is_ended is (not behind))
            if ends == "reset":
                peer.reset(asked, REFUSED_STREAM)
            else:
                peer.go_away(0)
            refused.set()
        peer.until(lambda: False)

    with Upstream(over_http2(respond)) as one, Upstream(over_http2(respond)) as other:
        server = proxy(serve, one, other, stream_requests=True)
        with server.connect() as client:
            client.send(request("POST", "/", "Transfer-Encoding: chunked"))
            assert come.wait(30)
            for piece in before:
                client.send(b"%x\r\n%s\r\n" % (len(piece), piece))
            if not behind:
                client.send(b"0\r\n\r\n")
            assert refused.wait(30)
            if status == 200:
                assert until(lambda: len(heads) == 2)
                client.send(b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in behind))
                if behind:
                    client.send(b"0\r\n\r\n")
            reply = client.reply()
            assert reply.status == status
            assert len(heads) == (2 if status == 200 else 1)
            if status == 200:
                assert reply.body == given + b"".join(behind)
        server.stop()
        (line,) = server.lines
        assert (
            f"upstream_attempts={len(heads)}" in line or f"attempts={len(heads)}" in line or len(heads) == 1
        )


def cut_after(peer: Http2Peer, asked: Stream, head: list[tuple[str, str]], body: bytes) -> None:
    peer.begin(asked, *head)
    peer.data(asked, body)
    peer.sock.shutdown(socket.SHUT_RDWR)


def broken(name: str) -> Callable[[Http2Peer, Stream], None]:
    def respond(peer: Http2Peer, asked: Stream) -> None:
        match name:
            case "closed":
                peer.sock.shutdown(socket.SHUT_RDWR)
            case "cut":
                cut_after(peer, asked, [("content-length", "10")], b"hello")
            case "cut without a length":
                cut_after(peer, asked, [], b"hello")
            case "reset in the body":
                peer.begin(asked, ("content-length", "10"))
                peer.data(asked, b"hello")
                peer.reset(asked, INTERNAL_ERROR)
            case "shorter":
                peer.begin(asked, ("content-length", "10"))
                peer.data(asked, b"hello", ends=True)
            case "longer":
                peer.begin(asked, ("content-length", "3"))
                peer.data(asked, b"hello", ends=True)
            case "large head":
                peer.begin(asked, *[(f"x-{n}", "v" * 8_000) for n in range(125)], ends=True)
            case "switch":
                peer.begin(asked, status=101)
                peer.reply(asked)
            case "connection field":
                peer.begin(asked, ("transfer-encoding", "chunked"), ends=True)

    return respond


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("closed", "the upstream closed the connection without a response"),
        ("cut", "upstream: connection closed within the body"),
        ("cut without a length", "upstream: connection closed within the body"),
        ("reset in the body", "the upstream reset the HTTP/2 stream"),
        ("shorter", "the upstream does not keep the rules of HTTP/2"),
        ("longer", "the upstream does not keep the rules of HTTP/2"),
        ("large head", "the upstream does not keep the rules of HTTP/2"),
        ("switch", "upstream: 101 without a request to change the protocol"),
        ("connection field", "the upstream does not keep the rules of HTTP/2"),
    ],
)
def test_broken_responses_are_told_apart(serve: Callable[..., Milepost], name: str, cause: str) -> None:
    is_begun = name not in ("closed", "large head", "switch", "connection field")
    with Upstream(answering_http2(broken(name))) as upstream:
        server = proxy(serve, upstream)
        with server.connect() as client:
            client.send(request("POST", "/", "Content-Length: 0"))
            if is_begun:
                # What has come so far may be a part of the body, or none where the head has not left.
                try:
                    assert client.reply().status == 502
                except CutShort:
                    server.count()
            else:
                assert client.reply().status == 502
        server.stop()
        (line,) = server.lines
        assert "end=cut" in line or "end=refused" in line
        assert f'cause="{cause}"' in line


def test_a_server_that_does_not_speak_http2_gets_no_request(serve: Callable[..., Milepost]) -> None:
    def serve_peer(connection: Connection) -> None:
        connection.until(b"SM\r\n\r\n")
        connection.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        # What was not read would reset the connection, and the response might be lost with it.
        while connection.sock.recv(1 << 16):
            pass

    with Upstream(serve_peer) as upstream:
        server = proxy(serve, upstream, retries=0)
        with server.connect() as client:
            assert client.ask("POST", "/", body=b"secret").status == 502
        server.stop()
        assert 'cause="the upstream does not keep the rules of HTTP/2"' in server.lines[0]


def test_a_server_that_never_answers_costs_504(serve: Callable[..., Milepost]) -> None:
    def silent(peer: Http2Peer) -> None:
        peer.until(lambda: False)

    with Upstream(over_http2(silent)) as upstream:
        server = proxy(serve, upstream, response_timeout="300ms")
        with server.connect() as client:
            assert client.ask("GET", "/").status == 504


def test_a_server_without_settings_costs_504(serve: Callable[..., Milepost]) -> None:
    def mute(connection: Connection) -> None:
        while connection.sock.recv(65536):
            pass

    with Upstream(mute) as upstream:
        server = proxy(serve, upstream, connect_timeout="300ms", retries=0)
        with server.connect() as client:
            assert client.ask("GET", "/").status == 504


def test_an_upgrade_is_refused(serve: Callable[..., Milepost]) -> None:
    with Upstream(answering_http2(hello)) as upstream:
        server = proxy(serve, upstream)
        with server.connect() as client:
            key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
            upgrade = ["Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", key]
            assert client.ask("GET", "/", *upgrade).status == 501
        assert upstream.connections == 0
        with server.connect() as client:
            assert client.ask("GET", "/", "Upgrade: h2c", "Connection: Upgrade").body == b"hello"


def test_checks_and_forward_auth_go_over_http2(serve: Callable[..., Milepost]) -> None:
    def respond(peer: Http2Peer, asked: Stream) -> None:
        match asked.path:
            case "/health":
                peer.reply(asked, b"fine", status=200 if checks.append(asked) is None else 500)
            case "/check":
                assert asked.header("x-forwarded-uri") in ("/open", "/closed")
                is_open = asked.header("x-forwarded-uri") == "/open"
                peer.reply(asked, b"ask elsewhere", ("x-user", "ann"), status=200 if is_open else 401)
            case _:
                peer.reply(asked, (asked.header("x-user") or "").encode())

    checks: list[Stream] = []
    with Upstream(answering_http2(respond)) as upstream:
        auth = '{ upstream = "back", path = "/check", copy = ["X-User"] }'
        toml = f'[[route]]\npath = "/"\nupstream = "back"\nforward_auth = {auth}\n'
        back = {"name": "back", "servers": [upstream.url], "protocol": "http2", "check": "/health"}
        server = serve(toml=toml + tables("upstream", back | {"check_interval": "100ms"}))
        with server.connect() as client:
            assert client.ask("GET", "/open").body == b"ann"
            denied = client.ask("GET", "/closed")
            assert (denied.status, denied.body) == (401, b"ask elsewhere")
        until(lambda: len(checks) >= 2)
        assert checks[0].header("user-agent") == "milepost-check"


def test_forward_auth_asks_again_where_its_connection_has_ended(serve: Callable[..., Milepost]) -> None:
    def judge(peer: Http2Peer) -> None:
        first = peer.request()
        peer.reply(first, b"")
        second = peer.request()
        if peer.number == 1:
            peer.go_away(first.number)
            return
        peer.reply(second, b"", status=403)
        peer.until(lambda: False)

    with (
        Upstream(answering(lambda one, _: one.reply(b"in"))) as app,
        Upstream(over_http2(judge)) as auth,
    ):
        toml = '[[route]]\npath = "/"\nupstream = "app"\nforward_auth = { upstream = "auth", path = "/" }\n'
        other = {"name": "auth", "servers": [auth.url], "protocol": "http2"}
        server = serve(toml=toml + tables("upstream", {"name": "app", "servers": [app.url]}, other))
        with server.connect() as client:
            assert [client.ask("GET", "/").status for _ in range(3)] == [200, 200, 403]
        assert auth.connections == 2


def test_an_idle_connection_is_closed_and_an_ended_one_not_used(serve: Callable[..., Milepost]) -> None:
    closed = threading.Event()

    def serve_peer(peer: Http2Peer) -> None:
        hello(peer, peer.request())
        try:
            peer.until(lambda: False)
        finally:
            closed.set()

    with Upstream(over_http2(serve_peer)) as upstream:
        server = proxy(serve, upstream, idle_timeout="300ms")
        with server.connect() as client:
            assert client.ask("GET", "/").body == b"hello"
            assert closed.wait(30)
            assert client.ask("POST", "/", body=b"x").body == b"hello"
        assert upstream.connections == 2


def context_of(authority: Authority, *protocols: str) -> ssl.SSLContext:
    """A server's side that agrees on these protocols."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue("127.0.0.1").configure_cert(context)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def secured(context: ssl.SSLContext, serve: Callable[[Connection], None]) -> Callable[[Connection], None]:
    """The same connections under TLS; those whose handshake fails are over."""

    def serve_one(connection: Connection) -> None:
        with contextlib.suppress(ssl.SSLError, OSError):
            connection.sock = context.wrap_socket(connection.sock, server_side=True)
            serve(connection)

    return serve_one


@pytest.mark.parametrize("protocols", [(), ("http/1.1",), ("http/1.1", "h2")])
def test_under_tls_a_server_must_agree_on_http2(
    serve: Callable[..., Milepost], authority: Authority, protocols: tuple[str, ...]
) -> None:
    body = bytes(n * 7 % 251 for n in range(3_000_000))
    context = context_of(authority, *protocols)
    echo = answering_http2(lambda peer, asked: peer.reply(asked, asked.body))
    with Upstream(secured(context, echo)) as upstream:
        toml = tables("route", {"path": "/", "upstream": "back"})
        url = upstream.url.replace("http:", "https:")
        back = {"name": "back", "servers": [url], "protocol": "http2", "tls_ca": str(authority.pem)}
        server = serve(toml=toml + tables("upstream", back | {"retries": 0}))
        with server.connect() as client:
            reply = client.ask("POST", "/", body=body)
        server.stop()
        if "h2" in protocols:
            assert reply.body == body
        else:
            assert reply.status == 502
            assert "does not agree on HTTP/2" in server.lines[0]
            assert f"127.0.0.1:{upstream.port}" in server.errors


def test_a_milepost_is_asked_by_http2(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/file.txt").write_bytes(b"f" * 1_000_000)
    socket_path = tmp_path / "back.sock"
    back = serve(f"--static=/={tmp_path / 'site'}", bind=f"unix:{socket_path}", log="back.log")
    toml = tables("route", {"path": "/", "upstream": "back"})
    upstream = {"name": "back", "servers": [f"unix:{socket_path}"], "protocol": "http2"}
    front = serve(toml=toml + tables("upstream", upstream))
    with front.connect() as client:
        assert client.ask("GET", "/file.txt").body == b"f" * 1_000_000
        part = client.ask("GET", "/file.txt", "Range: bytes=5-9")
        assert (part.status, part.body) == (206, b"fffff")
    back.count(2)
    back.stop()
    assert all("HTTP/2" in line for line in back.lines)
