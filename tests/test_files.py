"""Folders of files: conditional requests, ranges, and nothing that is not in the folder."""

from __future__ import annotations

import email.utils
import hashlib
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raw import Client, request
from serving import Milepost

TEXT = b"0123456789" * 10
BIG = random.Random(1).randbytes(3_000_000)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Milepost]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "secret.txt").write_text("outside")
    www = folder / "www"
    (www / "sub" / "deep").mkdir(parents=True)
    (www / "empty").mkdir()
    (www / ".git").mkdir()
    (www / ".well-known").mkdir()
    for name, content in {
        "index.html": b"<p>index",
        "a.txt": TEXT,
        "big.bin": BIG,
        "empty.css": b"",
        "style.css": b"a{}",
        "app.js": b"1",
        "data.json": b"{}",
        "logo.svg": b"<svg/>",
        "no-extension": b"?",
        "caf\xe9.txt": b"latin",
        "with space.txt": b"space",
        "per%cent.txt": b"percent",
        "back\\slash.txt": b"backslash",
        "sub/index.html": b"<p>sub",
        "sub/b.txt": b"b",
        "empty/keep": b"",
        ".hidden": b"hidden",
        ".git/config": b"hidden",
        ".well-known/security.txt": b"contact",
    }.items():
        (www / os.fsdecode(name.encode("utf-8"))).write_bytes(content)
    (www / "inside").symlink_to("a.txt")
    (www / "outside").symlink_to("../secret.txt")
    (www / "absolute").symlink_to(folder / "secret.txt")
    (www / "outer").symlink_to("..")
    (www / "loop").symlink_to("loop")
    os.mkfifo(www / "fifo")
    with Milepost(folder, "--static", "/=www", "--static", "/deep/er=www/sub") as server:
        yield server


@pytest.fixture
def files(site: Milepost) -> Iterator[Client]:
    with site.connect() as client:
        yield client


def test_a_file_is_sent_with_its_facts(files: Client) -> None:
    reply = files.ask("GET", "/a.txt")
    assert (reply.status, reply.body, reply.framing) == (200, TEXT, "length")
    assert reply.header("content-type") == "text/plain; charset=utf-8"
    assert reply.header("accept-ranges") == "bytes"
    assert re.fullmatch(r'"[!#-~]+"', reply.header("etag"))
    assert email.utils.parsedate_to_datetime(reply.header("last-modified"))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html"),
        ("/style.css", "text/css"),
        ("/app.js", "text/javascript"),
        ("/data.json", "application/json"),
        ("/logo.svg", "image/svg+xml"),
        ("/no-extension", "application/octet-stream"),
    ],
)
def test_types_come_from_the_table(files: Client, path: str, kind: str) -> None:
    assert files.ask("GET", path).header("content-type").partition(";")[0] == kind


@pytest.mark.parametrize("size", ["small", "large"])
def test_head_is_get_without_the_body(files: Client, size: str) -> None:
    path = {"small": "/a.txt", "large": "/big.bin"}[size]
    bare, whole = files.ask("HEAD", path), files.ask("GET", path)
    without_date = [[h for h in reply.headers if h[0].lower() != "date"] for reply in (bare, whole)]
    assert without_date[0] == without_date[1]
    assert bare.body == b""


def test_a_large_file_arrives_whole_again_and_again(files: Client) -> None:
    for _ in range(5):
        assert files.ask("GET", "/big.bin").body == BIG


def test_an_empty_file_is_a_file(files: Client) -> None:
    reply = files.ask("GET", "/empty.css")
    assert (reply.status, reply.body, reply.header("content-length")) == (200, b"", "0")
    # It has no first byte, and all of it is its last one.
    assert files.ask("GET", "/empty.css", "Range: bytes=0-").status == 416
    assert files.ask("GET", "/empty.css", "Range: bytes=-1").status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/caf%C3%A9.txt", b"latin"),
        ("/with%20space.txt", b"space"),
        ("/per%25cent.txt", b"percent"),
        ("/back%5Cslash.txt", b"backslash"),
        ("/%61.txt", TEXT),
        ("/inside", TEXT),
        ("/.well-known/security.txt", b"contact"),
        ("/a.txt?version=2", TEXT),
        ("/deep/er/b.txt", b"b"),
        ("/sub/b.txt", b"b"),
    ],
)
def test_names_are_found_as_they_are_written(files: Client, path: str, body: bytes) -> None:
    reply = files.ask("GET", path)
    assert (reply.status, reply.body) == (200, body)


@pytest.mark.parametrize(
    "path",
    [
        "/missing",
        "/a.txt/",
        "/a.txt/x",
        "/%2E%2E%2Fsecret.txt",
        "/..%2fsecret.txt",
        "/sub/../a.txt",
        "/sub/%2e%2e/a.txt",
        "/./a.txt",
        "//a.txt",
        "/sub//b.txt",
        "/sub%2fb.txt",
        "/..%5Csecret.txt",
        "/outside",
        "/absolute",
        "/outer/secret.txt",
        "/loop",
        "/fifo",
        "/.hidden",
        "/%2ehidden",
        "/.git/config",
        "/.git/",
        "/empty/",
        "/a.txt%00",
        "/a.txt%00.css",
        "/%ff",
        "/etc/passwd",
        "/" + "x" * 300,
        "/" + "x/" * 2_000,
    ],
)
def test_what_is_not_in_the_folder_is_not_found(files: Client, path: str) -> None:
    for method in ("GET", "HEAD"):
        reply = files.ask(method, path)
        assert reply.status == 404, (method, reply)
        assert b"outside" not in reply.body


@pytest.mark.parametrize(
    "path", ["/%", "/%2", "/%zz", "/a%2", "/a.txt%", "/..\\secret.txt", '/a".txt', "/<a.txt", "/a.txt>"]
)
def test_what_names_do_not_hold_unescaped_is_refused(files: Client, path: str) -> None:
    reply = files.ask("GET", path)
    assert (reply.status, reply.closes) == (400, True)


def test_a_query_may_hold_what_a_path_may_not(files: Client) -> None:
    reply = files.ask("GET", '/a.txt?q=100%&f={a|b}"<>\\')
    assert (reply.status, reply.body) == (200, TEXT)


def test_folders_show_their_index_and_no_listing(files: Client) -> None:
    assert files.ask("GET", "/").body == b"<p>index"
    assert files.ask("GET", "/sub/").body == b"<p>sub"
    assert files.ask("GET", "/empty/").status == 404
    assert b"keep" not in files.ask("GET", "/empty/").body


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/sub", "/sub/"),
        ("/sub?q=1", "/sub/?q=1"),
        ("/sub?", "/sub/?"),
        ("/s%75b", "/s%75b/"),
        ("http://test/sub?q", "/sub/?q"),
    ],
)
def test_a_folder_without_its_slash_is_redirected(files: Client, target: str, location: str) -> None:
    reply = files.ask("GET", target)
    assert (reply.status, reply.header("location")) == (301, location)


@pytest.mark.parametrize(
    ("method", "status"),
    [
        *((method, 405) for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE")),
        *((method, 501) for method in ("PURGE", "PROPFIND", "get", "X")),
    ],
)
def test_other_methods_are_refused(files: Client, method: str, status: int) -> None:
    reply = files.ask(method, "/a.txt", body=b"x")
    assert reply.status == status
    assert reply.header("allow") == ("GET, HEAD" if status == 405 else None)
    # The body is not taken for a request: it was read, or the connection ends.
    if reply.closes:
        assert files.is_closed()
    else:
        assert files.ask("GET", "/a.txt").status == 200


# Conditional requests: RFC 9110 section 13


def facts(files: Client, path: str = "/a.txt") -> tuple[str, str]:
    reply = files.ask("HEAD", path)
    return reply.header("etag"), reply.header("last-modified")


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("If-None-Match: {etag}", 304),
        ("If-None-Match: W/{etag}", 304),
        ('If-None-Match: "a", {etag}, "b"', 304),
        ("If-None-Match: *", 304),
        ('If-None-Match: "other"', 200),
        ("If-Modified-Since: {date}", 304),
        ("If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT", 200),
        ("If-Modified-Since: Thu, 31 Dec 2099 23:59:59 GMT", 304),
        ("If-Modified-Since: yesterday", 200),
        ("If-Match: {etag}", 200),
        ("If-Match: *", 200),
        ("If-Match: W/{etag}", 412),
        ('If-Match: "other"', 412),
        ("If-Unmodified-Since: {date}", 200),
        ("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT", 412),
        ("If-Unmodified-Since: nonsense", 200),
        ('If-None-Match: "other"\r\nIf-Modified-Since: {date}', 200),
        ("If-Match: {etag}\r\nIf-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT", 200),
        ("If-Match: {etag}\r\nIf-None-Match: {etag}", 304),
    ],
)
@pytest.mark.parametrize("path", ["/a.txt", "/big.bin"])
def test_conditions_are_kept(files: Client, header: str, status: int, path: str) -> None:
    etag, date = facts(files, path)
    for method in ("GET", "HEAD"):
        reply = files.ask(method, path, header.format(etag=etag, date=date))
        assert reply.status == status, (method, reply.headers)
        if status == 304:
            assert reply.header("etag") == etag
            assert reply.header("content-length") in (None, str(len(TEXT)), str(len(BIG)))


def test_a_changed_file_is_seen(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    www = tmp_path / "www"
    www.mkdir()
    (www / "f").write_bytes(b"old")
    server = serve("--static", "/=www", "--file-cache-revalidate", "1ms")
    with server.connect() as client:
        old = client.ask("GET", "/f")
        (www / "new").write_bytes(b"something newer")
        # As deployments do it: the new one appears whole.
        os.replace(www / "new", www / "f")
        for _ in range(10_000):
            new = client.ask("GET", "/f")
            if new.body != b"old":
                break
        assert new.body == b"something newer"
        assert new.header("etag") != old.header("etag")
        assert client.ask("GET", "/f", f"If-None-Match: {old.header('etag')}").status == 200
        (www / "f").unlink()
        for _ in range(10_000):
            if client.ask("GET", "/f").status == 404:
                break
        else:
            raise AssertionError("a file that is gone is still served")


# Ranges: RFC 9110 section 14


@pytest.mark.parametrize(
    ("value", "start", "end"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=0-9", 0, 9),
        ("bytes=90-", 90, 99),
        ("bytes=-10", 90, 99),
        ("bytes=-1000", 0, 99),
        ("bytes=95-1000", 95, 99),
        ("bytes=0-4,5-9", 0, 9),
        ("bytes=0-50,10-20", 0, 50),
        ("bytes= 5-6 ", 5, 6),
        ("bytes=5-6,", 5, 6),
        ("bytes=5-6,200-300", 5, 6),
    ],
)
def test_one_range_is_one_part(files: Client, value: str, start: int, end: int) -> None:
    reply = files.ask("GET", "/a.txt", f"Range: {value}")
    assert reply.status == 206, reply
    assert reply.header("content-range") == f"bytes {start}-{end}/100"
    assert reply.body == TEXT[start : end + 1]


@pytest.mark.parametrize("value", ["bytes=100-", "bytes=200-300", "bytes=-0"])
def test_a_range_outside_is_416(files: Client, value: str) -> None:
    reply = files.ask("GET", "/a.txt", f"Range: {value}")
    assert reply.status == 416
    assert reply.header("content-range") == "bytes */100"


@pytest.mark.parametrize(
    "value",
    [
        "lines=0-5",
        "bytes",
        "bytes=",
        "bytes=a-b",
        "bytes=5-1",
        "bytes=--5",
        "bytes=1-2-3",
        "bytes=0x1-5",
        "bytes=" + ",".join(f"{n}-{n}" for n in range(0, 100, 2)) + ",0-,1-" + ",3-" * 40,
    ],
)
def test_a_range_that_is_none_is_ignored(files: Client, value: str) -> None:
    reply = files.ask("GET", "/a.txt", f"Range: {value}")
    assert (reply.status, reply.body) == (200, TEXT)


@pytest.mark.parametrize("path", ["/a.txt", "/big.bin"])
def test_several_ranges_are_parts_of_one_body(files: Client, path: str) -> None:
    content = {"/a.txt": TEXT, "/big.bin": BIG}[path]
    reply = files.ask("GET", path, "Range: bytes=0-1,10-12,-5")
    assert reply.status == 206
    kind, _, boundary = reply.header("content-type").partition("; boundary=")
    assert kind == "multipart/byteranges"
    boundary = boundary.strip('"').encode()
    first, *parts, last = reply.body.split(b"--" + boundary)
    assert (first.strip(b"\r\n"), last.strip(b"\r\n")) == (b"", b"--")
    seen = []
    for part in parts:
        head, _, body = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        found = re.search(rb"(?i)content-range: bytes (\d+)-(\d+)/(\d+)", head)
        start, end, whole = (int(n) for n in found.groups())
        assert whole == len(content)
        assert body.removesuffix(b"\r\n") == content[start : end + 1]
        assert b"ontent-" in head and b"ype:" in head
        seen.append((start, end))
    assert seen == [(0, 1), (10, 12), (len(content) - 5, len(content) - 1)]


def test_ranges_of_a_large_file_put_it_together(files: Client) -> None:
    whole = hashlib.sha256()
    for start in range(0, len(BIG), 700_001):
        reply = files.ask("GET", "/big.bin", f"Range: bytes={start}-{start + 700_000}")
        assert reply.status == 206
        whole.update(reply.body)
    assert whole.digest() == hashlib.sha256(BIG).digest()


def test_if_range_guards_a_range(files: Client) -> None:
    etag, date = facts(files)
    for guard, status in (
        (etag, 206),
        (f"W/{etag}", 200),
        ('"other"', 200),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 200),
    ):
        reply = files.ask("GET", "/a.txt", "Range: bytes=0-4", f"If-Range: {guard}")
        assert reply.status == status, guard
        assert reply.body == (TEXT[:5] if status == 206 else TEXT)


def test_a_range_of_head_and_of_a_304_is_none(files: Client) -> None:
    etag, _ = facts(files)
    # RFC 9110 section 14.2: Range is defined for GET only.
    assert files.ask("HEAD", "/a.txt", "Range: bytes=0-4").status in (200, 206)
    assert files.ask("GET", "/a.txt", "Range: bytes=0-4", f"If-None-Match: {etag}").status == 304


def test_files_are_served_pipelined(files: Client) -> None:
    paths = ["/a.txt", "/big.bin", "/missing", "/sub/", "/empty.css"] * 5
    files.send(b"".join(request("GET", path) for path in paths))
    for path in paths:
        reply = files.reply()
        assert reply.status == (404 if path == "/missing" else 200)
        assert len(reply.body) == {"/a.txt": 100, "/big.bin": len(BIG), "/empty.css": 0}.get(
            path, len(reply.body)
        )


def test_an_unreadable_file_is_forbidden_or_missing(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    www = tmp_path / "www"
    www.mkdir()
    (www / "f").write_text("x")
    (www / "f").chmod(0)
    with serve("--static", "/=www").connect() as client:
        # root may read everything; nobody else may.
        assert client.ask("GET", "/f").status in ((200,) if os.geteuid() == 0 else (403, 404))


@pytest.mark.parametrize("path", ["/../secret.txt", "/%2e%2e/secret.txt", "/sub/../../secret.txt"])
def test_a_path_above_the_root_is_refused(files: Client, path: str) -> None:
    assert files.ask("GET", path).status == 400


def test_files_and_an_application_share_an_address(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    www = tmp_path / "www"
    www.mkdir()
    (www / "f").write_text("file")
    server = serve("zoo:app", "--static", "/static=www", "--static-index", "f")
    with server.connect() as client:
        assert client.ask("GET", "/static/f").body == b"file"
        assert client.ask("GET", "/static/").body == b"file"
        assert client.ask("GET", "/static/missing").status == 404
        assert client.ask("GET", "/hello").body == b"hello"
        # Only whole segments are a prefix.
        assert client.ask("GET", "/staticfoo").body == b"no such animal\n"


def test_a_slow_reader_of_a_large_file_disturbs_nobody(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    www = tmp_path / "www"
    www.mkdir()
    (www / "huge").write_bytes(BIG * 10)
    (www / "f").write_text("file")
    server = serve("--static", "/=www", "--drivers", "1")
    slow = [server.connect(receive_buffer_bytes=4096) for _ in range(50)]
    for client in slow:
        client.send(request("GET", "/huge"))
    with server.connect() as client:
        for _ in range(100):
            assert client.ask("GET", "/f").body == b"file"
    for client in slow:
        client.sock.close()
    server.exchanges += len(slow)
