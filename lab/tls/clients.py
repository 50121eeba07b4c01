"""Clients of HTTPS and HTTP/2 beside a measured server.

    python -m lab.tls.clients idle PORT PATH COUNT h1|h2 tls|plain    one request each, then silence
    python -m lab.tls.clients stalled PORT PATH CONNECTIONS STREAMS   requests whose windows stay shut
    python -m lab.tls.clients siblings PORT PATH STREAMS STALLED_PATH STALLED
                      one connection; all streams ask again when they are answered, the stalled ones never are
    python -m lab.tls.clients callers PORT PATH THREADS STREAMS REQUESTS
                      connections that resume their sessions, ended after so many requests (callers.py)
    python -m lab.tls.clients flood PORT KIND CONNECTIONS             a flood (floods.py)

Prints `ready` when all are there. Every line on stdin is answered by a line: `open COUNT` by clients that are
held, JSON by the others. The end of stdin ends it; callers then print what they have counted.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from lab import held_clients, process
from lab.tls import callers, floods, frames
from lab.tls.frames import Http2Client

# Room for a response of 1 KB, and none for a large one.
SIBLING_WINDOW = 4096
UNDER_WAY = 32

Held = TypeVar("Held")


class Clients(Protocol):
    """What answers lines."""

    def answer(self) -> str:
        """The line."""

    def last_words(self) -> str:
        """What is printed at the end."""


class HeldConnections:
    """Connections that stay open and do nothing."""

    def __init__(self, clients: Sequence[Http2Client | socket.socket]) -> None:
        self._clients = clients

    def answer(self) -> str:
        sockets = (one.socket if isinstance(one, Http2Client) else one for one in self._clients)
        return f"open {sum(map(held_clients.is_open, sockets))}"

    def last_words(self) -> str:
        return ""


class StalledStreams:
    """Streams whose response has begun and cannot be sent."""

    def __init__(self, clients: list[Http2Client], streams: int) -> None:
        self._clients = clients
        self._open = len(clients) * streams

    def answer(self) -> str:
        for client in self._clients:
            client.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                self._open -= sum(frame.kind in (frames.RST_STREAM, frames.DATA) for frame in client.frames())
        return f"open {self._open}"

    def last_words(self) -> str:
        return ""


class Siblings:
    """Streams of one connection, and how long each waits for its response, since the last answer."""

    def __init__(self, port: int, path: str, streams: int, stalled_path: str, stalled: int) -> None:
        self._path = path
        self._client = Http2Client(port, None, SIBLING_WINDOW)
        self._waited_s: list[float] = []
        self._fault = ""
        self._stalled = set(self._client.begin(stalled_path, stalled))
        self._began_s = dict.fromkeys(self._client.begin(path, streams - stalled), time.monotonic())
        threading.Thread(target=self._ask, daemon=True).start()

    def _ask(self) -> None:
        try:
            while True:
                ended = [
                    frame.stream
                    for frame in self._client.frames()
                    if frame.kind == frames.RST_STREAM
                    or (frame.kind in (frames.HEADERS, frames.DATA) and frame.flags & frames.END_STREAM)
                ]
                now_s = time.monotonic()
                self._stalled -= set(ended)
                self._waited_s += [now_s - self._began_s.pop(it) for it in ended if it in self._began_s]
                if ended:
                    fresh = self._client.begin(self._path, len(ended))
                    self._began_s |= dict.fromkeys(fresh, time.monotonic())
        except OSError as cause:
            self._fault = str(cause)

    def answer(self) -> str:
        waited_s, self._waited_s = sorted(self._waited_s), []
        if self._fault or not waited_s:
            return json.dumps({"fault": self._fault or "nothing was answered"})
        p50_s, p99_s = (waited_s[len(waited_s) * share // 100] for share in (50, 99))
        counted = {"responses": len(waited_s), "stalled": len(self._stalled)}
        return json.dumps(counted | {"p50_us": p50_s * 1e6, "p99_us": p99_s * 1e6})

    def last_words(self) -> str:
        return ""


def hold_idle(port: int, path: str, count: int, protocol: str, security: str) -> HeldConnections:
    """Connections that have had one reply each."""
    names = {"h1": "http/1.1", "h2": "h2"}
    tls = frames.context(names[protocol]) if security == "tls" else None
    hold: Callable[..., Http2Client | socket.socket] = _hold_http2 if protocol == "h2" else _hold_http1
    return HeldConnections(_many(count, lambda: hold(port, path, tls)))


def _hold_http1(port: int, path: str, tls: ssl.SSLContext | None) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), frames.TIMEOUT_S)
    # Otherwise the request waits for the acknowledgement of the handshake's end.
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client = tls.wrap_socket(client, server_hostname="localhost") if tls else client
    client.sendall(process.request(port, path))
    process.read_reply(client)
    return client


def _hold_http2(port: int, path: str, tls: ssl.SSLContext | None) -> Http2Client:
    client = Http2Client(port, tls)
    client.begin(path)
    while not any(frame.stream and frame.flags & frames.END_STREAM for frame in client.frames()):
        pass
    return client


def hold_stalled(port: int, path: str, connections: int, streams: int) -> StalledStreams:
    """Each connection has heads of all its responses and no byte of a body."""

    def hold() -> Http2Client:
        client = Http2Client(port, None, 0)
        client.begin(path, streams)
        heads = 0
        while heads < streams:
            came = client.frames()
            if any(frame.kind in (frames.RST_STREAM, frames.GOAWAY) for frame in came):
                raise OSError("a stream was refused")
            heads += sum(frame.kind == frames.HEADERS for frame in came)
        return client

    return StalledStreams(_many(connections, hold), streams)


def _many(count: int, hold: Callable[[], Held]) -> list[Held]:
    """So many connections, some of them under way at once: a busy machine takes its time for each answer."""
    with concurrent.futures.ThreadPoolExecutor(UNDER_WAY) as threads:
        return list(threads.map(lambda _: hold(), range(count)))


def start(mode: str, port: int, arguments: list[str]) -> Clients:
    """The clients of a mode, once they are there. Raises OSError."""
    numbers = [int(word) if word.isdigit() else word for word in arguments]
    begin: dict[str, Callable[..., Clients]] = {
        "idle": hold_idle,
        "stalled": hold_stalled,
        "siblings": Siblings,
        "callers": callers.Callers,
        "flood": floods.Attackers,
    }
    return begin[mode](port, *numbers)


def main() -> int:
    """Runs until stdin ends."""
    try:
        clients = start(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
    except OSError as cause:
        print(f"{type(cause).__name__}: {cause}")
        return 1
    print("ready", flush=True)
    for _ in sys.stdin:
        print(clients.answer(), flush=True)
    if words := clients.last_words():
        print(words, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
