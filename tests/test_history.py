"""`milepost report --live`: the last requests that a running server holds, over reloads and upgrades."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serving import run, until
from supervising import Supervised


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
