"""HTTP/2 on a plain listener: requests, bodies, streams beside each other, refusals, floods, departures."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import hyperframe.frame as frames
import pytest
from http2 import Closed, Http2, Response

from serving import DEADLINE_S, Milepost, tables
from supervising import Supervised

PROTOCOL_ERROR = 0x1
NO_ERROR = 0x0
MIB = 1 << 20


@pytest.fixture
def client(zoo: Milepost) -> Iterator[Http2]:
    """A connection to the zoo."""
    with Http2(zoo) as connection:
        yield connection


def environ_of(response: Response) -> dict[str, object]:
    assert response.status == 200
    return json.loads(response.body)


def test_a_get_has_the_environ_of_http_2(client: Http2) -> None:
    environ = environ_of(client.ask("/environ?a=b", ("x-field", "1"), ("cookie", "a=1"), ("cookie", "b=2")))
    assert environ["SERVER_PROTOCOL"] == "HTTP/2"
    assert environ["HTTP_HOST"] == "example.org"
    assert environ["HTTP_X_FIELD"] == "1"
    assert environ["HTTP_COOKIE"] == "a=1; b=2"
    assert environ["QUERY_STRING"] == "a=b"
    assert environ["wsgi.url_scheme"] == "http"
    assert "CONTENT_LENGTH" not in environ and "HTTP_TRANSFER_ENCODING" not in environ


def test_response_fields_are_in_lower_case_and_say_nothing_of_a_connection(client: Http2) -> None:
    response = client.ask("/hello")
    assert response.status == 200 and response.body and response.is_ended
    names = [name for name, _ in response.headers]
    assert names == [name.lower() for name in names]
    assert not {"connection", "keep-alive", "transfer-encoding", "upgrade"} & set(names)


@pytest.mark.parametrize("length", [0, 1, 70_000, 3 * MIB])
@pytest.mark.parametrize("is_declared", [True, False])
def test_bodies_come_whole(client: Http2, length: int, is_declared: bool) -> None:
    body = bytes(range(256)) * (length // 256 + 1)
    body = body[:length]
    headers = [("content-length", str(length))] if is_declared else []
    response = client.post("/body", body, *headers)
    facts = json.loads(response.body)
    assert facts["bytes"] == length
    assert facts["sha256"] == hashlib.sha256(body).hexdigest()
    assert facts["length"] == str(length)


def test_a_hundred_streams_are_answered_side_by_side(client: Http2, zoo: Milepost) -> None:
    streams = [client.begin(f"/hello?{number}") for number in range(100)]
    zoo.count(100)
    assert all(client.response(stream).status == 200 for stream in streams)


def test_a_stream_without_a_window_holds_up_no_other(zoo: Milepost) -> None:
    with Http2(zoo, window=0) as client:
        stalled = client.begin("/large?bytes=3000000")
        zoo.count()
        client.until(lambda: client.responses[stalled].status)
        for _ in range(99):
            stream = client.begin("/hello")
            client.open(stream, 1000)
            zoo.count()
            assert client.response(stream).status == 200
        assert client.responses[stalled].body == b""
        client.open(stalled, 10_000)
        client.until(lambda: len(client.responses[stalled].body) == 10_000)
        client.is_taking = True
        client.open(stalled, 3_000_000)
        assert len(client.response(stalled).body) == 3_000_000


def test_heads_that_do_not_fit_the_output_at_once_all_come(serve: Callable[..., Milepost]) -> None:
    target = "/new?" + "x" * 2000
    server = serve(toml=tables("redirect", {"from": "/old", "to": target}))
    with Http2(server) as client:
        streams = []
        # In one write: the answers are more than a turn's output, and nothing else comes from the client.
        for _ in range(60):
            stream = client.machine.get_next_available_stream_id()
            head = [
                (":method", "HEAD"),
                (":scheme", "http"),
                (":authority", "example.org"),
                (":path", "/old"),
            ]
            client.machine.send_headers(stream, head, end_stream=True)
            client.responses[stream] = Response()
            streams.append(stream)
        client.flush()
        server.count(60)
        assert all(client.response(stream).header("location") for stream in streams)


def test_a_request_that_is_reset_in_the_same_read_does_not_run(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app")
    with Http2(server) as client:
        stream = client.machine.get_next_available_stream_id()
        head = [(":method", "GET"), (":scheme", "http"), (":authority", "example.org"), (":path", "/hello")]
        client.machine.send_headers(stream, head, end_stream=True)
        client.machine.reset_stream(stream)
        client.flush()
        server.count()
        assert client.ask("/hello").status == 200
    assert server.stop() == 0
    (line,) = [line for line in server.lines if f" stream={stream} " in line]
    assert " reset_by=client " in line and " worker=- " in line, line


def test_a_head_request_has_no_body_and_ends_with_its_head(client: Http2) -> None:
    response = client.ask("/hello", method="HEAD")
    assert response.status == 200 and response.body == b"" and response.is_ended


def test_files_and_ranges_are_served(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    content = bytes(range(256)) * 8192
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "large.bin").write_bytes(content)
    (tmp_path / "files" / "small.txt").write_bytes(content[:1000])
    server = serve("--static", f"/={tmp_path / 'files'}")
    with Http2(server) as client:
        for _ in range(2):
            assert client.ask("/small.txt").body == content[:1000]
            assert client.ask("/large.bin").body == content
        part = client.ask("/large.bin", ("range", "bytes=100-300000"))
        assert part.status == 206 and part.body == content[100:300_001]
        etag = part.header("etag") or ""
        again = client.ask("/small.txt", ("if-none-match", client.ask("/small.txt").header("etag") or ""))
        assert again.status == 304 and again.body == b"" and etag
        assert client.ask("/none").status == 404


def test_other_clients_are_served(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_bytes(b"a" * 100_000)
    server = serve("--static", f"/={tmp_path / 'files'}")
    host, port = server.address
    with httpx.Client(http1=False, http2=True, base_url=f"http://{host}:{port}") as other:
        for _ in range(5):
            response = other.get("/a.txt")
            server.count()
            assert response.http_version == "HTTP/2" and len(response.content) == 100_000


def test_an_upgrade_from_http_1_is_not_taken(zoo: Milepost) -> None:
    with zoo.connect() as client:
        fields = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")
        assert client.ask("GET", "/hello", *fields).status == 200


MALFORMED = [
    ([("host", "other.example")], 400),
    ([("x-blank", " a")], 400),
    ([("connection", "close")], None),
    ([("te", "gzip")], None),
    ([("Upper", "1")], None),
    ([("content-length", "5")], None),
    ([("expect", "something")], 417),
    ([("content-type", "a/b"), ("content-type", "c/d")], 400),
]


@pytest.mark.parametrize(("fields", "status"), MALFORMED)
def test_what_is_malformed_is_refused_and_other_streams_go_on(
    tmp_path: Path, serve: Callable[..., Milepost], fields: list[tuple[str, str]], status: int | None
) -> None:
    server = serve("zoo:app")
    with Http2(server) as client:
        stream = client.begin("/hello", *fields)
        # One line of the log, also where the head is refused before it is a request.
        server.count()
        try:
            response = client.response(stream)
        except (Closed, ConnectionError):
            # A name in upper case ends the connection.
            assert fields[0][0] == "Upper"
            return
        if response.status:
            assert response.status == status
        if status in (400, None):
            assert response.reset == PROTOCOL_ERROR
        assert client.ask("/hello").status == 200


def test_too_many_fields_are_refused_crumbs_included(client: Http2) -> None:
    assert client.ask("/hello", *[("cookie", "a")] * 101).status == 431
    assert client.ask("/hello", ("x-long", "a" * 20_000)).status == 431
    assert client.ask("/hello", *[("cookie", "a")] * 100).status == 200


def test_a_body_beyond_its_bound_is_refused(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--body-bytes-max", "100K")
    with Http2(server) as client:
        stream = client.begin("/body", ("content-length", "200000"), method="POST", ends=False)
        server.count()
        assert client.response(stream).status == 413
        stream = client.begin("/body", method="POST", ends=False)
        server.count()
        client.machine.send_data(stream, b"x" * 16_000)
        client.flush()
        for _ in range(8):
            # A refusal comes while the window is shut.
            client.until(
                lambda: (
                    client.responses[stream].status
                    or client.machine.local_flow_control_window(stream) >= 16_000
                )
            )
            if client.responses[stream].status:
                break
            client.machine.send_data(stream, b"x" * 16_000)
            client.flush()
        assert client.response(stream).status == 413
        assert client.ask("/hello").status == 200


def test_trailers_of_requests_are_taken_and_not_shown(client: Http2, zoo: Milepost) -> None:
    stream = client.begin("/body", method="POST", ends=False)
    client.machine.send_data(stream, b"abc")
    client.machine.send_headers(stream, [("x-checksum", "1")], end_stream=True)
    client.flush()
    zoo.count()
    assert json.loads(client.response(stream).body)["bytes"] == 3


def test_a_client_that_waits_is_invited_to_send_its_body(client: Http2, zoo: Milepost) -> None:
    stream = client.begin(
        "/body", ("expect", "100-continue"), ("content-length", "3"), method="POST", ends=False
    )
    client.until(lambda: client.responses[stream].interim)
    assert client.responses[stream].interim[0][0] == 100
    client.send_body(stream, b"abc")
    zoo.count()
    assert json.loads(client.response(stream).body)["bytes"] == 3


HINTS = """
def app(environ, start_response):
    environ["wsgi.early_hints"]([("Link", "</a.css>; rel=preload"), ("X-Hint", "1")])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"hinted"]
"""


def test_early_hints_come_before_the_response(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    (tmp_path / "hints.py").write_text(HINTS)
    server = serve("hints:app")
    with Http2(server) as client:
        response = client.ask("/")
        assert response.status == 200 and response.body == b"hinted"
        assert response.interim == [(103, [("link", "</a.css>; rel=preload"), ("x-hint", "1")])]


def test_a_response_that_breaks_is_reset(client: Http2) -> None:
    for target in ("/raises-midway", "/shorter"):
        response = client.ask(target)
        assert response.status == 200 and response.reset is not None and not response.is_ended
    assert client.ask("/raises").status == 500
    assert client.ask("/hello").status == 200


def test_the_log_names_the_stream_and_who_reset_it(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app")
    with Http2(server, window=100) as client:
        assert client.ask("/hello").status == 200
        stream = client.begin("/large?bytes=300000")
        client.until(lambda: client.responses[stream].body)
        client.reset(stream)
        server.count()
        client.is_taking = True
        assert client.ask("/hello").status == 200
    assert server.stop() == 0
    lines = [line for line in server.lines if "/large" in line]
    assert len(lines) == 1
    assert '"GET /large?bytes=300000 HTTP/2.0" 200' in lines[0]
    assert f" stream={stream} reset_by=client reset_code=8" in lines[0]
    assert " end=peer-gone" in lines[0]
    assert re.search(r" blocked_stream=\d+\.\d{6}", lines[0])


def rapid_resets(client: Http2) -> None:
    for _ in range(2_000):
        client.reset(client.begin("/hello"))


def made_resets(client: Http2) -> None:
    for _ in range(2_000):
        stream = client.begin("/hello")
        client.raw(frames.WindowUpdateFrame(stream, window_increment=0))


def pings(client: Http2) -> None:
    client.raw(*[frames.PingFrame(0, opaque_data=b"12345678")] * 20_000)


def settings(client: Http2) -> None:
    client.raw(*[frames.SettingsFrame(0, settings={4: 70_000})] * 5_000)


def empty_data(client: Http2) -> None:
    stream = client.begin("/body", method="POST", ends=False)
    client.raw(*[frames.DataFrame(stream, data=b"")] * 20_000)


def continuations(client: Http2) -> None:
    client.raw(frames.HeadersFrame(1, data=b""))
    client.raw(*[frames.ContinuationFrame(1, data=b"")] * 20_000)


def priorities(client: Http2) -> None:
    client.raw(*[frames.PriorityFrame(5, depends_on=3, stream_weight=1)] * 20_000)


def small_window_updates(client: Http2) -> None:
    client.raw(*[frames.WindowUpdateFrame(0, window_increment=1)] * 20_000)


def header_bomb(client: Http2) -> None:
    fields = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/hello")]
    for _ in range(500):
        block = client.machine.encoder.encode([*fields, *[("x-bomb", "b" * 500)] * 3_000])
        stream = client.machine.get_next_available_stream_id()
        client.machine.send_headers(stream, fields, end_stream=True)
        client.machine.data_to_send()
        pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
        flags = ["END_STREAM"] + (["END_HEADERS"] if len(pieces) == 1 else [])
        client.raw(frames.HeadersFrame(stream, data=pieces[0], flags=flags))
        for piece in pieces[1:]:
            client.raw(
                frames.ContinuationFrame(stream, data=piece, flags=["END_HEADERS"] * (piece is pieces[-1]))
            )


def rss_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


FLOODS = [
    rapid_resets,
    made_resets,
    pings,
    settings,
    empty_data,
    continuations,
    priorities,
    small_window_updates,
    header_bomb,
]


@pytest.mark.parametrize("flood", FLOODS, ids=lambda flood: flood.__name__)
def test_a_flood_ends_its_connection_and_takes_bounded_memory(
    tmp_path: Path, serve: Callable[..., Milepost], flood: Callable[[Http2], None]
) -> None:
    server = serve("zoo:app", "--access-log", "/dev/null", log=None)
    with Http2(server) as first:
        assert first.ask("/hello").status == 200
    before = rss_bytes(server.serving_pid)
    with Http2(server) as client:
        with contextlib.suppress(ConnectionError, TimeoutError):
            flood(client)
        client.until_closed()
        assert client.is_closed
    assert rss_bytes(server.serving_pid) - before < 30 * MIB
    with Http2(server) as last:
        assert last.ask("/hello").status == 200


def test_stalled_streams_take_no_bandwidth_from_others(
    tmp_path: Path, serve: Callable[..., Milepost]
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "large.bin").write_bytes(b"x" * 3 * MIB)
    (tmp_path / "files" / "small.txt").write_bytes(b"small")
    # A byte a second, beyond a burst of 16 KB.
    toml = tables("rate_route", {"url": "/files", "rate": "1"})
    server = serve("--static", f"/files={tmp_path / 'files'}", toml=toml)
    with Http2(server, window=0) as client:
        streams = [client.begin("/files/large.bin") for _ in range(100)]
        client.until(lambda: all(client.responses[stream].status for stream in streams))
        server.count(100)
        with Http2(server) as other:
            assert other.ask("/files/small.txt").body == b"small"
        with server.connect() as other:
            assert other.ask("GET", "/files/small.txt").body == b"small"


def test_stalled_streams_of_a_file_hold_no_bytes_of_it(
    tmp_path: Path, serve: Callable[..., Milepost]
) -> None:
    """By the formula of ARCHITECTURE.md a stream that has sent nothing holds its head and no piece."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "large.bin").write_bytes(b"x" * 3 * MIB)
    server = serve("--static", f"/={tmp_path / 'files'}", "--access-log", "/dev/null", log=None)
    with contextlib.ExitStack() as stack:
        stack.enter_context(Http2(server)).ask("/large.bin")
        before = rss_bytes(server.serving_pid)
        for _ in range(10):
            client = stack.enter_context(Http2(server, window=0))
            streams = [client.begin("/large.bin") for _ in range(100)]
            client.until(
                lambda client=client, streams=streams: all(client.responses[it].status for it in streams)
            )
        assert rss_bytes(server.serving_pid) - before < 10 * (128 << 10) + 1000 * (8 << 10)


def test_a_bad_preface_is_answered_by_a_goaway(zoo: Milepost) -> None:
    with zoo.connect() as client:
        client.sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\x00")
        data = client.sock.recv(100)
        assert data[3] == 7 and data[-1] == PROTOCOL_ERROR


def test_http2_can_be_off(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--http2=false")
    with server.connect() as client:
        client.sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        assert client.sock.recv(100).startswith(b"HTTP/1.1 505 ")
    server.count()


def test_no_more_streams_than_the_bound_are_begun(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--http2-streams-max", "3", "--threads", "2:2")
    with Http2(server) as client:
        client.ask("/hello")
        assert client.machine.remote_settings.max_concurrent_streams == 3
        for _ in range(5):
            assert client.ask("/hello").status == 200


def test_a_server_that_stops_serves_what_was_begun(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--threads", "2:2")
    with Http2(server) as client:
        client.ask("/hello")
        stream = client.begin("/body", method="POST", ends=False)
        client.machine.send_data(stream, b"abc")
        client.flush()
        # The request has come once another one behind it is answered.
        client.ask("/hello")
        server.signal(signal.SIGTERM)
        client.until(lambda: client.goaways)
        client.machine.end_stream(stream)
        client.flush()
        server.count()
        assert json.loads(client.response(stream).body)["bytes"] == 3
        client.until_closed()
        assert client.goaways[0][0] == NO_ERROR
    assert server.wait() == 0


def children(server: Milepost) -> set[int]:
    return {int(pid) for pid in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()}


def test_a_reload_loses_no_request(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "1")
    answered = 0
    before = server.serving_pid
    server.signal(signal.SIGHUP)
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        with Http2(server) as client:
            for _ in range(20):
                stream = client.begin("/")
                response = client.response(stream)
                assert response.status == 200, response
                server.count()
                answered += 1
                if client.goaways:
                    break
        if before not in children(server):
            break
    assert answered and before not in children(server)


def test_an_idle_connection_is_asked_to_go(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--idle-timeout", "2s")
    with Http2(server) as client:
        assert client.ask("/hello").status == 200
        client.until_closed()
        assert client.goaways and client.goaways[0][0] == NO_ERROR


def test_the_status_page_counts_streams(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--status-path", "/-/status")
    with Http2(server) as client:
        client.ask("/hello")
        client.ask("/hello")
        status = json.loads(client.ask("/-/status").body)
    drivers = status["drivers"]
    assert sum(driver["http2_streams"] for driver in drivers) == 3
    assert sum(driver["http2_connections"] for driver in drivers) == 1
