"""Frames of WebSocket, written and read by hand: odd ones too."""

from __future__ import annotations

import struct

from raw import Client

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
#: A key and what answers it (RFC 6455 section 1.3).
KEY, ACCEPT = "dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def handshake(target: str, *headers: str, version: str = "13") -> bytes:
    lines = [
        f"GET {target} HTTP/1.1",
        "Host: zoo",
        "Connection: keep-alive, Upgrade",
        "Upgrade: WebSocket",
        f"Sec-WebSocket-Key: {KEY}",
        f"Sec-WebSocket-Version: {version}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def frame(
    opcode: int, payload: bytes = b"", *, final: bool = True, rsv: int = 0, masked: bool = True
) -> bytes:
    first = (0x80 if final else 0) | rsv << 4 | opcode
    mask = 0x80 if masked else 0
    if len(payload) < 126:
        head = struct.pack("!BB", first, mask | len(payload))
    elif len(payload) < 1 << 16:
        head = struct.pack("!BBH", first, mask | 126, len(payload))
    else:
        head = struct.pack("!BBQ", first, mask | 127, len(payload))
    if not masked:
        return head + payload
    # That of RFC 6455 section 5.7: parameters of tests have the same names in each process.
    key = bytes.fromhex("37fa213d")
    return head + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))


def close(code: int | None, reason: str = "") -> bytes:
    payload = b"" if code is None else struct.pack("!H", code) + reason.encode()
    return frame(CLOSE, payload)


class WebSocket:
    """A connection behind its handshake."""

    def __init__(self, client: Client, target: str, *headers: str) -> None:
        self.client = client
        client.send(handshake(target, *headers))
        self.status, _, self.headers = client.head()
        assert self.status == 101, self.status
        assert ("Sec-WebSocket-Accept", ACCEPT) in self.headers
        client.count()

    def send(self, opcode: int, payload: bytes = b"", **options: object) -> None:
        self.client.send(frame(opcode, payload, **options))

    def read(self) -> tuple[int, bytes]:
        """Opcode, with RSV1 as 0x40, and payload of the next frame."""
        first, second = self.client.exactly(2)
        length = second & 127
        if length == 126:
            (length,) = struct.unpack("!H", self.client.exactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self.client.exactly(8))
        assert not second & 0x80, "a server does not mask"
        assert first & 0x80, "each message is one frame"
        return first & 0x7F, self.client.exactly(length)

    def text(self) -> str:
        opcode, payload = self.read()
        assert opcode == TEXT, (opcode, payload[:64])
        return payload.decode()

    def closed(self) -> tuple[int | None, str]:
        """Code and reason of the server's close frame, which is the next one."""
        opcode, payload = self.read()
        assert opcode == CLOSE, (opcode, payload[:64])
        if not payload:
            return None, ""
        return struct.unpack("!H", payload[:2])[0], payload[2:].decode()
