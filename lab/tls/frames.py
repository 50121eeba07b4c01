"""HTTP/2 as bytes: frames to send, and a connection that reads frames.

For good clients and for clients that misbehave; it shares no code with the server. Header blocks are literals
without a dynamic table, so that nothing here has to remember one.
"""

from __future__ import annotations

import socket
import ssl
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 6, 7, 8, 9
END_STREAM = ACK = 1
END_HEADERS = 4
INITIAL_WINDOW_SIZE = 4
REFUSED_STREAM = 7
# A window that no measurement fills.
WIDE = 2**30
STATUS_200 = 0x88
READ_BYTES = 1 << 16
TIMEOUT_S = 15.0


class Frame(NamedTuple):
    """What came."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def context(*protocols: str) -> ssl.SSLContext:
    """A client that believes any certificate and offers these protocols by ALPN."""
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    if protocols:
        unverified.set_alpn_protocols(list(protocols))
    return unverified


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def number(value: int) -> bytes:
    """The payload of WINDOW_UPDATE and RST_STREAM."""
    return value.to_bytes(4, "big")


def setting(key: int, value: int) -> bytes:
    """One setting of a SETTINGS frame."""
    return key.to_bytes(2, "big") + value.to_bytes(4, "big")


def opening(window: int) -> bytes:
    """What a client says first: streams may send `window` bytes, the connection anything."""
    settings = frame(SETTINGS, 0, 0, setting(INITIAL_WINDOW_SIZE, window))
    return PREFACE + settings + frame(WINDOW_UPDATE, 0, 0, number(WIDE))


def head(path: str, method: str = "GET") -> bytes:
    """The header block of a request."""
    target = path.encode()
    assert len(target) < 127, "a longer string has a longer length"
    # By the static table (RFC 7541 appendix A): 2 GET, 3 POST, 6 http; the names 4 :path and 1 :authority.
    return bytes((0x82 if method == "GET" else 0x83, 0x86, 4, len(target))) + target + b"\x01\x09localhost"


def request(stream: int, path: str) -> bytes:
    """A whole request without a body."""
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, head(path))


class Http2Client:
    """One connection. Answers SETTINGS and PING by itself; every fault is an OSError."""

    def __init__(
        self,
        port: int,
        tls: ssl.SSLContext | None,
        window: int = WIDE,
        session: ssl.SSLSession | None = None,
    ) -> None:
        self.socket: socket.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._received = b""
        self._next = 1
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls:
                self.socket = tls.wrap_socket(self.socket, server_hostname="localhost", session=session)
            self.socket.sendall(opening(window))
        except OSError:
            self.socket.close()
            raise

    def coming(self, count: int) -> range:
        """The streams of the next requests."""
        return range(self._next, self._next + 2 * count, 2)

    def begin(self, path: str, count: int = 1) -> range:
        """Sends so many requests in one piece; their streams."""
        streams = self.coming(count)
        self._next = streams.stop
        self.socket.sendall(b"".join(request(stream, path) for stream in streams))
        return streams

    def frames(self) -> list[Frame]:
        """Those of one read that brings at least a byte. Raises ConnectionError at the end."""
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("closed")
        self._received += data
        found, answers, at = [], b"", 0
        while len(self._received) >= at + 9:
            length = int.from_bytes(self._received[at : at + 3], "big")
            if len(self._received) < at + 9 + length:
                break
            kind, flags = self._received[at + 3 : at + 5]
            stream = int.from_bytes(self._received[at + 5 : at + 9], "big")
            came = Frame(kind, flags, stream, self._received[at + 9 : at + 9 + length])
            at += 9 + length
            if kind in (SETTINGS, PING) and not flags & ACK:
                answers += frame(kind, ACK, 0, came.payload if kind == PING else b"")
            found.append(came)
        self._received = self._received[at:]
        if answers:
            self.socket.sendall(answers)
        return found

    @property
    def is_resumed(self) -> bool:
        """Whether the session that was offered was resumed."""
        return isinstance(self.socket, ssl.SSLSocket) and bool(self.socket.session_reused)

    @property
    def session(self) -> ssl.SSLSession | None:
        """The newest session, for the next connection; TLS 1.3 has none before the first response."""
        return self.socket.session if isinstance(self.socket, ssl.SSLSocket) else None

    def close(self) -> None:
        """Ends the connection."""
        self.socket.close()
