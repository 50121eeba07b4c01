"""What a new user meets without a setting: lines on a terminal, probes, errors of the application."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from raw import request
from serving import COMMAND, DEADLINE_S, Milepost, environment, free_port, until

PRINTS = """
import sys
import threading


def app(environ, start_response):
    errors = environ["wsgi.errors"]
    if environ["PATH_INFO"] == "/lines":
        print("one", file=errors)
        print("two", file=errors)
    elif environ["PATH_INFO"] == "/flushed":
        errors.writelines(["first\\n"])
        errors.flush()
        errors.write("second")
    elif environ["PATH_INFO"] == "/thread":
        thread = threading.Thread(target=errors.write, args=("of a thread",))
        thread.start()
        thread.join()
    elif environ["PATH_INFO"] == "/raises":
        raise KeyError("lost")
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""


def test_a_terminal_gets_each_line_at_once_and_a_pipe_none(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PRINTS)
    main, terminal = pty.openpty()
    port = free_port()
    argv = [str(COMMAND), "serve", "app:app", "--bind", f"127.0.0.1:{port}", "--log-flush", "1h"]
    with subprocess.Popen(
        argv, cwd=tmp_path, env=environment(), stdout=terminal, stderr=subprocess.PIPE
    ) as server:
        os.close(terminal)
        assert server.stderr is not None
        block = [server.stderr.readline().decode() for _ in range(4)]
        with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as client:
            client.sendall(request("GET", "/seen", "Connection: close"))
            # Without a line there this would wait for the hour of `log_flush`.
            assert b'"GET /seen HTTP/1.1" 200' in os.read(main, 4096)
        server.send_signal(signal.SIGTERM)
        rest = server.stderr.read().decode()
        assert server.wait(DEADLINE_S) == 0
    os.close(main)
    assert block[2].split("reload: ") == [
        "  process  1 process × 4 threads, ",
        f"milepost reload --pid {server.pid}\n",
    ]
    assert block[3] == "  log      - (phases)\n"
    assert rest == "milepost: stopped: 1 request answered, 0 cut off\n"
    with Milepost(tmp_path, "app:app", log=None) as piped:
        assert piped.connect().ask("GET", "/").status == 200
    assert "  log      off\n" in piped.errors
    assert piped.stdout == ""


def test_what_the_application_prints_is_one_entry_with_the_id_of_its_request(
    tmp_path: Path, serve: Callable[..., Milepost]
) -> None:
    (tmp_path / "app.py").write_text(PRINTS)
    toml = 'error_log = [{ to = "error.json", format = "json" }, { to = "error.log" }]\n'
    server = serve("app:app", toml=toml)
    with server.connect() as client:
        for path in ("/lines", "/flushed", "/thread", "/raises"):
            client.ask("GET", path)
    assert server.stop() == 0
    ids = {line.split()[6]: line.split(" id=")[1].split()[0] for line in server.lines}
    events = [json.loads(line) for line in (tmp_path / "error.json").read_text().splitlines()]
    found = [(event.get("id"), event["level"], event["message"]) for event in events]
    named = {path: f"GET {path} [id {id}]" for path, id in ids.items()}
    assert found[:4] == [
        (ids["/lines"], "error", f"{named['/lines']}: one\ntwo"),
        (ids["/flushed"], "error", f"{named['/flushed']}: first"),
        (ids["/flushed"], "error", f"{named['/flushed']}: second"),
        (None, "error", "application: of a thread"),
    ]
    assert found[4][2].startswith(f"{named['/raises']}: application: Traceback")
    assert found[4][2].endswith("KeyError: 'lost'")
    assert len(found) == 5
    text = (tmp_path / "error.log").read_text()
    assert f"error: {named['/lines']}: one\n    two\n" in text


def test_probes_are_answered_without_the_application_and_before_redirects(
    tmp_path: Path, serve: Callable[..., Milepost]
) -> None:
    toml = """
    health_path = "/healthz"
    ready_path = "/readyz"
    [[redirect]]
    from = "/*"
    to = "https://shop.example/*"
    except = ["/.well-known/*", "/plain"]
    """
    server = serve(toml=toml)
    cases = [
        ("/healthz", 200, None),
        ("/readyz", 200, None),
        ("/a", 302, "https://shop.example/a"),
        ("/plain/", 302, "https://shop.example/plain/"),
        ("/plain", 404, None),
        ("/.well-known/x", 404, None),
        ("/.well-known/../a", 302, "https://shop.example/a"),
    ]
    with server.connect() as client:
        for path, status, location in cases:
            reply = client.ask("GET", path)
            assert (reply.status, reply.header("location")) == (status, location), path


def test_a_process_is_ready_until_it_drains(tmp_path: Path, serve: Callable[..., Milepost]) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "app.py").write_text(
        "def app(environ, start_response):\n"
        "    open('gate').read()\n"
        "    start_response('200 OK', [('Content-Length', '0')])\n"
        "    return []\n"
    )
    server = serve("app:app", toml='ready_path = "/readyz"\nhealth_path = "/healthz"\n')
    with server.connect() as busy, server.connect() as probe:
        busy.send(request("GET", "/"))
        assert probe.ask("GET", "/readyz").status == 200
        # Half a request keeps the connection while the others drain.
        probe.send(b"GET /readyz HTTP/1.1\r\nHost: h\r\n")
        held = os.open(gate, os.O_WRONLY)
        server.signal()

        def is_closed() -> bool:
            with socket.socket() as new:
                return new.connect_ex(server.address) != 0

        assert until(is_closed)
        probe.send(b"\r\n")
        reply = probe.reply()
        assert (reply.status, reply.text) == (503, "draining\n")
        os.close(held)
        assert busy.reply().status == 200
    assert server.wait() == 0


@pytest.mark.long
@pytest.mark.parametrize("timeout", ["200ms"])
def test_a_request_that_takes_too_long_ends_as_a_timeout(
    tmp_path: Path, serve: Callable[..., Milepost], timeout: str
) -> None:
    (tmp_path / "app.py").write_text(
        "import time\n"
        "def app(environ, start_response):\n"
        "    start_response('200 OK', [])\n"
        "    if environ['PATH_INFO'] == '/begun':\n"
        "        yield b'some'\n"
        "    time.sleep(30)\n"
    )
    server = serve("app:app", "--request-timeout", timeout)
    with server.connect() as client:
        assert client.ask("GET", "/").status == 504
    with server.connect() as client:
        client.send(request("GET", "/begun"))
        with pytest.raises((ConnectionError, AssertionError, Exception)):
            client.reply()
    server.count()
    assert server.stop() == 0
    assert [line.split(" end=")[1].split()[0] for line in server.lines] == ["timeout", "timeout"]
