"""wsgiref.validate stands between the server and applications, and has nothing to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from raw import Client, chunked, request
from serving import APPS, Milepost


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Milepost]:
    folder = tmp_path_factory.mktemp("validated")
    with Milepost(folder, "validated:app", "--app-dir", str(APPS), "--body-memory-max", "1K") as server:
        yield server
    assert "AssertionError" not in server.errors, server.errors
    assert "Warning" not in server.errors, server.errors


@pytest.fixture
def client(validated: Milepost) -> Iterator[Client]:
    with validated.connect() as connection:
        yield connection


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/", b"GET 0"),
        ("GET", "/list", b"a list"),
        ("GET", "/generator", b"a generator"),
        ("GET", "/write", b"by write and by list"),
        ("GET", "/empty", b""),
        ("GET", "/%C3%A9?q=%C3%A9", b"GET 0"),
        ("HEAD", "/", b""),
        ("HEAD", "/generator", b""),
        ("OPTIONS", "/", b"OPTIONS 0"),
        ("DELETE", "/", b"DELETE 0"),
        ("GET", "/nothing", b""),
        ("GET", "/not-modified", b""),
    ],
)
def test_requests_without_a_body_are_valid(client: Client, method: str, path: str, body: bytes) -> None:
    reply = client.ask(method, path)
    assert reply.status == {"/nothing": 204, "/not-modified": 304}.get(path, 200)
    assert reply.body == body


@pytest.mark.parametrize("size", [0, 1, 1_024, 1_025, 500_000])
@pytest.mark.parametrize("path", ["/", "/lines"])
def test_requests_with_a_body_are_valid(client: Client, size: int, path: str) -> None:
    body = (b"x" * 79 + b"\n") * (size // 80 + 1)
    body = body[:size]
    assert client.ask("POST", path, "Content-Type: text/plain", body=body).text == f"POST {size}"
    client.send(request("POST", path, "Transfer-Encoding: chunked") + chunked(*([body] if body else [])))
    assert client.reply().text == f"POST {size}"


def test_an_old_client_is_valid(validated: Milepost) -> None:
    with validated.connect() as client:
        assert client.ask("GET", "/", version="HTTP/1.0", host=None).text == "GET 0"


def test_errors_are_valid(client: Client) -> None:
    assert client.ask("GET", "/errors").body == b"written"


def test_it_would_notice(serve: Callable[..., Milepost]) -> None:
    """The validator really stands there: an application's own mistake is a 500."""
    server = serve("validated:app", "--app-dir", str(APPS))
    with server.connect() as client:
        assert client.ask("GET", "/mistake").status == 500
    assert server.stop() == 0
    assert "AssertionError" in server.errors
