"""The requests that run at this moment: `milepost status` names them, also of a process that hangs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from upstreams import Connection, Request, Upstream, answering

from raw import request
from serving import LOOPS, tables, until
from supervising import UNTIL_GO, Supervised, write_app

PATH = UNTIL_GO.partition("?")[0]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Supervised]:
    write_app(tmp_path)
    with Supervised(tmp_path, "app:app", "--threads", "4:4", "--processes", "2") as server:
        yield server


def running(server: Supervised, count: int) -> list[dict[str, Any]]:
    """The requests that run, once they are so many."""
    found: list[dict[str, Any]] = []

    def are_so_many() -> bool:
        nonlocal found
        found = server.status()["running"]
        return len(found) == count

    assert until(are_so_many), found
    return found


def test_requests_that_run_are_named_until_they_end(server: Supervised) -> None:
    assert running(server, 0) == []
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(3)]
        for client in clients:
            client.send(request("GET", UNTIL_GO))
        found = running(server, 3)
        pids = server.pids()
        for one in found:
            assert (one["method"], one["path"], one["route"], one["pool"]) == ("GET", PATH, "app", "default")
            assert one["pid"] in pids and one["worker"] >= 1 and one["ran_ms"] >= 0
        assert [one["ran_ms"] for one in found] == sorted((one["ran_ms"] for one in found), reverse=True)
        assert len({one["id"] for one in found}) == 3
        assert server.status()["running_more"] == 0
        # The query may have secrets in it.
        assert "go" not in str([one["path"] for one in found])
        with server.go():
            assert [client.reply().status for client in clients] == [200] * 3
    assert running(server, 0) == []


def test_a_request_of_a_process_that_hangs_is_named(server: Supervised) -> None:
    with server.connect() as client:
        client.send(request("GET", UNTIL_GO))
        (one,) = running(server, 1)
        os.kill(one["pid"], signal.SIGSTOP)
        try:
            (same,) = running(server, 1)
            assert (same["id"], same["pid"]) == (one["id"], one["pid"])
        finally:
            os.kill(one["pid"], signal.SIGCONT)
        with server.go():
            assert client.reply().status == 200
    assert running(server, 0) == []


def test_a_killed_process_leaves_no_requests(server: Supervised) -> None:
    with server.connect() as client:
        client.send(request("GET", UNTIL_GO))
        (one,) = running(server, 1)
        os.kill(one["pid"], signal.SIGKILL)
        assert running(server, 0) == []
        server.settled(2)


def test_a_reload_shows_requests_of_the_old_processes(server: Supervised) -> None:
    with server.connect() as client:
        client.send(request("GET", UNTIL_GO))
        (one,) = running(server, 1)
        server.done("reload")
        (same,) = running(server, 1)
        assert same["id"] == one["id"] and same["pid"] not in server.pids()
        with server.go():
            assert client.reply().status == 200
    assert running(server, 0) == []


def test_long_paths_are_cut_and_long_runs_shown(tmp_path: Path) -> None:
    write_app(tmp_path)
    # Waits whatever the path is.
    with (tmp_path / "app.py").open("a") as module:
        module.write("\ndef waits(environ, start_response):\n    open('go').close()\n")
        module.write("    return app(environ, start_response)\n")
    with Supervised(tmp_path, "app:waits", "--threads", "2:2") as server, server.connect() as client:
        client.send(request("GET", "/" + "a" * 2000))
        (one,) = running(server, 1)
        assert one["path"] == "/" + "a" * 95
        assert until(lambda: server.status()["running"][0]["ran_ms"] > 1_000)
        shown = server.done("status")
        assert "RUNS FOR" in shown and "GET /aaaa" in shown and one["id"][:8] in shown
        with server.go():
            assert client.reply().status == 200
        assert running(server, 0) == []
        assert "RUNS FOR" not in server.done("status")


# Each path is a place where a request can be. The file `blocks` is there once something blocks the loop,
# which it does until the file `enough` is; what waits does so until the file `end` is there.
ASGI = """
import asyncio
import time
from pathlib import Path


async def innermost():
    while not Path("end").exists():
        await asyncio.sleep(0.01)


async def outermost():
    await asyncio.create_task(innermost())


def block():
    Path("blocks").touch()
    while not Path("enough").exists():
        time.sleep(0.01)


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        raise ValueError("no lifespan")
    if scope["path"] == "/waits":
        await outermost()
    if scope["path"] == "/blocks":
        block()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})
"""


def of_path(server: Supervised, path: str, count: int) -> dict[str, Any]:
    """The request for this path, once so many run."""
    (one,) = (one for one in running(server, count) if one["path"] == path)
    return one


def test_a_request_on_a_pool_thread_shows_its_stack(server: Supervised) -> None:
    with server.connect() as client:
        client.send(request("GET", UNTIL_GO))
        (one,) = running(server, 1)
        done = server.do("status", "--stack", one["id"][:-1])
        assert (done.returncode, done.stderr) == (0, "")
        head, title, *frames = done.stdout.splitlines()
        assert head.startswith(f"GET {PATH} [id {one['id']}]: runs for ")
        assert head.endswith(f"s on worker {one['worker']} of process {one['pid']} (pool default)")
        assert title == "Stack (most recent call last):"
        assert any("app.py" in frame and "in app" in frame for frame in frames), done.stdout
        assert "<string>" in frames[-1] and "in <module>" in frames[-1], done.stdout
        with server.go():
            assert client.reply().status == 200
    running(server, 0)
    refused = server.refused("status", "--stack", one["id"])
    assert f"no running request has the id `{one['id']}`\nhint: it has ended" in refused


def test_each_of_several_requests_shows_its_own_stack(server: Supervised) -> None:
    with contextlib.ExitStack() as stack:
        gates = [stack.enter_context(server.connect()) for _ in range(2)]
        for number, client in enumerate(gates):
            os.mkfifo(server.folder / f"gate{number}")
            client.send(request("GET", f"/gate?gate{number}" if number else UNTIL_GO))
        for one in running(server, 2):
            frames = server.done("status", "--stack", one["id"])
            assert ("open(environ" in frames) == (one["path"] == "/gate"), frames
            assert ("<string>" in frames) == (one["path"] == PATH), frames
        os.close(os.open(server.folder / "gate1", os.O_WRONLY))
        with server.go():
            assert [client.reply().status for client in gates] == [200] * 2


def test_a_request_of_a_stopped_process_has_no_stack_and_holds_nobody_up(server: Supervised) -> None:
    with server.connect() as client, socket.socket(socket.AF_UNIX) as asker:
        client.send(request("GET", UNTIL_GO))
        (one,) = running(server, 1)
        os.kill(one["pid"], signal.SIGSTOP)
        try:
            asker.connect(str(server.control))
            asker.sendall(json.dumps({"verb": "stack", "request": one["id"]}).encode() + b"\n")
            # The supervisor has the question when it answers this one.
            assert server.status()["running"][0]["id"] == one["id"]
            answer = json.loads(asker.makefile().readline())
            assert answer["done"] is False
            assert f"stack: process {one['pid']} does not answer within 1 s: GET {PATH} " in answer["message"]
            assert "SIGSTOP" in answer["hint"]
            refused = server.refused("status", "--stack", one["id"])
            assert "does not answer within 1 s" in refused
        finally:
            os.kill(one["pid"], signal.SIGCONT)
        # Nobody waits for the late answers, and the next question has its own.
        assert "in app" in server.done("status", "--stack", one["id"])
        with server.go():
            assert client.reply().status == 200


@pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="nobody holds the interpreter")
def test_a_process_whose_interpreter_is_held_says_so(tmp_path: Path) -> None:
    write_app(tmp_path, before="import ctypes, pathlib\n")
    # A call that keeps the interpreter, as some extension modules have.
    with (tmp_path / "app.py").open("a") as module:
        module.write("\ndef holds(environ, start_response):\n    if environ['PATH_INFO'] == '/holds':\n")
        module.write("        pathlib.Path('holds').touch()\n        ctypes.PyDLL(None).sleep(6)\n")
        module.write("    return app(environ, start_response)\n")
    with Supervised(tmp_path, "app:holds", "--threads", "2:2") as server, server.connect() as client:
        client.send(request("GET", "/holds"))
        assert until((tmp_path / "holds").exists)
        (one,) = running(server, 1)
        refused = server.refused("status", "--stack", one["id"])
        assert "one holds the interpreter (GIL); the request's thread " in refused
        assert "is S (sleeping)" in refused and "GET /holds [id" in refused
        assert client.reply().status == 200


@pytest.mark.parametrize("event_loop", LOOPS)
def test_a_request_in_an_event_loop_shows_what_it_awaits_or_what_blocks_it(
    tmp_path: Path, event_loop: str
) -> None:
    (tmp_path / "app.py").write_text(ASGI)
    with Supervised(tmp_path, "app:app", "--loop", event_loop) as server:
        waiting, blocking = server.connect(), server.connect()
        with waiting, blocking:
            waiting.send(request("GET", "/waits"))
            waits = of_path(server, "/waits", 1)
            shown = server.done("status", "--stack", waits["id"])
            assert "\nStack of its awaits (most recent call last):\n" in shown
            at = [shown.index(f"in {name}\n") for name in ("app", "outermost", "innermost")]
            assert at == sorted(at), shown
            blocking.send(request("GET", "/blocks"))
            assert until((tmp_path / "blocks").exists)
            blocks = of_path(server, "/blocks", 2)
            shown = server.done("status", "--stack", blocks["id"])
            assert "\nIt blocks the event loop; stack of the loop's thread" in shown
            assert "in block\n" in shown
            shown = server.done("status", "--stack", waits["id"])
            assert "\nIt waits for the event loop, which something else blocks; stack of the" in shown
            assert "in block\n" in shown
            (tmp_path / "enough").touch()
            assert blocking.reply().body == b"done"
            assert "in innermost\n" in server.done("status", "--stack", waits["id"])
            (tmp_path / "end").touch()
            assert waiting.reply().body == b"done"


def test_a_request_at_an_upstream_has_no_stack(tmp_path: Path) -> None:
    answers: list[Connection] = []

    def respond(connection: Connection, asked: Request) -> None:
        answers.append(connection)
        assert until(lambda: (tmp_path / "enough").exists())
        connection.reply(b"hello")

    with Upstream(answering(respond)) as upstream:
        toml = tables("route", {"path": "/", "upstream": "back"})
        toml += tables("upstream", {"name": "back", "servers": [upstream.url]})
        (tmp_path / "milepost.toml").write_text(toml)
        with Supervised(tmp_path, "--config", "milepost.toml") as server, server.connect() as client:
            client.send(request("GET", "/far"))
            assert until(lambda: answers)
            (one,) = running(server, 1)
            assert one["worker"] is None
            refused = server.refused("status", "--stack", one["id"])
            assert "stack: an upstream server has the request" in refused
            assert (
                f"GET /far [id {one['id']}]: runs for " in refused and f"on process {one['pid']}" in refused
            )
            (tmp_path / "enough").touch()
            assert client.reply().body == b"hello"


def test_a_stack_is_asked_for_by_an_id(server: Supervised) -> None:
    done = server.do("status", "--stack", "")
    assert done.returncode == 2 and "`--stack`: expected the id of a request, found none" in done.stderr
    done = server.do("status", "--stack", "8f", "--json")
    assert done.returncode == 2 and "--json" in done.stderr
