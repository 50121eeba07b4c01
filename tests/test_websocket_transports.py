"""WebSocket under TLS and over HTTP/2 (RFC 8441): the same connections, with other bytes around them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import frames
import h2.settings
from frames import BINARY, CLOSE, PING, PONG, TEXT, WebSocket, frame
from http2 import Http2

from serving import APPS, Milepost, until

ZOO = ("websocket_zoo:app", "--app-dir", str(APPS))
VERSION = ("sec-websocket-version", "13")


def seen(server: Milepost, name: str) -> list[object]:
    def ask() -> list[object]:
        with server.connect() as client:
            return json.loads(client.ask("GET", f"/seen?{name}").body)

    assert until(ask)
    return ask()


def test_messages_pass_tls(serve: Callable[..., Milepost], tmp_path: Path, authority: Any) -> None:
    server = serve(*ZOO, *authority.flags("server", "localhost"), tls=authority.context())
    with server.connect() as client:
        connection = WebSocket(client, "/echo?tls")
        for payload in (b"", b"a" * 64, bytes(1 << 20)):
            connection.send(BINARY, payload)
            assert connection.read() == (BINARY, payload)
        client.send(b"".join(frame(TEXT, b"%d" % number) for number in range(500)))
        assert [connection.text() for _ in range(500)] == [str(number) for number in range(500)]
        client.send(frames.close(1000))
        assert connection.closed() == (1000, "")
    with server.connect() as client:
        connection = WebSocket(client, "/scope")
        assert json.loads(connection.text())["scheme"] == "wss"
    assert seen(server, "tls") == [[1000, ""]]


def test_a_broadcast_passes_tls_in_order(
    serve: Callable[..., Milepost], tmp_path: Path, authority: Any
) -> None:
    server = serve(*ZOO, *authority.flags("server", "localhost"), tls=authority.context())
    clients = [server.connect() for _ in range(3)]
    connections = [WebSocket(client, "/broadcasts") for client in clients]
    for connection in connections:
        connection.client.send(b"".join(frame(TEXT, b"%d" % number) for number in range(100)))
    for connection in connections:
        got = [connection.text() for _ in range(300)]
        assert sorted(got, key=int) == [str(number // 3) for number in range(300)]
    connections[0].client.send(b"".join(frame(TEXT, text) for text in [b"a", b"b", b"the last"]))
    for connection in connections:
        assert [connection.text() for _ in range(3)] == ["a", "b", "the last"]
    for connection in connections[1:]:
        assert connection.closed() == (4000, "")
    for client in clients:
        client.sock.close()


class Stream:
    """A WebSocket connection that is one stream of an HTTP/2 connection."""

    def __init__(self, client: Http2, target: str, *headers: tuple[str, str]) -> None:
        self.client = client
        protocol = (":protocol", "websocket")
        self.number = client.begin(target, protocol, VERSION, *headers, method="CONNECT", ends=False)
        client.server.count()
        self.response = client.responses[self.number]
        client.until(lambda: self.response.status)
        self.at = 0

    def send(self, data: bytes) -> None:
        while data:
            room = min(self.client.machine.local_flow_control_window(self.number), 16384)
            if room == 0:
                self.client.read()
                continue
            self.client.machine.send_data(self.number, data[:room])
            data = data[room:]
            self.client.flush()

    def exactly(self, length: int) -> bytes:
        self.client.until(lambda: len(self.response.body) >= self.at + length)
        self.at += length
        return bytes(self.response.body[self.at - length : self.at])

    def read(self) -> tuple[int, bytes]:
        first, second = self.exactly(2)
        length = second & 127
        if length > 125:
            length = int.from_bytes(self.exactly(2 if length == 126 else 8), "big")
        return first & 0x7F, self.exactly(length)


def test_a_stream_of_http2_is_a_connection(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    with Http2(server) as client:
        client.until(lambda: client.machine.remote_settings.enable_connect_protocol)
        streams = [Stream(client, f"/echo?h2-{number}") for number in range(3)]
        assert [stream.response.status for stream in streams] == [200] * 3
        for number, stream in enumerate(streams):
            stream.send(frame(TEXT, b"%d" % number))
        assert [stream.read() for stream in streams] == [(TEXT, b"0"), (TEXT, b"1"), (TEXT, b"2")]
        big = bytes(range(256)) * 4096
        streams[0].send(frame(BINARY, big))
        assert streams[0].read() == (BINARY, big)
        streams[1].send(frame(PING, b"alive"))
        assert streams[1].read() == (PONG, b"alive")
        streams[1].send(frames.close(3001, "done"))
        assert streams[1].read() == (CLOSE, b"\x0b\xb9")
        assert client.response(streams[1].number).is_ended
        client.reset(streams[2].number)
        assert seen(server, "h2-1") == [[3001, "done"]]
        assert seen(server, "h2-2") == [[1006, ""]]
        # Requests go on beside them.
        assert client.ask("/alive").body == b'"/alive"'
        streams[0].send(frame(TEXT, b"still"))
        assert streams[0].read() == (TEXT, b"still")


def test_a_handshake_that_is_reset_while_it_is_accepted_has_its_line(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    for _ in range(10):
        with Http2(server) as client:
            client.until(lambda client=client: client.machine.remote_settings.enable_connect_protocol)
            # Some of the resets are read together with the application's acceptance.
            for number in range(50):
                protocol = (":protocol", "websocket")
                stream = client.begin("/echo?reset", protocol, VERSION, method="CONNECT", ends=False)
                server.count()
                end = time.perf_counter() + number * 20e-6
                while time.perf_counter() < end:
                    pass
                client.reset(stream)


def test_small_messages_are_no_odd_work(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    with Http2(server) as client:
        client.until(lambda: client.machine.remote_settings.enable_connect_protocol)
        stream = Stream(client, "/echo?small")
        for _ in range(20):
            for _ in range(100):
                stream.send(frame(TEXT, b"small"))
            assert [stream.read() for _ in range(100)] == [(TEXT, b"small")] * 100


def test_a_broadcast_passes_the_streams_of_a_connection(serve: Callable[..., Milepost]) -> None:
    with Http2(serve(*ZOO)) as client:
        client.until(lambda: client.machine.remote_settings.enable_connect_protocol)
        streams = [Stream(client, "/broadcasts") for _ in range(3)]
        sent = [b"%d" % number for number in range(100)] + [b"the last"]
        streams[0].send(b"".join(frame(TEXT, text) for text in sent))
        for stream in streams:
            assert [stream.read() for _ in sent] == [(TEXT, text) for text in sent]
        for stream in streams[1:]:
            assert stream.read() == (CLOSE, (4000).to_bytes(2, "big"))


def test_the_scope_of_a_stream_is_that_of_a_websocket(serve: Callable[..., Milepost]) -> None:
    with Http2(serve(*ZOO)) as client:
        stream = Stream(client, "/scope?x", ("sec-websocket-protocol", "a, b"))
        opcode, payload = stream.read()
        scope = json.loads(payload)
        assert (opcode, scope["type"], scope["http_version"]) == (TEXT, "websocket", "2")
        assert (scope["subprotocols"], scope["path"], scope["scheme"]) == (["a", "b"], "/scope", "ws")
        assert "method" not in scope


def test_a_stream_that_is_not_accepted_gets_a_response(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    with Http2(server) as client:
        assert Stream(client, "/refuses").response.status == 403
        denied = Stream(client, "/denies")
        assert (denied.response.status, client.response(denied.number).body) == (401, b"no token")
        # RFC 8441 section 5: the version is asked for as by HTTP/1.1.
        stream = client.begin("/echo", (":protocol", "websocket"), method="CONNECT", ends=False)
        server.count()
        client.until(lambda: client.responses[stream].status)
        assert client.responses[stream].status == 426


def test_streams_count_among_the_connections_that_may_be_open(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO, "--ws-max", "2")
    with Http2(server) as client, server.connect() as other:
        one, two = Stream(client, "/echo"), Stream(client, "/echo")
        for _ in range(2):
            refused = Stream(client, "/decides?refused")
            assert (refused.response.status, refused.response.header("retry-after")) == (503, "10")
            assert client.response(refused.number).is_ended
        # Nor may one over HTTP/1.1 be opened.
        other.send(frames.handshake("/echo"))
        assert other.reply().status == 503
        assert client.ask("/seen?refused").body == b"[]"
        for _ in range(20):
            one.send(frames.close(1000))
            assert one.read() == (CLOSE, b"\x03\xe8")
            one = Stream(client, "/echo")
            assert one.response.status == 200
        client.reset(two.number)
        assert until(lambda: Stream(client, "/echo").response.status == 200)
    assert server.stop() == 0
    lines = [line for line in server.lines if " 503 " in line]
    assert all(
        ' cause="as many WebSocket connections are open as may be (ws_max)" ' in line for line in lines
    )


def test_other_protocols_of_connect_are_refused(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    with Http2(server) as client:
        stream = client.begin("/echo", (":protocol", "connect-udp"), method="CONNECT", ends=False)
        server.count()
        client.until(lambda: client.responses[stream].status)
        assert client.responses[stream].status == 501


def test_files_accept_no_stream(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_text("a")
    server = serve(*ZOO, "--static", f"/files={tmp_path / 'files'}")
    with Http2(server) as client:
        stream = client.begin("/files/a", (":protocol", "websocket"), VERSION, method="CONNECT", ends=False)
        server.count()
        client.until(lambda: client.responses[stream].status)
        assert client.responses[stream].status == 501
        assert client.ask("/files/a").status == 200


def test_a_server_without_event_loop_does_not_offer_it(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    (tmp_path / "plain.py").write_text(
        "def app(environ, start_response):\n    start_response('200 OK', [])\n    return [b'ok']\n"
    )
    with Http2(serve("plain:app", "--app-dir", str(tmp_path))) as client:
        assert client.ask("/").status == 200
        assert not client.machine.remote_settings.enable_connect_protocol


def test_windows_hold_an_application_back_over_http2(serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    with Http2(server, window=1 << 16) as client:
        Stream(client, "/floods?h2")
        (sent,) = seen(server, "h2")
        assert 1 <= int(sent) < 64  # type: ignore[call-overload]


def test_a_setting_of_the_client_is_no_news(serve: Callable[..., Milepost]) -> None:
    codes = h2.settings.SettingCodes
    with Http2(serve(*ZOO), settings={codes.ENABLE_CONNECT_PROTOCOL: 1}) as client:
        assert client.ask("/alive").status == 200
