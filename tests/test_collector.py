"""The Collector of OpenTelemetry gets the spans: what it writes to a file is what was asked of the server.

Run by `make conformance`; tools/conformance.sh builds the collector of tests/collector.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import spans
from spans import CLIENT, SERVER, adds_up

from serving import APPS, DEADLINE_S, Milepost, free_port, tables, until
from test_admin import answers, value

pytestmark = pytest.mark.conformance

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"traceparent: 00-{TRACE}-{SPAN}-01"
INTERNAL = 1


class OtelCollector:
    """The collector: it listens for OTLP over HTTP and appends what it gets to a file, a message a line."""

    def __init__(self, folder: Path, listen: str = "") -> None:
        self.program = os.environ.get("OTEL_COLLECTOR", "")
        if not os.access(self.program, os.X_OK):
            pytest.skip("needs the OpenTelemetry Collector (make conformance, with Go)")
        self.listen = listen or f"127.0.0.1:{free_port()}"
        self.written = folder / "spans.jsonl"
        self.said = folder / "collector.txt"
        self.config = folder / "collector.yaml"
        transport = "\n        transport: unix" if self.listen.startswith("/") else ""
        self.config.write_text(f"""\
receivers:
  otlp:
    protocols:
      http:
        endpoint: "{self.listen}"{transport}
exporters:
  file:
    path: "{self.written}"
    append: true
    flush_interval: 50ms
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [file]
""")

    @property
    def url(self) -> str:
        """What the setting `traces` says."""
        return f"unix:{self.listen}" if self.listen.startswith("/") else f"http://{self.listen}"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The collector, while it listens."""
        with self.said.open("a") as said:
            process = subprocess.Popen([self.program, "--config", str(self.config)], stdout=said, stderr=said)
        try:
            assert until(lambda: process.poll() is not None or self.is_there()), self.said.read_text()
            assert process.poll() is None, self.said.read_text()
            yield
        finally:
            process.terminate()
            assert process.wait(DEADLINE_S) == 0, self.said.read_text()

    def is_there(self) -> bool:
        """Whether it listens."""
        if self.listen.startswith("/"):
            return Path(self.listen).exists()
        host, _, port = self.listen.rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def spans(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The spans that are written, and what their resources are."""
        text = self.written.read_text() if self.written.exists() else ""
        # A line that is being written has no end yet.
        lines = text.split("\n")[:-1]
        messages = [spans.read(line) for line in lines]
        return [one for found, _ in messages for one in found], [one for _, of in messages for one in of]

    def requests(self, length: int) -> list[dict[str, Any]]:
        """The spans of so many requests, in their order."""
        assert until(lambda: len([one for one in self.spans()[0] if one["kind"] == SERVER]) >= length), (
            self.said.read_text()
        )
        found = spans.requests(self.spans()[0])
        assert len(found) == length
        return found


def exporting(collector: OtelCollector, *more: str) -> str:
    """Settings that send all spans to a collector."""
    return f'traces = "{collector.url}"\ntraces_sample = "100%"\naccess_log_format = "json"\n' + "".join(more)


def static(folder: Path) -> str:
    """A folder with one file."""
    (folder / "files").mkdir(parents=True, exist_ok=True)
    (folder / "files" / "a.txt").write_text("hello")
    return f'static = ["/files={folder}/files"]\n'


def kinds(span: dict[str, Any]) -> dict[str, int]:
    """The kinds of the spans below that of a request, which are all in its trace."""
    assert all(one["trace"] == span["trace"] for one in span["below"].values())
    return {name: one["kind"] for name, one in span["below"].items()}


PHASES = {"receive": INTERNAL, "run": INTERNAL, "send": INTERNAL}


def test_files_and_failures_come_with_attributes_and_status(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    collector = OtelCollector(tmp_path)
    more = static(tmp_path) + tables("respond", {"path": "/broken", "status": 503})
    with collector.running():
        server = serve(toml=exporting(collector, more), env={"OTEL_SERVICE_NAME": "shop"})
        with server.connect() as client:
            asked = client.ask("GET", "/files/a.txt?secret=1", PARENT, 'User-Agent: a"b\\\xe9\x7e')
            assert asked.status == 200
            assert client.ask("GET", "/files/none").status == 404
            assert client.ask("GET", "/broken").status == 503
        found, missing, broken = collector.requests(3)
        _, resources = collector.spans()
    assert (found["trace"], found["parent"], found["name"]) == (TRACE, SPAN, "GET /files")
    expected = {
        "http.request.method": "GET",
        "url.path": "/files/a.txt",
        "url.scheme": "http",
        "http.route": "/files",
        "http.response.status_code": 200,
        "network.protocol.version": "1.1",
        "client.address": "127.0.0.1",
        "http.response.body.size": 5,
        "user_agent.original": 'a"b\\\xe9\x7e',
        "milepost.end": "complete",
    }
    assert {key: found[key] for key in expected} == expected
    assert kinds(found) == kinds(missing) == PHASES
    assert adds_up(found) and adds_up(missing) and adds_up(broken)
    assert [one["failed"] for one in (found, missing, broken)] == [False, False, True]
    assert (missing["parent"], missing["http.response.status_code"]) == ("", 404)
    assert (broken["error.type"], broken["http.response.status_code"]) == ("503", 503)
    assert found["flags"] == 0x301 and missing["flags"] == 0x103
    assert {one["service.name"] for one in resources} == {"shop"}
    assert "secret" not in collector.written.read_text()


@pytest.mark.parametrize(
    ("app", "path"), [("zoo:app", "/environ"), ("asgi_zoo:app", "/scope")], ids=["wsgi", "asgi"]
)
def test_applications_come_with_their_pool_and_their_worker(
    serve: Callable[..., Milepost], tmp_path: Path, app: str, path: str
) -> None:
    collector = OtelCollector(tmp_path)
    with collector.running():
        server = serve(app, "--app-dir", str(APPS), toml=exporting(collector))
        with server.connect() as client:
            for _ in range(3):
                assert client.ask("GET", path, PARENT).status == 200
        found = collector.requests(3)
    for span in found:
        assert kinds(span) == PHASES | {"queue": INTERNAL}
        assert adds_up(span)
        run = span["below"]["run"]
        assert run["milepost.pool"] == "default" and "." in run["milepost.worker"]
        assert (span["trace"], span["parent"], span["milepost.route"]) == (TRACE, SPAN, "app")
    assert len({span["id"] for span in found}) == 3


@pytest.mark.parametrize("protocol", ["http1", "http2"])
def test_a_proxy_and_what_is_behind_it_are_one_trace(
    serve: Callable[..., Milepost], tmp_path: Path, protocol: str
) -> None:
    collector = OtelCollector(tmp_path)
    behind_folder = tmp_path / "behind"
    behind_toml = exporting(collector, static(behind_folder))
    with (
        collector.running(),
        Milepost(behind_folder, toml=behind_toml, env={"OTEL_SERVICE_NAME": "behind"}) as behind,
    ):
        url = behind.url.rstrip("/")
        routes = tables("route", {"path": "/", "upstream": "back"})
        routes += tables("upstream", {"name": "back", "servers": [url], "protocol": protocol})
        front = serve(toml=exporting(collector, routes), env={"OTEL_SERVICE_NAME": "front"})
        with front.connect() as client:
            assert client.ask("GET", "/files/a.txt").status == 200
        behind.exchanges += 1
        outer, inner = collector.requests(2)
        _, resources = collector.spans()
    assert kinds(outer) == PHASES | {"queue": INTERNAL, "GET": CLIENT}
    at_upstream = outer["below"]["GET"]
    assert (outer["trace"], outer["parent"]) == (inner["trace"], "")
    assert inner["parent"] == at_upstream["id"]
    assert at_upstream["http.response.status_code"] == 200
    assert at_upstream["http.request.method"] == "GET" and url.endswith(at_upstream["server.address"])
    assert outer["begin"] <= at_upstream["begin"] <= at_upstream["end"] <= outer["end"]
    assert inner["network.protocol.version"] == {"http1": "1.1", "http2": "2"}[protocol]
    assert {one["service.name"] for one in resources} == {"front", "behind"}


def test_the_question_of_forward_auth_is_in_the_trace_of_its_request(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    collector = OtelCollector(tmp_path)
    folder = tmp_path / "judge"
    folder.mkdir()
    judging = tables("respond", {"path": "/yes", "status": 204}, {"path": "/no", "status": 403})
    with collector.running(), Milepost(folder, toml=exporting(collector, judging)) as judge:
        toml = exporting(collector, tables("upstream", {"name": "judge", "servers": [judge.url.rstrip("/")]}))
        for path in ("/yes", "/no"):
            toml += tables("route", {"path": path, "dir": str(tmp_path)})
            toml += f'[route.forward_auth]\nupstream = "judge"\npath = "{path}"\n'
        server = serve(toml=toml)
        with server.connect() as client:
            assert client.ask("GET", "/yes").status == 301
            assert client.ask("GET", "/no").status == 403
        judge.exchanges += 2
        found = {one["url.path"] + str("forward_auth" in one["below"]): one for one in collector.requests(4)}
    for path, status in (("/yes", 204), ("/no", 403)):
        asked, judged = found[f"{path}True"], found[f"{path}False"]
        question = asked["below"]["forward_auth"]
        assert (judged["trace"], judged["parent"]) == (asked["trace"], question["id"])
        assert (question["kind"], question["http.response.status_code"]) == (CLIENT, status)
        assert question["failed"] is (status == 403)
        # Within the reception of its request. The judge's own clock and its last write are another process's.
        receive = asked["below"]["receive"]
        assert receive["begin"] <= question["begin"] < question["end"] <= receive["end"] + 1_000


def counted(port: int) -> tuple[float, float]:
    """Requests whose spans were sent, and those whose spans were lost."""
    exported, dropped = (value(port, f"milepost_traces_{what}_total") for what in ("exported", "dropped"))
    return exported, dropped


def told(server: Milepost) -> list[str]:
    """What the server has said of its collector."""
    return [line for line in server.stderr if "traces: `" in line]


def test_a_collector_that_restarts_gets_what_was_not_lost(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    collector = OtelCollector(tmp_path)
    port = free_port()
    server = serve("--admin-bind", f"127.0.0.1:{port}", toml=exporting(collector, static(tmp_path)))
    assert until(lambda: answers(port))

    def ask(path: str, times: int, status: int) -> None:
        with server.connect() as client:
            for _ in range(times):
                assert client.ask("GET", path).status == status

    with collector.running():
        ask("/files/a.txt", 10, 200)
        collector.requests(10)
        assert until(lambda: counted(port) == (10, 0))
    # Three megabytes of paths: more than a message and the queue may have.
    long = "/files/" + "x" * 6_000
    ask(long, 600, 404)
    assert until(lambda: counted(port)[1] > 0)
    assert len(told(server)) == 1
    with collector.running():
        # What is left is sent without a further request, and each request is counted once.
        assert until(lambda: sum(counted(port)) == 610)
        ask("/files/a.txt", 10, 200)
        assert until(lambda: sum(counted(port)) == 620)
        exported, dropped = counted(port)
        found = collector.requests(int(exported))
    assert [one["http.response.status_code"] for one in found[-10:]] == [200] * 10
    late = [one for one in found if one["http.response.status_code"] == 404]
    assert len(late) == 600 - dropped > 0
    assert all(one["url.path"] == long and set(one["below"]) == set(PHASES) for one in late)
    assert len({one["id"] for one in found}) == len(found)
    again = [line for line in told(server) if "takes spans again; those of" in line]
    assert len(again) == 1 and len(told(server)) == 2


def test_a_collector_at_a_unix_socket_gets_them_too(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    listen = f"/tmp/milepost-collector-{os.getpid()}.sock"
    collector = OtelCollector(tmp_path, listen)
    try:
        with collector.running():
            server = serve(toml=exporting(collector, static(tmp_path)))
            with server.connect() as client:
                assert client.ask("GET", "/files/a.txt").status == 200
            (found,) = collector.requests(1)
    finally:
        Path(listen).unlink(missing_ok=True)
    assert (found["name"], kinds(found)) == ("GET /files", PHASES)
