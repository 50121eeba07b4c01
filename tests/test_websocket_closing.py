"""Ends of WebSocket connections that cross other frames, and clients that leave at bad moments."""

from __future__ import annotations

import json
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import frames
import pytest
from frames import BINARY, PING, PONG, TEXT, WebSocket, frame, handshake

from raw import Client
from serving import APPS, LOOPS, Milepost, until

SCRIPTED = ("scripted:app", "--app-dir", str(APPS))
#: A client that answers a close frame is waited for no longer: the server would wait 10 s for its answer.
AT_ONCE_S = 8


@pytest.fixture(scope="module", params=LOOPS)
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Milepost]:
    folder = tmp_path_factory.mktemp("closing")
    with Milepost(folder, *SCRIPTED, "--loop", request.param) as server:
        yield server


@pytest.fixture
def client(server: Milepost) -> Iterator[Client]:
    with server.connect() as connection:
        yield connection


def seen(server: Milepost, name: str) -> list[object]:
    with server.connect() as client:
        return json.loads(client.ask("GET", f"/seen/{name}").body)


def go(server: Milepost, name: str) -> None:
    with server.connect() as client:
        client.ask("GET", f"/go/{name}")


def is_closed_at_once(client: Client) -> bool:
    client.sock.settimeout(AT_ONCE_S)
    return client.is_closed()


def reset(client: Client) -> None:
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.sock.close()


def test_an_end_passes_messages_that_the_application_has_not_taken(server: Milepost, client: Client) -> None:
    connection = WebSocket(client, "/unread?receive+accept+wait+close")
    # So many that the server reads no more.
    client.send(frame(TEXT, b"unread") * 1000)
    go(server, "unread")
    assert connection.closed() == (4000, "")
    client.send(frames.close(4000))
    assert is_closed_at_once(client)


def test_or_one_that_returns_without_taking_them(server: Milepost, client: Client) -> None:
    connection = WebSocket(client, "/untaken?receive+accept+wait")
    client.send(frame(BINARY, bytes(60_000)) * 20)
    go(server, "untaken")
    assert connection.closed() == (1000, "")
    client.send(frames.close(1000))
    assert is_closed_at_once(client)


@pytest.mark.parametrize("crossing", ["text", "ping", "half"])
def test_frames_that_cross_the_close_frame_do_no_harm(client: Client, crossing: str) -> None:
    connection = WebSocket(client, f"/cross-{crossing}?receive+accept+close")
    assert connection.closed() == (4000, "")
    sent = {"text": frame(TEXT, b"late"), "ping": frame(PING, b"late"), "half": frame(TEXT, final=False)}
    # In one read, and the answer in the same.
    client.send(sent[crossing] * 3 + frames.close(4000))
    if crossing == "ping":
        # RFC 6455 section 5.5.2: answered until the client has closed.
        assert [connection.read() for _ in range(3)] == [(PONG, b"late")] * 3
    assert is_closed_at_once(client)


def test_frames_behind_both_close_frames_do_no_harm(server: Milepost, client: Client) -> None:
    connection = WebSocket(client, "/behind?receive+accept+receive_all")
    client.send(frames.close(1000) + frame(PONG))
    assert connection.closed() == (1000, "")
    client.send(frame(PONG) + frame(TEXT, b"a"))
    # An orderly end: a reset would be an error here.
    assert is_closed_at_once(client)
    assert until(lambda: seen(server, "behind")[-2:] == [["disconnect", 1000, ""], "ends"])


def test_the_messages_before_an_end_are_received(server: Milepost, client: Client) -> None:
    words = "+".join(["receive", "accept", "wait", *["receive"] * 4])
    WebSocket(client, f"/before?{words}")
    client.send(frame(TEXT, b"a") * 3 + frames.close(3000, "bye"))
    assert client.exactly(4) == b"\x88\x02\x0b\xb8"
    go(server, "before")
    events = [event for event in seen(server, "before") if isinstance(event, list)]
    assert until(lambda: seen(server, "before")[-1] == "ends"), events
    events = [event for event in seen(server, "before") if isinstance(event, list)]
    assert events == [["connect", None, None], *[["receive", None, None]] * 3, ["disconnect", 3000, "bye"]]


def test_the_end_of_the_server_sends_no_second_close_frame(serve: Callable[..., Milepost]) -> None:
    server = serve(*SCRIPTED, "--drain-timeout", "1s", "--ws-drain", "0s")
    with server.connect() as client:
        connection = WebSocket(client, "/second?receive+accept+close")
        assert connection.closed() == (4000, "")
        server.signal(signal.SIGTERM)
        assert client.rest() == b""
    assert server.wait() == 0


def test_a_client_that_answers_no_ping_is_not_waited_for(serve: Callable[..., Milepost]) -> None:
    server = serve(*SCRIPTED, "--ws-ping-interval", "100ms", "--ws-ping-timeout", "100ms")
    with server.connect() as client:
        connection = WebSocket(client, "/dead?receive+accept+receive_all")
        assert connection.read() == (PING, b"")
        assert connection.closed()[0] == 1011
        assert is_closed_at_once(client)
    assert until(lambda: seen(server, "dead")[-1] == "ends")


def test_no_ping_where_that_is_switched_off(serve: Callable[..., Milepost]) -> None:
    server = serve(*SCRIPTED, "--ws-ping-interval", "off", "--ws-ping-timeout", "50ms")
    with server.connect() as client:
        connection = WebSocket(client, "/quiet?receive+accept+sleep+say")
        assert connection.text() == "said"


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_may_leave_before_it_is_accepted(server: Milepost, how: str) -> None:
    name = f"unaccepted-{how}"
    with server.connect() as client:
        client.send(handshake(f"/{name}?receive+wait+accept+receive+say"))
        assert until(lambda: seen(server, name)[-1:] == ["waits"])
        reset(client) if how == "reset" else client.sock.close()
    server.count()
    go(server, name)
    assert until(lambda: seen(server, name)[-1] in ("ends", "ClientDisconnected"))
    assert seen(server, name)[-2:] == [["disconnect", 1006, ""], "ClientDisconnected"]


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_send_that_waits_ends_with_the_connection(server: Milepost, how: str) -> None:
    name = f"poured-{how}"
    with server.connect(receive_buffer_bytes=1 << 16) as client:
        WebSocket(client, f"/{name}?receive+accept+pour")
        assert until(lambda: seen(server, name)[-1] == "pours")
        reset(client) if how == "reset" else client.sock.close()
    assert until(lambda: seen(server, name)[-1] == "ClientDisconnected")


def test_a_large_message_waits_for_a_client_that_stops_reading(server: Milepost) -> None:
    with server.connect(receive_buffer_bytes=1 << 16) as client:
        connection = WebSocket(client, "/large?receive+accept+big+say")
        assert until(lambda: seen(server, "large")[-1] == "sends")
        client.exactly(1000)
        with server.connect() as other:
            echo = WebSocket(other, "/beside?receive+accept+echo+echo")
            for word in (b"one", b"two"):
                echo.send(TEXT, word)
                assert echo.text().encode() == word
        # `send` waits: what is not read is beyond its bound.
        assert seen(server, "large")[-1] == "sends"
        rest = 20_000_000 + 10 - 1000
        while rest:
            rest -= len(client.exactly(min(rest, 1 << 20)))
        assert connection.text() == "said"


def test_a_large_message_of_a_client_that_stops_sending_holds_up_no_other(server: Milepost) -> None:
    with server.connect() as client:
        WebSocket(client, "/stops?receive+accept+receive_all")
        client.send(b"\x82\xff" + struct.pack("!Q", 10_000_000) + bytes(4) + bytes(9_000_000))
        with server.connect() as other:
            echo = WebSocket(other, "/besides?receive+accept+echo")
            echo.send(TEXT, b"one")
            assert echo.text() == "one"
    assert until(lambda: seen(server, "stops")[-2:] == [["disconnect", 1006, ""], "ends"])


def test_connections_share_the_objects_of_the_state_and_not_the_state(server: Milepost) -> None:
    for number in range(3):
        with server.connect() as client:
            name = f"state-{number}"
            WebSocket(client, f"/{name}?receive+accept+state")
            assert until(lambda name=name: seen(server, name)[-1] == "ends")
            found = next(event for event in seen(server, name) if isinstance(event, dict))
            assert found["mark"] == "of the lifespan" and "own" not in found
            assert len(found["objects"]) == number


def test_nothing_of_all_this_is_a_fault_of_the_application(tmp_path: Path) -> None:
    """A connection that ends under a `send` or a `receive` leaves no line in the error log."""
    with Milepost(tmp_path, *SCRIPTED) as server:
        for words in ("accept+pour", "accept+receive_all", "accept+big+say"):
            with server.connect(receive_buffer_bytes=1 << 16) as client:
                WebSocket(client, f"/{words[-4:]}?receive+{words}")
                assert until(lambda words=words: len(seen(server, words[-4:])) >= 3)
        for name in ("pour", "_all", "+say"):
            assert until(lambda name=name: seen(server, name)[-1] in ("ends", "ClientDisconnected"))
        assert server.stop() == 0
    assert "error" not in server.errors and "Traceback" not in server.errors, server.errors
