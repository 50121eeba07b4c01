"""Applications that fail: the client never sees why, and never takes a part for the whole."""

from __future__ import annotations

import json

import pytest

from raw import Client, CutShort, request
from serving import Milepost

SECRET = "a secret of the zoo"


@pytest.mark.parametrize(
    "path",
    [
        "/raises",
        "/raises-after-start",
        "/raises-in-first-next",
        "/raises-unprintable",
        "/exits",
        "/interrupts",
    ],
)
def test_a_failure_before_the_head_is_500(client: Client, path: str) -> None:
    reply = client.ask("GET", path)
    assert reply.status == 500
    # Nothing is left of the head that it had given, and nothing is there twice.
    assert reply.header("x-gone") is None
    assert reply.header("date") not in (None, "never")
    assert reply.header("server") != "zoo"
    assert b"secret" not in reply.body
    assert b"Traceback" not in reply.body
    assert b"zoo" not in reply.body


@pytest.mark.parametrize("length", ["", "1"])
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_a_failure_midway_never_looks_complete(zoo: Milepost, length: str, version: str) -> None:
    with zoo.connect() as client:
        client.send(request("GET", f"/raises-midway?length={length}", version=version))
        zoo.exchanges += 1
        if version == "HTTP/1.0" and not length:
            # Nothing but a reset can say "cut" to a client that reads until the end.
            with pytest.raises(ConnectionResetError):
                while client.sock.recv(1 << 16):
                    pass
        else:
            with pytest.raises(CutShort) as cut:
                client.reply()
            assert cut.value.so_far in (b"the beginning", b"")


def test_a_failure_in_close_costs_nothing_that_was_sent(client: Client) -> None:
    reply = client.ask("GET", "/raises-in-close?token=c")
    assert (reply.status, reply.body) == (200, b"all there")


def test_tracebacks_go_to_the_error_log_only(serve) -> None:
    server = serve("zoo:app", "--threads", "1:1")
    for path in ("/raises", "/raises-in-close?token=x", "/exits", "/interrupts", "/raises-unprintable"):
        with server.connect() as client:
            assert SECRET.encode() not in client.ask("GET", path).body
    with server.connect() as client:
        # The one thread is still there, with nothing left over from all this.
        assert json.loads(client.ask("GET", "/environ-is-exact").body) == []
    assert server.stop() == 0
    assert f"RuntimeError: {SECRET}" in server.errors
    assert "RuntimeError: a secret of close" in server.errors
    assert "Traceback (most recent call last)" in server.errors
    assert "zoo_faults.py" in server.errors
    assert "SystemExit" in server.errors
    assert "KeyboardInterrupt" in server.errors
    assert "UnprintableError" in server.errors


def test_a_traceback_that_is_no_utf8_keeps_its_frames(serve) -> None:
    server = serve("zoo:app")
    with server.connect() as client:
        assert client.ask("GET", "/raises-surrogates").status == 500
    assert server.stop() == 0
    assert f"OSError: {SECRET}" in server.errors
    assert "in raises_surrogates" in server.errors


@pytest.mark.parametrize("path", ["/raises", "/raises-in-first-next", "/raises-in-close?token=t"])
def test_a_failure_keeps_nothing_that_the_application_was_given(serve, path: str) -> None:
    server = serve("zoo:app", "--threads", "1:1")
    with server.connect() as client:
        before = client.ask("GET", "/tools").body
    for _ in range(3):
        with server.connect() as client:
            client.ask("GET", path)
    with server.connect() as client:
        assert client.ask("GET", "/tools").body == before


def test_there_is_something_to_write_errors_to_without_stderr(serve, tmp_path) -> None:
    (tmp_path / "mute.py").write_text(
        "import sys\n"
        "sys.stderr = None\n"
        "def app(environ, start_response):\n"
        "    environ['wsgi.errors'].write('lost \\udcff \u20ac')\n"
        "    environ['wsgi.errors'].flush()\n"
        "    start_response('200 OK', [])\n"
        "    return [b'well']\n",
        encoding="utf-8",
    )
    server = serve("mute:app")
    with server.connect() as client:
        assert client.ask("GET", "/").body == b"well"


def test_a_traceback_says_which_request_it_was(serve) -> None:
    server = serve("zoo:app")
    with server.connect() as client:
        client.ask("GET", "/raises?seen=in-the-log")
    assert server.stop() == 0
    assert "/raises" in server.errors
