"""Upstream servers of HTTP/2 by hand, over the frames and the state machine of the `h2` package.

Takes a function that serves one connection; a test sees the requests that came on it, and answers each stream
as it likes. It shares no code with the server.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import hyperframe.frame
from upstreams import Connection

Fields = list[tuple[str, str]]


@dataclasses.dataclass
class Stream:
    """One request as it came so far."""

    number: int
    headers: Fields
    body: bytes = b""
    is_ended: bool = False
    #: The error code of a reset.
    reset: int | None = None

    def header(self, name: str) -> str | None:
        """The value of a header that may come at most once."""
        values = [value for found, value in self.headers if found == name]
        assert len(values) <= 1, (name, values)
        return values[0] if values else None

    @property
    def path(self) -> str:
        """Its target."""
        return self.header(":path") or ""


class Closed(Exception):
    """The proxy has ended the connection."""


class Http2Peer:
    """One connection of a proxy."""

    def __init__(self, connection: Connection, streams_max: int) -> None:
        self.sock = connection.sock
        #: Counted from 1 over all connections of the upstream.
        self.number = connection.number
        # A test answers as no server should.
        config = h2.config.H2Configuration(
            client_side=False,
            header_encoding="latin-1",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.machine = h2.connection.H2Connection(config)
        self.machine.local_settings = h2.settings.Settings(
            client=False,
            initial_values={
                h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: streams_max,
                h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: 1 << 16,
            },
        )
        self.machine.initiate_connection()
        self.streams: dict[int, Stream] = {}
        self._given: set[int] = set()
        self.flush()

    def flush(self) -> None:
        """Send what waits."""
        self.sock.sendall(self.machine.data_to_send())

    def read(self) -> None:
        """Take what comes next."""
        data = self.sock.recv(65536)
        if not data:
            raise Closed
        for event in self.machine.receive_data(data):
            stream = self.streams.get(getattr(event, "stream_id", 0) or 0)
            if isinstance(event, h2.events.RequestReceived):
                headers = [(str(name), str(value)) for name, value in event.headers]
                self.streams[event.stream_id] = Stream(event.stream_id, headers)
            elif stream is None:
                continue
            elif isinstance(event, h2.events.DataReceived):
                stream.body += event.data
                if event.flow_controlled_length:
                    self.machine.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                stream.is_ended = True
            elif isinstance(event, h2.events.StreamReset):
                stream.reset = int(event.error_code or 0)
        self.flush()

    def until(self, condition: Callable[[], object]) -> None:
        """Read until something holds."""
        while not condition():
            self.read()

    def _next(self, is_whole: bool) -> Stream:
        while True:
            for number, stream in self.streams.items():
                if number not in self._given and (stream.is_ended or not is_whole):
                    self._given.add(number)
                    return stream
            self.read()

    def head(self) -> Stream:
        """The next request, whose body may follow."""
        return self._next(is_whole=False)

    def request(self) -> Stream:
        """The next request with its body."""
        return self._next(is_whole=True)

    def begin(self, stream: Stream, *headers: tuple[str, str], status: int = 200, ends: bool = False) -> None:
        """Send the head of a response."""
        self.machine.send_headers(stream.number, [(":status", str(status)), *headers], end_stream=ends)
        self.flush()

    def data(self, stream: Stream, data: bytes, ends: bool = False) -> None:
        """Send some of a body, as the windows of the proxy allow."""
        while data:
            room = min(self.machine.local_flow_control_window(stream.number), 16384)
            if room == 0:
                self.read()
                continue
            self.machine.send_data(stream.number, data[:room])
            data = data[room:]
            self.flush()
        if ends:
            self.machine.end_stream(stream.number)
            self.flush()

    def trailers(self, stream: Stream, *fields: tuple[str, str]) -> None:
        """End a response by these fields."""
        self.machine.send_headers(stream.number, list(fields), end_stream=True)
        self.flush()

    def reply(self, stream: Stream, body: bytes = b"", *headers: tuple[str, str], status: int = 200) -> None:
        """Send a whole response with a length."""
        self.begin(stream, *headers, ("content-length", str(len(body))), status=status, ends=not body)
        if body:
            self.data(stream, body, ends=True)

    def reset(self, stream: Stream, code: int) -> None:
        """Give a stream up."""
        self.raw(hyperframe.frame.RstStreamFrame(stream.number, error_code=code))

    def go_away(self, last: int, code: int = 0) -> None:
        """Say that no stream above this one is processed."""
        self.raw(hyperframe.frame.GoAwayFrame(0, last_stream_id=last, error_code=code))

    def raw(self, *frames: hyperframe.frame.Frame) -> None:
        """Send frames past the state machine."""
        self.sock.sendall(b"".join(frame.serialize() for frame in frames))


def over_http2(serve: Callable[[Http2Peer], None], streams_max: int = 100) -> Callable[[Connection], None]:
    """What an `Upstream` serves each of its connections by."""

    def run(connection: Connection) -> None:
        try:
            serve(Http2Peer(connection, streams_max))
        except Closed:
            pass

    return run


def answering_http2(
    respond: Callable[[Http2Peer, Stream], None], streams_max: int = 100
) -> Callable[[Connection], None]:
    """What serves request after request of a connection, each by `respond` once it is whole."""

    def serve(peer: Http2Peer) -> None:
        while True:
            respond(peer, peer.request())

    return over_http2(serve, streams_max)
