"""Shared counters: what was counted is counted, whatever becomes of who has counted it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from serving import until
from supervising import Supervised, write_app


def exchanges(server: Supervised, route: str = "app") -> int:
    """Replies of a route, over all processes that there ever were."""
    return routes(server)[route]["2xx"]


def routes(server: Supervised) -> dict[str, dict[str, Any]]:
    """By their names."""
    return {one["route"]: one for one in server.status()["counters"]["routes"]}


def mapped(pid: int) -> list[str]:
    """The shared mappings of counters of a process, which are anonymous memory."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return [line for line in lines if "memfd:milepost-counters" in line and line.split()[1][3] == "s"]


def test_numbers_of_all_processes_are_added_up(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "3", "--drivers", "2")
    server.settled(3)
    assert len(server.who_answer(200)) == 3
    told = server.status()
    assert told["totals"]["accepted"] == told["totals"]["received"] == 200
    assert until(lambda: exchanges(server) == 200)
    # The histograms as well: each exchange is in them once.
    assert routes(server)["app"]["seconds"]["total"]["count"] == 200


def test_numbers_outlive_a_killed_process(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "2", log=None)
    server.settled(2)
    assert len(server.who_answer(100)) == 2
    assert until(lambda: exchanges(server) == 100)
    for victim in server.settled(2):
        os.kill(victim, signal.SIGKILL)
        assert until(lambda victim=victim: victim not in server.pids() and len(server.pids()) == 2)
    told = server.status()
    assert told["totals"]["received"] == 100
    assert told["totals"]["crashes"] == 2
    assert exchanges(server) == 100
    server.who_answer(50)
    assert until(lambda: exchanges(server) == 150)


def test_numbers_add_up_over_generations(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    server = supervise("--processes", "2")
    for number in range(3):
        server.who_answer(40)
        write_app(tmp_path, f"word{number}")
        server.done("reload")
        server.settled(2)
    server.who_answer(40)
    assert until(lambda: exchanges(server) == 160)
    assert server.status()["totals"]["accepted"] == 160
    assert routes(server)["app"]["seconds"]["run"]["count"] == 160


def test_numbers_add_up_when_the_number_of_processes_changes(
    supervise: Callable[..., Supervised],
) -> None:
    server = supervise("--processes", "1")
    for count in (4, 2, 3, 1):
        server.who_answer(25)
        server.done("scale", "--processes", str(count))
        server.settled(count)
    assert until(lambda: exchanges(server) == 100)


def test_routes_that_came_and_went_keep_their_numbers(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "f").write_text("file")
    file = tmp_path / "milepost.toml"
    file.write_text('app = "app:app"\n[static]\n"/old" = "www"\n')
    server = supervise("--config", "milepost.toml", app=None)
    for _ in range(10):
        assert server.ask("/old/f").text == "file"
    file.write_text('app = "app:app"\n[static]\n"/new" = "www"\n')
    server.done("reload")
    # The old process may have been about to accept.
    server.settled(1)
    for _ in range(5):
        assert server.ask("/new/f").text == "file"
    assert until(lambda: (exchanges(server, "/old"), exchanges(server, "/new")) == (10, 5))


def test_gauges_of_the_dead_do_not_count(supervise: Callable[..., Supervised]) -> None:
    """A killed process had open connections; nobody has them now."""
    server = supervise("--processes", "1", log=None)
    clients = [server.connect() for _ in range(5)]
    for client in clients:
        assert client.ask("GET", "/").status == 200
    assert until(lambda: sum(driver["open"] for driver in server.drivers()) == 5)
    (victim,) = server.settled(1)
    os.kill(victim, signal.SIGKILL)
    assert until(lambda: victim not in server.pids() and len(server.pids()) == 1)
    assert sum(driver["open"] for driver in server.drivers()) == 0
    drivers = server.status()["counters"]["drivers"]
    assert sum(driver.get("open", 0) for driver in drivers) == 0
    for client in clients:
        client.sock.close()


def test_they_are_in_one_anonymous_mapping_that_all_share(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "2")
    for pid in (server.pid, *server.settled(2)):
        assert mapped(pid), pid
    inodes = {line.split()[4] for pid in server.settled(2) for line in mapped(pid)}
    assert len(inodes) == 1


def test_segments_are_used_again(supervise: Callable[..., Supervised]) -> None:
    """Or each reload would take more memory, for ever."""
    server = supervise("--processes", "2")

    (inode,) = {int(line.split()[4]) for line in mapped(server.pid)}

    def file_bytes() -> int:
        (found,) = {
            fd.stat().st_size
            for fd in Path(f"/proc/{server.pid}/fd").iterdir()
            if "memfd:" in os.readlink(fd) and fd.stat().st_ino == inode
        }
        return found

    for _ in range(2):
        server.done("reload")
        server.settled(2)
    before = file_bytes()
    for _ in range(4):
        server.done("reload")
        server.settled(2)
    assert file_bytes() == before


def test_the_status_page_is_of_the_process_that_answers(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "1", "--status-path", "/-/status")
    for _ in range(10):
        server.ask()
    page = server.ask("/-/status").text
    assert '"received":11' in page or '"received":10' in page
