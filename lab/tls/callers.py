"""Clients that ask over HTTP/2 and TLS while things are done to the server, and what each lost request met.

Requests that the server says it has not begun (RFC 9113 section 8.7: REFUSED_STREAM, or above the last stream
of a GOAWAY) are no losses: a client may send them again. Every other request without its whole reply is one.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from lab.tls import frames
from lab.tls.frames import Frame, Http2Client

BODY_BYTES = 1024
END_S = 20.0
# A server that refuses connections must not be asked in a busy loop.
REST_S = 0.02
ANY_STREAM = 2**31 - 1


@dataclass
class Tally:
    """What all callers have counted."""

    answered: int = 0
    connections: int = 0
    offered: int = 0
    not_resumed: int = 0
    refused_streams: int = 0
    faults: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def as_json(self) -> str:
        """All of it."""
        with self.lock:
            names = ("answered", "connections", "offered", "not_resumed", "refused_streams", "faults")
            return json.dumps({name: getattr(self, name) for name in names})


class Callers:
    """Threads with a connection each, one after the other."""

    def __init__(self, port: int, path: str, threads: int, streams: int, requests: int) -> None:
        self._tally = Tally()
        self._stop = threading.Event()
        plan = (port, path, streams, requests, self._tally, self._stop)
        self._threads = [threading.Thread(target=Caller(*plan).call, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def answer(self) -> str:
        return self._tally.as_json()

    def last_words(self) -> str:
        self._stop.set()
        deadline_s = time.monotonic() + END_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return self._tally.as_json()


@dataclass
class Caller:
    """One client: a connection after the other, each of which offers the session of the one before."""

    port: int
    path: str
    streams: int
    requests: int
    tally: Tally
    stop: threading.Event
    session: ssl.SSLSession | None = None
    tls: ssl.SSLContext = field(default_factory=lambda: frames.context("h2"))

    def call(self) -> None:
        """Until the end."""
        while not self.stop.is_set():
            began_s = time.monotonic()
            try:
                client = Http2Client(self.port, self.tls, session=self.session)
            except OSError as cause:
                refused = isinstance(cause, ConnectionRefusedError)
                self.note_loss("connect_refused" if refused else "connect_other", began_s)
                time.sleep(REST_S)
                continue
            with self.tally.lock:
                self.tally.connections += 1
                self.tally.offered += self.session is not None
                self.tally.not_resumed += self.session is not None and not client.is_resumed
            Conversation(self, client).run()
            client.close()

    def note_loss(self, kind: str, began_s: float) -> None:
        """A request that did not get its reply."""
        ended_s = time.monotonic()
        with self.tally.lock:
            fault = {"class": kind, "began_s": began_s, "ended_s": ended_s, "pid": 0}
            self.tally.faults.append(fault)


class Conversation:
    """The requests of one connection."""

    def __init__(self, caller: Caller, client: Http2Client) -> None:
        self._caller = caller
        self._client = client
        self._under_way: dict[int, float] = {}
        self._right: set[int] = set()
        self._body_bytes: dict[int, int] = {}
        self._left = caller.requests
        self._last = ANY_STREAM
        self._is_leaving = False

    def run(self) -> None:
        """Until all requests are answered, or the connection has ended."""
        try:
            self._ask(self._caller.streams)
            while self._under_way:
                ended = sum(self._take(frame) for frame in self._client.frames())
                self._ask(ended)
            self._caller.session = self._client.session or self._caller.session
        except OSError as cause:
            kind = "timeout" if isinstance(cause, TimeoutError) else "closed"
            for stream, began_s in self._under_way.items():
                self._give_up(stream, kind, began_s)

    def _ask(self, count: int) -> None:
        if self._is_leaving or self._caller.stop.is_set():
            return
        count = min(count, self._left)
        self._left -= count
        if count:
            now_s = time.monotonic()
            # Noted before they are sent: what fails to be sent is lost as well.
            self._under_way |= dict.fromkeys(self._client.coming(count), now_s)
            self._client.begin(self._caller.path, count)

    def _take(self, frame: Frame) -> bool:
        """Whether a request has ended by it."""
        if frame.kind == frames.GOAWAY:
            self._is_leaving = True
            self._last = int.from_bytes(frame.payload[:4], "big")
            for stream in [stream for stream in self._under_way if stream > self._last]:
                self._give_up(stream, "closed", self._under_way.pop(stream))
            return False
        if frame.stream not in self._under_way:
            return False
        if frame.kind == frames.RST_STREAM:
            is_refused = int.from_bytes(frame.payload, "big") == frames.REFUSED_STREAM
            began_s = self._under_way.pop(frame.stream)
            self._give_up(frame.stream, "refused" if is_refused else "reset", began_s)
            return True
        if frame.kind == frames.HEADERS and frame.payload[:1] == bytes((frames.STATUS_200,)):
            self._right.add(frame.stream)
        if frame.kind == frames.DATA:
            came = self._body_bytes.get(frame.stream, 0) + len(frame.payload)
            self._body_bytes[frame.stream] = came
        if not frame.flags & frames.END_STREAM or frame.kind not in (frames.HEADERS, frames.DATA):
            return False
        self._end(frame.stream)
        return True

    def _end(self, stream: int) -> None:
        began_s = self._under_way.pop(stream)
        body_bytes = self._body_bytes.pop(stream, 0)
        if stream in self._right and body_bytes == BODY_BYTES:
            with self._caller.tally.lock:
                self._caller.tally.answered += 1
        else:
            self._caller.note_loss("wrong", began_s)
        self._right.discard(stream)

    def _give_up(self, stream: int, kind: str, began_s: float) -> None:
        if kind == "refused" or stream > self._last:
            with self._caller.tally.lock:
                self._caller.tally.refused_streams += 1
        else:
            self._caller.note_loss(kind, began_s)
