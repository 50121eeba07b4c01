"""Bodies of requests that an ASGI application takes while they arrive."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from http2 import Http2

from raw import Client, CutShort, request
from serving import APPS, DEADLINE_S, Milepost, until

ZOO = ("upload_zoo:app", "--app-dir", str(APPS))
CHUNKED = "Transfer-Encoding: chunked"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def seen(server: Milepost, name: str) -> list[object]:
    with server.connect() as client:
        found: list[object] = json.loads(client.ask("GET", f"/seen?{name}").body)
        return found


def has_seen(server: Milepost, name: str, thing: object) -> bool:
    return until(lambda: thing in seen(server, name))


@pytest.fixture(params=["plain", "tls"])
def server(serve: Callable[..., Milepost], request: pytest.FixtureRequest, tmp_path: Path) -> Milepost:
    if request.param == "plain":
        return serve(*ZOO)
    authority = request.getfixturevalue("authority")
    return serve(*ZOO, *authority.flags("server", "localhost"), tls=authority.context())


def test_pieces_go_back_while_the_body_arrives(server: Milepost) -> None:
    with server.connect() as client:
        client.send(request("POST", "/echo", CHUNKED))
        client.send(chunk(b"first"))
        assert client.head()[0] == 200
        server.count()
        assert client.chunk() == b"first"
        for number in range(20):
            client.send(chunk(b"%d" % number))
            assert client.chunk() == b"%d" % number
        # What comes behind the body is the next request.
        client.send(END + request("GET", "/seen?nothing"))
        assert client.chunk() == b""
        assert client.reply().body == b"[]"


def test_an_application_that_takes_nothing_holds_its_client_back(server: Milepost) -> None:
    with server.connect() as client:
        client.send(request("POST", "/held?slow", "Content-Length: 67108864"))
        client.sock.settimeout(0.5)
        sent = 0
        piece = bytes(1 << 16)
        try:
            while sent < 64 << 20:
                sent += client.sock.send(piece[: (64 << 20) - sent])
        except TimeoutError:
            pass
        # 64 KB of the server's, and what both kernels keep.
        assert sent < 24 << 20
        client.sock.settimeout(10)
        with server.connect() as other:
            other.ask("GET", "/release?slow")
        while sent < 64 << 20:
            sent += client.sock.send(piece[: (64 << 20) - sent])
        assert client.reply().body == b"67108864"


def test_an_application_hears_of_a_client_that_leaves_in_the_middle(server: Milepost) -> None:
    with server.connect() as client:
        client.send(request("POST", "/count?left", CHUNKED) + chunk(b"a part"))
        server.count()
        assert has_seen(server, "left", ["http.request", 6])
    assert has_seen(server, "left", ["http.disconnect", 0])


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"zz\r\n", 400), (chunk(bytes(60_000)) * 2, 413)],
)
def test_a_body_that_breaks_a_rule_is_refused_while_it_arrives(
    serve: Callable[..., Milepost], sent: bytes, status: int
) -> None:
    server = serve(*ZOO, "--body-bytes-max", "100000")
    with server.connect() as client:
        client.send(request("POST", "/count?broken", CHUNKED) + chunk(b"good"))
        assert has_seen(server, "broken", ["http.request", 4])
        client.send(sent)
        assert client.reply().status == status
        assert client.is_closed()


def test_a_response_that_has_begun_is_cut_with_its_body(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    with server.connect() as client:
        client.send(request("POST", "/echo", CHUNKED) + chunk(b"good"))
        assert client.head()[0] == 200
        server.count()
        assert client.chunk() == b"good"
        client.send(b"zz\r\n")
        with pytest.raises((CutShort, ConnectionResetError)):
            client.chunk()


def test_nothing_is_read_behind_a_body_that_breaks_a_rule_while_its_response_waits(server: Milepost) -> None:
    with server.connect() as client:
        client.send(request("POST", "/large?broken", CHUNKED) + chunk(b"good"))
        assert has_seen(server, "broken", ["http.request", 4])
        client.send(b"0x2b\r\n")
        assert has_seen(server, "broken", ["http.disconnect", 0])
        client.send(END + request("GET", "/seen?smuggled"))
        assert len(client.reply().body) == 32 << 20
        assert client.is_closed()


def test_a_client_that_sends_too_slowly_is_refused(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--body-timeout", "300ms")
    with server.connect() as client:
        client.send(request("POST", "/count?silent", CHUNKED) + chunk(b"good"))
        assert client.reply().status == 408
        assert client.is_closed()


def test_a_short_rest_that_nobody_reads_keeps_the_connection(server: Milepost) -> None:
    with server.connect() as client:
        client.send(request("POST", "/ignores", CHUNKED) + chunk(b"a"))
        assert client.reply().status == 403
        client.send(chunk(b"b") + END + request("GET", "/seen?x"))
        assert client.reply().body == b"[]"


def test_a_long_rest_that_nobody_reads_ends_the_connection(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--linger-timeout", "200ms")
    with server.connect() as client:
        client.send(request("POST", "/ignores", "Content-Length: 1000000"))
        assert client.reply().status == 403
        assert client.is_closed()


def test_a_body_is_received_whole_where_that_is_asked_for(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--request-buffering")
    with server.connect() as client:
        client.send(request("POST", "/count?whole", CHUNKED) + chunk(b"first"))
        assert seen(server, "whole") == []
        client.send(chunk(b"second") + END)
        assert client.reply().body == b"11"
    assert seen(server, "whole") == ["begun", ["http.request", 11]]


def test_a_short_body_is_received_whole(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    with server.connect() as client:
        client.send(request("POST", "/count?short", "Content-Length: 11") + b"first")
        assert seen(server, "short") == []
        client.send(b"second")
        assert client.reply().body == b"11"
    assert seen(server, "short") == ["begun", ["http.request", 11]]


def test_the_log_counts_the_bytes_of_the_body(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--access-log-format", "{request_bytes} {status}")
    with server.connect() as client:
        head = request("POST", "/count?log", "Content-Length: 300000")
        client.send(head)
        client.send(bytes(300_000))
        assert client.reply().body == b"300000"
    assert server.stop() == 0
    assert server.lines == [f"{len(head) + 300_000} 200"]


def test_pieces_go_back_over_http2(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    with Http2(server) as client:
        stream = client.begin("/echo", method="POST", ends=False)
        server.count()
        response = client.responses[stream]
        for number in range(20):
            client.machine.send_data(stream, b"%d," % number)
            client.flush()
            client.until(lambda number=number: response.body.endswith(b"%d," % number))
        client.machine.end_stream(stream)
        client.flush()
        assert client.response(stream).is_ended
        assert client.post("/count?h2", bytes(1 << 20)).body == b"1048576"


def test_small_messages_of_a_call_are_no_odd_work(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    with Http2(server) as client:
        stream = client.begin(
            "/count?call", ("content-type", "application/grpc"), ("te", "trailers"), method="POST", ends=False
        )
        server.count()
        for _ in range(2000):
            client.machine.send_data(stream, bytes(7))
            client.flush()
        client.machine.end_stream(stream)
        client.flush()
        assert client.response(stream).body == b"14000"


def test_pings_for_what_was_sent_are_no_odd_work(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    with Http2(server) as client:
        stream = client.begin("/echo", method="POST", ends=False)
        server.count()
        response = client.responses[stream]
        for number in range(2000):
            client.machine.send_data(stream, bytes(16))
            client.flush()
            client.until(lambda number=number: len(response.body) == 16 * (number + 1))
            client.machine.ping(bytes(8))
        client.machine.end_stream(stream)
        client.flush()
        assert client.response(stream).is_ended


def test_windows_hold_a_client_back_over_http2(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    with Http2(server) as client:
        stream = client.begin("/held?window", method="POST", ends=False)
        server.count()
        sent = 0
        # Until the window stays shut although others are served.
        while sent < 16 << 20:
            room = min(client.machine.local_flow_control_window(stream), 16_384)
            if room == 0:
                client.ask("/seen?x")
                if client.machine.local_flow_control_window(stream) == 0:
                    break
                continue
            client.machine.send_data(stream, bytes(room))
            client.flush()
            sent += room
        assert 64 << 10 <= sent < 4 << 20
        client.ask("/release?window")
        client.send_body(stream, bytes(1 << 20))
        assert client.response(stream).body == b"%d" % (sent + (1 << 20))


def test_a_body_over_http2_that_is_not_as_long_as_declared_breaks(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    with Http2(server) as client:
        stream = client.begin("/count?length", ("content-length", "100000"), method="POST", ends=False)
        server.count()
        client.machine.send_data(stream, b"short")
        client.flush()
        assert has_seen(server, "length", ["http.request", 5])
        client.machine.end_stream(stream)
        client.flush()
        assert has_seen(server, "length", ["http.disconnect", 0])


def is_silent(client: Client, for_s: float) -> bool:
    """Whether nothing comes for so long."""
    client.sock.settimeout(for_s)
    try:
        client.head()
    except TimeoutError:
        return True
    finally:
        client.sock.settimeout(DEADLINE_S)
    return False


def release(server: Milepost, name: str) -> None:
    with server.connect() as client:
        assert client.ask("GET", f"/release?{name}").body == b"ok"


def expecting(target: str, *headers: str) -> bytes:
    return request("POST", target, "Expect: 100-continue", *headers)


@pytest.mark.parametrize("framing", ["Content-Length: 5", CHUNKED])
def test_a_client_is_told_to_send_when_the_application_wants_the_body(server: Milepost, framing: str) -> None:
    body = b"hello" if framing.startswith("Content") else chunk(b"hello") + END
    with server.connect() as client:
        client.send(expecting("/held?invited", framing))
        # Until the application asks.
        assert is_silent(client, 0.3)
        release(server, "invited")
        assert client.head()[0] == 100
        client.send(body)
        reply = client.reply()
        assert (reply.body, reply.closes) == (b"5", False)
        # The connection lives on.
        assert json.loads(client.ask("GET", "/seen?nothing").body) == []


def test_the_server_asks_for_a_body_that_it_is_to_receive_whole(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--request-buffering", "--body-bytes-max", "1000")
    with server.connect() as client:
        client.send(expecting("/count?buffered", "Content-Length: 5"))
        assert client.head()[0] == 100
        assert seen(server, "buffered") == []
        client.send(b"hello")
        reply = client.reply()
        assert (reply.body, reply.closes) == (b"5", False)
        assert seen(server, "buffered") == ["begun", ["http.request", 5]]
        # Nobody wants one that is refused by its head.
        client.send(expecting("/count?refused", "Content-Length: 1001"))
        assert client.reply().status == 413
    assert seen(server, "refused") == []
    with Http2(server) as http2:
        stream = begin_expecting(http2, "/count?buffered-h2", LENGTH_5)
        http2.until(lambda: http2.responses[stream].interim)
        assert seen(server, "buffered-h2") == []
        http2.send_body(stream, b"hello")
        assert http2.response(stream).body == b"5"


def test_a_body_that_nobody_wants_is_not_asked_for(server: Milepost) -> None:
    with server.connect() as client:
        client.send(expecting("/ignores", "Content-Length: 1000000"))
        reply = client.reply()
        # What such a client sends next is not known.
        assert (reply.status, reply.body, reply.closes) == (403, b"not read", True)
        assert client.is_closed()


UNASKED = request("POST", "/count?unasked", "Content-Length: 5") + b"hello"


@pytest.mark.parametrize("way", ["limited", "tls"])
def test_the_invitation_is_no_part_of_the_response_in_the_log(
    serve: Callable[..., Milepost], request: pytest.FixtureRequest, way: str
) -> None:
    form = ("--access-log-format", "{bytes} {sent}")
    if way == "tls":
        authority = request.getfixturevalue("authority")
        server = serve(*ZOO, *form, *authority.flags("server", "localhost"), tls=authority.context())
    else:
        server = serve(*ZOO, *form, "--rate-connection", "100M")
    with server.connect() as client:
        client.send(expecting("/count?asked", "Content-Length: 5"))
        assert client.head()[0] == 100
        client.send(b"hello")
        assert client.reply().body == b"5"
        client.send(UNASKED)
        assert client.reply().body == b"5"
    assert server.stop() == 0
    assert server.lines[0] == server.lines[1]


def test_a_client_need_not_wait_to_be_told(server: Milepost) -> None:
    with server.connect() as client:
        client.send(expecting("/held?eager", "Content-Length: 5"))
        client.send(b"hello")
        release(server, "eager")
        assert client.reply().body == b"5"
        client.sock.close()


def test_the_time_for_a_body_begins_when_it_is_wanted(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--body-timeout", "500ms")
    with server.connect() as client:
        client.send(expecting("/held?late", "Content-Length: 5"))
        assert is_silent(client, 1.5)
        release(server, "late")
        assert client.head()[0] == 100
        # Told, and silent.
        assert client.reply().status == 408


@pytest.mark.parametrize("framing", ["Content-Length: 5", CHUNKED])
def test_a_body_behind_the_head_of_its_response_is_taken_and_is_the_last(
    server: Milepost, framing: str
) -> None:
    body = b"hello" if framing.startswith("Content") else chunk(b"hello") + END
    with server.connect() as client:
        client.send(expecting("/early?early", framing))
        status, _, headers = client.head()
        server.count()
        # No 100 may follow; the client may send all the same, or leave (RFC 9110 section 10.1.1).
        assert (status, ("Connection", "close") in headers) == (200, True)
        assert client.chunk() == b"begun"
        client.send(body)
        assert (client.chunk(), client.chunk()) == (b"5", b"")
        assert client.is_closed()


def test_a_body_that_does_not_follow_the_head_of_its_response_is_not_waited_for_for_ever(
    serve: Callable[..., Milepost],
) -> None:
    server = serve(*ZOO, "--body-timeout", "500ms")
    with server.connect() as client:
        client.send(expecting("/early?never", "Content-Length: 5"))
        client.head()
        server.count()
        assert client.chunk() == b"begun"
        with pytest.raises(CutShort):
            client.chunk()
    # Its task is cancelled, or hears that the client is gone.
    assert until(lambda: seen(server, "never") in (["cancelled"], ["http.disconnect"]))


def begin_expecting(client: Http2, target: str, *headers: tuple[str, str]) -> int:
    stream = client.begin(target, ("expect", "100-continue"), *headers, method="POST", ends=False)
    client.server.count()
    return stream


LENGTH_5 = ("content-length", "5")


@pytest.mark.parametrize("headers", [(), (LENGTH_5,), (("content-length", "100000"),)])
def test_a_client_of_http2_is_told_to_send_when_the_body_is_wanted(
    serve: Callable[..., Milepost], headers: tuple[tuple[str, str], ...]
) -> None:
    server = serve(*ZOO)
    body = bytes(int(dict(headers).get("content-length", "5")))
    with Http2(server) as client:
        stream = begin_expecting(client, "/held?invited", *headers)
        response = client.responses[stream]
        # Others are served meanwhile: the application is inside, and has not asked.
        for _ in range(3):
            client.ask("/seen?nothing")
        assert response.interim == []
        client.ask("/release?invited")
        client.until(lambda: response.interim)
        client.send_body(stream, body)
        assert client.response(stream).body == b"%d" % len(body)
        assert response.interim == [(100, [])]


def test_a_client_of_http2_is_not_told_to_send_what_nobody_wants(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    with Http2(server) as client:
        response = client.responses[begin_expecting(client, "/ignores", LENGTH_5)]
        client.until(lambda: response.is_ended)
        assert (response.status, response.body, response.interim) == (403, b"not read", [])
        # A client that has begun need not be told.
        stream = begin_expecting(client, "/held?eager", LENGTH_5)
        client.send_body(stream, b"hello")
        client.ask("/seen?nothing")
        client.ask("/release?eager")
        assert (client.response(stream).body, client.responses[stream].interim) == (b"5", [])


@pytest.mark.parametrize("is_invited", [False, True])
def test_a_body_that_stops_coming_over_http2_is_refused(
    serve: Callable[..., Milepost], is_invited: bool
) -> None:
    server = serve(*ZOO, "--body-timeout", "1s")
    with Http2(server) as client:
        if is_invited:
            response = client.responses[begin_expecting(client, "/count?silent")]
            client.until(lambda: response.interim)
        else:
            stream = client.begin("/count?silent", method="POST", ends=False)
            response = client.responses[stream]
            server.count()
            client.machine.send_data(stream, b"a part")
            client.flush()
            assert has_seen(server, "silent", ["http.request", 6])
        client.until(lambda: response.is_ended)
        assert response.status == 408
        assert client.ask("/seen?nothing").body == b"[]"
    assert server.stop() == 0
    assert server.errors.count("Traceback") == 0


def test_the_time_for_a_body_over_http2_begins_when_it_is_wanted(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--body-timeout", "500ms")
    with Http2(server) as client:
        response = client.responses[begin_expecting(client, "/held?late", LENGTH_5)]
        client.sock.settimeout(1.5)
        with pytest.raises(TimeoutError):
            client.until(lambda: response.status)
        client.sock.settimeout(DEADLINE_S)
        client.ask("/release?late")
        client.until(lambda: response.is_ended)
        # Told, and silent.
        assert (response.status, response.interim) == (408, [(100, [])])


def test_an_application_that_takes_nothing_costs_its_client_no_time_over_http2(
    serve: Callable[..., Milepost],
) -> None:
    server = serve(*ZOO, "--body-timeout", "500ms")
    with Http2(server) as client:
        stream = client.begin("/held?patient", method="POST", ends=False)
        server.count()
        sent = 0
        while room := min(client.machine.local_flow_control_window(stream), 16_384):
            client.machine.send_data(stream, bytes(room))
            client.flush()
            sent += room
            client.ask("/seen?x")
        client.sock.settimeout(1.5)
        with pytest.raises(TimeoutError):
            client.until(lambda: client.responses[stream].status)
        client.sock.settimeout(DEADLINE_S)
        client.ask("/release?patient")
        client.send_body(stream, b"end")
        assert client.response(stream).body == b"%d" % (sent + 3)


def push(client: Http2, stream: int, size: int) -> None:
    """Send so much as the windows allow, until the stream has ended."""
    response = client.responses[stream]
    while size and not (response.is_ended or response.reset is not None):
        room = min(client.machine.local_flow_control_window(stream), 16_384, size)
        if room:
            client.machine.send_data(stream, bytes(room))
            client.flush()
            size -= room
        else:
            client.read()


def test_a_body_over_http2_that_is_too_long_is_refused(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--body-bytes-max", "100000")
    with Http2(server) as client:
        stream = client.begin("/count?long", method="POST", ends=False)
        server.count()
        response = client.responses[stream]
        push(client, stream, 7 * 15_000)
        client.until(lambda: response.is_ended)
        assert response.status == 413
        # One that says so begins no application.
        stream = client.begin("/count?declared", ("content-length", "100001"), method="POST", ends=False)
        server.count()
        response = client.responses[stream]
        client.until(lambda: response.is_ended)
        assert response.status == 413
        assert client.ask("/seen?declared").body == b"[]"


@pytest.mark.parametrize("fault", ["silent", "long"])
def test_a_response_over_http2_that_has_begun_is_cut_with_its_body(
    serve: Callable[..., Milepost], fault: str
) -> None:
    server = serve(*ZOO, "--body-bytes-max", "100000", "--body-timeout", "1s")
    with Http2(server) as client:
        stream = client.begin("/echo", method="POST", ends=False)
        server.count()
        response = client.responses[stream]
        client.machine.send_data(stream, b"good")
        client.flush()
        client.until(lambda: response.body == b"good")
        push(client, stream, 7 * 15_000 if fault == "long" else 0)
        client.until(lambda: response.reset is not None)
        assert not response.is_ended
        assert client.ask("/seen?nothing").body == b"[]"
