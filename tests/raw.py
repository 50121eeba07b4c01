"""HTTP/1.1 by hand, on a plain socket: what is sent is exactly what a test wrote.

Takes bytes, gives replies as they were framed on the wire. Strict: a reply that is not well-formed,
or that ends before its end, fails the test. It shares no code with the server.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from typing import NamedTuple


class CutShort(Exception):
    """The connection ended in the middle of a reply. `so_far` is what came of its body."""

    def __init__(self, so_far: bytes) -> None:
        super().__init__(f"the connection ended after {len(so_far)} bytes of body")
        self.so_far = so_far


class Reply(NamedTuple):
    """One complete reply."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes
    framing: str
    """How its end was found: `none`, `length`, `chunked` or `close`."""
    chunks: list[bytes]
    """The chunks of a chunked reply."""

    def all(self, name: str) -> list[str]:
        """Every value of a header, in order."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def header(self, name: str) -> str | None:
        """The value of a header that may appear at most once."""
        values = self.all(name)
        assert len(values) <= 1, f"{name} appears {len(values)} times"
        return values[0] if values else None

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @property
    def closes(self) -> bool:
        """It announces the end of the connection."""
        return "close" in (self.header("connection") or "").lower()


def request(
    method: str = "GET",
    target: str = "/",
    *headers: str,
    body: bytes | None = None,
    version: str = "HTTP/1.1",
    host: str | None = "test",
) -> bytes:
    """The bytes of a request; with a body also its Content-Length."""
    lines = [f"{method} {target} {version}"]
    if host is not None:
        lines.append(f"Host: {host}")
    lines += headers
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")


def chunked(*chunks: bytes) -> bytes:
    """A chunked body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


class Client:
    """One connection. Every final reply that is read is reported to `count`."""

    def __init__(self, sock: socket.socket, count: Callable[[], None]) -> None:
        self.sock = sock
        self.count = count
        self._buffer = b""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        """Send all of it."""
        self.sock.sendall(data)

    def ask(self, *args: str, **kwargs: object) -> Reply:
        """Send a `request` and read its reply."""
        self.send(request(*args, **kwargs))  # type: ignore[arg-type]
        return self.reply(args[0] if args else "GET")

    def reply(self, method: str = "GET") -> Reply:
        """Read one final reply; those with 1xx before it are skipped."""
        status, reason, headers = self.head()
        while 100 <= status < 200:
            status, reason, headers = self.head()
        reply = self._with_body(method, status, reason, headers)
        self.count()
        return reply

    def head(self) -> tuple[int, str, list[tuple[str, str]]]:
        """Read one head: status, reason, headers."""
        first, *lines = self._until(b"\r\n\r\n").split(b"\r\n")
        found = re.fullmatch(rb"HTTP/1\.1 ([1-9][0-9]{2}) ([^\r\n]*)", first)
        assert found, first
        headers = []
        for line in lines[:-2]:
            name, colon, value = line.partition(b":")
            assert colon and re.fullmatch(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name), line
            assert not re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", value), line
            headers.append((name.decode(), value.decode("latin-1").strip(" \t")))
        return int(found[1]), found[2].decode("latin-1"), headers

    def _with_body(self, method: str, status: int, reason: str, headers: list[tuple[str, str]]) -> Reply:
        bare = Reply(status, reason, headers, b"", "none", [])
        length, coding = bare.header("content-length"), bare.header("transfer-encoding")
        assert length is None or coding is None, "two framings in one reply"
        if method == "HEAD" or status in (204, 304):
            return bare
        if coding is not None:
            assert coding == "chunked", coding
            chunks = self._chunks()
            return bare._replace(body=b"".join(chunks), framing="chunked", chunks=chunks)
        if length is not None:
            return bare._replace(body=self.exactly(int(length)), framing="length")
        assert bare.closes, "a body without an end on a connection that stays open"
        return bare._replace(body=self.rest(), framing="close")

    def chunk(self) -> bytes:
        """One chunk of a chunked body; the last one is empty."""
        data = self.exactly(int(self._until(b"\r\n")[:-2], 16))
        assert self.exactly(2) == b"\r\n", "a chunk ends with its line, and no trailers are expected"
        return data

    def _chunks(self) -> list[bytes]:
        chunks: list[bytes] = []
        try:
            while data := self.chunk():
                chunks.append(data)
        except CutShort as cut:
            raise CutShort(b"".join(chunks) + cut.so_far) from None
        return chunks

    def _until(self, end: bytes) -> bytes:
        while (at := self._buffer.find(end)) < 0:
            self._more()
        return self._take(at + len(end))

    def exactly(self, length: int) -> bytes:
        """So many bytes."""
        parts, missing = [], length
        while missing:
            if not self._buffer:
                try:
                    self._more()
                except CutShort:
                    raise CutShort(b"".join(parts)) from None
            parts.append(self._take(min(missing, len(self._buffer))))
            missing -= len(parts[-1])
        return b"".join(parts)

    def rest(self) -> bytes:
        """Everything until the server closes."""
        parts = [self._take(len(self._buffer))]
        while data := self._receive():
            parts.append(data)
        return b"".join(parts)

    def is_closed(self) -> bool:
        """Waits for what comes next; true when that is an orderly end, not a byte and not a reset."""
        try:
            return not self._buffer and self.sock.recv(1) == b""
        except ConnectionResetError:
            return False

    def _take(self, length: int) -> bytes:
        taken, self._buffer = self._buffer[:length], self._buffer[length:]
        return taken

    def _more(self) -> None:
        data = self._receive()
        if not data:
            raise CutShort(self._buffer)
        self._buffer += data

    def _receive(self) -> bytes:
        try:
            return self.sock.recv(1 << 20)
        except ConnectionResetError:
            # For a client a reset in the middle of a reply is the same as an early end.
            return b""
