"""Pipelining: whatever the split of the bytes, each request gets its own reply, in order."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator

import pytest

from raw import Client, chunked, request
from serving import APPS, Milepost

BODY = random.Random(8).randbytes(1_500)
READAHEAD = "1K"
BATCH = 50


def three(middle: str) -> bytes:
    """Three requests, the second with a body over `--body-memory-max`, so that it is spooled."""
    first = request("POST", "/body?n=1", "Content-Type: a/a", body=b"one")
    last = request("GET", "/body?n=3", "Connection: close")
    if middle == "chunked":
        head = request("POST", "/body?n=2", "Content-Type: b/b", "Transfer-Encoding: chunked")
        return first + head + chunked(BODY[:700], BODY[700:701], BODY[701:]) + last
    return first + request("POST", "/body?n=2", "Content-Type: b/b", body=BODY) + last


def check_three(client: Client) -> None:
    """Each reply belongs to its request, each body arrived whole, and nothing follows."""
    for n, body, kind in (("1", b"one", "a/a"), ("2", BODY, "b/b"), ("3", b"", None)):
        reply = client.reply()
        assert reply.status == 200, reply
        seen = json.loads(reply.body)
        assert (seen["n"], seen["bytes"]) == (n, len(body))
        assert seen["sha256"] == hashlib.sha256(body).hexdigest()
        assert seen["type"] == kind or (kind is None and seen["type"] in (None, ""))
    assert client.is_closed()


@pytest.fixture(scope="module")
def spooling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Milepost]:
    """One driver, so that a reply proves that it has read everything that was sent before."""
    folder = tmp_path_factory.mktemp("spooling")
    arguments = ("zoo:app", "--app-dir", str(APPS), "--drivers", "1", "--body-memory-max", READAHEAD)
    with Milepost(folder, *arguments, "--threads", "2:2") as server:
        yield server


def batches(points: range) -> Iterator[list[int]]:
    for start in range(0, len(points), BATCH):
        yield list(points[start : start + BATCH])


@pytest.mark.parametrize("middle", ["length", "chunked"])
def test_three_requests_split_at_every_point(spooling: Milepost, middle: str) -> None:
    data = three(middle)
    assert len(BODY) > 1024
    with spooling.connect() as witness:
        for batch in batches(range(1, len(data))):
            clients = [spooling.connect() for _ in batch]
            for client, at in zip(clients, batch):
                client.send(data[:at])
            # The driver has been through its connections when it answers this one.
            assert witness.ask("GET", "/hello").body == b"hello"
            for client, at in zip(clients, batch):
                client.send(data[at:])
            for client in clients:
                with client:
                    check_three(client)


@pytest.mark.parametrize("middle", ["length", "chunked"])
def test_three_requests_at_once(spooling: Milepost, middle: str) -> None:
    for _ in range(20):
        with spooling.connect() as client:
            client.send(three(middle))
            check_three(client)


@pytest.mark.parametrize("middle", ["length", "chunked"])
def test_three_requests_byte_by_byte(spooling: Milepost, middle: str) -> None:
    with spooling.connect() as client, spooling.connect() as witness:
        for n, byte in enumerate(three(middle)):
            client.send(bytes([byte]))
            if n % 8 == 0:
                witness.ask("GET", "/hello")
        check_three(client)


def test_a_hundred_requests_in_one_segment_are_answered_in_order(spooling: Milepost) -> None:
    with spooling.connect() as client:
        client.send(b"".join(request("GET", f"/body?n={n}") for n in range(100)))
        for n in range(100):
            assert json.loads(client.reply().body)["n"] == str(n)


def test_slow_and_fast_replies_keep_their_order(spooling: Milepost) -> None:
    """Large replies, small ones, HEAD, failures and chunked ones, all in flight at once."""
    with spooling.connect() as client:
        paths = ["/large?bytes=2000000", "/hello", "/parts", "/raises", "/one-part", "/late-start"] * 3
        client.send(b"".join(request("GET", path) + request("HEAD", path) for path in paths))
        for path in paths:
            whole, bare = client.reply(), client.reply("HEAD")
            assert whole.status == bare.status
            assert len(whole.body) == (2_000_000 if "large" in path else len(whole.body))
            assert whole.status == (500 if "raises" in path else 201 if "late" in path else 200)


def test_requests_after_a_close_are_not_answered(spooling: Milepost) -> None:
    with spooling.connect() as client:
        client.send(request("GET", "/hello", "Connection: close") + request("GET", "/hello"))
        assert client.reply().closes
        assert client.is_closed()


def test_a_last_reply_arrives_whole_although_more_was_sent(spooling: Milepost) -> None:
    """A close with unread bytes resets, and a reset takes what the client has not read yet."""
    with spooling.connect() as client:
        client.send(request("POST", "/large?bytes=3000000", "Connection: close", body=b"ab") + b"\r\nGET /")
        assert len(client.reply().body) == 3_000_000


def test_neighbours_never_mix(spooling: Milepost) -> None:
    """Many connections with their own bodies, interleaved piece by piece."""
    bodies = [random.Random(n).randbytes(3_000) for n in range(40)]
    clients = [spooling.connect() for _ in bodies]
    for n, (client, body) in enumerate(zip(clients, bodies)):
        client.send(request("POST", f"/body?n={n}", f"Content-Length: {len(body)}"))
    for at in range(0, 3_000, 500):
        for client, body in zip(clients, bodies):
            client.send(body[at : at + 500])
    for n, (client, body) in enumerate(zip(clients, bodies)):
        with client:
            seen = json.loads(client.reply().body)
            assert (seen["n"], seen["sha256"]) == (str(n), hashlib.sha256(body).hexdigest())
