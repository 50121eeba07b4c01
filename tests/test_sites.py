"""Several sites in one server: each host has its folders, its upstreams, its users and its certificate."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from upstreams import Connection, Request, Upstream, answering

from raw import Client, Reply
from serving import Milepost, tables
from supervising import Supervised

#: `secret`, with the least cost, because the test waits for it.
USERS = "ann:$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n"

SITES = """
[[route]]
host = 'one.example'
dir = 'one'

[[route]]
host = '*.two.example'
dir = 'two'
fallback = 'shell.html'
methods = ['GET', 'HEAD']
[route.response_headers]
set = { X-Site = 'two' }
remove = 'Last-Modified'

[[route]]
host = 'one.example'
path = '/closed'
dir = 'closed'
basic_auth = 'users'

[[route]]
host = 'one.example'
path = '/few'
dir = 'one'
rate_limit = { rate = '1/m', burst = 1 }

[[route]]
host = 'one.example'
path = '/api'
upstream = 'back'
"""


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for site in ("one", "two", "closed"):
        (tmp_path / site).mkdir()
        # The same bytes of metadata for all, so that only the folder tells the files apart.
        (tmp_path / site / "page.html").write_text(f"{site:>8}")
        (tmp_path / site / "index.html").write_text(f"{site:>8} index")
    (tmp_path / "two" / "shell.html").write_text("shell")
    packed = tmp_path / "one" / "page.html.gz"
    packed.write_bytes(gzip.compress(b"packed"))
    (tmp_path / "users").write_text(USERS)
    return tmp_path


def hello(connection: Connection, _: Request) -> None:
    connection.reply(b"hello")


def ask(client: Client, host: str, target: str, *headers: str, method: str = "GET") -> Reply:
    return client.ask(method, target, *headers, host=host)


def sites(serve: Callable[..., Any], upstream: Upstream, more: str = "") -> Any:
    return serve(toml=more + tables("upstream", {"name": "back", "servers": [upstream.url]}) + SITES)


def test_a_path_is_another_file_under_another_host(serve: Callable[..., Milepost], folders: Path) -> None:
    with Upstream(answering(hello)) as upstream, sites(serve, upstream).connect() as client:
        # Twice, the second time from memory.
        for _ in range(2):
            one = ask(client, "one.example", "/page.html")
            two = ask(client, "a.two.example:8000", "/page.html")
            assert (one.text.strip(), two.text.strip()) == ("one", "two")
            assert one.header("etag") != two.header("etag")
            assert ask(client, "one.example", "/api/x").body == b"hello"
        assert ask(client, "one.example", "/").text.strip() == "one index"
        assert ask(client, "a.two.example", "/none").text == "shell"
        assert ask(client, "one.example", "/none").status == 404
        assert ask(client, "else.example", "/page.html").status == 404
        kept = ask(client, "one.example", "/page.html", f"If-None-Match: {one.header('etag')}")
        assert kept.status == 304
        part = ask(client, "a.two.example", "/page.html", "Range: bytes=5-7")
        assert (part.status, part.text) == (206, "two")
        packed = ask(client, "one.example", "/page.html", "Accept-Encoding: gzip")
        assert gzip.decompress(packed.body) == b"packed"
        plain = ask(client, "a.two.example", "/page.html", "Accept-Encoding: gzip")
        assert plain.text.strip() == "two"


def test_settings_of_a_route_hold_for_its_files(serve: Callable[..., Milepost], folders: Path) -> None:
    with Upstream(answering(hello)) as upstream, sites(serve, upstream) as server, server.connect() as client:
        two = ask(client, "a.two.example", "/page.html")
        assert (two.header("x-site"), two.header("last-modified")) == ("two", None)
        assert ask(client, "one.example", "/page.html").header("x-site") is None
        refused = ask(client, "a.two.example", "/page.html", method="DELETE")
        assert (refused.status, refused.header("allow")) == (405, "GET, HEAD")
        for target in ("/closed/page.html", "/clos%65d/page.html"):
            with server.connect() as stranger:
                assert ask(stranger, "one.example", target).status == 401
            user = "Authorization: Basic YW5uOnNlY3JldA=="
            assert ask(client, "one.example", target, user).text.strip() == "closed"
        assert ask(client, "one.example", "/few/page.html").text.strip() == "one"
        assert ask(client, "one.example", "/few/page.html").status == 429


def test_each_site_has_its_certificate(serve: Callable[..., Milepost], folders: Path, authority: Any) -> None:
    import certificates

    pairs = {name: authority.pair(name, name) for name in ("one.example", "a.two.example")}
    tls = "".join(f"[[tls]]\ncert = '{cert}'\nkey = '{key}'\n" for cert, key in pairs.values())
    with Upstream(answering(hello)) as upstream:
        server = sites(serve, upstream, tls)
        for name, text in (("one.example", "one"), ("a.two.example", "two")):
            with certificates.connect(server, authority.context(), name) as sock:
                client = Client(sock, server.count)
                assert ask(client, name, "/page.html").text.strip() == text


def test_a_reload_changes_folders_and_loses_no_request(
    supervise: Callable[..., Supervised], folders: Path
) -> None:
    lines = "[[route]]\nhost = 'one.example'\ndir = 'one'\n"
    server = supervise(app=None, toml=lines)
    stop, found, errors = threading.Event(), set(), []

    def ask_on() -> None:
        while not stop.is_set():
            try:
                with server.connect() as client:
                    found.add(ask(client, "one.example", "/page.html").text.strip())
            except OSError as error:
                errors.append(repr(error))

    thread = threading.Thread(target=ask_on)
    thread.start()
    try:
        config = next(folders.glob("*.toml"))
        config.write_text(config.read_text().replace("dir = 'one'", "dir = 'two'"))
        server.done("reload")
    finally:
        stop.set()
        thread.join()
    assert errors == []
    assert found <= {"one", "two"}
    with server.connect() as client:
        assert ask(client, "one.example", "/page.html").text.strip() == "two"
