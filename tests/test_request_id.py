"""Ids of requests: one text in the environ, the reply, the access log and the error log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from raw import Client, Reply, request
from serving import Milepost, until

MADE = re.compile(r"[0-9a-f]{16}")
HEADER = "X-Request-Id"
SHOWN = ("--request-id-header", "x-request-id")
#: Our clients are the trusted ones.
TRUSTING = (*SHOWN, "--trusted-proxies", "127.0.0.0/8")
#: Our clients are not.
WARY = (*SHOWN, "--trusted-proxies", "192.0.2.1, unix")


def logged(server: Milepost) -> list[str]:
    """The ids of the access log, once the server has stopped."""
    assert server.stop() == 0
    found = [re.search(r" id=(\S+)", line) for line in server.lines]
    return [hit[1] for hit in found if hit]


def look(client: Client, *headers: str) -> tuple[Reply, dict[str, object]]:
    """A reply, and the environ that the application had."""
    reply = client.ask("GET", "/environ", *headers)
    return reply, json.loads(reply.body)


def test_without_the_setting_the_environ_and_the_log_have_the_id(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app")
    with server.connect() as client:
        reply, environ = look(client, f"{HEADER}: mine")
    assert MADE.fullmatch(str(environ["milepost.request_id"]))
    assert environ["HTTP_X_REQUEST_ID"] == "mine"
    assert reply.header(HEADER) is None
    assert logged(server) == [environ["milepost.request_id"]]


def test_a_trusted_client_names_its_requests(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", *TRUSTING)
    given = ["a", "0f-3_!~:;/+={}<>", "x" * 128]
    with server.connect() as client:
        for name in given:
            reply, environ = look(client, f"x-REQUEST-id: {name}")
            seen = (environ["milepost.request_id"], environ["HTTP_X_REQUEST_ID"], reply.header(HEADER))
            assert seen == (name, name, name)
    assert logged(server) == given


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("X-Request-Id:",),
        ("X-Request-Id: a", "X-Request-Id: a"),
        ("X-Request-Id: a", "Accept: b", "x-request-id: b"),
        (f"X-Request-Id: {'x' * 129}",),
        ("X-Request-Id: a b",),
        ("X-Request-Id: a,b",),
        ("X-Request-Id: [a]",),
        ('X-Request-Id: a"b',),
        ("X-Request-Id: a'b",),
        ("X-Request-Id: a\\b",),
        ("X-Request-Id: \xe9",),
        ("X_Request_Id: a",),
    ],
)
def test_what_is_no_id_is_replaced(serve: Callable[..., Milepost], headers: tuple[str, ...]) -> None:
    server = serve("zoo:app", *TRUSTING)
    with server.connect() as client:
        reply, environ = look(client, *headers)
    made = str(environ["milepost.request_id"])
    assert MADE.fullmatch(made)
    assert (environ["HTTP_X_REQUEST_ID"], reply.header(HEADER)) == (made, made)
    assert logged(server) == [made]


def test_an_untrusted_clients_word_reaches_nobody(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", *WARY)
    with server.connect() as client:
        reply, environ = look(client, f"{HEADER}: forged")
    assert "forged" not in reply.text
    made = str(environ["milepost.request_id"])
    assert MADE.fullmatch(made)
    assert (environ["HTTP_X_REQUEST_ID"], reply.header(HEADER)) == (made, made)
    assert logged(server) == [made]


def test_clients_on_a_unix_socket_are_trusted(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    server = serve("zoo:app", *WARY, bind=f"unix:{tmp_path / 'socket'}")
    with server.connect() as client:
        _, environ = look(client, f"{HEADER}: mine")
    assert environ["milepost.request_id"] == "mine"
    assert logged(server) == ["mine"]


def test_pipelined_requests_keep_their_ids_apart(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", *TRUSTING)
    names = [f"number-{number}" if number % 3 else None for number in range(60)]
    with server.connect() as client:
        for name in names:
            client.send(request("GET", "/environ", *([f"{HEADER}: {name}"] if name else [])))
        replies = [client.reply() for _ in names]
    ids = [str(json.loads(reply.body)["milepost.request_id"]) for reply in replies]
    assert [reply.header(HEADER) for reply in replies] == ids
    for name, found in zip(names, ids, strict=True):
        assert found == name if name else MADE.fullmatch(found)
    assert len(set(ids)) == len(ids)
    assert logged(server) == ids


def test_files_faults_and_refusals_have_the_header(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "f").write_bytes(b"x" * 500_000)
    server = serve(
        "zoo:app",
        "--static",
        "/static=www",
        "--body-bytes-max",
        "1000",
        "--status-path",
        "/-/status",
        *TRUSTING,
    )
    asked = [
        (200, ("GET", "/static/f"), {}),
        (404, ("GET", "/static/g"), {}),
        (500, ("GET", "/raises"), {}),
        (405, ("DELETE", "/static/f"), {}),
        (200, ("GET", "/-/status"), {}),
        (200, ("OPTIONS", "*"), {}),
        (200, ("GET", "/parts"), {}),
        (200, ("HEAD", "/hello"), {}),
        (413, ("POST", "/hello"), {"body": b"x" * 1_001}),
    ]
    names = []
    for number, (status, (method, target), more) in enumerate(asked):
        names.append(f"number-{number}")
        with server.connect() as client:
            reply = client.ask(method, target, f"{HEADER}: {names[-1]}", **more)
        assert (reply.status, reply.header(HEADER)) == (status, names[-1])
    with server.connect() as client:
        client.send(f"GET / HTTP/1.1\r\nHost: a\r\n{HEADER}: number\r\nBad Name: x\r\n\r\n".encode())
        refused = client.reply().header(HEADER)
    assert refused and MADE.fullmatch(refused)
    # Of different connections, in the order in which their threads came to it.
    assert sorted(logged(server)) == sorted([*names, refused])


def test_no_two_requests_have_the_same_id(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", *WARY, "--drivers", "2")
    clients = [server.connect() for _ in range(20)]
    found = []
    for _ in range(10):
        for client in clients:
            client.send(request("GET", "/hello") * 50)
        for client in clients:
            found += [client.reply().header(HEADER) for _ in range(50)]
    for client in clients:
        client.sock.close()
    assert len(found) == len(set(found)) == 10_000
    assert all(MADE.fullmatch(str(one)) for one in found)
    assert sorted(logged(server)) == sorted(map(str, found))


def test_the_error_log_names_the_request(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", *SHOWN)
    with server.connect() as client:
        failed = client.ask("GET", "/raises").header(HEADER)
        assert until(lambda: f"GET /raises [id {failed}]: " in server.errors), server.errors
    assert logged(server) == [failed]


def test_an_application_may_answer_with_its_own(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", *SHOWN)
    with server.connect() as client:
        reply = client.ask("GET", "/own-request-id")
    assert reply.all(HEADER) == ["own"]
    server.stop()
