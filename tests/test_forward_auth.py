"""`forward_auth` in traces, metrics and limits: what is known of the question, and of why it has no answer.

Who passes and who does not is tested in test_route_settings.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from http2 import Http2
from spans import CLIENT, adds_up
from test_traces import IDS, PARENT, SPAN, TRACE, Collector, context, exporting, logged
from upstreams import Connection, Request, Upstream, answering

from raw import request
from serving import Milepost, free_port, tables, until
from test_admin import answers, value

REQUESTS = "milepost_upstream_requests_total"


def guarded(app: Upstream, auth_url: str, **auth: object) -> str:
    """A route whose requests another server judges."""
    upstreams = [{"name": "app", "servers": [app.url]}, {"name": "auth", "servers": [auth_url], **auth}]
    forward = '[route.forward_auth]\nupstream = "auth"\npath = "/judge"\n'
    return tables("upstream", *upstreams) + tables("route", {"path": "/", "upstream": "app"}) + forward


def fine(one: Connection, asked: Request) -> None:
    one.reply(b"in")


def by_token(one: Connection, asked: Request) -> None:
    one.reply(b"", status="204 Fine" if asked.header("x-token") == "good" else "403 No")


def test_the_question_has_a_span_of_its_own(serve: Callable[..., Milepost]) -> None:
    with Collector() as collector, Upstream(answering(fine)) as app, Upstream(answering(by_token)) as auth:
        server = serve(toml=exporting(collector, guarded(app, auth.url)))
        with server.connect() as client:
            continued = [PARENT, "tracestate: a=1"]
            assert client.ask("GET", "/", *continued, "X-Token: good").status == 200
            assert client.ask("GET", "/", "tracestate: a=1").status == 403
        passed, denied = collector.requests(2)
        server_name = auth.url.removeprefix("http://")
    for span, judged in zip((passed, denied), auth.seen, strict=True):
        question = span["below"]["forward_auth"]
        trace, parent, flags = context(judged.header("traceparent"))
        # What the other server makes of it is below the question.
        assert (trace, parent, flags[1]) == (span["trace"], question["id"], f"{span['flags'] & 3}")
        assert (question["kind"], question["parent"]) == (CLIENT, span["id"])
        assert question["http.request.method"] == "GET"
        assert question["server.address"] == server_name
        # The request is received while it is judged.
        receive = span["below"]["receive"]
        assert receive["begin"] <= question["begin"] < question["end"] <= receive["end"] + 1_000
        assert adds_up(span)
    assert (passed["trace"], passed["parent"]) == (TRACE, SPAN)
    assert [judged.all("tracestate") for judged in auth.seen] == [["a=1"], []]
    of_question = [span["below"]["forward_auth"] for span in (passed, denied)]
    assert [one["http.response.status_code"] for one in of_question] == [204, 403]
    assert [(one["failed"], one.get("error.type")) for one in of_question] == [(False, None), (True, "403")]
    # The request at the route's own server is another span, and the application is below that one.
    (asked,) = app.seen
    assert context(asked.header("traceparent"))[1] == passed["below"]["GET"]["id"] != of_question[0]["id"]
    assert "GET" not in denied["below"]


def test_without_spans_the_question_has_the_ids(serve: Callable[..., Milepost]) -> None:
    with Upstream(answering(fine)) as app, Upstream(answering(by_token)) as auth:
        server = serve(toml=IDS + 'access_log_format = "json"\n' + guarded(app, auth.url))
        with server.connect() as client:
            assert client.ask("GET", "/", PARENT, "X-Token: good").status == 200
        (judged,) = auth.seen
    trace, span, _ = context(judged.header("traceparent"))
    (line,) = logged(server, 1)
    assert (trace, line["trace_id"]) == (TRACE, TRACE)
    assert span not in (SPAN, line["span_id"])


def test_without_traces_the_question_has_what_the_client_sent(serve: Callable[..., Milepost]) -> None:
    with Upstream(answering(fine)) as app, Upstream(answering(by_token)) as auth:
        server = serve(toml=guarded(app, auth.url))
        with server.connect() as client:
            assert client.ask("GET", "/", PARENT, "X-Token: good").status == 200
        (judged,) = auth.seen
    assert judged.header("traceparent") == PARENT.partition(": ")[2]


def silent(one: Connection) -> None:
    one.request()
    # Until the other side has had enough.
    assert one.request() is None


def cut(one: Connection) -> None:
    one.request()


def nonsense(one: Connection) -> None:
    one.request()
    one.send(b"what?\r\n\r\n")
    one.request()


FAILURES = [
    (None, "connect", 502, "the upstream cannot be reached"),
    (silent, "timeout", 504, "the upstream sent nothing for response_timeout"),
    (cut, "closed", 502, "the upstream closed the connection without a response"),
    (nonsense, "malformed", 502, "upstream: response does not begin with"),
]


@pytest.mark.parametrize(("behave", "kind", "status", "cause"), FAILURES, ids=[one[1] for one in FAILURES])
def test_each_way_to_get_no_answer_has_its_name(
    serve: Callable[..., Milepost],
    behave: Callable[[Connection], None] | None,
    kind: str,
    status: int,
    cause: str,
) -> None:
    port = free_port()
    with Collector() as collector, Upstream(answering(fine)) as app, Upstream(behave or cut) as auth:
        toml = exporting(collector, guarded(app, auth.url, response_timeout="300ms"))
        asked = auth.url.removeprefix("http://")
        if behave is None:
            auth.close()
        server = serve("--admin-bind", f"127.0.0.1:{port}", toml=toml)
        assert until(lambda: answers(port))
        with server.connect() as client:
            assert client.ask("GET", "/").status == status
        (span,) = collector.requests(1)
        assert app.seen == []
    question = span["below"]["forward_auth"]
    assert (question["failed"], question["error.type"]) == (True, kind)
    assert "http.response.status_code" not in question
    assert span["milepost.cause"].startswith(cause)
    assert question["server.address"] == asked
    assert until(lambda: value(port, REQUESTS, server=asked) == 1)
    assert value(port, REQUESTS, server=asked, result=kind) == 1
    assert any(f"forward_auth: {cause}" in line for line in server.stderr)
    (line,) = logged(server, 1)
    assert line["cause"].startswith(cause)


FOR = "192.0.2.7"


def test_a_request_counts_for_its_client_while_it_is_judged(serve: Callable[..., Milepost]) -> None:
    asked, go = threading.Event(), threading.Event()

    def judge(one: Connection, _: Request) -> None:
        asked.set()
        assert go.wait(60)
        one.reply(b"", status="204 Fine")

    with Upstream(answering(fine)) as app, Upstream(answering(judge)) as auth:
        server = serve(toml="client_connections_max = 1\n" + guarded(app, auth.url))
        with server.connect() as held:
            held.send(request("GET", "/", f"X-Forwarded-For: {FOR}"))
            assert asked.wait(60)
            # The client has its one request.
            with server.connect() as client:
                assert client.ask("GET", "/", f"X-Forwarded-For: {FOR}").status == 429
            go.set()
            assert held.reply().body == b"in"
            # Its place is free again.
            for _ in range(3):
                assert held.ask("GET", "/", f"X-Forwarded-For: {FOR}").body == b"in"
        assert len(app.seen) == 4


def test_a_stream_counts_for_its_client_while_it_is_judged(serve: Callable[..., Milepost]) -> None:
    asked, go = threading.Event(), threading.Event()

    def judge(one: Connection, judged: Request) -> None:
        asked.set()
        assert go.wait(60)
        one.reply(b"", status="403 No" if judged.header("x-forwarded-uri") == "/no" else "204 Fine")

    with Upstream(answering(fine)) as app, Upstream(answering(judge)) as auth:
        server = serve(toml="client_connections_max = 1\n" + guarded(app, auth.url))
        with Http2(server) as client:
            forwarded = ("x-forwarded-for", FOR)
            held = client.begin("/", forwarded)
            assert asked.wait(60)
            assert client.ask("/", forwarded).status == 429
            go.set()
            assert client.response(held).body == b"in"
            server.count()
            for path, status in (("/", 200), ("/no", 403), ("/no", 403), ("/", 200)):
                assert client.ask(path, forwarded).status == status
        assert len(app.seen) == 3
