"""Trailer fields of ASGI responses: behind a chunked body over HTTP/1.1, in a frame over HTTP/2."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from http2 import Http2

from raw import Client, CutShort, request
from serving import APPS, Milepost, until

SUM = ["x-sum: 1", "x-last: 2"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Milepost]:
    folder = tmp_path_factory.mktemp("trailers")
    with Milepost(folder, "asgi_zoo:app", "--app-dir", str(APPS)) as server:
        (folder / "sent").write_bytes(b"s" * 200_000)
        (folder / "empty").touch()
        yield server


def seen(server: Milepost, name: str) -> list[str]:
    with server.connect() as client:
        return json.loads(client.ask("GET", f"/seen?name={name}").body)


def ask(client: Client, target: str, te: str = "trailers") -> tuple[list[tuple[str, str]], bytes, list[str]]:
    """Headers, body and trailers of a chunked response."""
    client.send(request("GET", target, f"TE: {te}"))
    client.count()
    status, _, headers = client.head()
    assert (status, dict(headers)["transfer-encoding".title()]) == (200, "chunked"), headers
    assert "content-length" not in [name.lower() for name, _ in headers]
    body, trailers = b"", []
    while size := int(line(client), 16):
        body += client.exactly(size)
        assert client.exactly(2) == b"\r\n"
    while field := line(client):
        trailers.append(field)
    return headers, body, trailers


def line(client: Client) -> str:
    found = b""
    while not found.endswith(b"\r\n"):
        found += client.exactly(1)
    return found[:-2].decode()


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("pieces=", b""),
        ("pieces=all", b"all"),
        ("pieces=a,b,", b"ab"),
        # The client finds the end of the body by its chunks, whatever the application declares.
        ("pieces=a,b&length=2", b"ab"),
        ("path=sent", b"s" * 200_000),
        ("path=empty", b""),
    ],
)
def test_trailers_follow_the_body(server: Milepost, query: str, body: bytes) -> None:
    with server.connect() as client:
        for _ in range(2):
            headers, came, trailers = ask(client, f"/trailers?{query}")
            assert (came, trailers) == (body, SUM)
            assert ("Trailer", "x-sum") in [(name.title(), value) for name, value in headers]
    with Http2(server) as client:
        for _ in range(2):
            response = client.ask(f"/trailers?{query}")
            assert (response.status, response.body, response.reset) == (200, body, None)
            assert response.trailers == [("x-sum", "1"), ("x-last", "2")]
            assert response.header("trailer") == "x-sum"


@pytest.mark.parametrize(
    ("te", "is_offered"),
    [("trailers", True), ("deflate;q=0.5, Trailers", True), ("deflate", False), (None, False)],
)
def test_trailers_are_offered_where_the_client_reads_them(
    server: Milepost, te: str | None, is_offered: bool
) -> None:
    with server.connect() as client:
        headers = [f"TE: {te}"] if te else []
        scope = json.loads(client.ask("GET", "/scope", *headers).body)["scope"]
        assert ("http.response.trailers" in scope["extensions"]) == is_offered
        if not is_offered:
            reply = client.ask("GET", "/trailers?pieces=a", *headers)
            assert reply.text.startswith("`http.response.start` has `trailers: True`, and the scope")
    with Http2(server) as client:
        scope = json.loads(client.ask("/scope").body)["scope"]
        assert "http.response.trailers" in scope["extensions"]


def test_http_1_0_has_no_trailers(server: Milepost) -> None:
    with server.connect() as client:
        client.send(b"GET /scope HTTP/1.0\r\nTE: trailers\r\n\r\n")
        scope = json.loads(client.reply().body)["scope"]
        assert "http.response.trailers" not in scope["extensions"]


@pytest.mark.parametrize("end", ["returns", "raises"])
@pytest.mark.parametrize("length", ["", "&length=4"])
def test_a_response_without_its_trailers_never_looks_complete(
    server: Milepost, end: str, length: str
) -> None:
    with server.connect() as client:
        with pytest.raises(CutShort):
            ask(client, f"/trailers?pieces=body&end={end}{length}")
    with Http2(server) as client:
        response = client.ask(f"/trailers?pieces=body&end={end}{length}")
        assert not response.is_ended and response.reset == 2


def test_a_body_that_is_too_short_is_cut_before_its_trailers(server: Milepost) -> None:
    with server.connect() as client, pytest.raises(CutShort):
        ask(client, "/trailers?pieces=body&length=5")
    with Http2(server) as client:
        response = client.ask("/trailers?pieces=body&length=5")
        assert not response.is_ended and response.reset == 2


@pytest.mark.parametrize(
    ("method", "status", "query"),
    [("HEAD", 200, ""), ("GET", 204, ""), ("GET", 304, ""), ("HEAD", 200, "&length=1")],
)
def test_a_response_without_a_body_has_no_trailers(
    server: Milepost, method: str, status: int, query: str
) -> None:
    target = f"/trailers?pieces=&status={status}{query}"
    if query:
        target = target.replace("pieces=", "pieces=x")
    with server.connect() as client:
        for _ in range(2):
            reply = client.ask(method, target, "TE: trailers")
            assert (reply.status, reply.framing) == (status, "none")
    with Http2(server) as client:
        response = client.ask(target, method=method)
        assert (response.status, response.is_ended, response.trailers) == (status, True, [])


@pytest.mark.parametrize("name", ["content-length", "Transfer-Encoding", "host", "trailer", "set-cookie"])
def test_fields_that_belong_before_the_body_are_refused(server: Milepost, name: str) -> None:
    with server.connect() as client:
        _, _, trailers = ask(client, f"/trailers?pieces=a&name={name}")
        assert trailers == ["x-last: 2"]
    refusal = f"a trailer must not have this name (RFC 9110 section 6.5.1): `{name}: 1`"
    assert refusal in seen(server, "trailers")


@pytest.mark.parametrize(("name", "value"), [("a b", "c"), (":path", "/"), ("a", "b\r\nc: d")])
def test_trailers_are_fields(server: Milepost, name: str, value: str) -> None:
    with server.connect() as client:
        _, _, trailers = ask(client, f"/trailers?pieces=a&name={quote(name)}&value={quote(value)}")
        assert trailers == ["x-last: 2"]


@pytest.mark.parametrize(
    ("case", "expect"),
    [
        ("trailers-early", "`http.response.trailers` was sent before the last event of the body"),
        ("trailers-body", "`http.response.body` was sent after the last event of the body"),
    ],
)
def test_trailers_out_of_order_are_refused(server: Milepost, case: str, expect: str) -> None:
    with server.connect() as client:
        _, _, trailers = ask(client, f"/wrong?case={case}")
        assert trailers == []
    assert until(lambda: seen(server, case))
    assert seen(server, case)[-1] == f"RuntimeError: {expect}"
