"""What a route asks of its requests and makes of them: conditions, paths, headers, limits, users."""

from __future__ import annotations

import base64
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from http2 import Http2
from upstreams import Connection, Request, Upstream, answering

from raw import request
from serving import Milepost, run, tables, until

#: `secret`, with the least cost, because the test waits for it.
HASH = "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"


def hello(connection: Connection, asked: Request) -> None:
    connection.reply(b"" if asked.method == "HEAD" else b"hello", "Server: theirs", "X-Debug: 7")


def authorization(user: str, password: str) -> str:
    return "Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def proxy(serve: Callable[..., Milepost], upstream: Upstream, *routes: str, more: str = "") -> Milepost:
    """A server with routes to an upstream, each as lines of TOML."""
    toml = more + tables("upstream", {"name": "back", "servers": [upstream.url]})
    for route in routes:
        toml += f"[[route]]\nupstream = 'back'\n{route}\n"
    return serve(toml=toml)


def test_a_flag_makes_a_proxy(serve: Callable[..., Milepost]) -> None:
    with (
        Upstream(answering(hello)) as upstream,
        serve("--proxy", f"/api={upstream.url}").connect() as client,
    ):
        assert client.ask("GET", "/api/x?y").body == b"hello"
        assert client.ask("GET", "/apis").status == 404
        assert [asked.target for asked in upstream.seen] == ["/api/x?y"]


def test_routes_differ_in_methods_headers_and_clients(serve: Callable[..., Milepost]) -> None:
    routes = (
        "path = '/x'\nmethods = ['PUT', 'POST']\nresponse_headers = { set = { Took = 'method' } }",
        "path = '/x'\nheader = 'X-Beta: 2'\nresponse_headers = { set = { Took = 'header' } }",
        "path = '/y'\nfrom = '10.0.0.0/8'\nresponse_headers = { set = { Took = 'elsewhere' } }",
        "path = '/y'\nfrom = '127.0.0.0/8'\nresponse_headers = { set = { Took = 'here' } }",
    )
    with Upstream(answering(hello)) as upstream, proxy(serve, upstream, *routes).connect() as client:
        assert client.ask("PUT", "/x").header("took") == "method"
        assert client.ask("PUT", "/x", "X-Beta: 2").header("took") == "header"
        assert client.ask("GET", "/x/z", "x-beta: 2").header("took") == "header"
        assert client.ask("GET", "/y").header("took") == "here"
        assert client.ask("GET", "/z").status == 404
        refused = client.ask("GET", "/x")
        assert (refused.status, refused.header("allow")) == (405, "PUT, POST")


def test_a_route_strips_its_path(serve: Callable[..., Milepost]) -> None:
    route = "path = '/api'\nstrip = true"
    with Upstream(answering(hello)) as upstream, proxy(serve, upstream, route).connect() as client:
        for target in ("/api/v1/x?a=b", "/api", "/api/", "/api//x", "/api?a"):
            assert client.ask("GET", target).status == 200
        targets = [asked.target for asked in upstream.seen]
        assert targets == ["/v1/x?a=b", "/", "/", "//x", "/?a"]


def test_no_spelling_of_a_path_passes_by_its_route(serve: Callable[..., Milepost], users: Path) -> None:
    routes = (
        "path = '/'",
        "path = '/api'\nstrip = true",
        f"path = '/admin'\nbasic_auth = '{users}'",
    )
    with Upstream(answering(hello)) as upstream, proxy(serve, upstream, *routes) as server:
        for closed in ("/api/../admin", "/api/%2e%2e/admin", "/x/.%2E/admin/y", "/./admin", "/%61dmin"):
            with server.connect() as client:
                assert client.ask("GET", closed).status == 401, closed
        for above in ("/..", "/api/../../admin", "/%2e%2e/admin"):
            with server.connect() as client:
                assert client.ask("GET", above).status == 400, above
        assert not upstream.seen
        passed = {
            "/admin/../x?a=/../": "/x?a=/../",
            "/api/./v1/../v2/.": "/v2/",
            "/x/../api": "/",
            "/a//b%2F..;c": "/a//b%2F..;c",
            "/x/..%2fadmin": "/x/..%2fadmin",
        }
        with server.connect() as client:
            for target in passed:
                assert client.ask("GET", target).status == 200, target
        assert [asked.target for asked in upstream.seen] == list(passed.values())


def test_headers_are_set_and_removed_on_both_ways(serve: Callable[..., Milepost]) -> None:
    route = """
    path = '/'
    [route.request_headers]
    remove = ['X-Secret', 'Accept-Encoding']
    set = { X-Client = '{client}|{method} {path} {scheme}', X-Static = 'yes', X-Cert = '{tls_client}' }
    [route.response_headers]
    remove = 'X-Debug'
    set = { Server = 'ours', X-Path = '{path}' }
    """
    with Upstream(answering(hello)) as upstream, proxy(serve, upstream, route).connect() as client:
        reply = client.ask(
            "GET", "/a%20b?c", "X-Secret: 1", "Accept-Encoding: gzip", "x-client: forged", "X-Other: 2"
        )
        assert reply.all("server") == ["ours"] and reply.header("x-debug") is None
        assert reply.header("x-path") == "/a%2520b"
        (asked,) = upstream.seen
        assert asked.header("x-client") == "127.0.0.1|GET /a%2520b http"
        assert asked.header("x-static") == "yes" and asked.header("x-cert") == ""
        assert asked.header("x-other") == "2"
        assert asked.header("x-secret") is None and asked.header("accept-encoding") is None


def test_a_body_is_bounded_by_its_route(serve: Callable[..., Milepost]) -> None:
    routes = ("path = '/small'\nbody_max = 3", "path = '/'")
    more = "body_bytes_max = '1K'\n"
    with Upstream(answering(hello)) as upstream:
        server = proxy(serve, upstream, *routes, more=more)
        for target, body, status in [
            ("/small", b"abc", 200),
            ("/small", b"abcd", 413),
            ("/", b"a" * 1024, 200),
            ("/", b"a" * 1025, 413),
        ]:
            with server.connect() as client:
                assert client.ask("POST", target, body=body).status == status, (target, len(body))
            with server.connect() as client:
                chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
                client.send(request("POST", target, "Transfer-Encoding: chunked") + chunk)
                assert client.reply().status == status, (target, len(body))
        assert len(upstream.seen) == 4


def test_a_client_that_asks_too_often_is_told_when_to_come_back(serve: Callable[..., Milepost]) -> None:
    routes = (
        "path = '/slow'\nrate_limit = { rate = '2/h', burst = 2 }",
        "path = '/key'\nrate_limit = { rate = '1/h', by = 'header:X-Key' }",
        "path = '/'",
    )
    with Upstream(answering(hello)) as upstream:
        server = proxy(serve, upstream, *routes, more="status_path = '/status'\n")
        for target, key, status in [
            ("/slow", "", 200),
            ("/slow/x", "", 200),
            ("/slow", "", 429),
            ("/", "", 200),
            ("/key", "a", 200),
            ("/key", "b", 200),
            ("/key", "a", 429),
        ]:
            with server.connect() as client:
                reply = client.ask("GET", target, f"X-Key: {key}")
                assert reply.status == status, (target, key)
                if status == 429:
                    assert 1 <= int(reply.header("retry-after") or 0) <= 3600
        with server.connect() as client:
            drivers = json.loads(client.ask("GET", "/status").body)["drivers"]
        assert sum(driver["rate_limited"] for driver in drivers) == 2
        assert len(upstream.seen) == 5
    assert until(lambda: "end=refused" in "".join(server.lines))


def test_a_rate_holds_for_all_processes_and_over_a_reload(serve: Callable[..., Milepost]) -> None:
    with Upstream(answering(hello)) as upstream:
        route = "path = '/slow'\nrate_limit = { rate = '1/h', burst = 5 }"
        server = proxy(serve, upstream, route, more='processes = 2\nstatus_path = "/status"\n')

        def ask(path: str) -> tuple[int, bytes]:
            with server.connect() as client:
                reply = client.ask("GET", path)
                return reply.status, reply.body

        def refused() -> int:
            drivers = json.loads(ask("/status")[1])["drivers"]
            return sum(driver["rate_limited"] for driver in drivers)

        statuses = [ask("/slow")[0] for _ in range(40)]
        assert sorted(statuses) == [200] * 5 + [429] * 35
        # Both processes have refused some: an odd number is no number twice.
        seen: set[int] = set()
        assert until(lambda: bool(seen.add(refused())) or len(seen) == 2)
        assert sum(seen) == 35
        assert 0 not in seen
        server.signal(signal.SIGHUP)
        # New processes have refused nothing yet.
        assert until(lambda: refused() == 0)
        assert {ask("/slow")[0] for _ in range(20)} == {429}


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """A file of users, as htpasswd makes it."""
    path = tmp_path / "users"
    path.write_text(f"# staff\nann:{HASH}\n")
    return path


def test_a_route_asks_for_a_user_and_a_password(serve: Callable[..., Milepost], users: Path) -> None:
    routes = (
        f"path = '/in'\nbasic_auth = '{users}'\nrequest_headers = {{ set = {{ X-User = '{{user}}' }} }}",
        "path = '/'\nrequest_headers = { set = { X-User = '{user}' } }",
    )
    with Upstream(answering(lambda one, asked: one.reply(asked.body))) as upstream:
        server = proxy(serve, upstream, *routes)
        for fields in ([], [authorization("ann", "wrong")], [authorization("bob", "secret")]):
            with server.connect() as client:
                reply = client.ask("GET", "/in", *fields)
                assert reply.status == 401
                assert (reply.header("www-authenticate") or "").startswith('Basic realm="')
        assert upstream.seen == []
        good = authorization("ann", "secret")
        with server.connect() as client:
            # The first one waits for its check, with what follows it; the second one is remembered.
            post = request("POST", "/in", good, "Content-Length: 3") + b"abc"
            client.send(post + request("GET", "/in/x", good))
            assert [client.reply().body, client.reply().body] == [b"abc", b""]
            assert client.ask("GET", "/", good).status == 200
        assert [asked.header("x-user") for asked in upstream.seen] == ["ann", "ann", ""]
    assert until(lambda: len(server.lines) == 6)
    lines = server.lines
    named = [re.match(r"\S+ - (\S+) \[", line)[1] for line in lines]  # type: ignore[index]
    assert named == ["-", "-", "-", "ann", "ann", "-"]


def test_a_password_is_checked_over_http2(serve: Callable[..., Milepost], users: Path) -> None:
    route = f"path = '/'\nbasic_auth = '{users}'"
    with Upstream(answering(lambda one, asked: one.reply(asked.body))) as upstream:
        server = proxy(serve, upstream, route)
        with Http2(server) as client:
            token = authorization("ann", "secret").removeprefix("Authorization: ")
            wrong = authorization("ann", "wrong").removeprefix("Authorization: ")
            assert client.post("/", b"abc", ("authorization", token)).body == b"abc"
            assert client.ask("/", ("authorization", wrong)).status == 401
            assert client.ask("/", ("authorization", token)).status == 200


def test_a_file_of_users_must_be_one(tmp_path: Path, users: Path) -> None:
    users.write_text(f"ann:{HASH}\nbob:secret\n")
    toml = "[[upstream]]\nname = 'a'\nservers = 'http://127.0.0.1:9'\n"
    toml += f"[[route]]\nupstream = 'a'\nbasic_auth = '{users}'\n"
    (tmp_path / "m.toml").write_text(toml)
    ended = run(tmp_path, "serve", "--config", "m.toml", "--bind", "127.0.0.1:0")
    assert ended.returncode == 2
    assert "line 2: not a bcrypt hash" in ended.stderr and "htpasswd -B" in ended.stderr


def guarded(app: Upstream, auth: Upstream) -> str:
    """A route whose requests another server judges."""
    toml = tables("upstream", {"name": "app", "servers": [app.url]}, {"name": "auth", "servers": [auth.url]})
    route = {"path": "/", "upstream": "app"}
    forward = '[route.forward_auth]\nupstream = "auth"\npath = "/judge?x=1"\ncopy = ["X-User", "X-Role"]\n'
    return toml + tables("route", route) + forward


def test_copied_headers_may_be_called_as_those_of_proxies(serve: Callable[..., Milepost]) -> None:
    def judge(one: Connection, asked: Request) -> None:
        groups = ["X-Forwarded-Groups: a", "X-Forwarded-Groups: b"] if asked.header("x-token") else []
        one.reply(b"", "X-Forwarded-User: ann", "X-Forwarded-Email: ann@a.test", *groups)

    app = Upstream(answering(lambda one, asked: one.reply(b"in")))
    with app, Upstream(answering(judge)) as auth:
        copied = 'copy = ["X-Forwarded-User", "X-Forwarded-Groups", "X-Forwarded-Email"]'
        toml = guarded(app, auth).replace('copy = ["X-User", "X-Role"]', copied)
        # What the route removes does not come back.
        toml += '[route.request_headers]\nremove = ["X-Forwarded-Email"]\n'
        server = serve(toml=toml)
        with server.connect() as client:
            forged = ["X-Forwarded-User: root", "X-Forwarded-Groups: wheel", "X-Forwarded-Email: root@a.test"]
            for token in (["X-Token: 1"], []):
                assert client.ask("GET", "/", *forged, *token).status == 200
    seen = [[one.header(f"x-forwarded-{name}") for name in ("user", "groups", "email")] for one in app.seen]
    assert seen == [["ann", "a, b", None], ["ann", None, None]]
    assert [one.all("x-forwarded-for") for one in app.seen] == [["127.0.0.1"], ["127.0.0.1"]]


def test_another_server_decides_who_may(serve: Callable[..., Milepost]) -> None:
    def judge(one: Connection, asked: Request) -> None:
        match asked.header("x-token"):
            case "good":
                one.reply(b"fine", "X-User: ann", "X-Other: 1", status="204 Fine")
            case "login":
                one.reply(b"", "Location: /login", "Set-Cookie: s=1", status="302 Found")
            case _:
                one.reply(b"who?", 'WWW-Authenticate: Bearer realm="x"', status="401 No")

    def fine(one: Connection, asked: Request) -> None:
        if asked.header("x-token") == "good":
            one.send(b"HTTP/1.1 204 Fine\r\nX-User: ann\r\nX-Other: 1\r\n\r\n")
        else:
            judge(one, asked)

    app = Upstream(answering(lambda one, asked: one.reply(asked.body)))
    with app, Upstream(answering(fine)) as auth:
        server = serve(toml=guarded(app, auth))
        with server.connect() as client:
            forged = ["X-User: root", "X-Role: admin"]
            reply = client.ask("POST", "/a?b", "X-Token: good", *forged, body=b"data")
            assert (reply.status, reply.body) == (200, b"data")
            (asked,) = app.seen
            # What the client says of itself falls, whether it was replaced or not.
            assert (asked.header("x-user"), asked.header("x-role")) == ("ann", None)
            assert asked.header("x-other") is None
            (judged,) = auth.seen
            assert judged.line == "GET /judge?x=1 HTTP/1.1"
            assert (judged.header("x-forwarded-method"), judged.header("x-forwarded-uri")) == ("POST", "/a?b")
            assert judged.header("content-length") is None and judged.body == b""
            reply = client.ask("GET", "/", "X-Token: login")
            assert (reply.status, reply.header("location")) == (302, "/login")
            assert reply.header("set-cookie") == "s=1"
            reply = client.ask("GET", "/")
            assert (reply.status, reply.body) == (401, b"who?")
            assert reply.header("www-authenticate") == 'Bearer realm="x"'
        assert len(app.seen) == 1
        refused = [" 401 ", 'cause="the server of forward_auth refused the request"']
        assert until(lambda: any(all(part in line for part in refused) for line in server.lines))


def test_the_path_that_is_judged_is_the_one_that_is_served(serve: Callable[..., Milepost]) -> None:
    def judge(one: Connection, asked: Request) -> None:
        is_open = (asked.header("x-forwarded-uri") or "").startswith("/public/")
        one.reply(status="200 Fine" if is_open else "401 No")

    rewrite = tables("rewrite", {"from": "/public/old/*", "to": "/private/*"})
    app = Upstream(answering(lambda one, asked: one.reply(asked.target.encode())))
    with app, Upstream(answering(judge)) as auth:
        server = serve(toml=rewrite + guarded(app, auth))
        with server.connect() as client:
            for target in (
                "/public/../admin",
                "/public/%2e%2e/%61dmin",
                "http://test/public/../admin",
                "http://test/admin",
                "/public/old/x",
            ):
                assert client.ask("GET", target).status == 401, target
            assert client.ask("GET", "http://test/x/../public/%61?b").body == b"/public/a?b"
        judged = [one.header("x-forwarded-uri") for one in auth.seen]
        assert judged == ["/admin"] * 4 + ["/private/x", "/public/a?b"]
        assert len(app.seen) == 1


def test_nobody_passes_while_nobody_can_be_asked(serve: Callable[..., Milepost]) -> None:
    def cut(one: Connection) -> None:
        one.request()

    with Upstream(answering(lambda one, _: one.reply(b"in"))) as app, Upstream(cut) as auth:
        with serve(toml=guarded(app, auth)).connect() as client:
            assert client.ask("GET", "/").status == 502
            auth.close()
            assert client.ask("GET", "/").status in (502, 503)
        assert app.seen == []


def knowing(users: dict[str, str]) -> Callable[[Connection, Request], None]:
    """A server that lets those pass whose token it knows."""

    def judge(one: Connection, asked: Request) -> None:
        user = users.get(asked.header("x-token") or "")
        if user is None:
            one.reply(b"who?", status="403 No")
        else:
            one.reply(b"", f"X-User: {user}")

    return judge


def judged(auth: Upstream, route: dict[str, str]) -> str:
    """A route of any kind whose requests another server judges."""
    copy = 'copy = ["X-User"]\n'
    forward = f'[route.forward_auth]\nupstream = "auth"\npath = "/judge"\n{copy}'
    return tables("upstream", {"name": "auth", "servers": [auth.url]}) + tables("route", route) + forward


def test_another_server_decides_who_gets_files(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "a.txt").write_text("a file")
    with Upstream(answering(knowing({"good": "ann"}))) as auth:
        server = serve(toml=judged(auth, {"path": "/", "dir": str(tmp_path / "site")}))
        with server.connect() as client:
            assert client.ask("GET", "/a.txt").status == 403
            for _ in range(3):
                reply = client.ask("GET", "/a.txt", "X-Token: good")
                assert (reply.status, reply.body) == (200, b"a file")
            assert client.ask("GET", "/a.txt", "X-Token: good", "Range: bytes=2-5").body == b"file"
        # Connections to the server that decides are kept.
        assert auth.connections == 1 and len(auth.seen) == 5


def test_granted_headers_lead_to_no_other_route(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"ann:{HASH}\n")
    with Upstream(answering(knowing({"good": "ann"}))) as auth:
        with Upstream(answering(lambda one, _: one.reply(b"in"))) as app:
            upstreams = tables("upstream", {"name": "app", "servers": [app.url]})
            # Without the header that the client has made up, the request has the route behind the password.
            forged = {"path": "/", "upstream": "auth", "header": "X-User: root"}
            toml = judged(auth, forged) + upstreams
            toml += f"[[route]]\npath = '/'\nupstream = 'app'\nbasic_auth = '{tmp_path}/users'\n"
            server = serve(toml=toml)
            with server.connect() as client:
                assert client.ask("GET", "/", "X-Token: good", "X-User: root").status == 403
            with server.connect() as client:
                assert client.ask("GET", "/", "X-Token: good").status == 401
            assert app.seen == []


def test_a_password_and_another_server_may_both_decide(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    def judge(one: Connection, asked: Request) -> None:
        one.reply(b"", "Authorization: Bearer for-the-app")

    (tmp_path / "users").write_text(f"ann:{HASH}\n")
    with Upstream(answering(lambda one, _: one.reply(b"in"))) as app, Upstream(answering(judge)) as auth:
        toml = guarded(app, auth).replace('copy = ["X-User", "X-Role"]', 'copy = ["Authorization"]')
        server = serve(
            toml=toml.replace(
                "[route.forward_auth]", f"basic_auth = '{tmp_path}/users'\n[route.forward_auth]"
            )
        )
        with server.connect() as client:
            assert client.ask("GET", "/").status == 401 and auth.seen == []
        with server.connect() as client:
            assert client.ask("GET", "/", authorization("ann", "secret")).body == b"in"
        (asked,) = app.seen
        assert asked.header("authorization") == "Bearer for-the-app"


def test_another_server_decides_before_the_body(serve: Callable[..., Milepost]) -> None:
    app = Upstream(answering(lambda one, asked: one.reply(asked.body)))
    with app, Upstream(answering(knowing({"good": "ann"}))) as auth:
        server = serve(toml=guarded(app, auth))
        waiting = ["Content-Length: 4", "Expect: 100-continue"]
        with server.connect() as client:
            client.send(request("POST", "/", *waiting))
            # No 100 comes: the body stays with the client.
            assert client.reply().status == 403
        with server.connect() as client:
            client.send(request("POST", "/", "X-Token: good", *waiting))
            assert client.exactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.send(b"body")
            assert client.reply().body == b"body"
        assert [asked.body for asked in app.seen] == [b"body"]


def test_a_client_cannot_have_granted_headers_dropped(serve: Callable[..., Milepost]) -> None:
    with Upstream(answering(lambda one, _: one.reply(b"in"))) as app:
        with Upstream(answering(knowing({"good": "ann"}))) as auth:
            server = serve(toml=guarded(app, auth))
            with server.connect() as client:
                assert client.ask("GET", "/", "X-Token: good", "Connection: a, x-Role").status == 400
                assert client.ask("GET", "/", "X-Token: good", "Connection: x-other").status == 200
            assert [one.header("x-user") for one in app.seen] == ["ann"]
            assert len(auth.seen) == 1


def test_another_server_decides_who_reaches_an_application(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(
        """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ.get("HTTP_X_USER", "nobody").encode(), b":", environ["wsgi.input"].read()]
"""
    )
    with Upstream(answering(knowing({"good": "ann"}))) as auth:
        server = serve(toml=judged(auth, {"path": "/", "app": "app:app"}))
        with server.connect() as client:
            reply = client.ask("POST", "/", "X-Token: good", "X-User: root", body=b"data")
            assert (reply.status, reply.body) == (200, b"ann:data")
            assert client.ask("GET", "/", "X-User: root").status == 403
            auth.close()
        with server.connect() as client:
            assert client.ask("GET", "/", "X-Token: good").status in (502, 503)
        assert until(lambda: any("forward_auth: " in line for line in server.stderr))
