"""`milepost report --live`: the last requests that a running server holds, over reloads and upgrades."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from serving import free_port, run, until
from supervising import Supervised
from test_admin import answers
from test_admin import ask as admin


@pytest.fixture
def server(tmp_path: Path, supervise: Callable[..., Supervised]) -> Supervised:
    """Two processes that serve a folder."""
    folder = tmp_path / "www"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    return supervise("--static", "/=www", "--processes", "2", app=None)


def live(server: Supervised, *flags: str) -> dict[str, Any]:
    """The report of the last hour."""
    return dict(json.loads(server.done("report", "--live", "1h", "--json", *flags)))


def ask(server: Supervised, count: int, target: str = "/a.txt") -> None:
    """So many requests, each on a connection of its own."""
    for _ in range(count):
        server.ask(target)


def test_all_requests_are_held_over_a_reload_an_upgrade_and_a_killed_process(server: Supervised) -> None:
    ask(server, 30)
    assert until(lambda: live(server)["all"]["requests"] == 30), live(server)
    server.done("reload")
    ask(server, 20, "/none")
    server.done("upgrade")
    ask(server, 10)
    before = server.settled(2)
    os.kill(min(before), signal.SIGKILL)
    assert until(lambda: len(server.pids() - before) == 1), server.errors
    server.settled(2)
    ask(server, 5)
    assert until(lambda: live(server)["all"]["requests"] == 65), live(server)
    report = live(server)
    assert report["all"]["classes"] == {"2xx": 45, "4xx": 20}
    assert report["statuses"] == {"200": 45, "404": 20}
    paths = {page["name"]: page["counts"]["requests"] for page in report["pages"]}
    # A path that no file has gets no name of its own.
    assert paths == {"GET /a.txt": 45, "(others)": 20}
    assert "history" not in server.errors
    # The killed process has taken lines of its log with it: no other ones are missing.
    server.exchanges = len(server.lines) if server.stop() == 0 else -1
    assert server.exchanges <= 65


def test_the_report_says_how_much_of_the_time_is_held(server: Supervised) -> None:
    ask(server, 3)
    text = server.done("report", "--live", "1h")
    assert "of the 1 h asked for; the server holds no older ones" in text
    span = live(server)["live"]
    assert span["asked_seconds"] == 3600
    assert 0 < span["held_seconds"] < 3600
    page = server.done("report", "--live", "1h", "--html", "-")
    assert "asked for; the server holds no older ones" in page


def test_filters_count_for_held_requests(server: Supervised) -> None:
    ask(server, 4)
    ask(server, 3, "/none")
    assert until(lambda: live(server)["all"]["requests"] == 7), live(server)
    assert live(server, "--status", "404")["all"]["requests"] == 3


@pytest.mark.parametrize(
    ("words", "expect"),
    [
        (["--live", "soon"], "expected a duration as 15m or 1h, found `soon`"),
        (["--live", "1h", "access.log"], "cannot be used with"),
        (["--live", "1h", "--follow"], "cannot be used with"),
        (["--live", "1h", "--control", "missing"], "it is not there"),
        (["--pid", "1", "access.log"], "names a running server, which only `--live` asks"),
    ],
)
def test_refuses_what_names_no_running_server(tmp_path: Path, words: list[str], expect: str) -> None:
    done = run(tmp_path, "report", *words)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert expect in done.stderr


APP = """
import os
import time

time.sleep(5 if os.path.exists("slow") else 0)

def app(environ, start_response):
    time.sleep(0.03 if environ["PATH_INFO"] == "/slow" else 0.002)
    status = "500 x" if environ["PATH_INFO"] == "/fails" else "200 OK"
    start_response(status, [("Content-Type", "text/plain")])
    return [b"done"]
"""


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def shop(tmp_path: Path, supervise: Callable[..., Supervised], port: int) -> Supervised:
    """Two processes with an application, and the admin listener."""
    (tmp_path / "app.py").write_text(APP)
    flags = ["--processes", "2", "--threads", "2", "--admin-bind", f"127.0.0.1:{port}"]
    server = supervise(*flags, app="app:app")
    assert until(lambda: answers(port))
    return server


def history(port: int, span: str = "15m") -> dict[str, Any]:
    status, text = admin(port, f"/history?span={span}")
    assert status == 200, text
    return dict(json.loads(text))


def ended(past: dict[str, Any]) -> int:
    """Requests in the minutes of a history."""
    return sum(minute.get("requests", 0) for minute in past["minutes"])


def test_seconds_minutes_and_paths_have_each_request_once(shop: Supervised, port: int) -> None:
    ask(shop, 20, "/orders/1")
    ask(shop, 10, "/orders/2")
    ask(shop, 5, "/fails")
    assert until(lambda: ended(history(port)) == 35), history(port)
    shop.done("reload")
    ask(shop, 7, "/slow")
    shop.done("upgrade")
    assert until(lambda: answers(port))
    shop.settled(2)
    ask(shop, 3, "/slow")
    assert until(lambda: ended(history(port)) == 45), history(port)
    past = history(port)
    paths = {one["path"]: one for one in past["paths"]}
    counts = {path: (one["requests"], one["failed"]) for path, one in paths.items()}
    assert counts == {"GET /orders/*": (30, 0), "GET /fails": (5, 5), "GET /slow": (10, 0)}
    assert paths["GET /slow"]["mean"] > 0.03 > paths["GET /orders/*"]["mean"]
    pools = [pool for second in past["seconds"] for pool in second["pools"]]
    assert {pool["pool"] for pool in pools} == {"default"}
    assert sum(pool["requests"] for pool in pools) == 45
    assert sum(pool["failed"] for pool in pools) == 5
    assert pools[-1]["threads"] == 4
    kinds = [mark["kind"] for mark in past["marks"]]
    assert [kinds[0], kinds[1]] == ["start", "reload"] and "upgrade" in kinds
    assert history(port, "24h")["seconds"] == []
    assert ended(history(port, "24h")) == ended(history(port, "1h")) == 45


def test_pools_have_their_seconds_while_an_upgrade_starts_processes(
    shop: Supervised, port: int, tmp_path: Path
) -> None:
    ask(shop, 5, "/a")
    assert until(lambda: ended(history(port)) == 5)
    (tmp_path / "slow").touch()
    with ThreadPoolExecutor(1) as beside:
        upgrade = beside.submit(shop.done, "upgrade")
        # The program that goes on has begun; the processes of the one before it serve.
        assert until(lambda: "upgraded from" in shop.errors)
        ask(shop, 6, "/b")
        upgrade.result()
    assert until(lambda: answers(port))
    assert until(lambda: ended(history(port)) == 11)
    pools = [pool for second in history(port)["seconds"] for pool in second["pools"]]
    assert sum(pool["requests"] for pool in pools if pool["pool"] == "default") == 11
    assert sum(pool["refused"] for pool in pools) == 0


def test_whatif_and_report_take_what_the_server_holds(shop: Supervised, port: int) -> None:
    ask(shop, 60, "/slow")
    assert until(lambda: ended(history(port)) == 60)
    told = json.loads(shop.done("whatif", "--live", "1h", "--json", "--force"))
    assert told["log"]["requests"] == 60, told["log"]
    assert told["verdict"]["sentences"]
    status, text = admin(port, "/whatif?span=1h")
    assert status in (200, 422), text
    if status == 200:
        assert json.loads(text)["log"]["requests"] == 60
    status, text = admin(port, "/report?span=1h")
    assert (status, json.loads(text)["all"]["requests"]) == (200, 60)
    assert admin(port, "/history?span=2h") == (400, "span: expected 15m, 1h or 24h\n")
    assert admin(port, "/whatif?span=1h", Sec_Fetch_Site="cross-site")[0] == 403


def test_before_the_first_request_there_is_nothing_to_explain(shop: Supervised, port: int) -> None:
    for path in ("/report", "/whatif"):
        assert admin(port, path) == (422, "no request has ended in this time\n")
    past = history(port)
    assert (past["paths"], ended(past)) == ([], 0)


def test_flags_that_name_a_server_belong_to_live(tmp_path: Path) -> None:
    told = run(tmp_path, "whatif", "access.log", "--pid", "1")
    assert told.returncode == 2
    assert "`--pid`: names a running server, which only `--live` asks" in told.stderr
    told = run(tmp_path, "whatif", "access.log", "--live", "1h")
    assert told.returncode == 2 and "--live" in told.stderr
