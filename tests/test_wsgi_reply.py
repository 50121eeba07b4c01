"""What becomes of an application's reply: PEP 3333, start_response, write() and the iterable."""

from __future__ import annotations

import hashlib
import itertools
import json
import urllib.parse

import pytest

from raw import Client, CutShort, request
from serving import Milepost, until

TOKENS = itertools.count()


def token() -> str:
    return f"t{next(TOKENS)}"


def noted(zoo: Milepost, under: str, what: str) -> list[str]:
    """Waits until an animal noted `what`, and gives everything noted."""
    with zoo.connect() as client:
        return json.loads(client.ask("GET", f"/noted?token={under}&what={what}").body)


def errors_with(zoo: Milepost, text: str) -> bool:
    """The error log has it. The line is written before the reply's record, but read by a thread."""
    with zoo.connect() as client:
        for _ in range(200):
            if text in zoo.errors:
                return True
            # A round trip through the server is the pause.
            client.ask("GET", "/hello")
    return False


# start_response


def test_start_response_may_run_at_the_first_next(client: Client) -> None:
    reply = client.ask("GET", "/late-start")
    assert (reply.status, reply.reason, reply.body) == (201, "Created", b"late")
    assert reply.header("x-late") == "yes"


def test_empty_chunks_do_not_send_the_head(client: Client) -> None:
    reply = client.ask("GET", "/later-start")
    assert (reply.status, reply.header("x-later"), reply.body) == (202, "yes", b"later")


def test_a_reply_without_start_response_is_500(client: Client) -> None:
    assert client.ask("GET", "/no-start").status == 500
    assert client.ask("GET", "/start-after-output").status == 500


def test_a_second_start_response_without_exc_info_raises(client: Client) -> None:
    reply = client.ask("GET", "/start-twice")
    assert (reply.status, reply.body) == (200, b"AssertionError")


def test_start_response_takes_a_list_and_a_triple_only(client: Client) -> None:
    reply = client.ask("GET", "/odd-starts")
    triple = "exc_info must be a (type, value, traceback) tuple, not "
    assert reply.text.split("\n") == [
        *(f"headers must be a list of tuples, not {kind}" for kind in ("tuple", "dict", "list_iterator")),
        *(triple + kind for kind in ("ValueError", "list", "bool", "tuple")),
    ]
    assert (reply.status, reply.header("x-a")) == (200, None)


@pytest.mark.parametrize("path", ["/replaced", "/replaced-in-generator"])
def test_exc_info_before_output_replaces_the_head(client: Client, path: str) -> None:
    reply = client.ask("GET", path)
    assert (reply.status, reply.reason, reply.body) == (503, "Replaced", b"replaced")
    assert reply.header("x-first") is None
    assert reply.header("x-second") == "2"
    assert reply.header("content-length") in (None, "8")


def test_exc_info_after_output_raises_that_error_again(zoo: Milepost) -> None:
    under = token()
    with zoo.connect() as client:
        client.send(request("GET", f"/reraised?token={under}"))
        with pytest.raises(CutShort):
            client.reply()
        zoo.exchanges += 1
    assert noted(zoo, under, "reraised%20'after%20output'") == ["reraised 'after output'"]


def test_write_precedes_the_iterable(client: Client) -> None:
    assert client.ask("GET", "/writes").body == b"one two three four"
    reply = client.ask("GET", "/writes-only")
    assert (reply.body, reply.header("content-length")) == (b"only", "4")


# Status and headers


@pytest.mark.parametrize(
    ("line", "status", "reason"),
    [
        ("200 OK", 200, "OK"),
        ("299 Something Else", 299, "Something Else"),
        ("404 Not  Here", 404, "Not  Here"),
        ("599 caf\xe9", 599, "caf\xe9"),
    ],
)
def test_the_status_line_is_the_applications(client: Client, line: str, status: int, reason: str) -> None:
    reply = client.ask("GET", f"/status?body=x&line={urllib.parse.quote(line)}")
    assert (reply.status, reply.reason, reply.body) == (status, reason, b"x")


@pytest.mark.parametrize(
    "line",
    ["", "OK", "20 OK", "2000 OK", "abc OK", "200\r\nX-Evil: 1", "200 OK\n", "200 \x00", "-20 OK", "200 €"],
)
def test_a_malformed_status_is_500(client: Client, line: str) -> None:
    reply = client.ask("GET", f"/status?body=x&line={urllib.parse.quote(line)}")
    assert reply.status == 500
    assert reply.header("x-evil") is None


@pytest.mark.parametrize("error", ["TypeError", "AttributeError", "NotImplementedError"])
def test_a_length_that_cannot_be_told_is_not_known(client: Client, error: str) -> None:
    reply = client.ask("GET", f"/unmeasured?error={error}")
    assert (reply.status, reply.body) == (200, b"abb")


def test_any_other_error_of_a_length_is_500(client: Client) -> None:
    assert client.ask("GET", "/unmeasured?error=RuntimeError").status == 500


@pytest.mark.parametrize("how", ["list", "pair"])
def test_headers_are_sent_as_given(client: Client, how: str) -> None:
    pair = urllib.parse.quote(json.dumps(["X-Good", "a  b"]))
    reply = client.ask("GET", f"/header?how={how}&pair={pair}")
    # PEP 3333 wants tuples; a list as a pair is refused or sent, but never sent wrongly.
    assert reply.status == (200 if how == "pair" else reply.status)
    assert reply.status == 500 or reply.header("x-good") == "a  b"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Evil", "a\r\nX-Injected: 1"),
        ("X-Evil", "a\nX-Injected: 1"),
        ("X-Evil", "a\rX-Injected: 1"),
        ("X-Evil", "a\x00b"),
        ("X-Evil", "\x7f"),
        ("X-Evil", "€"),
        ("X-Evil", 5),
        ("X-Evil", None),
        ("X Evil", "a"),
        ("X-Evil:", "a"),
        ("", "a"),
        ("X-Evil\r\nX-Injected", "a"),
        ("caf\xe9", "a"),
        ("Connection", "close"),
        ("transfer-encoding", "chunked"),
        ("Keep-Alive", "timeout=5"),
        ("Upgrade", "h2c"),
        ("TE", "trailers"),
        ("Trailer", "X"),
        ("Content-Length", "five"),
        ("Content-Length", "-1"),
        ("Content-Length", "+5"),
        ("Content-Length", ""),
    ],
)
def test_a_header_that_must_not_be_sent_is_500(client: Client, name: str, value: object) -> None:
    pair = urllib.parse.quote(json.dumps([name, value]))
    reply = client.ask("GET", f"/header?pair={pair}")
    assert reply.status == 500
    assert reply.header("x-injected") is None


def test_repeated_and_latin_1_headers_survive(client: Client) -> None:
    reply = client.ask("GET", "/many-headers")
    assert reply.all("set-cookie") == ["a=1", "b=2"]
    assert reply.header("x-latin") == "caf\xe9"
    assert reply.header("x-lower") == ""
    assert reply.header("server") == "zoo"


def test_date_and_server_are_added_once(client: Client) -> None:
    reply = client.ask("GET", "/hello")
    assert len(reply.all("date")) == 1
    assert (reply.header("server") or "").startswith("milepost")
    assert reply.header("date").endswith(" GMT")


# Iterables and their framing


def test_a_list_of_one_gets_its_length(client: Client) -> None:
    reply = client.ask("GET", "/one-part")
    assert (reply.framing, reply.header("content-length")) == ("length", "11")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/parts", b"abbccc"),
        ("/tuple-of-parts", b"xy"),
        ("/get-item", b"old protocol"),
        ("/lying-list", b"iterated"),
    ],
)
def test_every_kind_of_iterable_is_iterated(client: Client, path: str, body: bytes) -> None:
    reply = client.ask("GET", path)
    assert (reply.status, reply.body) == (200, body)
    # The connection goes on.
    assert client.ask("GET", "/hello").body == b"hello"


def test_no_chunk_at_all_is_an_empty_reply(client: Client) -> None:
    reply = client.ask("GET", "/nothing")
    assert (reply.status, reply.body, reply.header("x-empty")) == (200, b"", "yes")
    assert client.ask("GET", "/hello").body == b"hello"


@pytest.mark.parametrize("path", ["/bytes-itself", "/text-part", "/not-iterable"])
def test_what_is_not_an_iterable_of_bytes_is_500(client: Client, path: str) -> None:
    assert client.ask("GET", path).status == 500


def test_an_old_client_gets_a_body_that_ends_with_the_connection(zoo: Milepost) -> None:
    with zoo.connect() as client:
        reply = client.ask("GET", "/parts", version="HTTP/1.0")
        assert (reply.framing, reply.body) == ("close", b"abbccc")


def test_an_old_client_may_keep_the_connection_when_the_length_is_known(zoo: Milepost) -> None:
    with zoo.connect() as client:
        reply = client.ask("GET", "/one-part", "Connection: keep-alive", version="HTTP/1.0")
        assert reply.header("connection").lower() == "keep-alive"
        assert client.ask("GET", "/hello", version="HTTP/1.0").body == b"hello"
        assert client.is_closed()


@pytest.mark.parametrize("length", ["", "1"])
@pytest.mark.parametrize(("size", "part"), [(1, 1), (65_536, 7), (300_000, 65_536), (20_000_000, 1_000_000)])
def test_large_replies_arrive_whole(client: Client, size: int, part: int, length: str) -> None:
    reply = client.ask("GET", f"/large?bytes={size}&part={part}&length={length}")
    assert len(reply.body) == size
    assert hashlib.sha256(reply.body).hexdigest() == reply.header("x-sha256")
    assert reply.framing == ("length" if length else reply.framing)


# Lengths, HEAD, and statuses without a body


def test_what_exceeds_content_length_is_dropped_and_reported(zoo: Milepost, client: Client) -> None:
    under = token()
    reply = client.ask("GET", f"/longer?token={under}")
    assert (reply.body, reply.header("content-length")) == (b"12345", "5")
    # Not one byte of the excess: the next reply begins right here.
    assert client.ask("GET", "/hello").body == b"hello"
    assert "closed" in noted(zoo, under, "closed")
    assert errors_with(zoo, "Content-Length")


@pytest.mark.parametrize("path", ["/shorter?token=s", "/shorter-list", "/empty-with-length"])
def test_what_falls_short_of_content_length_closes_the_connection(zoo: Milepost, path: str) -> None:
    with zoo.connect() as client:
        client.send(request("GET", path) + request("GET", "/hello"))
        with pytest.raises(CutShort) as cut:
            client.reply()
        zoo.exchanges += 1
        assert cut.value.so_far in (b"only this", b"")


@pytest.mark.parametrize(
    "path", ["/hello", "/parts?token=h", "/one-part", "/writes", "/large?bytes=1000000", "/empty-with-length"]
)
def test_head_has_the_head_and_no_body(client: Client, path: str) -> None:
    reply = client.ask("HEAD", path)
    assert (reply.status, reply.body) == (200, b"")
    assert client.ask("GET", "/hello").body == b"hello"


def test_head_keeps_the_declared_length(client: Client) -> None:
    assert client.ask("HEAD", "/empty-with-length").header("content-length") == "50"
    assert client.ask("HEAD", "/hello").header("content-length") == "5"


@pytest.mark.parametrize("line", ["204 No Content", "304 Not Modified"])
@pytest.mark.parametrize("body", ["", "forbidden"])
def test_statuses_without_a_body_have_none(client: Client, line: str, body: str) -> None:
    reply = client.ask("GET", f"/status?line={urllib.parse.quote(line)}&body={body}")
    assert reply.status == int(line[:3])
    assert reply.header("transfer-encoding") is None
    if reply.status == 204:
        # RFC 9110 section 8.6
        assert reply.header("content-length") is None
    assert client.ask("GET", "/hello").body == b"hello"


@pytest.mark.parametrize("line", ["100 Continue", "101 Switching Protocols", "199 Odd"])
def test_an_interim_status_is_no_reply(zoo: Milepost, line: str) -> None:
    with zoo.connect() as client:
        assert client.ask("GET", f"/status?line={urllib.parse.quote(line)}").status == 500


# close()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/parts"),
        ("GET", "/nothing"),
        ("HEAD", "/parts"),
        ("GET", "/longer"),
        ("GET", "/raises-in-first-next"),
        ("GET", "/large?bytes=5000000"),
    ],
)
def test_close_is_called_once(zoo: Milepost, client: Client, method: str, path: str) -> None:
    under = token()
    client.ask(method, f"{path}{'&' if '?' in path else '?'}token={under}")
    assert noted(zoo, under, "closed") == ["closed"]


def test_a_fault_behind_a_client_that_has_gone_is_logged(zoo: Milepost) -> None:
    with zoo.connect(receive_buffer_bytes=4096) as client:
        client.send(request("GET", "/raises-behind-its-client"))
        client.head()
    zoo.exchanges += 1
    assert until(lambda: "ValueError: a fault behind its client" in zoo.errors)


def test_close_is_called_when_the_client_has_gone(zoo: Milepost) -> None:
    under = token()
    with zoo.connect(receive_buffer_bytes=4096) as client:
        client.send(request("GET", f"/large?bytes=20000000&token={under}"))
        client.head()
    zoo.exchanges += 1
    assert noted(zoo, under, "closed") == ["closed"]
