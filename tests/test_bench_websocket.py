"""What `milepost bench --websocket` does, against milepost and against servers that do it wrong."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from benching import bench
from certificates import Authority
from serving import APPS, Milepost, run

ZOO = ("websocket_zoo:app", "--app-dir", str(APPS))
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def url(server: Milepost, target: str = "/echo") -> str:
    return server.url.rstrip("/") + target


def test_messages_are_requests(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    page = tmp_path / "run.html"
    done = bench(tmp_path, "-n", "300", "--websocket", "-c", "3", "--html", str(page), url(server))
    # Each connection is one exchange.
    server.count(3)
    assert (done.counts["answered"], done.failures, done.counts["connections"]) == (300, {}, 3)
    assert done.run["asked"]["protocol"] == "WebSocket"
    said = "3 connections, WebSocket with 1 message in flight"
    assert said in done.out and said in page.read_text()
    assert server.stop() == 0
    sent = sum(int(line.split(" messages_in=")[1].split(" ")[0]) for line in server.lines)
    assert sent == 300
    assert all(" close_code=1000 " in f"{line} " for line in server.lines)


@pytest.mark.parametrize("body", [("--body", "grüße"), ("--body-size", "300K"), ("--body-size", "0")])
def test_a_message_is_the_body_and_comes_back(
    tmp_path: Path, serve: Callable[..., Milepost], body: tuple[str, str]
) -> None:
    server = serve(*ZOO)
    expect = {"grüße": 7, "300K": 300 * 1024, "0": 0}[body[1]]
    more = (*body, "--expect-length", str(expect), "--expect-body", "same", "--pipeline", "4")
    done = bench(tmp_path, "-n", "80", "--websocket", "-c", "2", *more, url(server))
    server.count(2)
    assert (done.counts["answered"], done.failures) == (80, {})


def test_a_rate_over_tls_with_connections_for_so_many_messages(
    tmp_path: Path, serve: Callable[..., Milepost]
) -> None:
    authority = Authority(tmp_path)
    server = serve(*ZOO, *authority.flags("shop", "localhost"))
    target = f"https://localhost:{server.address[1]}/echo"
    each = ("--requests-per-connection", "10", "--cacert", str(authority.pem))
    done = bench(tmp_path, "-n", "100", "--rate", "500", "--websocket", "-c", "2", *each, target)
    server.count(done.counts["connections"])
    assert (done.counts["answered"], done.failures) == (100, {})
    # The next one is opened before it is needed.
    assert done.counts["connections"] in (10, 11, 12)


def test_a_wrong_echo_is_a_failure(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve(*ZOO)
    more = ("--body", "four", "--expect-length", "5")
    done = bench(tmp_path, "-n", "10", "--websocket", "-c", "1", *more, url(server), code=None)
    server.count(done.counts["connections"])
    assert done.failures == {"body": 10}


def test_an_endpoint_that_is_none_ends_the_run(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app")
    done = run(tmp_path, "bench", "--websocket", "-n", "10", "-c", "1", f"{server.url}/hello")
    server.count()
    assert done.returncode == 2
    assert "the server answers the WebSocket handshake with status 200" in done.stderr
    assert "hint: `--websocket` needs the URL of a WebSocket endpoint" in done.stderr


@contextmanager
def odd(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that opens WebSocket connections, and then does as it is told."""
    listener = socket.create_server(("127.0.0.1", 0))

    def attend(peer: socket.socket) -> None:
        with closing(peer):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += peer.recv(4096)
            key = re.search(rb"Sec-WebSocket-Key: (\S+)", head)
            assert key
            accept = base64.b64encode(hashlib.sha1(key[1] + GUID).digest())
            fields = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept
            peer.sendall(b"HTTP/1.1 101 Switching Protocols\r\n" + fields + b"\r\n\r\n")
            answer(peer)

    def accept() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=attend, args=(peer,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with closing(listener):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        listener.shutdown(socket.SHUT_RDWR)


def read_frame(peer: socket.socket) -> tuple[int, bytes]:
    """A short frame of a client, unmasked."""
    first, second = peer.recv(1)[0], peer.recv(1)[0]
    key = b"".join(peer.recv(1) for _ in range(4))
    payload = b"".join(peer.recv(1) for _ in range(second & 0x7F))
    return first & 0x0F, bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))


def test_pings_are_answered_and_pieces_are_one_message(tmp_path: Path) -> None:
    pongs = []

    def answer(peer: socket.socket) -> None:
        for _ in range(5):
            opcode, payload = read_frame(peer)
            assert opcode == 2
            # A ping in the middle of a message in two frames, and byte by byte.
            reply = struct.pack("!BB", 0x02, 3) + payload[:3] + b"\x89\x02hi"
            reply += struct.pack("!BB", 0x80, len(payload) - 3) + payload[3:]
            for at in range(len(reply)):
                peer.sendall(reply[at : at + 1])
            pongs.append(read_frame(peer))

    with odd(answer) as target:
        more = ("--body-size", "9", "--expect-length", "9", "--expect-body", "same")
        done = bench(tmp_path, "-n", "5", "--websocket", "-c", "1", *more, target)
    assert (done.counts["answered"], done.failures) == (5, {})
    assert pongs == [(10, b"hi")] * 5


def test_a_server_that_breaks_the_protocol_or_leaves_is_a_failure(tmp_path: Path) -> None:
    for reply, failure in ((b"\x83\x00", "short"), (b"\x88\x02\x03\xe9", "reset")):

        def answer(peer: socket.socket, reply: bytes = reply) -> None:
            read_frame(peer)
            peer.sendall(reply)
            with suppress(ConnectionResetError):
                peer.recv(100)

        with odd(answer) as target:
            done = bench(tmp_path, "-n", "3", "--websocket", "-c", "1", target, code=None)
        assert done.failures == {failure: 3}, reply
