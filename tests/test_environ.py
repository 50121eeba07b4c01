"""What an application finds in its environ: PEP 3333, "environ Variables", to the letter."""

from __future__ import annotations

import json
import os
import sys

import pytest

from raw import Client, chunked, request
from serving import APPS, Milepost


def environ_of(client: Client, *args: str, **kwargs: object) -> dict[str, object]:
    reply = client.ask(*args, **kwargs)
    assert reply.status == 200
    return json.loads(reply.body)


def test_a_plain_get_has_exactly_these_variables(zoo: Milepost, client: Client) -> None:
    host, port = zoo.address
    environ = environ_of(client, "GET", "/environ", host="example.org:81")
    local = client.sock.getsockname()
    assert {k: v for k, v in environ.items() if not k.startswith(("wsgi.", "milepost."))} == {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/environ",
        "QUERY_STRING": "",
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "SERVER_SOFTWARE": environ["SERVER_SOFTWARE"],
        "REMOTE_ADDR": local[0],
        "REMOTE_PORT": str(local[1]),
        "REQUEST_URI": "/environ",
        "RAW_URI": "/environ",
        "HTTP_HOST": "example.org:81",
    }
    assert str(environ["SERVER_SOFTWARE"]).startswith("milepost")


def test_the_wsgi_variables_are_truthful(client: Client) -> None:
    environ = environ_of(client, "GET", "/environ")
    wsgi = {k: v for k, v in environ.items() if k.startswith("wsgi.")}
    for stream in ("wsgi.input", "wsgi.errors", "wsgi.file_wrapper"):
        assert stream in wsgi
        del wsgi[stream]
    assert wsgi == {
        "wsgi.version": [1, 0],
        "wsgi.url_scheme": "http",
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "wsgi.input_terminated": True,
    }


def test_one_thread_is_not_multithread(serve) -> None:
    with serve("zoo:app", "--threads", "1:1").connect() as client:
        assert environ_of(client, "GET", "/environ")["wsgi.multithread"] is False


def test_environ_is_a_fresh_builtin_dict_each_time(client: Client) -> None:
    for _ in range(3):
        assert json.loads(client.ask("GET", "/environ-is-exact").body) == []


def test_the_process_environment_stays_outside(client: Client) -> None:
    environ = environ_of(client, "GET", "/environ")
    assert not set(os.environ) & set(environ)


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/environ", "/environ", ""),
        ("/environ?", "/environ", ""),
        ("/environ?a=1&b=%20?x", "/environ", "a=1&b=%20?x"),
        ("/%65nviron", "/environ", ""),
        ("/environ?%2F", "/environ", "%2F"),
        ("http://other.example/environ?q", "/environ", "q"),
        ("HTTP://other.example:8080/environ", "/environ", ""),
    ],
)
def test_path_and_query_are_split_and_the_path_decoded(
    client: Client, target: str, path: str, query: str
) -> None:
    environ = environ_of(client, "GET", target)
    assert (environ["PATH_INFO"], environ["QUERY_STRING"]) == (path, query)


@pytest.mark.parametrize(
    ("path", "decoded"),
    [
        ("/a%20b", "/a b"),
        ("/caf%C3%A9", "/caf\xc3\xa9"),
        ("/%E2%82%AC", "/\xe2\x82\xac"),
        ("/%ff%00%80", "/\xff\x00\x80"),
        ("/a%2Fb", "/a/b"),
        ("/a%2fb%3Fc", "/a/b?c"),
        ("//double//slash", "//double//slash"),
        ("/a/../b/./c", "/a/../b/./c"),
        ("/plus+sign", "/plus+sign"),
        ("/semi;colon=1", "/semi;colon=1"),
    ],
)
def test_the_path_is_percent_decoded_bytes_as_latin_1(serve, path: str, decoded: str) -> None:
    with serve("any_path:app", "--app-dir", str(APPS)).connect() as client:
        environ = environ_of(client, "GET", path)
        assert environ["PATH_INFO"] == decoded
        assert environ["REQUEST_URI"] == path
        assert environ["SCRIPT_NAME"] == ""


@pytest.mark.parametrize(
    ("target", "script", "path"),
    [
        ("/shop/a/b", "/shop", "/a/b"),
        ("/shop", "/shop", ""),
        ("/shop/", "/shop", "/"),
        ("/sh%6Fp/x", "/shop", "/x"),
        ("/shopping", "/shop", "/shopping"),
        ("/else/where", "/shop", "/else/where"),
    ],
)
def test_root_path_becomes_script_name(serve, target: str, script: str, path: str) -> None:
    server = serve("any_path:app", "--app-dir", str(APPS), "--root-path", "/shop")
    with server.connect() as client:
        environ = environ_of(client, "GET", target)
        assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == (script, path)


@pytest.mark.parametrize("target", ["/my%20shop/x", "/my%20s%68op/x"])
def test_a_root_path_with_escapes_is_decoded(serve, target: str) -> None:
    server = serve("any_path:app", "--app-dir", str(APPS), "--root-path", "/my%20shop")
    with server.connect() as client:
        environ = environ_of(client, "GET", target)
        assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == ("/my shop", "/x")


def test_headers_become_http_variables(client: Client) -> None:
    environ = environ_of(
        client,
        "GET",
        "/environ",
        "User-Agent: tests/1.0",
        "X-CUSTOM-Header:   spaces around   ",
        "x-lower: b",
        "Accept:",
        "X-Latin: caf\xe9",
        "X.Dotted: d",
    )
    assert environ["HTTP_USER_AGENT"] == "tests/1.0"
    assert environ["HTTP_X_CUSTOM_HEADER"] == "spaces around"
    assert environ["HTTP_X_LOWER"] == "b"
    assert environ["HTTP_ACCEPT"] == ""
    assert environ["HTTP_X_LATIN"] == "caf\xe9"
    assert environ["HTTP_X.DOTTED"] == "d"


def test_repeated_headers_are_joined(client: Client) -> None:
    environ = environ_of(
        client,
        "GET",
        "/environ",
        "Accept: text/html",
        "X-Two: a",
        "Cookie: a=1",
        "Accept: image/png",
        "X-Two: b",
        "Cookie: b=2",
        "Cookie: c=3",
    )
    assert environ["HTTP_COOKIE"] == "a=1; b=2; c=3"
    assert str(environ["HTTP_ACCEPT"]).replace(", ", ",") == "text/html,image/png"
    assert str(environ["HTTP_X_TWO"]).replace(", ", ",") == "a,b"


def test_names_with_an_underscore_are_dropped(client: Client) -> None:
    """CVE-2015-0219: `X_Auth` must not be able to pass for `X-Auth`."""
    environ = environ_of(client, "GET", "/environ", "X_Auth: forged", "X-Auth: real", "X_Other: forged")
    assert environ["HTTP_X_AUTH"] == "real"
    assert "HTTP_X_OTHER" not in environ


def test_the_proxy_header_cannot_become_a_proxy(client: Client) -> None:
    """CVE-2016-5385 ("httpoxy") is a matter of CGI; here HTTP_PROXY never reaches os.environ."""
    client.ask("GET", "/environ", "Proxy: http://evil.example")
    assert "HTTP_PROXY" not in os.environ


def test_body_headers_have_no_prefix(client: Client) -> None:
    environ = environ_of(
        client, "POST", "/environ", "Content-Type: text/x-test; charset=utf-8", body=b"12345"
    )
    assert environ["CONTENT_TYPE"] == "text/x-test; charset=utf-8"
    assert environ["CONTENT_LENGTH"] == "5"
    assert "HTTP_CONTENT_TYPE" not in environ
    assert "HTTP_CONTENT_LENGTH" not in environ


def test_a_chunked_body_is_complete_and_its_coding_gone(client: Client) -> None:
    client.send(request("POST", "/environ", "Transfer-Encoding: chunked") + chunked(b"ab", b"cde"))
    environ = json.loads(client.reply().body)
    assert environ.get("CONTENT_LENGTH") in (None, "5")
    assert "HTTP_TRANSFER_ENCODING" not in environ
    assert environ["wsgi.input_terminated"] is True


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PURGE", "get"])
def test_the_method_is_passed_as_it_came(client: Client, method: str) -> None:
    assert environ_of(client, method, "/environ")["REQUEST_METHOD"] == method


def test_the_protocol_is_the_clients(zoo: Milepost) -> None:
    with zoo.connect() as client:
        environ = environ_of(client, "GET", "/environ", version="HTTP/1.0", host=None)
        assert environ["SERVER_PROTOCOL"] == "HTTP/1.0"
        assert "HTTP_HOST" not in environ


def test_an_ipv6_listener_names_itself_without_brackets(serve) -> None:
    server = serve("zoo:app", bind="[::1]:0")
    with server.connect() as client:
        environ = environ_of(client, "GET", "/environ")
        assert environ["SERVER_NAME"] == "::1"
        assert environ["REMOTE_ADDR"] == "::1"


def test_a_unix_listener_serves(serve, tmp_path) -> None:
    server = serve("zoo:app", bind=f"unix:{tmp_path}/s")
    with server.connect() as client:
        environ = environ_of(client, "GET", "/environ")
        assert environ["SERVER_PROTOCOL"] == "HTTP/1.1"
        assert isinstance(environ["SERVER_NAME"], str)
        assert isinstance(environ["SERVER_PORT"], str)


def test_phases_that_have_passed_can_be_read(client: Client) -> None:
    phases = json.loads(client.ask("GET", "/phases").body)
    assert {"arrived", "queued", "started", "receive", "queue"} <= set(phases)
    assert phases["arrived"] <= phases["queued"] <= phases["started"]
    assert abs(phases["started"] - phases["queued"] - phases["queue"]) < 1e-6
    assert abs(phases["queued"] - phases["arrived"] - phases["receive"]) < 1e-6


def test_a_request_is_told_what_it_found_at_the_queue(serve) -> None:
    with serve("zoo:app", "--threads", "2:2").connect() as client:
        phases = json.loads(client.ask("GET", "/phases").body)
    found = {name: phases[name] for name in ("waiting", "threads", "idle", "from_queue", "before")}
    # Nobody else is there, but a thread that has just started may not have sat down yet.
    idle = found.pop("idle")
    assert idle in (0, 1, 2)
    assert found == {"waiting": 0, "threads": 2, "from_queue": idle == 0, "before": 0.0}


def test_errors_stream_reaches_stderr(serve) -> None:
    server = serve("zoo:app")
    with server.connect() as client:
        assert client.ask("GET", "/complain").status == 200
    assert server.stop() == 0
    assert "a complaint of the zoo: żółw" in server.errors
    assert "and more" in server.errors


def test_threading_knows_the_pool_threads(client: Client) -> None:
    name, _ = json.loads(client.ask("GET", "/thread").body)
    assert name != "MainThread"


def test_the_gil_is_as_the_interpreter_has_it(client: Client) -> None:
    expected = getattr(sys, "_is_gil_enabled", lambda: True)()
    assert json.loads(client.ask("GET", "/gil").body) is expected
