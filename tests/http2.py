"""HTTP/2 by hand: a client on a plain socket, over the frames and the state machine of the `h2` package.

Takes what a test sends, gives responses as they came; what the package would refuse to send, a test sends as
raw frames. It shares no code with the server.
"""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import hyperframe.frame

from serving import DEADLINE_S, Milepost

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
GOAWAY = 7
#: A window that no test fills.
WIDE = 2**30


@dataclasses.dataclass
class Response:
    """What came of one stream so far."""

    status: int = 0
    headers: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    body: bytes = b""
    #: Status and headers of interim responses.
    interim: list[tuple[int, list[tuple[str, str]]]] = dataclasses.field(default_factory=list)
    #: The fields behind the body.
    trailers: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    #: The error code of a reset.
    reset: int | None = None
    is_ended: bool = False

    def header(self, name: str) -> str | None:
        """The value of a header that may come at most once."""
        values = [value for found, value in self.headers if found == name]
        assert len(values) <= 1, (name, values)
        return values[0] if values else None


class Closed(Exception):
    """The server has ended the connection."""


class Http2:
    """One connection."""

    def __init__(self, server: Milepost, window: int = WIDE, settings: dict[int, int] | None = None) -> None:
        self.server = server
        self.sock = socket.create_connection(server.address, DEADLINE_S)  # type: ignore[arg-type]
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if server.tls:
            self.sock = server.tls.wrap_socket(self.sock, server_hostname="localhost")
        # Tests send what the package would not, and look at what the server sends themselves.
        config = h2.config.H2Configuration(
            header_encoding="utf-8", validate_outbound_headers=False, normalize_outbound_headers=False
        )
        self.machine = h2.connection.H2Connection(config)
        self.machine.initiate_connection()
        codes = h2.settings.SettingCodes
        self.machine.update_settings(
            {codes.ENABLE_PUSH: 0, codes.INITIAL_WINDOW_SIZE: window, **(settings or {})}
        )
        self.machine.increment_flow_control_window(WIDE)
        #: Whether windows are opened again for what has come.
        self.is_taking = window == WIDE
        self.responses: dict[int, Response] = {}
        self.goaways: list[tuple[int, int]] = []
        self.is_closed = False
        self.received = b""
        self.flush()

    def __enter__(self) -> Http2:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def flush(self) -> None:
        """Send what waits."""
        self.sock.sendall(self.machine.data_to_send())

    def raw(self, *frames: hyperframe.frame.Frame) -> None:
        """Send frames past the state machine."""
        self.sock.sendall(b"".join(frame.serialize() for frame in frames))

    def begin(
        self, target: str = "/hello", *headers: tuple[str, str], method: str = "GET", ends: bool = True
    ) -> int:
        """Begin a request; gives its stream."""
        stream = self.machine.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "http"), (":authority", "example.org"), (":path", target)]
        self.machine.send_headers(stream, [*head, *headers], end_stream=ends)
        self.responses[stream] = Response()
        self.flush()
        return stream

    def send_body(self, stream: int, body: bytes) -> None:
        """Send a whole body, as the server's windows allow."""
        while body:
            room = min(self.machine.local_flow_control_window(stream), self.machine.max_outbound_frame_size)
            if room == 0:
                self.read()
                continue
            self.machine.send_data(stream, body[:room])
            body = body[room:]
            self.flush()
        self.machine.end_stream(stream)
        self.flush()

    def read(self) -> None:
        """Take what comes next."""
        data = self.sock.recv(65536)
        if not data:
            self.is_closed = True
            raise Closed
        self.received += data
        while len(self.received) >= 9:
            end = 9 + int.from_bytes(self.received[:3], "big")
            if len(self.received) < end:
                break
            frame, self.received = self.received[:end], self.received[end:]
            # The state machine takes nothing behind a GOAWAY, where streams below it still end.
            if frame[3] == GOAWAY:
                last, code = (int.from_bytes(frame[at : at + 4], "big") for at in (9, 13))
                self.goaways.append((code, last))
                continue
            for event in self.machine.receive_data(frame):
                self.take(event)
        self.flush()

    def take(self, event: h2.events.Event) -> None:
        response = self.responses.setdefault(getattr(event, "stream_id", 0) or 0, Response())
        if isinstance(event, h2.events.ResponseReceived):
            headers = [(str(name), str(value)) for name, value in event.headers]
            response.status = int(headers[0][1])
            response.headers = headers[1:]
        elif isinstance(event, h2.events.InformationalResponseReceived):
            headers = [(str(name), str(value)) for name, value in event.headers]
            response.interim.append((int(headers[0][1]), headers[1:]))
        elif isinstance(event, h2.events.TrailersReceived):
            response.trailers = [(str(name), str(value)) for name, value in event.headers]
        elif isinstance(event, h2.events.DataReceived):
            response.body += event.data
            if self.is_taking and event.flow_controlled_length:
                self.machine.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            response.is_ended = True
        elif isinstance(event, h2.events.StreamReset):
            response.reset = int(event.error_code or 0)

    def until(self, condition: Callable[[], object]) -> None:
        """Read until something holds."""
        while not condition():
            self.read()

    def response(self, stream: int) -> Response:
        """The response of a stream, once it has ended."""
        response = self.responses[stream]
        self.until(lambda: response.is_ended or response.reset is not None)
        return response

    def ask(self, target: str = "/hello", *headers: tuple[str, str], **options: object) -> Response:
        """One request without a body, and its response; it counts as an exchange."""
        stream = self.begin(target, *headers, **options)  # type: ignore[arg-type]
        self.server.count()
        return self.response(stream)

    def post(self, target: str, body: bytes, *headers: tuple[str, str]) -> Response:
        """One request with a body, and its response; it counts as an exchange."""
        stream = self.begin(target, *headers, method="POST", ends=False)
        self.server.count()
        self.send_body(stream, body)
        return self.response(stream)

    def open(self, stream: int, window: int) -> None:
        """Let a response have so many bytes more."""
        self.machine.increment_flow_control_window(window, stream)
        self.flush()

    def reset(self, stream: int, code: int = 8) -> None:
        """Give a stream up."""
        self.machine.reset_stream(stream, code)
        self.flush()

    def until_closed(self) -> None:
        """Read until the server ends the connection."""
        try:
            while True:
                self.read()
        except (Closed, ConnectionError, h2.exceptions.ProtocolError):
            self.is_closed = True
