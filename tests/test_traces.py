"""Traces: the context of a request in the application, at an upstream, in logs; spans at a collector."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import spans
from spans import CLIENT, SERVER, adds_up
from upstreams import Connection, Request, Upstream, answering

from raw import Client
from serving import APPS, Milepost, tables, until

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"traceparent: 00-{TRACE}-{SPAN}-01"
HEADER = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
IDS = 'traces = "ids"\n'
JSON_LOGS = 'access_log_format = "json"\n'


def context(text: str | None) -> tuple[str, str, str]:
    """Trace, span and flags of a header."""
    found = HEADER.fullmatch(text or "")
    assert found, text
    return found[1], found[2], found[3]


def of_wsgi(client: Client, *headers: str) -> dict[str, str]:
    """The headers of a trace that a WSGI application has."""
    environ = json.loads(client.ask("GET", "/environ", *headers).body)
    keys = {"HTTP_TRACEPARENT": "traceparent", "HTTP_TRACESTATE": "tracestate"}
    return {name: environ[key] for key, name in keys.items() if key in environ}


def of_asgi(client: Client, *headers: str) -> dict[str, str]:
    """The headers of a trace that an ASGI application has, each at most once."""
    scope = json.loads(client.ask("GET", "/scope", *headers).body)["scope"]
    pairs = [[text.removeprefix("bytes:") for text in pair] for pair in scope["headers"]]
    found = [(name, value) for name, value in pairs if name.startswith("trace")]
    assert len(found) == len(dict(found))
    return dict(found)


APPLICATIONS = [("zoo:app", of_wsgi), ("asgi_zoo:app", of_asgi)]


def logged(server: Milepost, length: int) -> list[dict[str, object]]:
    """The lines of the access log, once there are so many."""
    assert until(lambda: len(server.lines) == length)
    return [json.loads(line) for line in server.lines]


@pytest.mark.parametrize(("app", "headers"), APPLICATIONS, ids=["wsgi", "asgi"])
def test_an_application_gets_the_place_of_its_request_in_the_trace(
    serve: Callable[..., Milepost], app: str, headers: Callable[..., dict[str, str]]
) -> None:
    server = serve(app, "--app-dir", str(APPS), toml=IDS + JSON_LOGS)
    with server.connect() as client:
        continued = headers(client, PARENT, "tracestate: a=1")
        begun = headers(client, "traceparent: nonsense", "tracestate: a=1")
        twice = headers(client, PARENT, PARENT)
        bare = headers(client)
    assert continued["tracestate"] == "a=1"
    # What vendors said of a trace that is not continued belongs to no trace.
    assert "tracestate" not in begun
    contexts = [context(seen["traceparent"]) for seen in (continued, begun, twice, bare)]
    assert contexts[0][0] == TRACE and contexts[0][1] != SPAN and contexts[0][2] == "01"
    assert len({trace for trace, _, _ in contexts}) == 4
    lines = logged(server, 4)
    assert [(line["trace_id"], line["span_id"]) for line in lines] == [seen[:2] for seen in contexts]
    assert [line["id"] for line in lines] == [line["span_id"] for line in lines]


@pytest.mark.parametrize(("app", "headers"), APPLICATIONS, ids=["wsgi", "asgi"])
def test_without_traces_an_application_gets_what_the_client_sent(
    serve: Callable[..., Milepost], app: str, headers: Callable[..., dict[str, str]]
) -> None:
    server = serve(app, "--app-dir", str(APPS), toml=JSON_LOGS)
    with server.connect() as client:
        assert headers(client, PARENT, "tracestate: a=1") == {
            "traceparent": f"00-{TRACE}-{SPAN}-01",
            "tracestate": "a=1",
        }
        assert headers(client) == {}
    assert not any("trace_id" in line for line in logged(server, 2))


def hello(connection: Connection, asked: Request) -> None:
    connection.reply(b"hello")


def proxy(upstream: Upstream) -> str:
    """The settings that pass everything on."""
    return tables("route", {"path": "/", "upstream": "back"}) + tables(
        "upstream", {"name": "back", "servers": [upstream.url]}
    )


def test_an_upstream_gets_the_place_of_its_request_in_the_trace(serve: Callable[..., Milepost]) -> None:
    with Upstream(answering(hello)) as upstream:
        server = serve(toml=IDS + JSON_LOGS + proxy(upstream))
        with server.connect() as client:
            client.ask("GET", "/", PARENT, "tracestate: a=1", "tracestate: b=2")
            client.ask("GET", "/", PARENT.replace("-01", "-zz"), "tracestate: a=1")
        continued, begun = upstream.seen
    assert [asked.all("tracestate") for asked in (continued, begun)] == [["a=1", "b=2"], []]
    contexts = [context(asked.header("traceparent")) for asked in (continued, begun)]
    assert contexts[0][0] == TRACE and contexts[0][1] != SPAN
    assert contexts[1][0] != TRACE
    lines = logged(server, 2)
    assert [line["trace_id"] for line in lines] == [trace for trace, _, _ in contexts]
    # The parent there is the span of the request at the upstream, below that of the request.
    assert all(line["span_id"] != span for line, (_, span, _) in zip(lines, contexts, strict=True))


@pytest.mark.parametrize("trusted", [True, False])
def test_only_trusted_proxies_name_a_trace_if_that_is_asked_for(
    serve: Callable[..., Milepost], tmp_path: Path, trusted: bool
) -> None:
    (tmp_path / "a.txt").write_text("a")
    proxies = "127.0.0.0/8" if trusted else "192.0.2.1"
    more = f'traces_parents = "trusted"\ntrusted_proxies = ["{proxies}"]\nstatic = ["/={tmp_path}"]\n'
    server = serve(toml=IDS + JSON_LOGS + more)
    with server.connect() as client:
        assert client.ask("GET", "/a.txt", PARENT).status == 200
    (line,) = logged(server, 1)
    assert (line["trace_id"] == TRACE) is trusted


def test_lines_of_both_logs_name_the_trace(serve: Callable[..., Milepost]) -> None:
    template = 'access_log_format = "{trace_id} {span_id} {status}"\nerror_log_format = "json"\n'
    with Upstream(lambda connection: connection.reset()) as upstream:
        server = serve(toml=IDS + template + proxy(upstream))
        with server.connect() as client:
            assert client.ask("GET", "/", PARENT).status == 502
    assert until(lambda: len(server.lines) == 1)
    trace, span, status = server.lines[0].split()
    assert (trace, status) == (TRACE, "502")
    assert re.fullmatch("[0-9a-f]{16}", span)
    events = [json.loads(line) for line in server.stderr if line.startswith("{")]
    assert [(e["trace_id"], e["id"]) for e in events if "trace_id" in e] == [(TRACE, span)]


def test_the_usual_form_of_the_log_ends_with_the_trace(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a")
    server = serve(toml=f'{IDS}static = ["/={tmp_path}"]\n')
    with server.connect() as client:
        client.ask("GET", "/a.txt", PARENT)
    assert until(lambda: len(server.lines) == 1)
    assert re.search(rf" trace_id={TRACE} span_id=[0-9a-f]{{16}}$", server.lines[0].rstrip())


class Collector:
    """A collector of spans: it reads messages as OpenTelemetry's own definition has them, or misbehaves."""

    def __init__(
        self, respond: Callable[[Connection, Request], None] | None = None, path: str | None = None
    ) -> None:
        self.spans: list[dict[str, Any]] = []
        self.resources: list[dict[str, str]] = []
        self.upstream = Upstream(answering(respond or self.take), path=path)
        #: What the setting `traces` says.
        self.url = f"unix:{path}" if path else self.upstream.url

    def take(self, connection: Connection, asked: Request) -> None:
        """Keeps the spans of a message. Answered first: once a test has the spans, the exchange is over."""
        connection.reply(b"{}", "Content-Type: application/json")
        self.keep(asked)

    def keep(self, asked: Request) -> None:
        """Fails for what is no message."""
        assert asked.header("content-type") == "application/json"
        found, resources = spans.read(asked.body)
        self.spans += found
        self.resources += resources

    def requests(self, length: int) -> list[dict[str, Any]]:
        """The spans of so many requests, in their order, each with those below it in `below`."""
        assert until(lambda: len([one for one in self.spans if one["kind"] == SERVER]) >= length)
        servers = spans.requests(self.spans)
        assert len(servers) == length
        return servers

    def __enter__(self) -> Collector:
        self.upstream.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.upstream.close()


def exporting(collector: Collector, *more: str, sample: str = "100%") -> str:
    """Settings that send all spans to a collector."""
    return exporting_to(collector.url, *more, sample=sample)


def exporting_to(url: str, *more: str, sample: str = "100%") -> str:
    """The same, to what may be no collector."""
    return f'traces = "{url}"\ntraces_sample = "{sample}"\n' + JSON_LOGS + "".join(more)


def static(folder: Path) -> str:
    """A folder with one file."""
    (folder / "files").mkdir(exist_ok=True)
    (folder / "files" / "a.txt").write_text("hello")
    return f'static = ["/files={folder}/files"]\n'


def test_a_request_for_a_file_is_one_span_with_its_phases(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    with Collector() as collector:
        server = serve(
            toml=exporting(collector, static(tmp_path)),
            env={"OTEL_SERVICE_NAME": "shop", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test"},
        )
        with server.connect() as client:
            assert client.ask("GET", "/files/a.txt?secret=1", PARENT, 'User-Agent: x"y\xe9').status == 200
            assert client.ask("GET", "/files/missing").status == 404
        found, missing = collector.requests(2)
    assert (found["trace"], found["parent"], found["name"]) == (TRACE, SPAN, "GET /files")
    assert found["flags"] == 0x301 and missing["flags"] == 0x103
    expected = {
        "http.request.method": "GET",
        "url.path": "/files/a.txt",
        "url.scheme": "http",
        "http.route": "/files",
        "http.response.status_code": 200,
        "network.protocol.version": "1.1",
        "client.address": "127.0.0.1",
        "http.response.body.size": 5,
        "user_agent.original": 'x"y\xe9',
        "milepost.end": "complete",
    }
    assert {key: found[key] for key in expected} == expected
    assert "secret" not in str(collector.spans)
    assert (missing["parent"], missing["failed"]) == ("", False)
    assert missing["trace"] != TRACE
    assert set(found["below"]) == {"receive", "run", "send"}
    assert adds_up(found) and adds_up(missing)
    assert all(one["trace"] == TRACE for one in found["below"].values())
    lines = logged(server, 2)
    assert [(line["trace_id"], line["span_id"]) for line in lines] == [
        (span["trace"], span["id"]) for span in (found, missing)
    ]
    resource = collector.resources[0]
    assert (resource["service.name"], resource["deployment.environment"]) == ("shop", "test")


@pytest.mark.parametrize(("app", "headers"), APPLICATIONS, ids=["wsgi", "asgi"])
def test_a_request_for_an_application_has_the_pool_and_the_worker(
    serve: Callable[..., Milepost], app: str, headers: Callable[..., dict[str, str]]
) -> None:
    with Collector() as collector:
        server = serve(app, "--app-dir", str(APPS), toml=exporting(collector))
        with server.connect() as client:
            seen = headers(client)
        (span,) = collector.requests(1)
    assert context(seen["traceparent"])[:2] == (span["trace"], span["id"])
    assert set(span["below"]) == {"receive", "queue", "run", "send"}
    assert adds_up(span)
    assert span["name"] == "GET" and "http.route" not in span
    (line,) = logged(server, 1)
    assert (span["below"]["run"]["milepost.worker"], span["milepost.route"]) == (line["worker"], "app")


def test_milepost_behind_milepost_is_one_trace(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    folder = tmp_path / "behind"
    folder.mkdir()
    with Collector() as collector, Milepost(folder, toml=exporting(collector, static(folder))) as behind:
        url = behind.url.rstrip("/")
        routes = tables("route", {"path": "/", "upstream": "back"})
        routes += tables("upstream", {"name": "back", "servers": [url]})
        front = serve(toml=exporting(collector, routes))
        with front.connect() as client:
            assert client.ask("GET", "/files/a.txt").status == 200
        behind.exchanges += 1
        outer, inner = collector.requests(2)
    at_upstream = outer["below"]["GET"]
    assert at_upstream["kind"] == CLIENT
    assert (outer["trace"], outer["parent"]) == (inner["trace"], "")
    assert inner["parent"] == at_upstream["id"]
    assert at_upstream["http.response.status_code"] == 200
    assert url.endswith(at_upstream["server.address"])
    assert outer["begin"] <= at_upstream["begin"] <= at_upstream["end"] <= outer["end"]


def test_the_span_of_an_upstream_that_is_gone_says_why(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    with socket.socket() as unused, Collector() as collector:
        # Nobody listens there.
        unused.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{unused.getsockname()[1]}"
        routes = tables("route", {"path": "/", "upstream": "back"})
        routes += tables("upstream", {"name": "back", "servers": [gone]})
        front = serve(toml=exporting(collector, routes))
        with front.connect() as client:
            assert client.ask("GET", "/").status == 502
        (span,) = collector.requests(1)
    at_upstream = span["below"]["GET"]
    assert at_upstream["failed"] and "http.response.status_code" not in at_upstream
    assert at_upstream["error.type"] == "the upstream cannot be reached"


def test_only_a_share_is_recorded_and_what_fails_always(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    more = static(tmp_path) + tables("respond", {"path": "/broken", "status": 503})
    with Collector() as collector:
        server = serve(toml=exporting(collector, more, sample="0"))
        with server.connect() as client:
            for _ in range(20):
                assert client.ask("GET", "/files/a.txt").status == 200
            assert client.ask("GET", "/files/a.txt", PARENT).status == 200
            assert client.ask("GET", "/broken").status == 503
        sampled, failed = collector.requests(2)
    assert sampled["trace"] == TRACE
    assert (failed["failed"], failed["error.type"], failed["http.response.status_code"]) == (True, "503", 503)
    # Nobody else is asked to record it.
    assert failed["flags"] & 1 == 0


def told(server: Milepost) -> list[str]:
    """What the server has said of its collector."""
    return [line for line in server.stderr if "traces: `" in line]


def test_a_collector_that_is_gone_is_told_once_and_slows_nothing(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    with Collector() as collector:
        gone = exporting(collector, static(tmp_path))
    server = serve(toml=gone)
    with server.connect() as client:
        for _ in range(50):
            assert client.ask("GET", "/files/a.txt").status == 200
        assert until(lambda: len(told(server)) == 1)
        for _ in range(50):
            assert client.ask("GET", "/files/a.txt").status == 200
    assert server.stop() == 0
    (line,) = told(server)
    assert "does not take spans: " in line and "refused" in line


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"\x00\xff nonsense\r\n\r\n", "the answer is no HTTP"),
        (b"", "closes the connection without an answer|reset by peer"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "the answer is no HTTP"),
        (b"HTTP/1.1 401 forged [id 1]: line\r\nContent-Length: 0\r\n\r\n", "it answers 401"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "it answers 302"),
        (
            b'HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n{"partialSuccess":{"rejectedSpans":"2"}}    ',
            "refuses 2 spans",
        ),
    ],
)
def test_nothing_of_a_wrong_answer_comes_in(
    serve: Callable[..., Milepost], tmp_path: Path, answer: bytes, why: str
) -> None:
    def respond(connection: Connection, asked: Request) -> None:
        connection.send(answer)
        connection.reset()

    with Collector(respond) as collector:
        server = serve(toml=exporting(collector, static(tmp_path)))
        with server.connect() as client:
            assert client.ask("GET", "/files/a.txt").status == 200
            assert until(lambda: len(told(server)) == 1)
            assert client.ask("GET", "/files/a.txt").status == 200
        assert server.stop() == 0
    (line,) = told(server)
    assert re.search(why, line)
    assert "forged" not in "".join(server.stderr)


def test_a_collector_that_hangs_holds_up_neither_requests_nor_the_end(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    asked = threading.Event()
    done = threading.Event()

    def respond(connection: Connection, _: Request) -> None:
        asked.set()
        done.wait(60)

    with Collector(respond) as collector:
        server = serve(toml=exporting(collector, static(tmp_path)))
        with server.connect() as client:
            assert client.ask("GET", "/files/a.txt").status == 200
            assert asked.wait(60)
            for _ in range(100):
                assert client.ask("GET", "/files/a.txt").status == 200
        # The thread is in the middle of a request that may take ten seconds: the process ends without it.
        assert server.stop() == 0
        done.set()


def test_a_message_is_sent_again_once_the_collector_can_take_it(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    bodies: list[bytes] = []

    def respond(connection: Connection, asked: Request) -> None:
        bodies.append(asked.body)
        if len(bodies) == 1:
            connection.reply(b"", "Retry-After: 1", status="503 Later")
        else:
            collector.take(connection, asked)

    with Collector(respond) as collector:
        server = serve(toml=exporting(collector, static(tmp_path)))
        with server.connect() as client:
            assert client.ask("GET", "/files/a.txt").status == 200
        collector.requests(1)
        assert until(lambda: len(told(server)) == 2)
    assert bodies[0] == bodies[1]
    first, second = told(server)
    assert "it answers 503" in first
    assert "takes spans again; those of 0 requests are lost" in second


def test_what_waits_is_sent_at_the_end(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    with Collector() as collector:
        server = serve(toml=exporting(collector, static(tmp_path)))
        with server.connect() as client:
            for _ in range(30):
                assert client.ask("GET", "/files/a.txt").status == 200
        assert server.stop() == 0
        assert len(collector.requests(30)) == 30


def test_the_variables_of_opentelemetry_name_the_collector(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    with Collector() as collector:
        env = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.upstream.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b",
            "OTEL_TRACES_SAMPLER": "parentbased_always_on",
        }
        server = serve(toml='traces = "otel"\n' + static(tmp_path), env=env)
        with server.connect() as client:
            assert client.ask("GET", "/files/a.txt").status == 200
        collector.requests(1)
        (asked,) = collector.upstream.seen
    assert (asked.target, asked.header("api-key")) == ("/v1/traces", "a b")


@pytest.fixture
def socket_path() -> Iterator[str]:
    """A path for a unix socket: those of tests are longer than a socket's may be."""
    with tempfile.TemporaryDirectory(prefix="milepost-") as folder:
        yield f"{folder}/collector"


def test_a_collector_at_a_unix_socket_comes_and_goes(
    serve: Callable[..., Milepost], tmp_path: Path, socket_path: str
) -> None:
    # Nobody is there.
    server = serve(toml=exporting_to(f"unix:{socket_path}", static(tmp_path)))
    with server.connect() as client:
        assert client.ask("GET", "/files/a.txt").status == 200
        assert until(lambda: len(told(server)) == 1)
        for _ in range(100):
            assert client.ask("GET", "/files/a.txt").status == 200
        # It comes within the tries of the first message, and gets all.
        with Collector(path=socket_path) as collector:
            assert len(collector.requests(101)) == 101
            assert until(lambda: len(told(server)) == 2)
            (host,) = {asked.header("host") for asked in collector.upstream.seen}
        Path(socket_path).unlink()
        # It goes, and its socket with it.
        for _ in range(100):
            assert client.ask("GET", "/files/a.txt").status == 200
        assert until(lambda: len(told(server)) == 3)
    assert server.stop() == 0
    assert host == "localhost"
    first, second, third = told(server)
    assert f"`unix:{socket_path}` does not take spans: No such file" in first
    assert "takes spans again; those of 0 requests are lost" in second
    assert "does not take spans: No such file" in third


@pytest.mark.parametrize("is_full", [False, True], ids=["never read", "queue full"])
def test_a_unix_socket_on_which_nobody_accepts_slows_nothing(
    serve: Callable[..., Milepost], tmp_path: Path, socket_path: str, is_full: bool
) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(socket_path)
        listener.listen(0 if is_full else 16)
        if is_full:
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.connect(socket_path)
            other = stack.enter_context(socket.socket(socket.AF_UNIX))
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.connect(socket_path)
        server = serve(toml=exporting_to(f"unix:{socket_path}", static(tmp_path)))

        # A thread takes its name itself, when it gets a processor.
        def threads() -> list[Path]:
            tasks = Path(f"/proc/{server.serving_pid}/task").iterdir()
            return [task for task in tasks if (task / "comm").read_text().strip() == "mp-traces"]

        assert until(lambda: len(threads()) == 1)
        (thread,) = threads()
        with server.connect() as client:
            assert client.ask("GET", "/files/a.txt").status == 200
            if is_full:
                assert until(lambda: len(told(server)) == 1)
            else:
                # The message has left, or waits for room: its thread waits in a call.
                assert until(lambda: in_socket_call(thread))
            # More than may wait, each of them with two kilobytes: what is beyond that is dropped.
            for _ in range(800):
                assert client.ask("GET", "/files/" + "x" * 2_000).status == 404
            assert client.ask("GET", "/files/a.txt").status == 200
        assert until(lambda: len(server.lines) == 802)
        # The process ends without it.
        assert server.stop() == 0
    if is_full:
        (line,) = told(server)
        assert "does not take spans: its queue of connections is full" in line


def in_socket_call(thread: Path) -> bool:
    """Whether a thread waits in a call for a unix socket."""
    return "unix" in (thread / "wchan").read_text()
