"""The httpbin package's application, unmodified, with its endpoints exercised over the wire."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator

import brotlicffi
import pytest

from raw import Client, Reply, chunked, request
from serving import Milepost


@pytest.fixture(scope="module")
def httpbin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Milepost]:
    with Milepost(
        tmp_path_factory.mktemp("httpbin"), "httpbin:app", "--threads", "4:4", "--trace-requests"
    ) as server:
        yield server
    assert "Traceback" not in server.errors, server.errors


@pytest.fixture
def client(httpbin: Milepost) -> Iterator[Client]:
    with httpbin.connect() as connection:
        yield connection


def seen(reply: Reply) -> dict:
    assert reply.status == 200, reply
    return json.loads(reply.body)


def test_get_shows_arguments_headers_and_url(client: Client) -> None:
    got = seen(client.ask("GET", "/get?a=1&a=2&b=%C3%A9", "X-Test: yes", host="example.org"))
    assert got["args"] == {"a": ["1", "2"], "b": "é"}
    assert got["headers"]["X-Test"] == "yes"
    assert got["url"] == "http://example.org/get?a=1&a=2&b=é"
    assert got["origin"] == "127.0.0.1"


def test_post_takes_a_form(client: Client) -> None:
    kind = "Content-Type: application/x-www-form-urlencoded"
    assert seen(client.ask("POST", "/post", kind, body=b"a=1&b=x%20y"))["form"] == {"a": "1", "b": "x y"}


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_methods_take_json(client: Client, method: str) -> None:
    body = json.dumps({"n": [1, 2, 3], "é": None}).encode()
    got = seen(client.ask(method, f"/{method.lower()}", "Content-Type: application/json", body=body))
    assert got["json"] == {"n": [1, 2, 3], "é": None}


@pytest.mark.parametrize("size", [10, 200_000])
def test_post_takes_multipart(client: Client, size: int) -> None:
    body = (
        b'--XX\r\nContent-Disposition: form-data; name="field"\r\n\r\nvalue\r\n'
        b'--XX\r\nContent-Disposition: form-data; name="file"; filename="f.txt"\r\n'
        b"Content-Type: text/plain\r\n\r\n" + b"x" * size + b"\r\n--XX--\r\n"
    )
    got = seen(client.ask("POST", "/post", "Content-Type: multipart/form-data; boundary=XX", body=body))
    assert got["form"] == {"field": "value"}
    assert got["files"] == {"file": "x" * size}


def test_post_takes_chunks(client: Client) -> None:
    client.send(request("POST", "/post", "Transfer-Encoding: chunked") + chunked(b"hello ", b"world"))
    assert seen(client.reply())["data"] == "hello world"


@pytest.mark.parametrize("code", [200, 201, 204, 301, 304, 400, 401, 404, 405, 418, 429, 500, 503])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_status_codes_arrive(client: Client, code: int, method: str) -> None:
    assert client.ask(method, f"/status/{code}", body=b"" if method == "POST" else None).status == code
    assert client.ask("GET", "/get").status == 200


def test_headers_arrive_both_ways(client: Client) -> None:
    got = seen(client.ask("GET", "/headers", "Accept: a/b", "Accept-Language: de", "X-Long: " + "x" * 5000))
    assert got["headers"]["Accept"] == "a/b"
    assert len(got["headers"]["X-Long"]) == 5000
    reply = client.ask("GET", "/response-headers?X-One=1&X-Two=a%20b")
    assert (reply.header("x-one"), reply.header("x-two")) == ("1", "a b")
    assert seen(client.ask("GET", "/user-agent", "User-Agent: me"))["user-agent"] == "me"
    assert seen(client.ask("GET", "/ip"))["origin"] == "127.0.0.1"


def test_redirects_point_on(client: Client) -> None:
    reply = client.ask("GET", "/redirect/2", host="example.org")
    assert (reply.status, reply.header("location")) == (302, "/relative-redirect/1")
    reply = client.ask("GET", "/absolute-redirect/2", host="example.org:81")
    assert reply.header("location") == "http://example.org:81/absolute-redirect/1"
    reply = client.ask("GET", "/redirect-to?url=http%3A%2F%2Fother%2F&status_code=307")
    assert (reply.status, reply.header("location")) == (307, "http://other/")


def test_cookies_come_and_go(client: Client) -> None:
    reply = client.ask("GET", "/cookies/set?a=1&b=2")
    assert [value.partition(";")[0] for value in reply.all("set-cookie")] == ["a=1", "b=2"]
    got = seen(client.ask("GET", "/cookies", "Cookie: a=1", "Cookie: b=2; c=3"))
    assert got["cookies"] == {"a": "1", "b": "2", "c": "3"}


def test_basic_auth_asks_and_lets_in(client: Client) -> None:
    reply = client.ask("GET", "/basic-auth/me/secret")
    assert reply.status == 401
    assert (reply.header("www-authenticate") or "").startswith("Basic")
    token = base64.b64encode(b"me:secret").decode()
    assert seen(client.ask("GET", "/basic-auth/me/secret", f"Authorization: Basic {token}"))["user"] == "me"
    assert seen(client.ask("GET", "/bearer", "Authorization: Bearer t"))["token"] == "t"


def test_digest_auth_asks(client: Client) -> None:
    reply = client.ask("GET", "/digest-auth/auth/me/secret")
    assert reply.status == 401
    assert (reply.header("www-authenticate") or "").startswith("Digest")


def test_compressed_replies_arrive_intact(client: Client) -> None:
    assert json.loads(gzip.decompress(client.ask("GET", "/gzip").body))["gzipped"] is True
    assert json.loads(zlib.decompress(client.ask("GET", "/deflate").body))["deflated"] is True
    assert json.loads(brotlicffi.decompress(client.ask("GET", "/brotli").body))["brotli"] is True


@pytest.mark.parametrize("count", [1, 7, 100])
def test_stream_arrives_line_by_line(client: Client, count: int) -> None:
    reply = client.ask("GET", f"/stream/{count}")
    assert reply.framing == "chunked"
    assert [json.loads(line)["id"] for line in reply.body.splitlines()] == list(range(count))


def test_stream_bytes_and_bytes_agree(client: Client) -> None:
    streamed = client.ask("GET", "/stream-bytes/50000?seed=5&chunk_size=777")
    whole = client.ask("GET", "/bytes/50000?seed=5")
    assert (streamed.framing, whole.framing) == ("chunked", "length")
    assert streamed.body == whole.body
    assert len(whole.body) == 50_000


def test_drip_and_delay_take_their_time_and_end(client: Client) -> None:
    assert client.ask("GET", "/drip?numbytes=5&duration=0.2&delay=0&code=200").body == b"*" * 5
    assert seen(client.ask("GET", "/delay/0.1"))["url"].endswith("/delay/0.1")


def test_ranges_are_the_applications(client: Client) -> None:
    whole = client.ask("GET", "/range/1024").body
    part = client.ask("GET", "/range/1024", "Range: bytes=10-19")
    assert (part.status, part.body) == (206, whole[10:20])
    assert part.header("content-range") == "bytes 10-19/1024"


@pytest.mark.parametrize(
    ("kind", "magic"), [("png", b"\x89PNG"), ("jpeg", b"\xff\xd8"), ("webp", b"RIFF"), ("svg", b"<svg")]
)
def test_images_arrive(client: Client, kind: str, magic: bytes) -> None:
    reply = client.ask("GET", f"/image/{kind}")
    assert reply.status == 200
    assert reply.body.startswith(magic)


def test_conditions_are_the_applications(client: Client) -> None:
    assert client.ask("GET", "/etag/abc", 'If-None-Match: "abc"').status == 304
    assert client.ask("GET", "/etag/abc", 'If-Match: "other"').status == 412
    assert client.ask("GET", "/etag/abc").header("etag") == "abc"
    assert client.ask("GET", "/cache").status == 200
    assert client.ask("GET", "/cache", "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT").status == 304
    assert client.ask("GET", "/cache/60").header("cache-control") == "public, max-age=60"


def test_pages_and_odds(client: Client) -> None:
    assert b"<a href" in client.ask("GET", "/links/5/0").body
    assert client.ask("GET", "/links/5").status == 302
    assert client.ask("GET", "/base64/bWlsZXBvc3Q=").body == b"milepost"
    assert client.ask("GET", "/encoding/utf8").status == 200
    assert client.ask("GET", "/html").header("content-type").startswith("text/html")
    assert client.ask("GET", "/xml").header("content-type") == "application/xml"
    assert seen(client.ask("GET", "/uuid"))["uuid"]
    assert seen(client.ask("GET", "/json"))["slideshow"]
    assert client.ask("GET", "/robots.txt").body.startswith(b"User-agent")
    assert client.ask("GET", "/static/favicon.ico").status in (200, 404)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"])
def test_anything_echoes(client: Client, method: str) -> None:
    got = seen(client.ask(method, "/anything/a/b?c=d", body=b"data" if method != "TRACE" else None))
    assert (got["method"], got["args"]) == (method, {"c": "d"})
    assert got["data"] == ("data" if method != "TRACE" else "")


def test_head_and_options(client: Client) -> None:
    reply = client.ask("HEAD", "/get")
    assert reply.status == 200 and int(reply.header("content-length")) > 0
    reply = client.ask("OPTIONS", "/get")
    assert "GET" in reply.header("allow")


def test_absolute_targets_are_understood(client: Client) -> None:
    assert seen(client.ask("GET", "http://example.org/get?x=1", host="example.org"))["args"] == {"x": "1"}


def test_a_large_body_comes_back_whole(client: Client) -> None:
    body = b"0123456789abcdef" * 100_000
    got = seen(client.ask("POST", "/post", "Content-Type: text/plain", body=body))
    assert hashlib.sha256(got["data"].encode()).digest() == hashlib.sha256(body).digest()
