"""Flask: the bookshop of the examples as `make demo` serves it, and a monitoring agent around it."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raw import Client, request
from serving import APPS, Milepost

SHOP = APPS.parent.parent / "examples" / "bookshop"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Milepost]:
    folder = tmp_path_factory.mktemp("bookshop")
    with Milepost(
        folder,
        "--config",
        str(SHOP / "milepost.toml"),
        "--chdir",
        str(SHOP.parent.parent),
        env={"BOOKSHOP_DATA": str(folder / "data")},
    ) as server:
        yield server
    assert "Traceback" not in server.errors, server.errors


@pytest.fixture
def client(shop: Milepost) -> Iterator[Client]:
    with shop.connect() as connection:
        yield connection


def test_an_application_made_by_a_decorator_is_served(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    (tmp_path / "decorated.py").write_text(
        "from werkzeug import Request, Response\n"
        "@Request.application\n"
        "def app(request):\n"
        "    return Response('hello ' + request.args['name'])\n"
    )
    with serve("decorated:app").connect() as client:
        assert client.ask("GET", "/?name=you").body == b"hello you"


def test_the_shelf_is_shown_and_searched(client: Client) -> None:
    page = client.ask("GET", "/")
    assert page.status == 200
    assert page.header("content-type") == "text/html; charset=utf-8"
    assert "The Last Byte" in page.text
    assert "12 books" in page.text
    assert "waited" in page.text
    found = client.ask("GET", "/?q=merriman").text
    assert "3 books" in found and "Erlang" not in found
    assert "0 books" in client.ask("GET", "/?q=%25").text
    assert "&lt;script&gt;" in client.ask("GET", "/?q=%3Cscript%3E").text


def test_a_book_has_its_page(client: Client) -> None:
    assert "Five Stamps" in client.ask("GET", "/books/12").text
    assert client.ask("GET", "/books/99").status == 404


def test_the_api_is_json(client: Client) -> None:
    books = json.loads(client.ask("GET", "/api/books").body)["books"]
    assert len(books) == 12
    assert {"title", "author", "year", "cents"} <= set(books[0])


@pytest.mark.parametrize("size", [100, 3_000_000])
def test_a_cover_is_kept_and_shown(client: Client, size: int) -> None:
    cover = b"\x89PNG\r\n\x1a\n" + b"\x01" * size
    sha256 = hashlib.sha256(cover).hexdigest()
    body = (
        b'--X\r\nContent-Disposition: form-data; name="cover"; filename="c.png"\r\n\r\n'
        + cover
        + b"\r\n--X--\r\n"
    )
    reply = client.ask("POST", "/uploads", "Content-Type: multipart/form-data; boundary=X", body=body)
    assert (reply.status, reply.header("location")) == (303, "/uploads")
    page = client.ask("GET", "/uploads").text
    assert sha256 in page
    assert f"{len(cover):,} bytes" in page
    sent = client.ask("GET", f"/covers/{sha256}")
    assert sent.body == cover
    assert sent.header("content-type") == "image/png"
    assert client.ask("GET", f"/covers/{sha256}", f"If-None-Match: {sent.header('etag')}").status == 304
    part = client.ask("GET", f"/covers/{sha256}", "Range: bytes=1-3")
    assert (part.status, part.body) == (206, b"PNG")


def test_what_is_no_cover_is_refused(client: Client) -> None:
    body = b'--X\r\nContent-Disposition: form-data; name="cover"; filename="c.png"\r\n\r\n<html>\r\n--X--\r\n'
    assert (
        client.ask("POST", "/uploads", "Content-Type: multipart/form-data; boundary=X", body=body).status
        == 415
    )


def test_static_files_are_the_servers(client: Client) -> None:
    reply = client.ask("GET", "/static/shop.css")
    assert reply.status == 200
    assert reply.body == (SHOP / "static" / "shop.css").read_bytes()
    for link in re.findall(r'(?:href|src)="(/static/[^"]+)"', client.ask("GET", "/").text):
        assert client.ask("GET", link).status == 200


def test_the_slow_page_holds_one_thread_only(shop: Milepost) -> None:
    with shop.connect() as slow, shop.connect() as quick:
        slow.send(request("GET", "/slow?ms=1000"))
        assert quick.ask("GET", "/").status == 200
        assert slow.reply().text.startswith("That took 1000 ms")


def test_a_monitoring_agent_sees_every_request(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    """OpenTelemetry wraps the callable: its spans begin with the call and end with `close()`."""
    server = serve("agent:app", "--app-dir", str(APPS), env={"AGENT_SPANS": str(tmp_path / "spans")})
    with server.connect() as client:
        assert client.ask("GET", "/page/1?q=x", "User-Agent: a").body == b"page"
        assert client.ask("GET", "/stream").body == b"0123456789"
        assert client.ask("HEAD", "/page/2").status == 200
        assert client.ask("GET", "/fail").status == 500
        assert client.ask("GET", "/absent").status == 404
    assert server.stop() == 0
    spans = [json.loads(line) for line in (tmp_path / "spans").read_text().splitlines()]
    status = {
        span["attributes"].get("http.target", span["attributes"].get("url.path")): span["attributes"].get(
            "http.status_code", span["attributes"].get("http.response.status_code")
        )
        for span in spans
    }
    assert len(spans) == 5
    assert {str(path).partition("?")[0]: code for path, code in status.items()} == {
        "/page/1": 200,
        "/stream": 200,
        "/page/2": 200,
        "/fail": 500,
        "/absent": 404,
    }
    assert all(span["end"] >= span["start"] > 0 for span in spans)


EVENTS = """
import threading
import time

from flask import Flask, Response, request, stream_with_context

app = Flask(__name__)
asked, closed, moments = threading.Semaphore(0), threading.Event(), []


@app.get("/events")
def events():
    def stream():
        try:
            number = 0
            while True:
                number += 1
                # The context of the request is there as long as the stream is.
                yield f"data: {number} {request.args['name']}\\n\\n"
                if "paced" in request.args:
                    time.sleep(0.1)
                elif "flood" not in request.args:
                    asked.acquire(timeout=60)
        finally:
            moments.append(time.monotonic())
            closed.set()

    return Response(stream_with_context(stream()), mimetype="text/event-stream")


@app.get("/next")
def next_one():
    asked.release()
    return "asked"


@app.get("/closed")
def was_closed():
    return {"closed": closed.wait(60), "moments": moments}
"""


@pytest.fixture
def events(serve: Callable[..., Milepost], tmp_path: Path) -> Milepost:
    (tmp_path / "streams.py").write_text(EVENTS)
    return serve("streams:app", "--threads", "2:2", "--reply-spool-bytes-max", "1M")


def test_each_event_of_a_stream_with_context_arrives_before_the_next_is_made(events: Milepost) -> None:
    with events.connect() as client, events.connect() as other:
        client.send(request("GET", "/events?name=me"))
        client.head()
        for number in range(1, 20):
            assert client.chunk() == b"data: %d me\n\n" % number
            assert other.ask("GET", "/next").body == b"asked"
        events.count()
        client.sock.close()
        for _ in range(3):
            other.ask("GET", "/next")
        assert json.loads(other.ask("GET", "/closed").body)["closed"]


@pytest.mark.parametrize("how", ["paced", "flood"])
@pytest.mark.parametrize("reads", [0, 5])
def test_a_stream_with_context_is_closed_soon_after_its_client_has_left(
    events: Milepost, how: str, reads: int
) -> None:
    with events.connect(receive_buffer_bytes=4096) as client:
        client.send(request("GET", f"/events?name=me&{how}"))
        client.head()
        for _ in range(reads):
            assert client.chunk().endswith(b" me\n\n")
        events.count()
    left = time.monotonic()
    with events.connect() as other:
        seen = json.loads(other.ask("GET", "/closed").body)
    assert seen["closed"]
    # Long before `send_timeout` (30 s) ends it, at which one would be whose leaving nobody noticed.
    assert seen["moments"][0] - left < 15
