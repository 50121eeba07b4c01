"""Responses under TLS that a worker enciphers and sends itself, and what its driver does of them."""

from __future__ import annotations

import hashlib
import ssl
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from certificates import Authority
from raw import Client, CutShort, request
from serving import Milepost, until

APP = """
import hashlib, os, threading, time
from urllib.parse import parse_qs

def data(size):
    return hashlib.sha256(str(size).encode()).digest() * (size // 32)

def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.002)

def pieces(sizes, gate):
    for size in sizes:
        yield data(size)
    if gate:
        wait_for(gate)
        yield b"the end"

def app(environ, start_response):
    query = parse_qs(environ["QUERY_STRING"])
    sizes = [int(size) for size in query.get("sizes", ["1024"])[0].split(",")]
    gate = query.get("gate", [""])[0]
    if environ["PATH_INFO"] == "/worker":
        start_response("200 OK", [])
        return [str(threading.get_ident()).encode()]
    if environ["PATH_INFO"] == "/silent":
        wait_for(gate)
    if environ["PATH_INFO"] == "/whole":
        start_response("200 OK", [("Content-Length", str(sizes[0] // 32 * 32))])
        return [data(sizes[0])]
    start_response("200 OK", [])
    return pieces(sizes, gate)
"""


@pytest.fixture
def start(serve: Callable[..., Milepost], tmp_path: Path) -> Callable[..., Milepost]:
    (tmp_path / "tls_app.py").write_text(APP)
    authority = Authority(tmp_path)
    context = ssl.create_default_context()
    authority.ca.configure_trust(context)
    return partial(serve, "tls_app:app", *authority.flags("server", "localhost"), tls=context)


def data(size: int) -> bytes:
    return hashlib.sha256(str(size).encode()).digest() * (size // 32)


@pytest.mark.parametrize("receive_buffer_bytes", [None, 4096])
def test_responses_of_all_sizes_follow_each_other(
    start: Callable[..., Milepost], receive_buffer_bytes: int | None
) -> None:
    server = start("--threads", "2:2")
    with server.connect(receive_buffer_bytes) as client:
        for size in (32, 16_384, 65_536, 65_568, 262_144, 300_000, 1_500_000, 64):
            assert client.ask("GET", f"/whole?sizes={size}").body == data(size), size
            sizes = [size, 32, size]
            reply = client.ask("GET", f"/stream?sizes={','.join(map(str, sizes))}")
            assert reply.body == b"".join(map(data, sizes)), size


def test_requests_may_come_while_a_response_is_sent(start: Callable[..., Milepost]) -> None:
    """They wait in the socket, deciphered or not, until the worker is done with the stream."""
    server = start("--threads", "2:2")
    with server.connect(4096) as client:
        for size in (1024, 400_000):
            client.send(request("GET", f"/stream?sizes={size},{size}") * 20)
            for _ in range(20):
                assert client.reply().body == data(size) * 2


def test_all_of_a_piece_arrives_while_the_application_is_silent(
    start: Callable[..., Milepost], tmp_path: Path
) -> None:
    """However much of it the socket did not take at once."""
    server = start("--threads", "2:2")
    for number, size in enumerate((1024, 200_000, 900_000, 3_000_000)):
        gate = tmp_path / f"gate-{number}"
        with server.connect(4096) as client:
            client.send(request("GET", f"/stream?sizes={size}&gate={gate}"))
            wanted = data(size)
            received = b""
            while wanted not in received:
                received += client.sock.recv(1 << 20)
            gate.touch()
            while not received.endswith(b"\r\n0\r\n\r\n"):
                received += client.sock.recv(1 << 20)
            assert b"the end" in received
        server.count()


def test_clients_that_stop_reading_hold_no_worker(start: Callable[..., Milepost]) -> None:
    server = start("--threads", "1:1")
    slow = [server.connect(4096) for _ in range(10)]
    for number, client in enumerate(slow):
        path = "/whole" if number % 2 else "/stream"
        client.send(request("GET", f"{path}?sizes=2000000"))
        with server.connect() as other:
            assert other.ask("GET", "/whole?sizes=64").body == data(64)
    for client in slow:
        assert client.reply().body == data(2_000_000)


def reads_to_a_cut(client: Client) -> NoReturn:
    """The end of a stream is said by close_notify; a cut is not."""
    assert isinstance(client.sock, ssl.SSLSocket)
    client.sock.suppress_ragged_eofs = False
    while client.sock.recv(1 << 16):
        pass
    raise AssertionError("what was cut looks complete")


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
@pytest.mark.parametrize("size", [1024, 3_000_000])
def test_a_response_that_takes_too_long_is_cut_in_its_middle(
    start: Callable[..., Milepost], tmp_path: Path, size: int, version: str
) -> None:
    server = start("--threads", "2:2", "--request-timeout", "1500ms")
    gate = tmp_path / "gate"
    with server.connect() as client:
        client.send(request("GET", f"/stream?sizes={size}&gate={gate}", version=version))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            reads_to_a_cut(client)
    server.count()
    gate.touch()
    with server.connect() as client:
        assert client.ask("GET", "/whole?sizes=64").body == data(64)
    assert server.stop() == 0
    (line,) = (line for line in server.lines if "/stream" in line)
    assert '" 200 ' in line and " end=timeout " in line


def test_a_request_that_takes_too_long_gets_504(start: Callable[..., Milepost], tmp_path: Path) -> None:
    """The worker that is still at it finds that the response is not its own, and touches no session."""
    server = start("--threads", "2:2", "--request-timeout", "1500ms")
    gate = tmp_path / "gate"
    with server.connect() as client:
        reply = client.ask("GET", f"/silent?gate={gate}")
        assert (reply.status, reply.closes) == (504, True)
        gate.touch()
        assert client.sock.recv(1) == b""
    assert until(lambda: idle_workers(server) == 2)


def idle_workers(server: Milepost) -> int:
    """How many threads answer at once, of two."""
    seen: set[bytes] = set()

    def ask() -> None:
        with server.connect() as client:
            seen.add(client.ask("GET", "/worker").body)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(seen)


def test_a_response_that_is_cut_at_the_end_of_the_process_never_looks_complete(
    start: Callable[..., Milepost], tmp_path: Path
) -> None:
    server = start("--threads", "2:2", "--drain-timeout", "500ms")
    gate = tmp_path / "gate"
    with server.connect() as client:
        client.send(request("GET", f"/stream?sizes=1024&gate={gate}", version="HTTP/1.0"))
        received = b""
        while data(1024) not in received:
            received += client.sock.recv(1 << 16)
        server.signal()
        with pytest.raises((ssl.SSLError, ConnectionError, CutShort)):
            reads_to_a_cut(client)
    server.count()
    gate.touch()
