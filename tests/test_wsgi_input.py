"""wsgi.input: an application only ever sees complete bodies, through every method of the PEP."""

from __future__ import annotations

import hashlib
import json
import random
import urllib.parse

import pytest

from raw import Client, chunked, request
from serving import Milepost


def reads(client: Client, body: bytes, *script: list[object], coding: str = "length") -> list[object]:
    """What each call in `script` gave."""
    target = "/reads?script=" + urllib.parse.quote(json.dumps(script))
    if coding == "length":
        client.send(request("POST", target, body=body))
    else:
        client.send(request("POST", target, "Transfer-Encoding: chunked") + chunked(*split(body)))
    reply = client.reply()
    assert reply.status == 200, reply
    return json.loads(reply.body)


def split(body: bytes) -> list[bytes]:
    return [body[at : at + 3] for at in range(0, len(body), 3)]


@pytest.mark.parametrize("coding", ["length", "chunked"])
@pytest.mark.parametrize(
    ("body", "script", "gave"),
    [
        (b"abcdef", [["read"]], ["abcdef"]),
        (b"abcdef", [["read"], ["read"], ["read", 5]], ["abcdef", "", ""]),
        (b"abcdef", [["read", -1]], ["abcdef"]),
        (b"abcdef", [["read", None]], ["abcdef"]),
        (b"abcdef", [["read", 0], ["read", 2], ["read"]], ["", "ab", "cdef"]),
        (b"abcdef", [["read", 4], ["read", 100]], ["abcd", "ef"]),
        (b"", [["read"], ["readline"], ["readlines"], ["iterate"]], ["", "", [], []]),
        (b"a\nb\nc", [["readline"]] * 4, ["a\n", "b\n", "c", ""]),
        (b"a\r\nb", [["readline"], ["readline"]], ["a\r\n", "b"]),
        (b"abc\ndef", [["readline", 2], ["readline", 10], ["readline", -1]], ["ab", "c\n", "def"]),
        (b"abc\ndef", [["readline", 0], ["readline", 3], ["readline", 1]], ["", "abc", "\n"]),
        (b"a\n\nb\n", [["readlines"]], [["a\n", "\n", "b\n"]]),
        (b"aa\nbb\ncc\n", [["readlines", 1], ["readlines", 4]], [["aa\n"], ["bb\n", "cc\n"]]),
        (b"a\nb\nc", [["iterate"], ["read"]], [["a\n", "b\n", "c"], ""]),
        (b"a\nb\nc", [["next"], ["read", 1], ["iterate"]], ["a\n", "b", ["\n", "c"]]),
        (b"\x00\xff\n\x80", [["readline"], ["read"]], ["\x00\xff\n", "\x80"]),
    ],
)
def test_each_method_reads_as_a_file_does(
    client: Client, body: bytes, script: list[list[object]], gave: list[object], coding: str
) -> None:
    assert reads(client, body, *script, coding=coding) == gave
    # Nothing of the body is taken for the next request.
    assert client.ask("GET", "/hello").body == b"hello"


def test_spooled_bodies_read_as_those_in_memory_do(serve) -> None:
    server = serve("zoo:app", "--body-memory-max", "1K")
    body = b"".join(b"line %d\n" % n for n in range(1000)) + b"end"
    with server.connect() as client:
        script = [["readline"], ["read", 6], ["readline", 3], ["readlines", 1], ["read"], ["read"]]
        gave = reads(client, body, *script)
        assert gave[:4] == ["line 0\n", "line 1", "\n", ["line 2\n"]]
        assert gave[4:] == [body.decode().partition("line 2\n")[2], ""]
        lines = body.decode().splitlines(keepends=True)
        assert reads(client, body, ["iterate"])[0] == lines
        assert reads(client, body, ["readlines"], coding="chunked")[0] == lines


@pytest.mark.parametrize("coding", ["length", "chunked"])
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 2_000_000])
def test_every_size_arrives_whole(client: Client, size: int, coding: str) -> None:
    body = random.Random(size).randbytes(size)
    if coding == "length":
        client.send(request("POST", "/body", "Content-Type: x/y", body=body))
    else:
        pieces = [body[at : at + 50_000] for at in range(0, size, 50_000)]
        client.send(
            request("POST", "/body", "Content-Type: x/y", "Transfer-Encoding: chunked") + chunked(*pieces)
        )
    seen = json.loads(client.reply().body)
    assert seen["bytes"] == size
    assert seen["sha256"] == hashlib.sha256(body).hexdigest()
    assert seen["type"] == "x/y"
    assert seen["length"] == str(size) or coding == "chunked"


@pytest.mark.parametrize("method", ["POST", "PUT", "GET", "DELETE", "PURGE"])
def test_any_method_may_bring_a_body(client: Client, method: str) -> None:
    assert json.loads(client.ask(method, "/body", body=b"xyz").body)["bytes"] == 3


@pytest.mark.parametrize("size", [10, 500_000])
def test_an_unread_body_is_not_the_next_request(client: Client, size: int) -> None:
    body = b"GET /secret HTTP/1.1\r\nHost: x\r\n\r\n".ljust(size, b"x")
    for _ in range(3):
        assert client.ask("POST", "/unread", body=body).body == b"unread"


def test_the_body_comes_back(client: Client) -> None:
    body = random.Random(7).randbytes(3_000_000)
    assert client.ask("POST", "/echo", body=body).body == body


def test_100_continue_is_said_before_the_body_is_sent(client: Client) -> None:
    client.send(request("POST", "/body", "Expect: 100-continue", "Content-Length: 5"))
    status, _, headers = client.head()
    assert (status, headers) == (100, [])
    client.send(b"12345")
    assert json.loads(client.reply().body)["bytes"] == 5


def test_100_continue_works_for_chunked_and_spooled_bodies(client: Client) -> None:
    client.send(request("POST", "/body", "expect: 100-Continue", "Transfer-Encoding: chunked"))
    assert client.head()[0] == 100
    client.send(chunked(*[b"x" * 60_000] * 5))
    assert json.loads(client.reply().body)["bytes"] == 300_000


def test_nobody_is_told_to_continue_without_need(zoo: Milepost) -> None:
    with zoo.connect() as client:
        # The body is here already (RFC 9110 section 10.1.1 allows to leave it out then); either way
        # exactly one final reply follows.
        client.send(request("POST", "/body", "Expect: 100-continue", body=b"12345"))
        assert json.loads(client.reply().body)["bytes"] == 5
        client.send(request("GET", "/hello", "Expect: 100-continue"))
        assert client.head()[0] == 200
        assert client.exactly(5) == b"hello"
        zoo.exchanges += 1
    with zoo.connect() as client:
        # RFC 9110 section 10.1.1: a 100 would mean nothing to an HTTP/1.0 client.
        client.send(request("POST", "/body", "Expect: 100-continue", "Content-Length: 5", version="HTTP/1.0"))
        client.send(b"12345")
        assert client.head()[0] == 200
        zoo.exchanges += 1


def test_an_upload_that_breaks_off_never_reaches_the_application(serve) -> None:
    server = serve("zoo:app", "--body-memory-max", "1K")
    with server.connect() as client:
        client.send(request("POST", "/body", "Content-Length: 5000") + b"x" * 4999)
    server.exchanges += 1
    with server.connect() as client:
        assert client.ask("GET", "/hello").body == b"hello"
    assert server.stop() == 0
    gone = [line for line in server.lines if "/body" in line]
    assert len(gone) == 1
    assert "end=peer-gone" in gone[0]
    assert '" 200 ' not in gone[0]
