"""Folders with all that belongs to them: siblings, rules, fallbacks, listings, and pages for errors."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import select
import urllib.parse
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from raw import Client, CutShort, Reply, request
from serving import APPS, DEADLINE_S, Milepost, tables, until

CSS = b"body { color: black }\n" * 200
SIBLINGS = {"br": b"a brotli file, " * 20, "zstd": b"a zstd file, " * 21, "gzip": gzip.compress(CSS, mtime=0)}
ENDINGS = {"br": ".br", "zstd": ".zst", "gzip": ".gz"}
BIG = random.Random(3).randbytes(400_000)
# A name for everything that HTML, URLs and terminals could take for something else.
NAMES = [
    "plain.txt",
    "two words.txt",
    "<img src=x onerror=alert(1)>",
    "a&amp;b.txt",
    "\"quoted\" 'twice'.txt",
    "100%25.txt",
    "question?mark#hash.txt",
    "semi;colon.txt",
    "javascript:alert(1)",
    "caf\xe9 \u2603.txt",
    "new\nline.txt",
    "right\u202eto\u202cleft.txt",
    "back\\slash",
]
# Not UTF-8 at all.
RAW_NAME = b"raw \xff\xfe.txt"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("complete")
    www = folder / "www"
    for name in ("assets", "odd names", "odd names/sub", "with-index", "empty"):
        (www / name).mkdir(parents=True)
    (www / "odd names" / ".hidden").write_text("hidden")
    (www / "odd names" / "leads-out").symlink_to("/etc/passwd")
    (www / "with-index" / "index.html").write_text("<p>index")
    (www / "plain.css").write_bytes(CSS)
    (www / "site.css").write_bytes(CSS)
    for coding, content in SIBLINGS.items():
        (www / f"site.css{ENDINGS[coding]}").write_bytes(content)
    (www / "big.bin").write_bytes(BIG)
    (www / "big.bin.gz").write_bytes(BIG[:300_000])
    (www / "old.css").write_bytes(CSS)
    (www / "old.css.gz").write_bytes(b"of yesterday")
    os.utime(www / "old.css.gz", (1_700_000_000, 1_700_000_000))
    (www / "alone.txt.gz").write_bytes(b"alone")
    (www / "assets" / "app.js").write_bytes(b"1")
    (www / "page.html").write_text("<p>page")
    for name in NAMES:
        (www / "odd names" / name).write_text("content")
    (Path(os.fsdecode(bytes(www / "odd names") + b"/" + RAW_NAME))).write_text("content")
    (folder / "spa").mkdir()
    (folder / "spa" / "index.html").write_text("<p>shell")
    (folder / "spa" / "real.js").write_text("real")
    (folder / "404.html").write_text("<h1>{status}</h1> own page of {reason}")
    (folder / "5xx.html").write_text("<h1>{status} {reason}</h1> sorry")
    return folder


CACHE = tables(
    "cache_control",
    {"path": "/static/assets/**", "value": "public, max-age=31536000, immutable"},
    {"path": "*.html", "value": "no-cache"},
    {"path": "/static/*.css", "value": "max-age=60"},
    {"path": "/static/**/*.css", "value": "never seen"},
)
REDIRECTS = tables(
    "redirect",
    {"from": "/old/*", "to": "/new/*", "status": 301},
    {"from": "/find/*", "to": "/search?q=*"},
    {"from": "/away/*", "to": "https://other.example/*", "status": 308},
    {"from": "/exact", "to": "/there", "status": 307},
    {"from": "/up/*", "to": "/*"},
)
RESPONSES = tables(
    "respond",
    {"path": "/healthz", "status": 200, "text": "all is well"},
    {"path": "/internal/*", "status": 404},
    {"path": "/teapot", "status": 418, "text": "short"},
    {"path": "/nothing", "status": 204},
)
REWRITES = tables(
    "rewrite",
    {"from": "/v1/*", "to": "/environ?from=*"},
    {"from": "/css/*", "to": "/static/*"},
    {"from": "/say", "to": "/environ"},
    {"from": "/open/*", "to": "/*"},
    {"from": "/folder/*", "to": "/static/*"},
    {"from": "/one/*", "to": "/static/empty"},
)
FALLBACK = tables("static_fallback", {"url": "/spa", "file": "index.html"})
PAGE_5XX = tables("error_page", {"status": "5xx", "file": "5xx.html"})
PAGES = tables("error_page", {"status": 404, "file": "404.html"}) + PAGE_5XX


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Milepost]:
    with Milepost(
        folder,
        *("zoo:app", "--app-dir", str(APPS), "--threads", "2:2", "--drivers", "1"),
        *("--static", "/static=www", "--static", "/spa=spa", "--static-listing"),
        toml=CACHE + REDIRECTS + RESPONSES + REWRITES + FALLBACK + PAGES,
    ) as server:
        yield server


@pytest.fixture
def client(server: Milepost) -> Iterator[Client]:
    with server.connect() as client:
        yield client


# Siblings


def accepting(value: str) -> str:
    return f"Accept-Encoding: {value}"


@pytest.mark.parametrize(
    ("accept", "coding"),
    [
        ("gzip, br, zstd", "br"),
        ("gzip, zstd", "zstd"),
        ("gzip", "gzip"),
        ("x-gzip", "gzip"),
        ("GZIP", "gzip"),
        ("br;q=0.1, gzip;q=0.2", "gzip"),
        ("br;q=0.2, gzip;q=0.1, zstd;q=0.15", "br"),
        ("br;q=0.001", "br"),
        ("br;q=0, *", "zstd"),
        ("*;q=0.5, br;q=0.4", "zstd"),
        ("br;q=0, zstd;q=0.000, gzip;q=0.5", "gzip"),
        ("*;q=0", None),
        ("br;q=0", None),
        ("deflate, compress", None),
        ("identity", None),
        ("gzip;q=0.5, identity;q=1", None),
        # Who refuses all that there is gets the plain one: better than a 406.
        ("identity;q=0", None),
        ("br;q=nonsense", None),
        ("br;q=2", None),
        ("", None),
        (None, None),
    ],
)
def test_the_clients_weights_choose_a_sibling(client: Client, accept: str | None, coding: str | None) -> None:
    for method in ("GET", "HEAD"):
        reply = client.ask(method, "/static/site.css", *([accepting(accept)] if accept is not None else []))
        content = SIBLINGS[coding] if coding else CSS
        assert (reply.status, reply.header("content-encoding")) == (200, coding)
        assert reply.header("vary") == "Accept-Encoding"
        assert reply.header("content-type") == "text/css; charset=utf-8"
        assert reply.header("content-length") == str(len(content))
        assert reply.body == (content if method == "GET" else b"")


def test_each_sibling_is_a_representation_of_its_own(client: Client) -> None:
    tags = {}
    for coding in (None, *SIBLINGS):
        fields = [accepting(coding or "identity")]
        tag = client.ask("GET", "/static/site.css", *fields).header("etag")
        assert re.fullmatch(r'"[!#-~]+"', tag), tag
        tags[coding] = tag
        again = client.ask("GET", "/static/site.css", *fields, f"If-None-Match: {tag}")
        assert (again.status, again.header("etag"), again.header("vary")) == (304, tag, "Accept-Encoding")
        assert client.ask("GET", "/static/site.css", *fields, f"If-Match: {tag}").status == 200
    assert len(set(tags.values())) == 4
    for coding in tags:
        for other, tag in tags.items():
            status = client.ask(
                "GET", "/static/site.css", accepting(coding or "identity"), f"If-None-Match: {tag}"
            ).status
            assert (status == 304) == (coding == other)


def test_siblings_of_large_files_are_sent_as_well(client: Client) -> None:
    assert client.ask("GET", "/static/big.bin", accepting("gzip")).body == BIG[:300_000]
    part = client.ask("GET", "/static/big.bin", accepting("gzip"), "Range: bytes=299990-400000")
    assert (part.status, part.body) == (206, BIG[299_990:300_000])
    assert part.header("content-range") == "bytes 299990-299999/300000"
    assert client.ask("GET", "/static/big.bin").body == BIG


def test_what_is_no_sibling_is_not_taken_for_one(client: Client) -> None:
    every = accepting("br, zstd, gzip")
    # Older than its file.
    reply = client.ask("GET", "/static/old.css", every)
    assert (reply.header("content-encoding"), reply.body) == (None, CSS)
    # Without its file.
    assert client.ask("GET", "/static/alone.txt", every).status == 404
    # Asked for by name it is what it is.
    reply = client.ask("GET", "/static/site.css.gz", every)
    assert (reply.header("content-encoding"), reply.body) == (None, SIBLINGS["gzip"])
    assert reply.header("vary") is None
    assert client.ask("GET", "/static/plain.css", every).header("vary") is None


def test_siblings_come_and_go(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "f.css").write_bytes(CSS)
    sibling = tmp_path / "www" / "f.css.gz"
    server = serve("--static", "/=www", "--file-cache-revalidate", "1ms")
    with server.connect() as client:

        def coding() -> str | None:
            return client.ask("GET", "/f.css", accepting("gzip")).header("content-encoding")

        assert coding() is None
        sibling.write_bytes(SIBLINGS["gzip"])
        assert until(lambda: coding() == "gzip")
        sibling.unlink()
        assert until(lambda: coding() is None)


def test_codings_can_be_chosen_or_switched_off(serve: Callable[..., Milepost], folder: Path) -> None:
    with serve(
        "--static", f"/={folder / 'www'}", "--static-encodings", "gzip,br", log="1"
    ).connect() as client:
        assert client.ask("GET", "/site.css", accepting("br, gzip")).header("content-encoding") == "gzip"
        assert client.ask("GET", "/site.css", accepting("zstd")).header("content-encoding") is None
    with serve("--static", f"/={folder / 'www'}", "--static-encodings", "off", log="2").connect() as client:
        reply = client.ask("GET", "/site.css", accepting("br, gzip"))
        assert (reply.header("content-encoding"), reply.header("vary")) == (None, None)


# Cache-Control


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/static/assets/app.js", "public, max-age=31536000, immutable"),
        ("/static/assets/%61pp.js", "public, max-age=31536000, immutable"),
        ("/static/page.html", "no-cache"),
        ("/static/with-index/", "no-cache"),
        ("/static/site.css", "max-age=60"),
        ("/static/big.bin", None),
        ("/spa/real.js", None),
        # The fallback has its own name.
        ("/spa/some/page", "no-cache"),
    ],
)
def test_the_first_glob_that_matches_sets_cache_control(client: Client, path: str, value: str | None) -> None:
    reply = client.ask("GET", path)
    assert (reply.status, reply.header("cache-control")) == (200, value)
    again = client.ask("GET", path, f"If-None-Match: {reply.header('etag')}")
    assert (again.status, again.header("cache-control")) == (304, value)
    part = client.ask("GET", path, "Range: bytes=0-0")
    assert (part.status, part.header("cache-control")) == (206, value)


def test_cache_control_is_not_on_errors(client: Client) -> None:
    for path, fields, status in (
        ("/static/assets/missing.js", [], 404),
        ("/static/assets/app.js", ["Range: bytes=5-"], 416),
        ("/static/assets/app.js", ['If-Match: "other"'], 412),
    ):
        reply = client.ask("GET", path, *fields)
        assert (reply.status, reply.header("cache-control")) == (status, None)


# Fallback


@pytest.mark.parametrize(
    ("path", "fields", "falls_back"),
    [
        ("/spa/users/17", [], True),
        ("/spa/users/", [], True),
        ("/spa/", [], True),
        ("/spa/real.js/more", [], True),
        ("/spa/users/jane.doe", ["Accept: text/html,*/*;q=0.8"], True),
        ("/spa/users/jane.doe", ["Accept: application/json"], False),
        ("/spa/users/jane.doe", [], False),
        ("/spa/assets/old.js", [], False),
        ("/spa/.env", [], False),
        ("/spa/users%2F17", [], False),
        ("/spa/a//b", [], False),
        ("/spa/../static/page", [], False),
        ("/spa/%00", [], False),
    ],
)
def test_the_fallback_is_for_pages_alone(
    client: Client, path: str, fields: list[str], falls_back: bool
) -> None:
    reply = client.ask("GET", path, *fields)
    assert reply.status == (200 if falls_back else 404)
    assert (reply.body == b"<p>shell") == falls_back
    if falls_back:
        assert reply.header("content-type") == "text/html; charset=utf-8"
        assert client.ask("POST", path, *fields).status == 405


# Listings


class Page(HTMLParser):
    """What a browser makes of a listing."""

    # What a listing is made of. Anything else was a file's name.
    TAGS = set(
        "html head meta title style body main nav h1 a bdi i table thead tbody tr th td time p".split()
    )

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self._href: str | None = None
        self._text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in self.TAGS, tag
        assert not [name for name, _ in attributes if name.startswith("on")]
        if tag == "a":
            self._href, self._text = dict(attributes)["href"], ""

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self.links.append((self._href or "", self._text))


def test_a_listing_shows_every_name_and_nothing_else(client: Client) -> None:
    reply = client.ask("GET", "/static/odd%20names/")
    assert (reply.status, reply.header("content-type")) == (200, "text/html; charset=utf-8")
    assert reply.header("cache-control") == "no-cache"
    page = Page(reply.text)
    entries = [(href, text) for href, text in page.links if href.startswith("./")]
    found = {}
    for href, text in entries:
        # What a browser would ask for.
        target = urllib.parse.urljoin("http://h/static/odd%20names/", href)
        assert target.startswith("http://h/static/odd%20names/"), href
        assert re.fullmatch(r"[!-~]*", href) and not set('<>"') & set(href)
        found[urllib.parse.unquote_to_bytes(href.removeprefix("./"))] = text
        # Each can be had under its link.
        asked = client.ask("GET", target.removeprefix("http://h"))
        assert asked.status == 200
        assert href.endswith("/") or asked.body == b"content"
    names = {name.encode() for name in NAMES}
    assert set(found) == names | {RAW_NAME, b"sub/"}
    for name, text in found.items():
        # Signs that would change the page's order are shown as signs.
        shown = name.decode(errors="replace").replace("\n", "\N{SYMBOL FOR LINE FEED}")
        assert text == shown
    # Folders first.
    assert entries[0][0] == "./sub/"


def test_a_listing_is_json_for_programs(client: Client) -> None:
    reply = client.ask("GET", "/static/odd%20names/", "Accept: application/json")
    assert reply.header("content-type").startswith("application/json")
    seen = json.loads(reply.body)
    assert (seen["path"], seen["is_cut"]) == ("/static/odd names/", False)
    names = {entry["name"] for entry in seen["entries"]}
    assert set(NAMES) <= names and not {".hidden", "leads-out"} & names
    assert len(seen["entries"]) == len(NAMES) + 2


def test_folders_are_listed_only_where_there_is_no_index(client: Client) -> None:
    assert client.ask("GET", "/static/with-index/").body == b"<p>index"
    assert "empty" in client.ask("GET", "/static/empty/").text
    reply = client.ask("GET", "/static/empty")
    assert (reply.status, reply.header("location")) == (301, "/static/empty/")


def test_folders_are_not_listed_unless_asked_for(serve: Callable[..., Milepost], folder: Path) -> None:
    with serve("--static", f"/={folder / 'www'}").connect() as client:
        for path in ("/", "/empty/", "/odd%20names/"):
            assert client.ask("GET", path).status == 404


# Redirects, fixed replies, rewrites


@pytest.mark.parametrize(
    ("target", "status", "location"),
    [
        ("/old/a%20b?x=1", 301, "/new/a%20b?x=1"),
        ("/old/", 301, "/new/"),
        ("/find/a&b=c", 302, "/search?q=a%26b%3Dc"),
        ("/away/x/y", 308, "https://other.example/x/y"),
        ("/exact", 307, "/there"),
        ("/exact?q", 307, "/there?q"),
        ("/old/%0d%0aX-Evil:1", 301, "/new/%0D%0AX-Evil:1"),
        # Never to another host.
        ("/up//evil.example", 302, "/evil.example"),
        ("/up///evil.example", 302, "/evil.example"),
        ("/up/%5Cevil.example", 302, "/%5Cevil.example"),
        ("/up/%2fevil.example", 302, "/%2Fevil.example"),
        ("/%6fld/x", 301, "/new/x"),
    ],
)
def test_redirects_lead_where_they_say(client: Client, target: str, status: int, location: str) -> None:
    for method in ("GET", "HEAD", "POST"):
        reply = client.ask(method, target)
        assert reply.status == status
        assert reply.header("location").lower() == location.lower()
        assert reply.header("x-evil") is None


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/folder/empty?q", "/folder/empty/?q"),
        ("//folder/empty", "/folder/empty/"),
        ("//evil.example/../folder/empty", "/evil.example/../folder/empty/"),
        ("/%5Cevil.example/../folder/empty", "/%5Cevil.example/../folder/empty/"),
        ("http://test//evil.example/../folder/empty", "/evil.example/../folder/empty/"),
        ("/one/x", "/one/x/"),
    ],
)
def test_a_folder_behind_a_rewrite_is_not_redirected_to_another_site(
    client: Client, target: str, location: str
) -> None:
    reply = client.ask("GET", target)
    assert (reply.status, reply.header("location")) == (301, location)


@pytest.mark.parametrize("target", ["/one/", "/one/x/", "/one//?q"])
def test_a_folder_whose_slash_is_there_is_not_redirected_in_a_circle(client: Client, target: str) -> None:
    assert client.ask("GET", target).status == 404


def test_fixed_replies_are_given_as_they_are(client: Client) -> None:
    assert client.ask("HEAD", "/healthz").header("content-length") == "11"
    assert client.ask("POST", "/nothing").status == 204
    reply = client.ask("GET", "/healthz")
    assert (reply.status, reply.body) == (200, b"all is well")
    assert reply.header("content-type") == "text/plain; charset=utf-8"
    assert (client.ask("GET", "/teapot").status, client.ask("GET", "/teapot").body) == (418, b"short")
    assert client.ask("GET", "/nothing").framing == "none"
    # Without a text it has its error page.
    reply = client.ask("GET", "/internal/x")
    assert (reply.status, reply.body) == (404, b"<h1>404</h1> own page of Not Found")


@pytest.mark.parametrize(
    "target",
    [
        "/internal/x",
        "/%69nternal/x",
        "/internal%2fx",
        "//internal/x",
        "/x/../internal/x",
        "/internal/../x",
        "/./internal//x",
        "/open/internal/x",
    ],
)
def test_a_closed_path_is_closed_however_it_is_spelt(client: Client, target: str) -> None:
    assert client.ask("GET", target).status == 404


def test_a_rewrite_changes_what_the_application_sees_and_not_what_was_sent(client: Client) -> None:
    for target, query in (("/v1/a%20b", "from=a%20b"), ("/say?q=%201", "q=%201"), ("/say", "")):
        environ = json.loads(client.ask("GET", target).body)
        assert environ["PATH_INFO"] == "/environ"
        assert urllib.parse.unquote_plus(environ["QUERY_STRING"]) == urllib.parse.unquote_plus(query)
        assert environ["RAW_URI"] == environ["REQUEST_URI"] == target
    # A rewrite to a folder of files.
    assert client.ask("GET", "/css/plain.css").body == CSS


# Error pages


def own_page(reply: Reply, status: int) -> bool:
    """Whether it is the page of its class, and a page."""
    if status == 404:
        page = "<h1>404</h1> own page of Not Found"
    else:
        page = f"<h1>{status} {reply.reason}</h1> sorry"
    return (reply.status, reply.text, reply.header("content-type")) == (
        status,
        page,
        "text/html; charset=utf-8",
    )


def test_pages_keep_the_status_of_what_they_dress(server: Milepost, client: Client) -> None:
    assert own_page(client.ask("GET", "/static/missing"), 404)
    assert own_page(client.ask("GET", "/static/none/../missing"), 404)
    bare = client.ask("HEAD", "/static/missing")
    assert (bare.status, bare.header("content-length")) == (
        404,
        str(len("<h1>404</h1> own page of Not Found")),
    )
    # There is none for these.
    reply = client.ask("DELETE", "/static/site.css")
    assert (reply.status, reply.header("allow")) == (405, "GET, HEAD")
    assert b"own page" not in reply.body
    with server.connect() as refused:
        refused.send(b"GET / HTTP/2.0\r\n\r\n")
        assert own_page(refused.reply(), 505)
    with server.connect() as refused:
        refused.send(request("POST", "/body", "Transfer-Encoding: gzip, chunked"))
        assert own_page(refused.reply(), 501)


@pytest.mark.parametrize("animal", ["raises", "raises-after-start", "raises-in-first-next", "no-start"])
def test_an_applications_crash_has_its_page(client: Client, animal: str) -> None:
    reply = client.ask("GET", f"/{animal}")
    assert own_page(reply, 500)
    assert "secret" not in reply.text and reply.header("x-gone") is None


def test_what_an_application_answers_is_left_alone(client: Client) -> None:
    assert client.ask("GET", "/no-such").body == b"no such animal\n"
    reply = client.ask("GET", "/status?line=500%20Mine&body=mine")
    assert (reply.status, reply.reason, reply.body) == (500, "Mine", b"mine")


def test_a_full_queue_has_its_page_and_says_when_to_come_again(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    (tmp_path / "5xx.html").write_text("<h1>{status} {reason}</h1> sorry")
    server = serve(
        *("zoo:app", "--threads", "1:1", "--queue-len-max", "1", "--drivers", "1"),
        toml=PAGE_5XX,
    )
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    holder = server.connect()
    holder.send(request("GET", f"/gate?name={gate}"))
    # Open on both sides: the one thread is in there.
    hold = os.open(gate, os.O_WRONLY)
    clients = [server.connect() for _ in range(2)]
    for client in clients:
        client.send(request("GET", "/hello"))
    # One of the two waits, the other one is refused while it does.
    ready, _, _ = select.select([client.sock for client in clients], [], [], DEADLINE_S)
    (refused,) = (client for client in clients if client.sock in ready)
    reply = refused.reply()
    assert own_page(reply, 503)
    assert 1 <= int(reply.header("retry-after")) <= 60
    assert reply.closes
    clients.remove(refused)
    os.close(hold)
    assert holder.reply().body == b"released"
    assert clients[0].reply().body == b"hello"


# Files that change while they are sent


@pytest.mark.parametrize("how", ["truncated", "rewritten", "replaced"])
def test_a_file_that_changes_while_it_is_sent_costs_its_connection_at_most(
    serve: Callable[..., Milepost], tmp_path: Path, how: str
) -> None:
    (tmp_path / "www").mkdir()
    path = tmp_path / "www" / "large"
    content = BIG * 50
    path.write_bytes(content)
    (tmp_path / "www" / "other").write_bytes(b"other")
    server = serve("--static", "/=www", "--drivers", "1", "--log-flush", "10ms")
    slow = [server.connect(receive_buffer_bytes=4096) for _ in range(3)]
    for client in slow:
        client.send(request("GET", "/large"))
        assert client.head()[0] == 200
    if how == "truncated":
        os.truncate(path, 100_000)
    elif how == "rewritten":
        with path.open("r+b") as file:
            file.write(bytes(len(content)))
    else:
        (tmp_path / "www" / "new").write_bytes(b"new")
        os.replace(tmp_path / "www" / "new", path)
    with server.connect() as other:
        for client in slow:
            assert other.ask("GET", "/other").body == b"other"
            with client:
                if how != "replaced":
                    with pytest.raises(CutShort) as cut:
                        client.exactly(len(content))
                    # The kernel may blank what is gone in pages that are on their way already; either way
                    # the client knows that it has not got everything.
                    if how == "truncated":
                        assert cut.value.so_far[:100_000] == content[:100_000][: len(cut.value.so_far)]
                else:
                    # The old file is there as long as somebody reads it.
                    assert client.exactly(len(content)) == content
                server.count()
        assert until(lambda: len(other.ask("GET", "/large").body) in (100_000, 3, len(content)))
    assert server.stop() == 0
    cut = [line for line in server.lines if "end=cut" in line]
    assert len(cut) == (0 if how == "replaced" else 3)
    assert all('cause="the file was changed while it was sent"' in line for line in cut)
