"""Upstream servers by hand: a test sees exactly what a proxy sends, and writes exactly what it gets.

Takes a function that serves one connection; gives the address, the requests that came and the number of
connections. It shares no code with the server.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from raw import chunked

DEADLINE_S = 60


class Request(NamedTuple):
    """One request as it came."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes
    raw_head: bytes

    @property
    def method(self) -> str:
        """Its method."""
        return self.line.split(" ")[0]

    @property
    def target(self) -> str:
        """Its target."""
        return self.line.split(" ")[1]

    def all(self, name: str) -> list[str]:
        """Every value of a header, in order."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        """The value of a header that may appear at most once."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} appears {len(values)} times"
        return values[0] if values else None


class Connection:
    """One connection of a proxy."""

    def __init__(self, sock: socket.socket, number: int, seen: list[Request]) -> None:
        self.sock = sock
        #: Counted from 1 over all connections of the upstream.
        self.number = number
        self._buffer = b""
        self._seen = seen

    def head(self) -> Request | None:
        """The next head, without its body; `None` at the end of the connection."""
        while b"\r\n\r\n" not in self._buffer:
            data = self._receive()
            if not data:
                assert not self._buffer, f"the connection ended within a head: {self._buffer!r}"
                return None
            self._buffer += data
        raw, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        line, *lines = raw.decode("latin-1").split("\r\n")
        assert re.fullmatch(r"[A-Z-]+ \S+ HTTP/1\.1", line), line
        headers = []
        for text in lines:
            name, colon, value = text.partition(":")
            assert colon and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name), text
            headers.append((name, value.strip(" \t")))
        return Request(line, headers, b"", raw + b"\r\n\r\n")

    def request(self) -> Request | None:
        """The next request with its body; `None` at the end of the connection."""
        head = self.head()
        if head is None:
            return None
        length, coding = head.header("content-length"), head.header("transfer-encoding")
        assert length is None or coding is None, "two framings in one request"
        body = b""
        if coding is not None:
            assert coding == "chunked", coding
            body = self._chunks()
        elif length is not None:
            body = self.exactly(int(length))
        whole = head._replace(body=body)
        self._seen.append(whole)
        return whole

    def _chunks(self) -> bytes:
        body = b""
        while True:
            size = int(self.until(b"\r\n")[:-2], 16)
            body += self.exactly(size)
            assert self.exactly(2) == b"\r\n"
            if size == 0:
                return body

    def until(self, end: bytes) -> bytes:
        """Bytes up to `end`, which is among them."""
        while end not in self._buffer:
            data = self._receive()
            assert data, "the connection ended too early"
            self._buffer += data
        found, _, self._buffer = self._buffer.partition(end)
        return found + end

    def exactly(self, length: int) -> bytes:
        """So many bytes."""
        while len(self._buffer) < length:
            data = self._receive()
            assert data, "the connection ended too early"
            self._buffer += data
        taken, self._buffer = self._buffer[:length], self._buffer[length:]
        return taken

    def _receive(self) -> bytes:
        try:
            return self.sock.recv(1 << 20)
        except ConnectionResetError:
            return b""

    def send(self, data: bytes) -> None:
        """Send all of it."""
        self.sock.sendall(data)

    def reply(self, body: bytes = b"", *headers: str, status: str = "200 OK") -> None:
        """Send a response with a length."""
        lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"]
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body)

    def reply_chunked(self, chunks: Iterable[bytes], *headers: str) -> None:
        """Send a chunked response."""
        lines = ["HTTP/1.1 200 OK", *headers, "Transfer-Encoding: chunked"]
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + chunked(*chunks))

    def reset(self) -> None:
        """End the connection by a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.sock.close()


class Upstream:
    """A server whose connections are served by `serve`, each on a thread.

    Use it as a context manager: a failure in `serve` fails the test.
    """

    def __init__(self, serve: Callable[[Connection], None], port: int = 0, path: str | None = None) -> None:
        self._serve = serve
        self.seen: list[Request] = []
        self.connections = 0
        self._failures: list[BaseException] = []
        if path is None:
            self.listener = socket.create_server(("127.0.0.1", port))
        else:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(path)
            self.listener.listen(128)
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.listener.getsockname()[1])

    @property
    def url(self) -> str:
        """Its address, for a configuration."""
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            sock.settimeout(DEADLINE_S)
            self._open.append(sock)
            connection = Connection(sock, self.connections, self.seen)
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection: Connection) -> None:
        try:
            self._serve(connection)
        except (BrokenPipeError, ConnectionResetError):
            pass
        except BaseException as failure:
            self._failures.append(failure)
        finally:
            connection.sock.close()

    def close(self) -> None:
        """Takes no more connections, and ends those that are open."""
        # A thread that waits in accept keeps a socket open that is only closed.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Upstream:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close()
        if kind is None and self._failures:
            raise self._failures[0]


def answering(respond: Callable[[Connection, Request], None]) -> Callable[[Connection], None]:
    """What serves request after request of a connection, each by `respond`."""

    def serve(connection: Connection) -> None:
        while (request := connection.request()) is not None:
            respond(connection, request)

    return serve
