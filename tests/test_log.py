"""The access log: one line per exchange, phases that add up, and no line that a client wrote."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from raw import CutShort, request
from serving import Milepost

LINE = re.compile(
    r'(?P<peer>\S+) - (?P<user>\S+) \[(?P<time>[^]]+)\] "(?P<request>[^"]*)" (?P<status>\d{3}|-) '
    r'(?P<bytes>\d+|-) "(?P<referer>[^"]*)" "(?P<agent>[^"]*)" '
    r"receive=(?P<receive>\d+\.\d{6}) queue=(?P<queue>\d+\.\d{6}) run=(?P<run>\d+\.\d{6}) "
    r"send=(?P<send>\d+\.\d{6}) total=(?P<total>\d+\.\d{6}) "
    r"id=(?P<id>\S+) route=(?P<route>\S+)(?: pool=(?P<pool>\S+))?"
    r'(?: end=(?P<end>[a-z-]+))?(?: cause="(?P<cause>[^"]*)")?'
    r"(?: waiting=(?P<waiting>\d+) threads=(?P<threads>\d+) idle=(?P<idle>\d+)(?: queued=yes)?)?"
    r"(?: before=(?P<before>\d+\.\d{6}))?(?: cpu=(?P<cpu>\d+\.\d{6}))?"
    r" worker=(?P<worker>-|\d+\.\d+) at=(?P<at>\d+\.\d{6})"
)
PHASES = ("receive", "queue", "run", "send")


def parse(line: str) -> dict[str, str]:
    found = LINE.fullmatch(line)
    assert found, line
    return found.groupdict()


def add_up(fields: dict[str, object]) -> None:
    """The four phases are the total; each is rounded down to a microsecond."""
    parts = sum(float(fields[name]) for name in PHASES)
    assert abs(float(fields["total"]) - parts) < 5e-6, fields


@pytest.fixture
def www(tmp_path: Path) -> Path:
    folder = tmp_path / "www"
    folder.mkdir()
    (folder / "f").write_bytes(b"x" * 5_000)
    return folder


def test_lines_are_combined_with_phases(serve: Callable[..., Milepost], www: Path) -> None:
    server = serve("zoo:app", "--static", "/static=www")
    asked = [
        ("GET", "/hello?a=b", ("User-Agent: agent/1", "Referer: http://r/"), {}),
        ("POST", "/body", (), {"body": b"x" * 100_000}),
        ("HEAD", "/hello", (), {}),
        ("GET", "/static/f", (), {}),
        ("GET", "/static/f?again", ("If-None-Match: *",), {}),
        ("GET", "/raises", (), {}),
        ("GET", "/large?bytes=5000000&length=1", (), {}),
        ("GET", "/nowhere", (), {"version": "HTTP/1.0"}),
    ]
    replies = {}
    with server.connect() as client:
        for method, target, headers, more in asked:
            line = f"{method} {target} {more.get('version', 'HTTP/1.1')}"
            replies[line] = client.ask(method, target, *headers, **more)
    assert server.stop() == 0
    fields = {f["request"]: f for f in map(parse, server.lines)}
    # What is compared is what the clients saw.
    assert {request: (f["status"], f["bytes"]) for request, f in fields.items()} == {
        request: (str(reply.status), str(len(reply.body))) for request, reply in replies.items()
    }
    first = fields["GET /hello?a=b HTTP/1.1"]
    assert (first["agent"], first["referer"]) == ("agent/1", "http://r/")
    for f in fields.values():
        # Of those that a thread ran.
        assert (f["cpu"] is None) == (f["pool"] is None) == (f["worker"] == "-"), f
        assert f["peer"] == "127.0.0.1"
        assert re.fullmatch(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}", f["time"])
        assert f["end"] is None
        add_up(f)
    # The server answers files by itself: nothing waited.
    assert fields["GET /static/f HTTP/1.1"]["queue"] == "0.000000"


def test_waiting_for_a_thread_is_in_queue(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    server = serve("zoo:app", "--threads", "1:1", "--drivers", "1")
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with server.connect() as holder, server.connect() as waiter, server.connect() as other:
        holder.send(request("GET", f"/gate?name={gate}"))
        with open(gate, "wb"):
            waiter.send(request("GET", "/hello"))
            # Files are answered by the driver: this reply comes after it has read the waiter's request.
            other.send(b"broken\r\n\r\n")
            assert other.reply().status == 400
        assert holder.reply().status == 200
        assert waiter.reply().status == 200
    assert server.stop() == 0
    fields = {
        f["request"].split(" ")[1].partition("?")[0]: f
        for f in map(parse, server.lines)
        if "broken" not in f["request"]
    }
    for f in fields.values():
        add_up(f)
    assert float(fields["/hello"]["queue"]) > 0
    # One thread: the waiter waited in the queue while the holder ran, so not longer than that.
    assert float(fields["/hello"]["queue"]) <= float(fields["/gate"]["total"])


@pytest.mark.parametrize("form", ["phases", "json"])
def test_the_worker_is_named_alike_in_the_environ_and_the_log(
    serve: Callable[..., Milepost], form: str
) -> None:
    server = serve("zoo:app", "--threads", "1:1", "--access-log-format", form)
    with server.connect() as client:
        named = [json.loads(client.ask("GET", "/environ").body)["milepost.worker"] for _ in range(2)]
        client.send(b"broken\r\n\r\n")
        assert client.reply().status == 400
    assert server.stop() == 0
    if form == "json":
        logged = [json.loads(line)["worker"] for line in server.lines]
    else:
        logged = [parse(line)["worker"] for line in server.lines]
    assert re.fullmatch(r"\d+\.1", named[0]) and named[1] == named[0]
    # A driver answered the last one.
    assert logged == [*named, "-"]


@pytest.mark.parametrize("form", ["json", "common", "combined"])
def test_other_forms(serve: Callable[..., Milepost], form: str) -> None:
    server = serve("zoo:app", "--access-log-format", form)
    with server.connect() as client:
        client.ask("GET", "/hello", 'User-Agent: "quoted" \\ caf\xe9', "Referer: r")
        client.send(b'\x00\xff"\\\r\n\r\n')
        assert client.reply().status == 400
    with server.connect() as client:
        client.send(request("GET", "/shorter"))
        with pytest.raises(CutShort):
            client.reply()
        server.exchanges += 1
    assert server.stop() == 0
    if form == "json":
        ended = {record["end"]: record for record in map(json.loads, server.lines)}
        first, refused, cut = ended["complete"], ended["refused"], ended["cut"]
        assert list(first)[:6] == ["time", "client", "peer", "method", "target", "protocol"]
        assert (first["method"], first["target"], first["protocol"]) == ("GET", "/hello", "HTTP/1.1")
        assert (first["status"], first["bytes"], first["end"]) == (200, 5, "complete")
        assert first["agent"] == '"quoted" \\ caf\xe9'
        assert first["host"] == "test"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)", first["time"])
        assert (refused["status"], refused["end"]) == (400, "refused")
        assert refused["cause"]
        assert cut["end"] == "cut"
        for record in (first, refused, cut):
            add_up(record)
    else:
        fields = r'127\.0\.0\.1 - - \[[^]]+\] "GET /hello HTTP/1\.1" 200 5'
        fields += r' "r" "\\x22quoted\\x22 \\x5[Cc] caf\\x[Ee]9"' if form == "combined" else ""
        line = next(line for line in server.lines if "/hello" in line)
        assert re.fullmatch(fields, line), line


FORGERIES = [
    'a" 200 5 "-" "-" receive=0.000001',
    "a\x1b[2Jb",
    "caf\xe9\x80\xff",
    "tab\there",
    "back\\slash\\n",
    "\\x22",
]


@pytest.mark.parametrize("form", ["phases", "json"])
@pytest.mark.parametrize("where", ["agent", "target", "line", "user"])
def test_no_client_writes_a_line(serve: Callable[..., Milepost], where: str, form: str) -> None:
    server = serve("zoo:app", "--access-log-format", form)
    for text in FORGERIES:
        with server.connect() as client:
            raw = text.encode("latin-1")
            user = base64.b64encode(b"x" + raw + b":p")
            client.send(
                {
                    "agent": b"GET /hello HTTP/1.1\r\nHost: a\r\nUser-Agent: " + raw + b"\r\n\r\n",
                    "target": b"GET /" + raw + b" HTTP/1.1\r\nHost: a\r\n\r\n",
                    "line": raw + b"\r\n\r\n",
                    "user": b"GET /hello HTTP/1.1\r\nHost: a\r\nAuthorization: Basic " + user + b"\r\n\r\n",
                }[where]
            )
            client.reply()
    assert server.stop() == 0
    data = server.log.read_bytes()
    assert data.endswith(b"\n")
    assert len(data.splitlines()) == len(FORGERIES)
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", data)
    for line in data.decode("utf-8").splitlines():
        if form == "json":
            assert json.loads(line)["status"] in (200, 400, 404, 505)
        else:
            assert line.isascii()
            parse(line)


def test_clients_that_leave_are_marked(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app")
    # Nor is one that leaves taken for an application that gave less than it had declared.
    for length in ("", "&length=1"):
        with server.connect(receive_buffer_bytes=4096) as client:
            client.send(request("GET", f"/large?bytes=20000000{length}"))
            client.head()
    with server.connect() as client:
        client.send(request("POST", "/body", "Content-Length: 100") + b"x")
    server.exchanges += 3
    assert server.stop() == 0
    gone = [parse(line) for line in server.lines]
    assert [f["end"] for f in gone] == ["peer-gone"] * 3
    for large in (f for f in gone if "large" in f["request"]):
        assert 0 < int(large["bytes"]) < 20_000_000


def test_applications_that_break_off_are_marked(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app")
    for path in ("/raises-midway", "/raises-midway?length=1", "/shorter"):
        with server.connect() as client:
            client.send(request("GET", path))
            with pytest.raises(CutShort):
                client.reply()
            server.exchanges += 1
    assert server.stop() == 0
    assert [parse(line)["end"] for line in server.lines] == ["cut"] * 3


def test_the_log_goes_to_standard_output_when_asked(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--access-log", "-", log=None)
    with server.connect() as client:
        for _ in range(10):
            client.ask("GET", "/hello")
    assert server.stop() == 0
    assert len([parse(line) for line in server.stdout.splitlines()]) == 10


def test_without_the_flag_there_is_no_log(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", log=None)
    with server.connect() as client:
        client.ask("GET", "/hello")
    assert server.stop() == 0
    assert server.stdout == ""


def test_a_log_is_appended_to(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    (tmp_path / "access.log").write_text("earlier\n")
    server = serve("zoo:app")
    with server.connect() as client:
        client.ask("GET", "/hello")
    server.exchanges += 1
    assert server.stop() == 0
    assert server.lines[0] == "earlier"


def test_thousands_of_lines_arrive_in_order_per_connection(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--threads", "4:4", "--drivers", "2")
    clients = [server.connect() for _ in range(8)]
    for start in range(0, 500, 50):
        for c, client in enumerate(clients):
            client.send(b"".join(request("GET", f"/hello?c={c}&n={n}") for n in range(start, start + 50)))
        for client in clients:
            for _ in range(50):
                client.reply()
    for client in clients:
        client.sock.close()
    assert server.stop() == 0
    seen: dict[str, list[int]] = {}
    for line in server.lines:
        c, n = re.search(r"c=(\d+)&n=(\d+)", line).groups()
        seen.setdefault(c, []).append(int(n))
    assert seen == {str(c): list(range(500)) for c in range(8)}


def test_an_empty_line_behind_a_body_is_no_beginning(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--access-log-format", "{receive}")
    with server.connect() as client:
        # RFC 9112 section 2.2: some clients send a line end behind a body.
        client.send(request("POST", "/body", body=b"abc") + b"\r\n")
        client.reply()
        time.sleep(1)
        client.ask("GET", "/hello")
    assert server.stop() == 0
    assert float(server.lines[1]) < 0.9


def test_server_timing_shows_the_phases_when_asked(serve: Callable[..., Milepost]) -> None:
    with serve("zoo:app", "--server-timing").connect() as client:
        timing = client.ask("GET", "/hello").header("server-timing")
        assert re.search(r"receive;dur=\d", timing) and re.search(r"queue;dur=\d", timing)
    with serve("zoo:app", log="other.log").connect() as client:
        assert client.ask("GET", "/hello").header("server-timing") is None
