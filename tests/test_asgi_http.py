"""ASGI over HTTP/1.1: what an application is given, and what becomes of what it sends."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raw import Client, CutShort, chunked, request
from serving import APPS, LOOPS, Milepost, until

SECRET = "a secret of the zoo"


@pytest.fixture(scope="module", params=LOOPS)
def server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Milepost]:
    folder = tmp_path_factory.mktemp("asgi")
    arguments = ["asgi_zoo:app", "--app-dir", str(APPS), "--loop", request.param, "--body-memory-max", "128K"]
    with Milepost(folder, *arguments) as server:
        assert f"ASGI on an event loop ({request.param})" in server.errors
        yield server


@pytest.fixture
def client(server: Milepost) -> Iterator[Client]:
    with server.connect() as connection:
        yield connection


def seen(server: Milepost, name: str) -> list[object]:
    with server.connect() as client:
        return json.loads(client.ask("GET", f"/seen?name={name}").body)


def test_the_scope_is_what_was_asked_for(server: Milepost, client: Client) -> None:
    client.send(
        b"GET /scope/%C3%A4%2Fb%20c?x=%41&y HTTP/1.1\r\n"
        b"Host: shop\r\nX-Two: 1\r\nACCEPT: */*\r\nX-Two: 2\r\n\r\n"
    )
    found = json.loads(client.reply().body)
    scope = found["scope"]
    host, port = client.sock.getsockname()
    assert scope == {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/scope/ä/b c",
        "raw_path": "bytes:/scope/%C3%A4%2Fb%20c",
        "query_string": "bytes:x=%41&y",
        "root_path": "",
        "headers": [
            ["bytes:host", "bytes:shop"],
            ["bytes:x-two", "bytes:1"],
            ["bytes:accept", "bytes:*/*"],
            ["bytes:x-two", "bytes:2"],
        ],
        "client": [host, port],
        "server": list(server.address),
        "state": {"mark": "of the lifespan"},
        "extensions": {"http.response.pathsend": {}, "http.response.zerocopysend": {}},
    }
    assert found["types"] == {
        "type": "str",
        "asgi": "dict",
        "http_version": "str",
        "method": "str",
        "scheme": "str",
        "path": "str",
        "raw_path": "bytes",
        "query_string": "bytes",
        "root_path": "str",
        "headers": "list",
        "client": "tuple",
        "server": "tuple",
        "state": "dict",
        "extensions": "dict",
    }
    assert found["pairs"] == ["tuple"]


def test_no_scope_has_what_an_application_did_to_another(client: Client) -> None:
    for _ in range(2):
        scope = json.loads(client.ask("GET", "/scope").body)["scope"]
        assert scope["asgi"]["version"] == "3.0"
        assert scope["state"] == {"mark": "of the lifespan"}
        assert sorted(scope["extensions"]) == ["http.response.pathsend", "http.response.zerocopysend"]
        assert scope["headers"] == [["bytes:host", "bytes:test"]]


def test_http_1_0_and_other_methods(server: Milepost) -> None:
    with server.connect() as client:
        client.send(b"BREW /scope HTTP/1.0\r\n\r\n")
        scope = json.loads(client.reply().body)["scope"]
        assert (scope["http_version"], scope["method"], scope["headers"]) == ("1.0", "BREW", [])


@pytest.mark.parametrize("trusted", ["127.0.0.1", "192.0.2.9"])
def test_headers_of_proxies_are_believed_of_trusted_ones_alone(serve, trusted: str) -> None:
    server = serve("asgi_zoo:app", "--app-dir", str(APPS), "--trusted-proxies", trusted)
    said = ("X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: https", "X-Other: 1")
    with server.connect() as client:
        scope = json.loads(client.ask("GET", "/scope/a", *said).body)["scope"]
    names = [name for name, _ in scope["headers"]]
    if trusted == "127.0.0.1":
        assert names == ["bytes:host", "bytes:x-forwarded-for", "bytes:x-forwarded-proto", "bytes:x-other"]
        assert (scope["client"], scope["scheme"]) == (["192.0.2.1", 0], "https")
    else:
        assert names == ["bytes:host", "bytes:x-other"]
        assert (scope["client"][0], scope["scheme"]) == ("127.0.0.1", "http")


def test_the_application_runs_on_the_main_thread(client: Client) -> None:
    found = json.loads(client.ask("GET", "/thread").body)
    assert found["is_main"] is True


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 128 << 10, (128 << 10) + 1, 700_001])
@pytest.mark.parametrize("form", ["length", "chunked"])
def test_a_body_arrives_in_pieces(client: Client, size: int, form: str) -> None:
    body = bytes(number % 251 for number in range(size))
    if form == "length":
        reply = client.ask("POST", "/echo", body=body)
    else:
        client.send(
            request("POST", "/echo", "Transfer-Encoding: chunked") + chunked(*([body] if body else []))
        )
        reply = client.reply()
    assert reply.body == body
    lengths = [int(length) for length in reply.header("x-pieces").split(",")]
    assert max(lengths) <= 65_536 and sum(lengths) == size


def test_a_body_that_was_received_whole_comes_in_full_pieces(serve: Callable[..., Milepost]) -> None:
    server = serve("asgi_zoo:app", "--app-dir", str(APPS), "--body-memory-max", "128K", "--request-buffering")
    with server.connect() as client:
        for size in (0, 1, 65_536, 65_537, 128 << 10, (128 << 10) + 1, 700_001):
            body = bytes(number % 251 for number in range(size))
            client.send(
                request("POST", "/echo", "Transfer-Encoding: chunked") + chunked(*([body] if body else []))
            )
            reply = client.reply()
            assert reply.body == body
            lengths = [int(length) for length in reply.header("x-pieces").split(",")]
            assert max(lengths) <= 65_536 and len(lengths) == max(1, -(-size // 65_536))


def test_a_body_need_not_be_read(client: Client) -> None:
    for _ in range(3):
        assert client.ask("POST", "/", body=b"x" * 300_000).body == b"hello"


def test_a_response_of_one_event_has_its_length(client: Client) -> None:
    reply = client.ask("GET", "/")
    assert (reply.framing, reply.body) == ("length", b"hello")


def test_a_response_of_several_events_is_chunked(client: Client) -> None:
    reply = client.ask("GET", "/stream?count=3&bytes=5")
    assert (reply.framing, reply.chunks) == ("chunked", [b"xxxxx"] * 3)


def test_a_stream_ends_with_the_connection_for_http_1_0(server: Milepost) -> None:
    with server.connect() as client:
        client.send(request("GET", "/stream?count=3", version="HTTP/1.0"))
        reply = client.reply()
        assert (reply.framing, reply.body) == ("close", b"x" * 15)


@pytest.mark.parametrize("path", ["/", "/stream?count=3", "/echo"])
def test_head_has_no_body(client: Client, path: str) -> None:
    for _ in range(2):
        reply = client.ask("HEAD", path)
        assert (reply.status, reply.framing) == (200, "none")


@pytest.mark.parametrize("status", [204, 304])
def test_statuses_without_a_body_have_none(client: Client, status: int) -> None:
    for _ in range(2):
        reply = client.ask("GET", f"/fields?status={status}")
        assert (reply.status, reply.framing) == (status, "none")
        assert status != 204 or reply.header("content-length") is None


def test_headers_of_the_connection_are_the_server_s(server: Milepost) -> None:
    with server.connect() as client:
        for _ in range(2):
            reply = client.ask("GET", "/fields")
            assert reply.framing == "length" and not reply.all("keep-alive")
            assert reply.all("x-twice") == ["1", "2"]
        assert client.ask("GET", "/fields?connection=close").closes
        assert client.is_closed()


def test_pieces_may_be_other_buffers_and_headers_any_iterable(client: Client) -> None:
    reply = client.ask("GET", "/kinds")
    assert (reply.body, reply.header("x-a"), reply.header("x-b")) == (b"onetwo", "yes", "yes")


#: What `send` says of each wrong event.
WRONG = {
    "no-dict": "TypeError: an event must be a dict, not list",
    "no-type": "ValueError: an event must have a `type` that is a str",
    "type-no-str": "ValueError: an event must have a `type` that is a str",
    "other-type": "ValueError: `websocket.accept` is no event that an HTTP request can be answered with: "
    "this one takes `http.response.start`, `http.response.body`, `http.response.pathsend`, "
    "`http.response.zerocopysend`",
    # An extension for tests, which no server is to offer.
    "debug": "ValueError: `http.response.debug` is no event that an HTTP request can be answered with: "
    "this one takes `http.response.start`, `http.response.body`, `http.response.pathsend`, "
    "`http.response.zerocopysend`",
    "body-first": "RuntimeError: `http.response.body` was sent before `http.response.start`",
    "no-status": "must be an integer from 200 to 999, not nothing",
    "status-text": "must be an integer from 200 to 999, not '200'",
    "status-100": "must be an integer from 200 to 999, not 100",
    "status-1000": "must be an integer from 200 to 999, not 1000",
    "headers-int": "must be an iterable of pairs, not int",
    "header-single": "a header must be a pair of name and value, not (b'a',)",
    "name-str": "a header name must be bytes, not str: 'a'",
    "value-str": "a header value must be bytes, not str: 'b'",
    "name-space": "a header name must be a token of RFC 9110 section 5.6.2: `a b: c`",
    "value-newline": "a header value must not contain control characters",
    "length-text": "`content-length` must be a number",
    "length-twice": "`content-length` is given twice",
    "start-twice": "RuntimeError: `http.response.start` was sent twice for one request",
    "body-str": "TypeError: `body` of `http.response.body` must be bytes, not str",
    "body-long": "the body is longer than its Content-Length: 3 bytes are left, and 4 were sent",
    "path-first": "RuntimeError: `http.response.pathsend` was sent before `http.response.start`",
    "path-none": "`http.response.pathsend` has no `path`",
    "trailers-first": "`http.response.trailers` was sent, and `http.response.start` has no `trailers",
    "trailers-undeclared": "was sent, and `http.response.start` has no `trailers: True`",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_event_raises_what_is_wrong(server: Milepost, client: Client, case: str) -> None:
    reply = client.ask("GET", f"/wrong?case={case}")
    assert reply.status == 200
    assert case == "body-long" or WRONG[case] in reply.text
    assert WRONG[case] in seen(server, case)[-1]
    # An application that does not handle it has failed.
    assert client.ask("GET", f"/wrong?case={case}&raise=1").status == 500


def test_nothing_is_sent_behind_the_end_of_a_response(server: Milepost, client: Client) -> None:
    assert client.ask("GET", "/late").body == b"all"
    assert until(lambda: len(seen(server, "late")) >= 3)
    what, *events = seen(server, "late")[:3]
    assert what == "`http.response.body` was sent after the response was complete"
    # The body of the request was not asked for before, and is not given any more.
    assert events == ["http.disconnect", "http.disconnect"]


@pytest.mark.parametrize("kind", ["value", "exit", "interrupt", "cancel"])
@pytest.mark.parametrize("at", ["begin", "start"])
def test_a_failure_before_the_head_is_500(client: Client, kind: str, at: str) -> None:
    for _ in range(2):
        reply = client.ask("GET", f"/raises?kind={kind}&at={at}")
        assert reply.status == 500 and reply.header("x-gone") is None
        assert SECRET.encode() not in reply.body


@pytest.mark.parametrize("length", ["", "50"])
def test_a_failure_midway_never_looks_complete(server: Milepost, length: str) -> None:
    with server.connect() as client:
        client.send(request("GET", f"/raises?at=middle&length={length}"))
        server.count()
        with pytest.raises(CutShort) as cut:
            client.reply()
        assert cut.value.so_far in (b"the beginning", b"")


def test_a_failure_behind_the_response_costs_nothing(client: Client) -> None:
    for _ in range(2):
        assert client.ask("GET", "/raises?at=end").body == b"all"


def test_an_application_that_says_nothing_is_500(client: Client) -> None:
    assert client.ask("GET", "/returns").status == 500
    assert client.ask("GET", "/returns?at=start").status == 500


@pytest.mark.parametrize("query", ["at=middle", "at=middle&length=50", "at=end&length=50"])
def test_a_response_that_is_too_short_is_cut(server: Milepost, query: str) -> None:
    with server.connect() as client:
        client.send(request("GET", f"/returns?{query}"))
        server.count()
        with pytest.raises(CutShort):
            client.reply()


def test_each_failure_is_logged_once_with_its_traceback(serve) -> None:
    server = serve("asgi_zoo:app", "--app-dir", str(APPS))
    with server.connect() as client:
        client.ask("GET", "/raises?mark=1")
        client.ask("GET", "/raises?at=end")
        client.ask("GET", "/wrong?case=body-first&raise=1")
        client.ask("GET", "/")
    assert server.stop() == 0
    assert server.errors.count(f"ValueError: {SECRET}") == 2
    assert server.errors.count("in raises") == 2
    assert server.errors.count("`http.response.body` was sent before") == 1
    assert "Task exception was never retrieved" not in server.errors


def test_contexts_are_clean_in_each_request_of_a_connection(client: Client) -> None:
    for who in ("first", "second", "third"):
        found = json.loads(client.ask("GET", f"/context?who={who}").body)
        assert found == ["nobody", who, "set at startup"]


def test_a_cancelled_receive_loses_no_event_and_several_may_wait(server: Milepost, client: Client) -> None:
    assert json.loads(client.ask("POST", "/cancelled-receive?name=several", body=b"x").body) == [
        "cancelled before",
        "http.request",
        "cancelled",
        "timed out",
    ]
    assert until(lambda: seen(server, "several") == ["http.disconnect", "http.disconnect"])


@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_the_application_hears_that_its_client_is_gone(server: Milepost, how: str) -> None:
    name = f"gone-{how}"
    with server.connect() as client:
        client.send(request("POST", f"/disconnect?name={name}", body=b"x"))
        server.count()
        assert until(lambda: seen(server, name) == ["http.request"])
        if how == "half":
            client.sock.shutdown(socket.SHUT_WR)
            assert until(lambda: "sent" in seen(server, name))
            # Who ends only its own side has its answer.
            assert client.rest().endswith(b"nobody reads this")
        elif how == "reset":
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    expect = ["http.request", "http.disconnect", "http.disconnect", "sent"]
    assert until(lambda: seen(server, name) == expect)


def test_an_event_stream_opens_at_once_and_hears_of_its_end(server: Milepost) -> None:
    with server.connect() as client:
        client.send(request("GET", "/event-stream?name=es"))
        server.count()
        status, _, headers = client.head()
        assert status == 200 and ("content-type", "text/event-stream") in headers
        with server.connect() as other:
            other.ask("GET", "/opens?name=es")
        assert client.chunk() == b"data: 1\n\n"
    assert until(lambda: seen(server, "es") == ["disconnect", "sent late"])


def resident_kib(pid: int) -> int:
    fields = Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1]
    return int(fields.split()[0])


def test_a_client_that_stops_reading_holds_up_its_own_event_stream_alone(server: Milepost) -> None:
    with server.connect(receive_buffer_bytes=4096) as client:
        client.send(request("GET", "/stream?name=full&type=text/event-stream&count=100000&bytes=65536"))
        server.count()

        def handed_over() -> int:
            return (seen(server, "full") or [0])[0]

        # The kernel's buffers and one bound: far from all.
        assert until(lambda: handed_over() > 0)
        last = -1
        while handed_over() != last:
            last = handed_over()
        assert last < 1000
        with server.connect() as other:
            assert other.ask("GET", "/").body == b"hello"
        before = resident_kib(server.serving_pid)
        client.head()
        for _ in range(50):
            assert len(client.chunk()) == 65536
        assert until(lambda: handed_over() > last)
        assert resident_kib(server.serving_pid) - before < 20_000


@pytest.mark.parametrize("size", [0, 1, 5_000, 70_000, 3_000_000])
def test_pathsend_sends_a_file(server: Milepost, client: Client, size: int) -> None:
    data = bytes(number % 253 for number in range(size))
    (server.folder / f"sent-{size}").write_bytes(data)
    reply = client.ask("GET", f"/pathsend?path=sent-{size}")
    assert (reply.status, reply.body, reply.framing) == (200, data, "length")
    assert (reply.header("content-type"), reply.header("x-kept")) == ("text/x-sent", "yes")
    assert client.ask("HEAD", f"/pathsend?path=sent-{size}&length={size}").status == 200
    assert client.ask("GET", f"/pathsend?path=sent-{size}&length={size}").body == data


def test_pathsend_of_no_file_is_an_error(client: Client) -> None:
    reply = client.ask("GET", "/pathsend?path=nothing-here")
    assert (reply.status, reply.header("x-kept")) == (404, None)
    assert client.ask("GET", "/pathsend?path=.").status == 500
    assert client.ask("GET", "/").status == 200


def test_work_behind_a_response_does_not_hold_up_the_connection(server: Milepost, client: Client) -> None:
    assert client.ask("GET", "/background?name=bg").body == b"answered"
    assert client.ask("GET", "/").body == b"hello"
    assert seen(server, "bg") == []
    client.ask("GET", "/opens?name=bg")
    assert until(lambda: seen(server, "bg") == ["done"])


def test_pipelined_requests_are_answered_in_their_order(client: Client) -> None:
    client.send(b"".join(request("POST", "/echo", body=b"%d" % number) for number in range(20)))
    assert [client.reply().body for _ in range(20)] == [b"%d" % number for number in range(20)]


def test_continue_is_said_before_the_body(client: Client) -> None:
    client.send(b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
    assert client.head()[0] == 100
    client.send(b"body")
    assert client.reply().body == b"body"


def test_tools_that_show_tasks_see_where_a_request_waits(server: Milepost, client: Client) -> None:
    with server.connect() as other:
        other.send(request("GET", "/waits?name=shown"))
        assert until(lambda: seen(server, "shown") == ["waits"])
        shown = client.ask("GET", "/tasks").text
        assert "asgi_zoo.py" in shown and "in app" in shown
        client.ask("GET", "/opens?name=shown")
        assert other.reply().body == b"waited"
