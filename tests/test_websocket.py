"""WebSocket over HTTP/1.1: handshakes, messages, how connections end, and what that costs others."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import frames
import pytest
from frames import BINARY, CLOSE, PING, PONG, TEXT, WebSocket, frame, handshake

from raw import Client
from serving import APPS, LOOPS, Milepost, until
from supervising import Supervised

ZOO = ("websocket_zoo:app", "--app-dir", str(APPS))


@pytest.fixture(scope="module", params=LOOPS)
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Milepost]:
    folder = tmp_path_factory.mktemp("websocket")
    arguments = ["--loop", request.param, "--ws-max-size", "1M", "--ws-close-timeout", "300ms"]
    with Milepost(folder, *ZOO, *arguments) as server:
        yield server


@pytest.fixture
def client(server: Milepost) -> Iterator[Client]:
    with server.connect() as connection:
        yield connection


def seen(server: Milepost, name: str, count: int = 1) -> list[object]:
    """What an application has noted, once that is so much."""

    def ask() -> list[object]:
        with server.connect() as client:
            return json.loads(client.ask("GET", f"/seen?{name}").body)

    assert until(lambda: len(ask()) >= count)
    return ask()


def test_messages_come_back_as_they_were_sent(client: Client) -> None:
    connection = WebSocket(client, "/echo")
    for opcode, payload in [
        (TEXT, b""),
        (TEXT, "ä€😀".encode()),
        (BINARY, b""),
        (BINARY, bytes(range(256))),
        (BINARY, os.urandom(126)),
        (BINARY, os.urandom(1 << 16)),
        (BINARY, os.urandom(1 << 20)),
    ]:
        connection.send(opcode, payload)
        assert connection.read() == (opcode, payload)
    client.send(frames.close(1000, "done"))
    assert connection.closed() == (1000, "")
    assert client.is_closed()


def test_many_messages_of_one_read_come_back_in_order(client: Client) -> None:
    connection = WebSocket(client, "/echo")
    client.send(b"".join(frame(TEXT, b"%d" % number) for number in range(1000)))
    assert [connection.text() for _ in range(1000)] == [str(number) for number in range(1000)]


def test_a_broadcast_of_many_reaches_each_connection_in_order(server: Milepost) -> None:
    clients = [server.connect() for _ in range(12)]
    connections = [WebSocket(client, "/broadcasts") for client in clients]
    for sender, connection in enumerate(connections):
        for number in range(50):
            connection.send(TEXT, b"%d %d" % (sender, number))
    for connection in connections:
        got = [connection.text().split() for _ in range(12 * 50)]
        for sender in range(12):
            numbers = [int(number) for by, number in got if int(by) == sender]
            assert numbers == list(range(50)), sender
    # One alone, and the last messages of others before a close frame of theirs.
    connections[0].send(TEXT, b"alone")
    assert [connection.text() for connection in connections] == ["alone"] * 12
    connections[0].client.send(b"".join(frame(TEXT, text) for text in [b"a", b"b", b"the last"]))
    for connection in connections:
        assert [connection.text() for _ in range(3)] == ["a", "b", "the last"]
    connections[0].client.send(frames.close(1000))
    for connection, code in zip(connections, [1000, *[4000] * 11], strict=True):
        assert connection.closed() == (code, "")
        connection.client.send(frames.close(code))
        assert connection.client.is_closed()
        connection.client.sock.close()


def test_what_comes_with_the_handshake_is_not_lost(client: Client) -> None:
    client.send(handshake("/echo") + frame(TEXT, b"early"))
    assert client.head()[0] == 101
    client.count()
    assert client.exactly(7) == b"\x81\x05early"


def test_the_scope_is_that_of_the_handshake(server: Milepost, client: Client) -> None:
    connection = WebSocket(
        client, "/scope?a=%41", "Sec-WebSocket-Protocol: chat, super", "Sec-WebSocket-Protocol: x"
    )
    host, port = client.sock.getsockname()
    assert json.loads(connection.text()) == {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.5"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": "/scope",
        "raw_path": "bytes:/scope",
        "query_string": "bytes:a=%41",
        "root_path": "",
        "client": [host, port],
        "server": list(server.address),
        "subprotocols": ["chat", "super", "x"],
        "extensions": {"websocket.http.response": {}},
    }


def test_the_application_chooses_a_subprotocol_and_fields(client: Client) -> None:
    connection = WebSocket(client, "/chooses", "Sec-WebSocket-Protocol: chat, super")
    assert ("Sec-WebSocket-Protocol", "super") in connection.headers
    assert [value for name, value in connection.headers if name.lower() == "set-cookie"] == ["a=1", "b=2"]
    assert [value for name, value in connection.headers if name.lower() == "sec-websocket-accept"] == [
        frames.ACCEPT
    ]


@pytest.mark.parametrize(
    ("path", "status", "logged"),
    [
        ("/refuses", 403, None),
        ("/returns-early", 403, "the application returned before it accepted or closed the WebSocket"),
        ("/fails-early", 500, "ValueError: broken before it accepts"),
        ("/speaks-early", 500, "a message was sent before `websocket.accept`"),
        ("/wrong-choice", 500, "`subprotocol` is none of those that the client offers"),
    ],
)
def test_a_connection_that_is_not_accepted_gets_a_response(
    server: Milepost, client: Client, path: str, status: int, logged: str | None
) -> None:
    client.send(handshake(path))
    assert client.reply().status == status
    if logged is not None:
        assert until(lambda: logged in server.errors), server.errors
    # The connection lives on: nothing but a response has happened to it.
    assert client.ask("GET", "/alive").status == 200


def test_an_application_that_refuses_hears_of_the_end(server: Milepost, client: Client) -> None:
    client.send(handshake("/refuses?end"))
    assert client.reply().status == 403
    assert seen(server, "end") == ["websocket.disconnect"]


def test_an_application_denies_by_a_response_of_its_own(client: Client) -> None:
    client.send(handshake("/denies"))
    reply = client.reply()
    assert (reply.status, reply.header("x-why"), reply.body) == (401, "no token", b"no token")


@pytest.mark.parametrize(
    ("head", "status", "field"),
    [
        (handshake("/echo", version="8"), 426, ("Sec-WebSocket-Version", "13")),
        (handshake("/echo").replace(b"==", b"="), 400, None),
        (handshake("/echo").replace(b"GET", b"POST"), 405, ("Allow", "GET")),
        (handshake("/echo", "Sec-WebSocket-Protocol: a b"), 400, None),
        (handshake("/echo", "Sec-WebSocket-Extensions: =;"), 400, None),
    ],
)
def test_a_malformed_handshake_is_refused(
    client: Client, head: bytes, status: int, field: tuple[str, str] | None
) -> None:
    client.send(head)
    reply = client.reply()
    assert reply.status == status
    assert field is None or reply.header(field[0]) == field[1]


def test_an_upgrade_to_something_else_is_a_request_like_others(client: Client) -> None:
    client.send(b"GET /a HTTP/1.1\r\nHost: zoo\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
    assert client.reply().status == 200


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(TEXT, b"a", masked=False), 1002),
        (frame(TEXT, b"a", rsv=4), 1002),
        (frame(3), 1002),
        (frame(PING, bytes(126)), 1002),
        (frame(PING, final=False), 1002),
        (frame(0, b"nothing before it"), 1002),
        (frame(TEXT, b"a", final=False) + frame(TEXT, b"b"), 1002),
        (frame(CLOSE, b"\x03"), 1002),
        (frames.close(1005), 1002),
        (frames.close(1000, "") + b"\x00", 1000),
        (frame(TEXT, b"\xff"), 1007),
        (frame(TEXT, b"\xe2\x82", final=False) + frame(0, b"\x41"), 1007),
        (frame(CLOSE, b"\x03\xe8\xff"), 1007),
        (b"\x82\xff" + struct.pack("!Q", (1 << 20) + 1) + bytes(4), 1009),
        (frame(BINARY, bytes(1 << 19), final=False) * 1 + frame(0, bytes((1 << 19) + 1)), 1009),
    ],
)
def test_frames_that_break_the_protocol_end_the_connection(client: Client, sent: bytes, code: int) -> None:
    connection = WebSocket(client, "/echo")
    client.send(sent)
    assert connection.closed()[0] == code
    assert client.is_closed()


def test_a_message_may_come_in_pieces_with_pings_between(client: Client) -> None:
    connection = WebSocket(client, "/echo")
    euro = "€".encode()
    for part in [
        frame(TEXT, euro[:1], final=False),
        frame(PING, b"one"),
        frame(0, final=False),
        frame(0, euro[1:2], final=False),
        frame(PING, b"two"),
        frame(PONG, b"unasked"),
        frame(0, euro[2:]),
    ]:
        client.send(part)
    assert connection.read() == (PONG, b"one")
    assert connection.read() == (PONG, b"two")
    assert connection.text() == "€"


def test_pings_are_answered_while_the_loop_is_blocked(server: Milepost, client: Client) -> None:
    connection = WebSocket(client, "/late?pings")
    assert connection.text() == "open"
    for number in range(3):
        connection.send(PING, b"%d" % number)
        assert connection.read() == (PONG, b"%d" % number)


DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"


def deflated(payload: bytes, deflater: zlib._Compress) -> bytes:
    data = deflater.compress(payload) + deflater.flush(zlib.Z_SYNC_FLUSH)
    assert data.endswith(b"\0\0\xff\xff")
    return data[:-4]


def test_messages_are_compressed_where_both_ends_agree(client: Client) -> None:
    connection = WebSocket(client, "/echo", DEFLATE)
    deflater = zlib.compressobj(wbits=-15)
    for payload in [b"a" * 1000, b"b" * 1000, os.urandom(4000)]:
        connection.send(BINARY, deflated(payload, deflater), rsv=4)
        opcode, data = connection.read()
        assert opcode == 0x40 | BINARY
        assert zlib.decompressobj(wbits=-12).decompress(data + b"\0\0\xff\xff") == payload
    # Short ones are not worth it, and the client need not compress.
    connection.send(TEXT, b"short")
    assert connection.read() == (TEXT, b"short")


def test_a_bomb_of_compressed_bytes_ends_at_the_limit(client: Client) -> None:
    connection = WebSocket(client, "/echo", DEFLATE)
    connection.send(BINARY, deflated(bytes(64 << 20), zlib.compressobj(wbits=-15)), rsv=4)
    assert connection.closed()[0] == 1009


@pytest.mark.parametrize(
    ("path", "code", "reason"),
    [("/returns", 1000, ""), ("/fails", 1011, ""), ("/closes", 4321, "enough")],
)
def test_an_application_that_ends_closes_its_connection(
    server: Milepost, client: Client, path: str, code: int, reason: str
) -> None:
    connection = WebSocket(client, path)
    assert connection.closed() == (code, reason)
    client.send(frames.close(code))
    assert client.is_closed()
    if path == "/fails":
        assert until(lambda: "ValueError: broken behind the handshake" in server.errors)


def test_an_application_hears_of_its_own_end_and_sends_nothing_behind_it(
    server: Milepost, client: Client
) -> None:
    connection = WebSocket(client, "/closes?own")
    assert connection.closed() == (4321, "enough")
    assert seen(server, "own", 2) == [[4321, "enough"], "ClientDisconnected"]


@pytest.mark.parametrize(
    ("sent", "code", "reason"),
    [
        (frames.close(3000, "tired"), 3000, "tired"),
        (frames.close(None), 1005, ""),
        (b"", 1006, ""),
        (frame(TEXT, b"\xff"), 1007, "a text message is not UTF-8"),
    ],
)
def test_the_application_hears_how_its_client_has_left(
    server: Milepost, client: Client, sent: bytes, code: int, reason: str
) -> None:
    name = f"left-{code}"
    WebSocket(client, f"/echo?{name}")
    client.send(sent) if sent else client.sock.close()
    assert seen(server, name) == [[code, reason]]


def test_a_reset_is_an_end_without_a_code(server: Milepost, client: Client) -> None:
    WebSocket(client, "/echo?reset")
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.sock.close()
    assert seen(server, "reset") == [[1006, ""]]


def test_wrong_events_are_refused_by_sentences(client: Client) -> None:
    known = ["accept", "send", "close", "http.response.start", "http.response.body"]
    takes = "a WebSocket connection can be answered with: this one takes "
    takes += ", ".join(f"`websocket.{name}`" for name in known)
    connection = WebSocket(client, "/wrong-events")
    assert [connection.text() for _ in range(8)] == [
        "ValueError: `websocket.send` has neither `bytes` nor `text`",
        "ValueError: `websocket.send` has both `bytes` and `text`; one of them must be None",
        "TypeError: `text` of `websocket.send` must be str",
        "TypeError: `bytes` of `websocket.send` must be bytes, not str",
        "RuntimeError: a close frame cannot carry the code 1005: "
        "use 1000 to 1003, 1007 to 1014 or 3000 to 4999",
        "RuntimeError: the connection is accepted already",
        f"ValueError: `http.response.start` is no event that {takes}",
        f"ValueError: `websocket.sent` is no event that {takes}",
    ]


def test_a_receive_that_is_cancelled_loses_no_message(client: Client) -> None:
    connection = WebSocket(client, "/cancelled")
    assert connection.text() == "open"
    for number in range(50):
        connection.send(TEXT, b"%d" % number)
    assert json.loads(connection.text()) == list(range(50))


def test_a_receive_that_waits_before_the_accept_gets_the_first_message(client: Client) -> None:
    connection = WebSocket(client, "/waits-first")
    connection.send(TEXT, b"first")
    assert connection.text() == "first"


def test_no_connection_sees_the_context_of_another(server: Milepost) -> None:
    for _ in range(3):
        with server.connect() as client:
            assert WebSocket(client, "/context").text() == "clean"


def test_a_client_waits_for_an_application_that_takes_nothing(server: Milepost, client: Client) -> None:
    connection = WebSocket(client, "/late?slow")
    assert connection.text() == "open"
    message = frame(BINARY, bytes(64 << 10), masked=True)
    client.sock.setblocking(False)
    sent = 0
    try:
        while sent < 64 << 20:
            sent += client.sock.send(message[sent % len(message) :])
    except BlockingIOError:
        pass
    # What the server keeps is bounded; the rest is in buffers of both kernels.
    assert sent < 32 << 20
    client.sock.setblocking(True)
    with server.connect() as other:
        WebSocket(other, "/release?slow")
    rest = -sent % len(message)
    if rest:
        client.send(message[-rest:])
    client.send(frame(BINARY, b"last"))
    assert int(connection.text()) == (sent + rest) // len(message) * (64 << 10) + 4


def test_an_application_waits_for_a_client_that_takes_nothing(server: Milepost) -> None:
    with server.connect(receive_buffer_bytes=1 << 16) as client:
        WebSocket(client, "/floods?flood")
        (sent,) = seen(server, "flood")
        assert sent != "all"
        assert 1 <= int(sent) < 512


def test_an_application_that_stays_is_cancelled(server: Milepost, client: Client) -> None:
    WebSocket(client, "/lingers?stay")
    client.send(frames.close(1000))
    assert seen(server, "stay") == ["cancelled"]


def test_a_silent_client_is_asked_for_a_sign_of_life(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--ws-ping-interval", "300ms", "--ws-ping-timeout", "300ms")
    with server.connect() as client:
        connection = WebSocket(client, "/echo?silent")
        for _ in range(2):
            assert connection.read() == (PING, b"")
            connection.send(PONG)
        assert connection.read() == (PING, b"")
        assert connection.closed() == (1011, "the client has not answered a ping")
    assert seen(server, "silent") == [[1006, "the client has not answered a ping"]]


def test_no_sign_of_life_is_asked_for_while_nothing_is_read(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--ws-ping-interval", "300ms", "--ws-ping-timeout", "300ms")
    with server.connect() as client:
        connection = WebSocket(client, "/late?unread")
        assert connection.text() == "open"
        assert connection.read() == (PING, b"")
        # More than the server keeps for an application that takes nothing: the answer lies unread behind it.
        client.send(frame(BINARY, b"x") * 300 + frame(PONG))
        time.sleep(1.2)
        with server.connect() as other:
            WebSocket(other, "/release?unread")
        connection.send(BINARY, b"last")
        while (found := connection.read()) == (PING, b""):
            connection.send(PONG)
        assert found == (TEXT, b"304")


def test_the_log_has_one_line_for_each_connection(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    with server.connect() as client:
        connection = WebSocket(client, "/echo?log")
        for payload in (b"one", b"two"):
            connection.send(TEXT, payload)
            assert connection.text().encode() == payload
        client.send(frames.close(1000))
        assert connection.closed() == (1000, "")
        assert client.is_closed()
    assert server.stop() == 0
    (line,) = server.lines
    assert '"GET /echo?log HTTP/1.1" 101 ' in line
    assert " messages_in=2 messages_out=2 close_code=1000 " in line


#: Why a handshake is refused.
TOO_MANY = "as many WebSocket connections are open as may be (ws_max)"


def of_loop(server: Supervised, *names: str) -> list[int]:
    (process,) = server.processes()
    return [process["event_loop"][name] for name in names]


def asked(client: Client, target: str) -> int:
    """The status that answers a handshake."""
    client.send(handshake(target))
    client.count()
    status, _, headers = client.head()
    if status == 503:
        assert ("Retry-After", "10") in headers
        client.exactly(int(dict(headers)["Content-Length"]))
    return status


@pytest.fixture
def bounded(supervise: Callable[..., Supervised]) -> Callable[..., Supervised]:
    arguments = ("--app-dir", str(APPS), "--access-log", "-")
    return lambda *more: supervise(*arguments, *more, app="websocket_zoo:app")


def test_no_more_connections_are_open_than_may_be(bounded: Callable[..., Supervised]) -> None:
    server = bounded("--ws-max", "2")
    with server.connect() as one, server.connect() as two, server.connect() as refused:
        first, second = WebSocket(one, "/echo"), WebSocket(two, "/echo")
        # Its application would say that it has begun.
        for _ in range(3):
            assert asked(refused, "/decides?refused") == 503
        assert json.loads(refused.ask("GET", "/seen?refused").body) == []
        assert of_loop(server, "inside", "websockets", "websockets_max", "websockets_refused") == [0, 2, 2, 3]
        assert " 2/2 " in server.done("status")
        # Those that are open are not concerned.
        for connection in (first, second):
            connection.send(TEXT, b"on")
            assert connection.text() == "on"
        one.send(frames.close(1000))
        assert first.closed() == (1000, "")
        assert asked(refused, "/echo") == 101
    assert until(lambda: of_loop(server, "websockets") == [0])
    assert server.stop() == 0
    lines = [line for line in server.lines if " 503 " in line]
    assert len(lines) == 3
    assert all(f' end=refused cause="{TOO_MANY}" ' in line for line in lines)


@pytest.mark.parametrize("target", ["/echo", "/closes", "/returns", "/fails", "/lingers?place"])
def test_a_connection_that_is_closed_makes_room_at_once(
    bounded: Callable[..., Supervised], target: str
) -> None:
    server = bounded("--ws-max", "1")
    for _ in range(40):
        with server.connect() as client, server.connect() as other:
            connection = WebSocket(client, target)
            if target in ("/echo", "/lingers?place"):
                # While it is open, and closed by its client, whose application may still run.
                assert asked(other, "/echo") == 503
                client.send(frames.close(1000))
                assert connection.closed() == (1000, "")
            else:
                connection.closed()
                client.send(frames.close(1000))
                assert client.is_closed()
            # No other connection of the client knows that one of the loop has ended, but for its bytes.
            assert asked(other, "/echo") == 101
            other.send(frames.close(1000))
            assert other.exactly(4) == b"\x88\x02\x03\xe8"
    assert of_loop(server, "websockets") == [0]


def test_a_client_that_breaks_the_protocol_or_leaves_makes_room(bounded: Callable[..., Supervised]) -> None:
    server = bounded("--ws-max", "1")
    with server.connect() as client:
        connection = WebSocket(client, "/echo")
        connection.send(3, b"no such opcode")
        assert connection.closed()[0] == 1002
        with server.connect() as other:
            WebSocket(other, "/echo")
            # No close frame: a reset.
            other.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert until(lambda: of_loop(server, "websockets") == [0])
    with server.connect() as client:
        assert asked(client, "/echo") == 101


def test_handshakes_that_are_under_way_count(bounded: Callable[..., Supervised]) -> None:
    server = bounded("--ws-max", "10")
    clients = [server.connect() for _ in range(40)]
    for client in clients:
        client.send(handshake("/decides?crowd"))
    with server.connect() as opening:
        # So many have asked, and so many were answered: none of the others may begin later.
        assert until(lambda: of_loop(server, "websockets", "websockets_refused") == [10, 30])
        assert opening.ask("GET", "/seen?crowd").body == json.dumps(["begun"] * 10).encode()
        opening.ask("GET", "/open?crowd")
    statuses = [client.head()[0] for client in clients]
    server.count(len(clients))
    assert (statuses.count(101), statuses.count(503)) == (10, 30)
    assert of_loop(server, "inside", "websockets") == [0, 10]
    for client in clients:
        client.sock.close()
    assert until(lambda: of_loop(server, "websockets") == [0])


def test_a_handshake_that_is_not_accepted_makes_room(bounded: Callable[..., Supervised]) -> None:
    server = bounded("--ws-max", "1")
    with server.connect() as client, server.connect() as other:
        for target, status in [
            ("/refuses", 403),
            ("/denies", 401),
            ("/returns-early", 403),
            ("/fails-early", 500),
        ]:
            client.send(handshake(target))
            assert client.reply().status == status
            # A malformed one has none.
            other.send(handshake("/echo", version="12"))
            assert other.reply().status == 426
        client.send(handshake("/decides?held-"))
        assert until(lambda: of_loop(server, "inside", "websockets") == [1, 1])
        assert asked(other, "/echo") == 503
        other.ask("GET", "/open?held-")
        assert client.reply().status == 403
        assert asked(other, "/echo") == 101


def test_without_a_bound_all_are_open(bounded: Callable[..., Supervised]) -> None:
    server = bounded("--ws-max", "off")
    clients = [server.connect() for _ in range(20)]
    for client in clients:
        WebSocket(client, "/echo")
    assert of_loop(server, "websockets", "websockets_max") == [20, 0]
    for client in clients:
        client.sock.close()


def test_a_wsgi_application_sees_an_ordinary_request(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text(
        "def app(environ, start_response):\n"
        "    start_response('200 OK', [('Content-Length', '2')])\n"
        "    return [b'ok']\n"
    )
    server = serve("plain:app", "--app-dir", str(tmp_path))
    with server.connect() as client:
        client.send(handshake("/"))
        assert client.reply().body == b"ok"


def test_the_end_of_the_server_closes_with_1001(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--ws-drain", "200ms")
    clients = [server.connect() for _ in range(20)]
    connections = [WebSocket(client, "/echo") for client in clients]
    server.signal(signal.SIGTERM)
    for connection in connections:
        assert connection.closed() == (1001, "")
        connection.client.send(frames.close(1001))
        assert connection.client.is_closed()
    assert server.wait() == 0


def test_a_reload_closes_with_1012_and_holds_nothing_back(
    supervise: Callable[..., Supervised],
) -> None:
    server = supervise(*ZOO[1:], "--ws-drain", "500ms", app=ZOO[0])
    clients = [server.connect() for _ in range(30)]
    connections = [WebSocket(client, "/echo") for client in clients]
    server.done("reload")
    # The new process serves while the old one closes.
    with server.connect() as client:
        fresh = WebSocket(client, "/echo")
        for connection in connections:
            assert connection.closed() == (1012, "")
            connection.client.send(frames.close(1012))
            assert connection.client.is_closed()
        fresh.send(TEXT, b"new")
        assert fresh.text() == "new"
