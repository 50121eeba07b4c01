"""What is refused, with which status, always in the log, and never in a way that hides the answer."""

from __future__ import annotations

import contextlib
import errno
import json
import select
from collections.abc import Callable
from pathlib import Path

import pytest

from raw import Client, chunked, request
from serving import DEADLINE_S, Milepost

GET = b"GET /hello HTTP/1.1\r\n"
POST = b"POST /body HTTP/1.1\r\nHost: a\r\n"

REFUSED = {
    # The request line.
    "no host": (400, GET + b"\r\n"),
    "two hosts": (400, GET + b"Host: a\r\nHost: a\r\n\r\n"),
    "empty header name": (400, GET + b"Host: a\r\n: x\r\n\r\n"),
    "bad host": (400, GET + b"Host: a b\r\n\r\n"),
    "host with path": (400, GET + b"Host: a/b\r\n\r\n"),
    "empty host": (400, GET + b"Host:\r\n\r\n"),
    "host of spaces": (400, GET + b"Host: \t \r\n\r\n"),
    "host of a dot": (400, GET + b"Host: .\r\n\r\n"),
    "host with an empty label": (400, GET + b"Host: a..b\r\n\r\n"),
    "host that begins with a dot": (400, GET + b"Host: .a\r\n\r\n"),
    "address of the future without an address": (400, GET + b"Host: [v1.]\r\n\r\n"),
    "empty host in 1.0": (400, b"GET /hello HTTP/1.0\r\nHost:\r\n\r\n"),
    "empty host beside an absolute target": (400, b"GET http://a/hello HTTP/1.1\r\nHost:\r\n\r\n"),
    "host of a dot in the target": (400, b"GET http://./hello HTTP/1.1\r\nHost: a\r\n\r\n"),
    "another scheme": (421, b"GET https://a/hello HTTP/1.1\r\nHost: a\r\n\r\n"),
    "another scheme in capitals": (421, b"GET HTTPS://a/hello HTTP/1.1\r\nHost: a\r\n\r\n"),
    "no target": (400, b"GET HTTP/1.1\r\nHost: a\r\n\r\n"),
    "two spaces": (400, b"GET  /hello HTTP/1.1\r\nHost: a\r\n\r\n"),
    "space in target": (400, b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "control in target": (400, b"GET /a\x01 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "raw byte in target": (400, b"GET /\xe9 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "fragment": (400, b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "relative target": (400, b"GET hello HTTP/1.1\r\nHost: a\r\n\r\n"),
    "percent without digits": (400, b"GET /a% HTTP/1.1\r\nHost: a\r\n\r\n"),
    "percent with one digit": (400, b"GET /a%2/b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "percent with other letters": (400, b"GET /a%zz?b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "percent twice": (400, b"GET /%%20 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "double quote in path": (400, b'GET /a"b HTTP/1.1\r\nHost: a\r\n\r\n'),
    "angle bracket in path": (400, b"GET /a<b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "closing angle bracket in path": (400, b"GET /a>b?c HTTP/1.1\r\nHost: a\r\n\r\n"),
    "backslash in path": (400, b"GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "backslash in the path of an absolute target": (400, b"GET http://a/\\b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "asterisk with get": (400, b"GET * HTTP/1.1\r\nHost: a\r\n\r\n"),
    "bad method": (400, b"GE(T /hello HTTP/1.1\r\nHost: a\r\n\r\n"),
    "no version": (400, b"GET /hello\r\nHost: a\r\n\r\n"),
    "bad version": (400, b"GET /hello HTTP/1\r\nHost: a\r\n\r\n"),
    "lower case version": (400, b"GET /hello http/1.1\r\nHost: a\r\n\r\n"),
    "version 2": (505, b"GET /hello HTTP/2.0\r\nHost: a\r\n\r\n"),
    "version 0.9": (505, b"GET /hello HTTP/0.9\r\nHost: a\r\n\r\n"),
    "long method": (501, b"X" * 40 + b" /hello HTTP/1.1\r\nHost: a\r\n\r\n"),
    "trace": (405, b"TRACE /hello HTTP/1.1\r\nHost: a\r\nCookie: secret\r\n\r\n"),
    "trace without a route": (405, b"TRACE /nothing HTTP/1.1\r\nHost: a\r\n\r\n"),
    "connect": (501, b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"),
    "rubbish": (400, b"\x00\x01\x02\x03\r\n\r\n"),
    "long target": (414, b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
    "endless target": (414, b"GET /" + b"a" * 40_000),
    # The fields.
    "bare lf": (400, b"GET /hello HTTP/1.1\nHost: a\n\n"),
    "one bare lf": (400, GET + b"Host: a\nX: b\r\n\r\n"),
    "bare cr": (400, GET + b"Host: a\r\nX: a\rb\r\n\r\n"),
    "fold": (400, GET + b"Host: a\r\nX: a\r\n b\r\n\r\n"),
    "space before colon": (400, GET + b"Host : a\r\n\r\n"),
    "space before name": (400, GET + b" Host: a\r\n\r\n"),
    "no colon": (400, GET + b"Host: a\r\nbroken\r\n\r\n"),
    "nul in value": (400, GET + b"Host: a\r\nX: \x00\r\n\r\n"),
    "control in value": (400, GET + b"Host: a\r\nX: \x1b[2J\r\n\r\n"),
    "bad name": (400, GET + b"Host: a\r\nX\xe9: 1\r\n\r\n"),
    "bracket in name": (400, GET + b"Host: a\r\nX[1]: 1\r\n\r\n"),
    "too many fields": (431, GET + b"Host: a\r\n" + b"X: 1\r\n" * 200 + b"\r\n"),
    "long field": (431, GET + b"Host: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n"),
    "long head": (431, GET + b"Host: a\r\n" + (b"X: " + b"x" * 4_000 + b"\r\n") * 20 + b"\r\n"),
    "endless field": (431, GET + b"Host: a\r\nX: " + b"x" * 60_000),
    "two kinds of content": (400, POST + b"Content-Type: a/b\r\nContent-Type: c/d\r\n\r\n"),
    "the same kind of content twice": (400, POST + b"Content-Type: a/b\r\ncontent-type: a/b\r\n\r\n"),
    "two authorizations": (
        400,
        GET + b"Host: a\r\nAuthorization: Basic YTpi\r\nAuthorization: Bearer c\r\n\r\n",
    ),
    # Framing: what smuggling is made of.
    "two lengths": (400, POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345"),
    "the same length twice": (400, POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n12345"),
    "list of lengths": (400, POST + b"Content-Length: 5, 5\r\n\r\n12345"),
    "signed length": (400, POST + b"Content-Length: +5\r\n\r\n12345"),
    "negative length": (400, POST + b"Content-Length: -5\r\n\r\n"),
    "hexadecimal length": (400, POST + b"Content-Length: 0x5\r\n\r\n12345"),
    "empty length": (400, POST + b"Content-Length:\r\n\r\n"),
    "length with inner space": (400, POST + b"Content-Length: 1 0\r\n\r\n1234567890"),
    "overflowing length": (400, POST + b"Content-Length: 99999999999999999999999\r\n\r\n"),
    "length and chunked": (400, POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "chunked and length": (400, POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
    "chunked twice": (400, POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    "chunked not last": (400, POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    "chunked in quotes": (400, POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n'),
    "tab in coding": (400, POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"),
    "empty coding": (400, POST + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n"),
    "chunked in 1.0": (400, b"POST /body HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "unknown coding": (501, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "expectation": (417, POST + b"Expect: the-unexpected\r\nContent-Length: 5\r\n\r\n12345"),
    # Chunks.
    "no chunk size": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n\r\n"),
    "bad chunk size": (400, POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"),
    "prefixed chunk size": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\n12345\r\n0\r\n\r\n"),
    "signed chunk size": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n+5\r\n12345\r\n0\r\n\r\n"),
    "space before chunk size": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n 5\r\n12345\r\n0\r\n\r\n"),
    "overflowing chunk size": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n"),
    "wrong chunk end": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345xx0\r\n\r\n"),
    "bare lf after size": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n5\n12345\r\n0\r\n\r\n"),
    "long extension": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 9_000),
    "lf in extension": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\n12345\r\n0\r\n\r\n"),
    **{
        f"extension {extension!r}": (
            400,
            POST + b"Transfer-Encoding: chunked\r\n\r\n5" + extension + b"\r\n12345\r\n0\r\n\r\n",
        )
        for extension in (
            *(b";", b";;", b";=b", b";a=", b";a=b;", b";a=b,c", b" ", b";a ", b";a b", b";a==b"),
            *(b';"a"', b';a="', b';a="b', b';a="b\\"', b';a="b"c', b';a=b"c"', b';a="\x00"', b";\xe9"),
        )
    },
    "extension of the last chunk": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n0;\r\n\r\n"),
    "quotes over two lines": (400, POST + b'Transfer-Encoding: chunked\r\n\r\n5;a="\r\n12345\r\n0;"\r\n\r\n'),
    "bad trailer": (400, POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX y: 1\r\n\r\n"),
    # Bodies.
    "large length": (413, POST + b"Content-Length: 99999999999\r\n\r\n"),
    "large chunk": (413, POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_and_the_connection_closed(zoo: Milepost, name: str) -> None:
    status, data = REFUSED[name]
    smuggled = b"" if status in (413, 414, 431) else request("GET", "/hello?smuggled")
    with zoo.connect() as client:
        client.send(data + smuggled)
        reply = client.reply()
        assert reply.status == status, reply
        assert reply.closes
        assert reply.framing == "length"
        # Nothing of what came after is taken for a request.
        assert client.is_closed()


def test_refusals_tell_the_client_nothing_of_its_own_bytes(zoo: Milepost) -> None:
    with zoo.connect() as client:
        client.send(b"GET /<script> HTTP/1.1\r\nHost: <b>\r\n\r\n")
        reply = client.reply()
        assert reply.status == 400
        assert b"<b>" not in reply.body


def test_each_refusal_has_its_line(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app")
    for status, data in REFUSED.values():
        with server.connect() as client:
            client.send(data)
            assert client.reply().status == status
    assert server.stop() == 0
    assert [line_status(line) for line in server.lines] == [status for status, _ in REFUSED.values()]
    for line in server.lines:
        assert "end=refused" in line
        assert 'cause="' in line


def line_status(line: str) -> int:
    return int(line.split('" ')[1].split(" ")[0])


ACCEPTED = {
    "empty line first": b"\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n",
    "minor version 2": b"GET /hello HTTP/1.2\r\nHost: a\r\n\r\n",
    "no host in 1.0": b"GET /hello HTTP/1.0\r\n\r\n",
    "host with its last dot": b"GET /hello HTTP/1.1\r\nHost: a.example.\r\n\r\n",
    "host of the future": b"GET /hello HTTP/1.1\r\nHost: [v1.a:b]\r\n\r\n",
    "host of the future with port": b"GET /hello HTTP/1.1\r\nHost: [v1.a:b]:80\r\n\r\n",
    "query of browsers": b"GET /hello?q=100%&f={a|b} HTTP/1.1\r\nHost: a\r\n\r\n",
    "query with what paths may not hold": b'GET /hello?%zz"<>\\% HTTP/1.1\r\nHost: a\r\n\r\n',
    "escaped path": b"GET /%68%65llo HTTP/1.1\r\nHost: a\r\n\r\n",
    "content type and authorization": GET + b"Host: a\r\nContent-Type: a/b\r\nAuthorization: c\r\n\r\n",
    "host with port": b"GET /hello HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
    "spaces around a value": b"GET /hello HTTP/1.1\r\nHost: \t a \t\r\n\r\n",
    "absolute form": b"GET http://a/hello HTTP/1.1\r\nHost: a\r\n\r\n",
    "leading zeros": POST + b"Content-Length: 0005\r\n\r\n12345",
    "upper case chunked": POST + b"Transfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n",
    "chunk extension": POST + b'Transfer-Encoding: chunked\r\n\r\n5;a=b;c="d"\r\n12345\r\n0\r\n\r\n',
    "chunk extensions with spaces": POST
    + b'Transfer-Encoding: chunked\r\n\r\n5 ; a\t=\tb ;c;d = "e;f,\\"\\\\\xe9"\r\n12345\r\n0 ;g\r\n\r\n',
    "chunk size with zeros": POST + b"Transfer-Encoding: chunked\r\n\r\n0005\r\n12345\r\n000\r\n\r\n",
    "trailers": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_unusual_but_right_is_served(zoo: Milepost, name: str) -> None:
    with zoo.connect() as client:
        client.send(ACCEPTED[name])
        assert client.reply().status == 200
        if "1.0" not in name:
            assert client.ask("GET", "/hello").status == 200


@pytest.mark.parametrize("query", ["q=100%&f={a|b}", '%zz"<>\\^`%', "a=%2&b=?/"])
def test_queries_reach_the_application_as_browsers_send_them(client: Client, query: str) -> None:
    reply = client.ask("GET", f"/environ?{query}")
    assert reply.status == 200
    assert json.loads(reply.body)["QUERY_STRING"] == query


def test_trace_is_passed_on_only_where_the_application_is_asked(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "a.txt").write_bytes(b"a")
    routes = ("--static", "/files=www", "--status-path", "/-/status")
    asked = serve("zoo:app", "--trace-requests", *routes, log="asked.log")
    with asked.connect() as client:
        reply = client.ask("TRACE", "/environ")
        assert (reply.status, json.loads(reply.body)["REQUEST_METHOD"]) == (200, "TRACE")
    for server, path, allow in (
        (asked, "/files/a.txt", "GET, HEAD"),
        (asked, "/-/status", "GET, HEAD"),
        (serve("zoo:app", *routes), "/environ", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
    ):
        with server.connect() as client:
            reply = client.ask("TRACE", path, "Cookie: secret")
            assert (reply.status, reply.header("allow")) == (405, allow)
            assert b"secret" not in reply.body


def test_a_misdirected_request_says_so_in_the_log(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app")
    with server.connect() as client:
        assert client.ask("GET", "https://a/hello", host="a").reason == "Misdirected Request"
    assert server.stop() == 0
    (line,) = server.lines
    assert 'end=refused cause="https target on a connection without TLS"' in line


def test_options_asterisk_is_answered(client: Client) -> None:
    reply = client.ask("OPTIONS", "*")
    assert reply.status == 200
    assert client.ask("GET", "/hello").status == 200


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1])
def test_the_bound_of_the_body_is_exact(serve: Callable[..., Milepost], size: int) -> None:
    server = serve("zoo:app", "--body-bytes-max", "1M")
    with server.connect() as client:
        client.send(request("POST", "/body", "Expect: 100-continue", f"Content-Length: {size}"))
        status, _, _ = client.head()
        assert status == (100 if size == 1 << 20 else 413)
        if status == 100:
            client.send(bytes(size))
            assert client.reply().status == 200
        else:
            client.count()


def test_413_is_seen_by_a_client_that_is_still_sending(zoo: Milepost) -> None:
    """RFC 9112 section 9.6: a close with unread bytes resets, and the client loses the answer."""
    with zoo.connect() as client:
        client.send(request("POST", "/body", "Content-Length: 1000000000"))
        send_until_answered(client)
        reply = client.reply()
        assert (reply.status, reply.closes) == (413, True)


def test_413_is_seen_by_a_client_that_reads_only_after_it_has_sent(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--body-bytes-max", "100K")
    for body in (bytes(110_000), bytes(1_000_000)):
        for data in (
            request("POST", "/body", body=body),
            request("POST", "/body", "Transfer-Encoding: chunked")
            + chunked(*[bytes(10_000)] * (len(body) // 10_000)),
        ):
            with server.connect() as client:
                client.send(data)
                assert client.reply().status == 413


def test_a_chunked_body_over_the_bound_is_seen_as_well(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--body-bytes-max", "100K")
    with server.connect() as client:
        client.send(request("POST", "/body", "Transfer-Encoding: chunked"))
        send_until_answered(client, b"%x\r\n%s\r\n" % (50_000, bytes(50_000)))
        assert client.reply().status == 413


def send_until_answered(client: Client, piece: bytes = bytes(65_536)) -> None:
    """Send `piece` again and again, as an upload does, until there is something to read."""
    client.sock.setblocking(False)
    rest = b""
    while True:
        readable, writable, _ = select.select([client.sock], [client.sock], [], DEADLINE_S)
        assert readable or writable, "neither an answer nor room to send"
        if readable:
            break
        rest = rest or piece
        try:
            rest = rest[client.sock.send(rest) :]
        except OSError as error:
            # The answer is on its way already; what counts is that it can still be read.
            assert error.errno in (errno.EPIPE, errno.ECONNRESET, errno.EAGAIN)
    client.sock.settimeout(DEADLINE_S)


@pytest.mark.parametrize(
    "sent", [b"GET /hello HTTP/1.1\r\nHost: a", b"G", POST + b"Content-Length: 10\r\n\r\n12345"]
)
def test_what_never_becomes_complete_is_answered_with_408(
    serve: Callable[..., Milepost], sent: bytes
) -> None:
    server = serve("zoo:app", "--head-timeout", "200ms", "--body-timeout", "200ms")
    with server.connect() as client:
        client.send(sent)
        reply = client.reply()
        assert (reply.status, reply.closes) == (408, True)
        assert client.is_closed()
    assert server.stop() == 0
    assert line_status(server.lines[0]) == 408


def test_a_trickle_does_not_renew_the_deadline_of_the_head(serve: Callable[..., Milepost]) -> None:
    """Slowloris: one byte now and then must not keep a connection for ever."""
    server = serve("zoo:app", "--head-timeout", "500ms")
    with server.connect() as client:
        client.send(b"GET /hello HTTP/1.1\r\nHost: a\r\nX: ")
        while True:
            readable, _, _ = select.select([client.sock], [], [], 0.05)
            if readable:
                break
            client.send(b"x")
        assert client.reply().status == 408


def test_an_idle_connection_ends_without_a_reply_and_without_a_line(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--idle-timeout", "200ms", "--head-timeout", "200ms")
    with server.connect() as used:
        assert used.ask("GET", "/hello").status == 200
        assert used.is_closed()


def test_nothing_of_a_refused_connection_reaches_its_neighbours(zoo: Milepost, client: Client) -> None:
    for _, data in REFUSED.values():
        with zoo.connect() as bad:
            bad.send(data)
            assert client.ask("GET", "/hello").body == b"hello"
            bad.reply()


def test_connections_that_send_nothing_at_the_bound_are_answered_and_logged(
    serve: Callable[..., Milepost],
) -> None:
    """Forty at once where there is room for twenty: none ends without a byte and without a line."""
    server = serve("zoo:app", "--connections-max", "20", "--drivers", "1", "--status-path", "/-/status")
    waiting = [server.connect() for _ in range(40)]
    # Nobody sends anything until the server has asked the first of them to make room.
    readable, _, _ = select.select([client.sock for client in waiting], [], [], DEADLINE_S)
    assert readable
    statuses = []
    for client in waiting:
        # It may have been answered by now, and be closed.
        with contextlib.suppress(ConnectionError):
            client.send(request("GET", "/hello", "Connection: close"))
        reply = client.reply()
        statuses.append(reply.status)
        if reply.status == 503:
            assert (reply.header("retry-after"), reply.closes) == ("1", True)
        client.sock.close()
    refused = statuses.count(503)
    assert refused > 0
    assert statuses.count(200) == 40 - refused, statuses
    with server.connect() as client:
        (driver,) = json.loads(client.ask("GET", "/-/status").body)["drivers"]
    assert driver["timeouts"]["evicted_idle"] == refused
    assert server.stop() == 0
    lines = [line for line in server.lines if line_status(line) == 503]
    assert len(lines) == refused
    for line in lines:
        assert 'end=refused cause="nothing was sent, and others need the place (connections_max)"' in line
