"""The folders of examples/, each served by the command lines of docs/guide/examples.md.

Takes the block `sh` of the page that changes to the folder: programs run in a copy of it, `pip` and `rq` are
passed over, and the last line serves. What needs a server from elsewhere is in test_conformance.py.
"""

from __future__ import annotations

import gzip
import hashlib
import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from frames import TEXT, WebSocket

from raw import request
from serving import Milepost, environment, run
from supervising import write_app
from test_documented_commands import blocks, commands

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/guide/examples.md"


def lines_of(name: str) -> list[str]:
    """The command lines of an example."""
    (lines,) = [
        commands(block)
        for block in blocks(PAGE.read_text())
        if block.language == "sh" and f"cd examples/{name}\n" in block.text
    ]
    return lines


@contextmanager
def served(name: str, tmp_path: Path, *more: str, **env: str) -> Iterator[Milepost]:
    """The example, as the page serves it; `env` in place of the page's variables."""
    folder = tmp_path / name
    shutil.copytree(ROOT / "examples" / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    variables: dict[str, str] = {}
    for line in lines_of(name):
        words = shlex.split(line)
        if words[0] == "export":
            key, _, value = words[1].partition("=")
            variables[key] = env.get(key, value)
        elif words[:2] == ["milepost", "serve"]:
            arguments = words[2:]
        elif words[0] not in ("pip", "cd", "rq"):
            program = line.replace("python ", sys.executable + " ", 1)
            done = subprocess.run(
                ["sh", "-c", program],
                cwd=folder,
                env=environment(**variables),
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, done
    with Milepost(folder, *arguments, *more, env=variables, log=None) as server:
        yield server


def told(server: Milepost, target: str, body: bytes | None = None, *headers: str) -> str:
    """What is answered with 200 or 201."""
    with server.connect() as client:
        method = "GET" if body is None else "POST"
        reply = client.ask(method, target, "Connection: close", *headers, body=body)
        assert reply.status in (200, 201, 202), reply
        return reply.text


def form(**fields: str | tuple[str, bytes]) -> tuple[bytes, str]:
    """A body of `multipart/form-data` with its header; a pair is a file."""
    parts = []
    for name, value in fields.items():
        file, data = value if isinstance(value, tuple) else (None, value.encode())
        head = f'Content-Disposition: form-data; name="{name}"' + (f'; filename="{file}"' if file else "")
        parts.append(b"--edge\r\n" + head.encode() + b"\r\n\r\n" + data + b"\r\n")
    return b"".join(parts) + b"--edge--\r\n", "Content-Type: multipart/form-data; boundary=edge"


def test_every_example_is_on_the_page_and_tested() -> None:
    folders = {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}
    text = Path(__file__).read_text() + (ROOT / "tests/test_conformance.py").read_text()
    # The bookshop has tests of its own.
    tested = set(re.findall(r"served\(\s*\"(\w+)\"", text)) | {"bookshop"}
    assert folders == tested
    assert all(lines_of(name) for name in folders)


def test_plain(tmp_path: Path) -> None:
    with served("plain", tmp_path) as server:
        assert told(server, "/").startswith("Hello, after 0.")
        assert told(server, "/lines").splitlines()[-1] == "line 999"
        assert told(server, "/digest", b"abc") == hashlib.sha256(b"abc").hexdigest()


def test_bottle(tmp_path: Path) -> None:
    pytest.importorskip("bottle")
    with served("bottle", tmp_path) as server:
        assert told(server, "/") == "Hello from Bottle\n"
        assert json.loads(told(server, "/books/7")) == {"number": 7}
        assert json.loads(told(server, "/covers", *form(cover=("a.png", b"12345"))))["bytes"] == 5


def test_falcon(tmp_path: Path) -> None:
    pytest.importorskip("falcon")
    with served("falcon", tmp_path) as server:
        told(server, "/books", b'{"title": "Solaris"}', "Content-Type: application/json")
        assert json.loads(told(server, "/books"))["titles"][-1] == "Solaris"
        assert told(server, "/export").splitlines()[-1] == "999,998001"


def test_fastapi(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    with served("fastapi", tmp_path) as server:
        book = b'{"title": "Solaris", "pages": 204}'
        assert json.loads(told(server, "/books", book, "Content-Type: application/json")) == {"number": 1}
        assert json.loads(told(server, "/books/1")) == {"title": "Solaris", "pages": 204}
        with server.connect() as client:
            assert client.ask("GET", "/books/2").status == 404
            reply = client.ask("PUT", "/covers/1", body=bytes(300_000))
            assert json.loads(reply.body) == {"number": 1, "bytes": 300_000}
        with server.connect() as client:
            client.send(request("GET", "/clock"))
            status, _, headers = client.head()
            assert (status, ("content-type", "text/event-stream; charset=utf-8") in headers) == (200, True)
            assert client.chunk() == b"data: 0\n\n"


def test_chat(tmp_path: Path) -> None:
    with served("chat", tmp_path) as server:
        assert "<title>Chat</title>" in told(server, "/")
        with server.connect() as first, server.connect() as second:
            guests = [WebSocket(first, "/ws"), WebSocket(second, "/ws")]
            assert [guests[0].text(), guests[0].text()] == ["1 in the room", "2 in the room"]
            assert guests[1].text() == "2 in the room"
            guests[1].send(TEXT, "grüße".encode())
            assert [guest.text() for guest in guests] == ["grüße", "grüße"]
            second.sock.close()
            assert guests[0].text() == "1 in the room"


def test_pyramid(tmp_path: Path) -> None:
    pytest.importorskip("pyramid")
    with served("pyramid", tmp_path) as server:
        assert told(server, "/") == "Hello from Pyramid\n"
        assert json.loads(told(server, "/books/7")) == {"number": 7, "client": "127.0.0.1"}


def test_django(tmp_path: Path) -> None:
    """Somebody logs in to the admin and uploads a cover; files come without Python."""
    pytest.importorskip("django")
    cover = os.urandom(300_000)
    with served("django", tmp_path) as server, server.connect() as client:
        cookies: dict[str, str] = {}

        def ask(method: str, target: str, *headers: str, body: bytes | None = None) -> str:
            sent = "; ".join(f"{name}={value}" for name, value in cookies.items())
            reply = client.ask(method, target, f"Cookie: {sent}", *headers, body=body, host="localhost")
            for name, value in reply.headers:
                if name.lower() == "set-cookie":
                    key, _, rest = value.partition("=")
                    cookies[key] = rest.partition(";")[0]
            assert reply.status == (302 if method == "POST" else 200), reply
            return reply.text

        def token(page: str) -> str:
            return re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page)[0]

        page = ask("GET", "/admin/login/?next=/admin/")
        fields = {"username": "admin", "password": "secret", "csrfmiddlewaretoken": token(page)}
        urlencoded = "Content-Type: application/x-www-form-urlencoded"
        ask("POST", "/admin/login/?next=/admin/", urlencoded, body=urllib.parse.urlencode(fields).encode())
        page = ask("GET", "/admin/library/book/add/")
        (css,) = set(re.findall(r'"(/static/admin/css/base\.css)"', page))
        assert "--primary" in ask("GET", css)
        body, header = form(title="Solaris", cover=("solaris.png", cover), csrfmiddlewaretoken=token(page))
        ask("POST", "/admin/library/book/add/", header, body=body)
        url = json.loads(ask("GET", "/books"))["Solaris"]
        assert url == "/media/covers/solaris.png"
        assert client.ask("GET", url).body == cover


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes what exporters send."""

    received: list[tuple[str, bytes]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        Collector.received.append((self.path, body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_telemetry(tmp_path: Path) -> None:
    for module in ("sentry_sdk", "opentelemetry.exporter.otlp", "prometheus_client"):
        pytest.importorskip(module)
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    place = f"127.0.0.1:{collector.server_port}"
    env = {
        "SENTRY_DSN": f"http://public@{place}/1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{place}",
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path / "telemetry/metrics"),
    }
    metrics = Path(env["PROMETHEUS_MULTIPROC_DIR"])
    with served("telemetry", tmp_path, **env) as server:
        for _ in range(30):
            told(server, "/orders", b"")
        with server.connect() as client:
            assert client.ask("GET", "/fail", "Connection: close").status == 500
        assert "shop_orders_total 30.0" in told(server, "/metrics")
        assert "shop_running 0.0" in told(server, "/metrics")
        live = list(metrics.glob("gauge_livesum_*.db"))
        assert server.stop() == 0
    collector.shutdown()
    sent = {
        path: b"".join(body for to, body in Collector.received if to == path)
        for path, _ in Collector.received
    }
    # Every span, of both processes, although the last ones were made just before the end.
    assert sent["/v1/traces"].count(b"/orders") >= 30 and b"shop" in sent["/v1/traces"]
    assert b"the shelf is empty" in sent["/api/1/envelope/"]
    # The last hook has removed the gauges of its process, and left the counters. The template has one of 0.
    assert len(live) == 3 and len(list(metrics.glob("gauge_livesum_*.db"))) == 1
    assert list(metrics.glob("counter_*.db"))


def test_an_exporter_of_the_import_is_refused_with_the_hook_that_cures_it(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    exporter = (
        "from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter\n"
        "processor = BatchSpanProcessor(ConsoleSpanExporter())"
    )
    write_app(tmp_path, before=exporter)
    done = run(tmp_path, "serve", "app:app", "--preload", "--bind", "127.0.0.1:0")
    assert done.returncode == 2
    assert "`OtelBatchSpanRecordProcessor`" in done.stderr
    assert 'post_fork = "MODULE:FUNCTION"' in done.stderr
    cured = (
        f"def start():\n    global processor\n    {exporter.splitlines()[0]}\n    {exporter.splitlines()[1]}"
    )
    write_app(tmp_path, before=cured)
    toml = 'app = "app:app"\npreload = true\n[hooks]\npost_fork = "app:start"\n'
    with Milepost(tmp_path, toml=toml, log=None) as server:
        assert told(server, "/eval?processor").startswith("<opentelemetry")
