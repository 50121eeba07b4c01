"""The requests that run at this moment: `milepost status` names them, also of a process that hangs."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raw import request
from serving import until
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
