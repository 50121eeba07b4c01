"""The page of the admin listener in Chromium: what it shows, and what it never does.

Run by `make conformance`, where chromium is installed. Pictures are left in the folders of the tests.
"""

from __future__ import annotations

import json
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_browser import UNTIL
from test_history import ended, history

from browser import Browser, browser
from raw import request
from serving import Milepost, free_port, until
from supervising import UNTIL_GO, Supervised, write_app
from test_admin import answers

pytestmark = pytest.mark.conformance

APP = """
import time

def app(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/slow":
        time.sleep(0.3)
    start_response("500 x" if path == "/broken" else "200 OK", [("Content-Type", "text/plain")])
    return [b"done"]
"""
#: As HTML it would be another text.
ESCAPED = "/&lt;b&gt;"
HOSTILE = "<img src=x onerror=document.body.remove()><script>document.body.remove()</script>"
SIZES = (("light", 1200, 1500), ("dark", 1200, 1500), ("light", 375, 800))


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[Browser]:
    with browser(tmp_path / "profile") as page:
        page.watch()
        yield page


@pytest.fixture
def port() -> int:
    return free_port()


def shows(page: Browser, script: str) -> object:
    return page.result(UNTIL % script)


def text_of(identifier: str) -> str:
    return f"document.getElementById({json.dumps(identifier)}).innerText"


def load(server: Milepost, paths: list[str], seconds: int, clients: int = 4) -> list[threading.Thread]:
    """Clients that ask until they are told to stop."""

    def ask(client_number: int) -> None:
        for number in range(client_number, client_number + 20 * seconds):
            with server.connect() as client:
                client.ask("GET", paths[number % len(paths)])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    return threads


def colours(png: bytes) -> int:
    """How many colours a picture has: a page that shows nothing has next to none."""
    at, data, width, channels = 8, b"", 0, 3
    while at < len(png):
        [size] = struct.unpack(">I", png[at : at + 4])
        kind, part = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, channels = struct.unpack(">I", part[:4])[0], 4 if part[9] == 6 else 3
        elif kind == b"IDAT":
            data += part
        at += size + 12
    rows = zlib.decompress(data)
    line = width * channels + 1
    return len(
        {
            rows[at : at + channels]
            for row in range(0, len(rows), line)
            for at in range(row + 1, row + line, channels)
        }
    )


def test_a_busy_server_is_shown_light_dark_and_on_a_phone(
    serve: Callable[..., Milepost], tmp_path: Path, port: int, chromium: Browser
) -> None:
    (tmp_path / "app.py").write_text(APP)
    nobody = free_port()
    upstream = ("--proxy", f"/to=http://127.0.0.1:{nobody}")
    server = serve("app:app", "--threads", "2:2", *upstream, "--admin-bind", f"127.0.0.1:{port}")
    assert until(lambda: answers(port))
    chromium.open(f"http://127.0.0.1:{port}/")
    threads = load(server, ["/", "/slow", "/", "/broken", "/to"], 6)
    shows(chromium, text_of("pools") + ".includes('requests wait for a thread')")
    shows(chromium, text_of("sentences") + ".includes('waiting for a thread')")
    assert shows(chromium, text_of("routes") + ".startsWith('app')")
    # What the server depends on: an upstream that is not there, a disk that is.
    shows(chromium, text_of("upstreams") + f".startsWith('127.0.0.1:{nobody}\\tproxy-to\\t')")
    shows(chromium, "Number(document.querySelector('#upstreams .bad').textContent) > 0")
    assert shows(chromium, f"/^access log\\t[0-9,]+ lines\\t.*\\t0\\t0\\t/.test({text_of('disks')})")
    assert chromium.result(f"/spool folder.*[0-9] [MG]B$/.test({text_of('disks')})")
    assert chromium.result(f"/processor[^%]* %/.test({text_of('host')})")
    for scheme, width, height in SIZES:
        chromium.scheme(scheme)
        chromium.picture(width, height)
        shows(chromium, "document.getElementById('heat').width > 300")
        picture = chromium.picture(width, height)
        (tmp_path / f"page-{scheme}-{width}.png").write_bytes(picture)
        assert colours(picture) > 20, scheme
        assert chromium.result("document.documentElement.scrollWidth") <= width
    for thread in threads:
        thread.join()
    found = chromium.accessible()
    for heading in (
        "What the last minute says",
        "Where the time of a request goes",
        "Durations over time",
        "The last hours",
        "Pools of threads",
        "Requests that run now",
        "Routes of the last minute",
        "Upstream servers, last minute",
        "Connections and processes",
        "Machine and disks, last minute",
    ):
        assert ("heading", heading) in found, heading
    assert {("rowheader", "default"), ("rowheader", "app"), ("columnheader", "Waiting")} <= found
    assert ("columnheader", "Oldest wait / target") in found
    [alternative] = [
        name for role, name in found if role in ("image", "img", "Canvas") and "requests in" in name
    ]
    assert "99 % up to" in alternative
    assert chromium.complaints() == []
    # The empty icon is asked from nobody, where it is named at all.
    asked = chromium.requests() - {"data:,"}
    assert asked == {f"http://127.0.0.1:{port}{path}" for path in ("/", "/live", "/history?span=15m")}


def test_what_happened_before_the_page_was_opened_is_shown_and_explained(
    serve: Callable[..., Milepost], tmp_path: Path, port: int, chromium: Browser
) -> None:
    (tmp_path / "app.py").write_text(APP)
    server = serve("app:app", "--threads", "2:2", "--admin-bind", f"127.0.0.1:{port}")
    assert until(lambda: answers(port))
    for thread in load(server, ["/orders/1", "/slow", "/orders/2"], 3):
        thread.join()
    assert until(lambda: ended(history(port)) == 240)
    chromium.open(f"http://127.0.0.1:{port}/")
    shows(chromium, text_of("past") + ".includes('GET /orders/*')")
    assert chromium.result(text_of("past") + ".startsWith('GET /slow')")
    assert "240 requests" in str(chromium.result(text_of("past-span")))
    assert "The history begins" in str(chromium.result(text_of("past-span")))
    assert chromium.result("/^The last 15 minutes, as of [0-9:]{8}: /.test(" + text_of("past-span") + ")")
    shows(chromium, "document.getElementById('heat').ariaLabel.startsWith('240 requests')")
    shows(chromium, text_of("marks") + ".includes('server started')")
    chromium.result("document.querySelector('[data-span=\"24h\"]').click()")
    shows(chromium, text_of("past-span") + ".startsWith('The last 24 hours')")
    chromium.result("document.getElementById('explain').click()")
    shows(chromium, "!document.getElementById('explain').disabled")
    explained = str(chromium.result(text_of("explained")))
    assert "thread" in explained and "lost" not in explained, explained
    for scheme, width, height in SIZES:
        chromium.scheme(scheme)
        (tmp_path / f"past-{scheme}-{width}.png").write_bytes(chromium.picture(width, height))
        assert chromium.result("document.documentElement.scrollWidth") <= width
    # On a machine that is busy otherwise there may be no prediction: the page shows the reason as text.
    assert [one for one in chromium.complaints() if "status of 422" not in json.dumps(one)] == []


def test_names_of_routes_are_text_and_tables_are_sorted(
    serve: Callable[..., Milepost], tmp_path: Path, port: int, chromium: Browser
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "file").write_text("text")
    folders = [f"{json.dumps(prefix)} = 'site'" for prefix in ("/a", "/b", "/c", ESCAPED)]
    server = serve("--admin-bind", f"127.0.0.1:{port}", toml="\n".join(["[static]", *folders, ""]))
    assert until(lambda: answers(port))
    chromium.open(f"http://127.0.0.1:{port}/")
    shows(chromium, text_of("sentences") + ".includes('No request ended')")
    assert chromium.result("[...document.querySelectorAll('#life > div')].every(one => one.hidden)")
    # What a page shows that has just opened.
    beginning = "Collecting the first second of data."
    texts = f"[{text_of('sentences')}, {text_of('more-routes')}]"
    opened = "sentencesAt = 0, take('status', {...latest, span_s: 0, sentences: []})"
    assert chromium.result(f"({opened}, {texts})") == [beginning, beginning]
    with server.connect() as client:
        for path, times in (("/a", 3), ("/b", 9), ("/c", 1), (ESCAPED, 5)):
            for _ in range(times):
                assert client.ask("GET", f"{path}/file").status == 200
    names = "[...document.querySelectorAll('#routes th')].map(cell => cell.textContent).join(' ')"
    shows(chromium, f"{names}.split(' ').length === 4")
    chromium.result("document.querySelector('[data-key=requests] button').click()")
    assert chromium.result(names) == f"/b {ESCAPED} /a /c"
    assert chromium.result("document.querySelector('[aria-sort]').dataset.key") == "requests"
    chromium.result("document.querySelector('[data-key=requests] button').click()")
    assert chromium.result(names) == f"/c /a {ESCAPED} /b"
    # No server sends such names, because no request has them; the page must not rely on it.
    chromium.result("sentencesAt = 0")
    chromium.result(
        "((bad) => take('status', {...latest, doing: bad, sentences: [bad, '`' + bad + '`'], "
        "version: bad, routes: [{...latest.routes[0], route: bad}], "
        "processes: [{...latest.processes[0], state: bad}], running_more: 1200, "
        "running: [{method: bad, path: bad, pool: bad, pid: 7, worker: 3, id: bad, ran_ms: 1500, "
        "waited_ms: 0}, "
        "{method: 'GET', path: '/far', pool: 'far', pid: 7, worker: null, id: 'b2', ran_ms: 20, "
        "waited_ms: 1}]}))"
        f"({json.dumps(HOSTILE)})"
    )
    assert chromium.result(names) == HOSTILE
    assert chromium.result("[...document.querySelectorAll('#sentences p')].map(one => one.textContent)") == [
        HOSTILE,
        HOSTILE,
    ]
    rows = "[...document.querySelectorAll('#running tr')]"
    assert chromium.result(f"{rows}.map(row => [...row.cells].map(cell => cell.textContent))") == [
        [f"{HOSTILE} {HOSTILE}", "1.50 s", "0", HOSTILE, "7.3", HOSTILE],
        ["GET /far", "20.0 ms", "1.00 ms", "far", "7", "b2"],
    ]
    assert chromium.result(text_of("more-running")) == "and 1,200 more"
    assert chromium.result("[document.scripts.length, document.images.length]") == [1, 0]
    assert chromium.complaints() == []


def test_a_request_that_runs_is_shown_until_it_ends(tmp_path: Path, port: int, chromium: Browser) -> None:
    write_app(tmp_path)
    admin = f"127.0.0.1:{port}"
    with Supervised(tmp_path, "app:app", "--threads", "2:2", "--admin-bind", admin) as server:
        assert until(lambda: answers(port))
        chromium.open(f"http://{admin}/")
        shows(chromium, text_of("more-running") + " === 'None.'")
        with server.connect() as client:
            client.send(request("GET", UNTIL_GO))
            path = UNTIL_GO.partition("?")[0]
            shows(chromium, f"{text_of('running')}.startsWith('GET {path}')")
            [one] = server.status()["running"]
            shown = str(chromium.result(text_of("running")))
            # The query may have secrets in it.
            assert one["id"] in shown and f"{one['pid']}.{one['worker']}" in shown and "go" not in shown
            with server.go():
                assert client.reply().status == 200
        shows(chromium, text_of("more-running") + " === 'None.'")
        assert chromium.result("document.querySelectorAll('#running tr').length") == 0
        assert chromium.complaints() == []


def test_ten_thousand_routes_are_those_that_take_the_time(
    serve: Callable[..., Milepost], tmp_path: Path, port: int, chromium: Browser
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "file").write_text("text")
    folders = [f"'/r{number}' = 'site'" for number in range(10_000)]
    server = serve("--admin-bind", f"127.0.0.1:{port}", toml="\n".join(["[static]", *folders, ""]))
    assert until(lambda: answers(port))
    chromium.open(f"http://127.0.0.1:{port}/")
    shows(chromium, text_of("sentences") + ".includes('No request ended')")
    with server.connect() as client:
        for number in range(0, 10_000, 125):
            assert client.ask("GET", f"/r{number}/file").status == 200
    shows(chromium, text_of("more-routes") + " === '30 other routes took less time.'")
    assert chromium.result("document.querySelectorAll('#routes tr').length") == 50
    assert chromium.complaints() == []


def test_the_token_is_asked_for_and_kept_for_the_tab(
    serve: Callable[..., Milepost], tmp_path: Path, port: int, chromium: Browser
) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    words = ["--admin-bind", f"127.0.0.1:{port}", "--admin-token-file", str(token)]
    serve("--static", f"/={tmp_path}", *words)
    assert until(lambda: answers(port))
    chromium.open(f"http://127.0.0.1:{port}/")
    shows(chromium, "document.activeElement.id === 'secret'")
    assert chromium.result("document.getElementById('view').hidden")

    def type_token(text: str) -> None:
        chromium.result(f"secret.value = {json.dumps(text)}; document.querySelector('#token button').click()")

    type_token("fedcba9876543210")
    shows(chromium, text_of("refusal") + ".includes('not the token')")
    type_token("0123456789abcdef")
    shows(chromium, "!document.getElementById('view').hidden")
    chromium.open(f"http://127.0.0.1:{port}/")
    shows(chromium, "!document.getElementById('view').hidden")
    assert chromium.result("document.getElementById('token').hidden")


def test_the_page_comes_back_after_its_server(
    serve: Callable[..., Milepost], tmp_path: Path, port: int, chromium: Browser
) -> None:
    words = ("--static", f"/={tmp_path}", "--admin-bind", f"127.0.0.1:{port}")
    with Milepost(tmp_path, *words):
        assert until(lambda: answers(port))
        chromium.open(f"http://127.0.0.1:{port}/")
        shows(chromium, text_of("doing") + " === 'serving'")
    shows(chromium, text_of("doing") + " === 'no connection'")
    serve(*words)
    shows(chromium, text_of("doing") + " === 'serving'")
