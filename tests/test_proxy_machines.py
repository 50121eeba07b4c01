"""Three Mileposts behind one, each on its own machine: killed, unplugged, paused, slow, and reloaded."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import Machines

from raw import CutShort
from serving import COMMAND, DEADLINE_S, Milepost, tables, until
from supervising import Supervised

LONG = [pytest.mark.conformance, pytest.mark.timeout(900)]
BACK = 3
PORT = 8000


class Fleet:
    """One Milepost before three."""

    def __init__(self, folder: Path, machines: Machines, stack: contextlib.ExitStack) -> None:
        self._folder, self.machines, self._stack = folder, machines, stack
        self.back = [self._start_back(number) for number in range(1, BACK + 1)]
        servers = [f"http://{machines.address(number)}:{PORT}" for number in range(1, BACK + 1)]
        toml = tables("route", {"path": "/", "upstream": "back"})
        options = {"name": "back", "servers": servers, "response_timeout": "2s", "connect_timeout": "1s"}
        toml += tables("upstream", options)
        # The path of a socket must be short.
        front = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="front-")))
        self.front = stack.enter_context(
            Milepost(front, bind=f"unix:{front}/socket", toml=toml, command=machines.command(0, str(COMMAND)))
        )

    def _start_back(self, number: int) -> Supervised:
        folder = self._folder / f"back-{number}"
        (folder / "www").mkdir(parents=True, exist_ok=True)
        # Named by its machine, so that an answer says whose it is.
        (folder / "www" / "who.txt").write_text(str(number))
        server = Supervised(
            folder,
            *("--static", "/=www"),
            bind=f"{self.machines.address(number)}:{PORT}",
            log=None,
            command=self.machines.command(number, str(COMMAND)),
        )
        self._stack.callback(self._end, server)
        return server

    @staticmethod
    def _end(server: Supervised) -> None:
        for pid in everything(server.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        server.kill() if server.process.returncode is None else None

    def kill(self, number: int) -> None:
        """All processes of one machine at once, as at a loss of power."""
        server = self.back[number - 1]
        for pid in everything(server.pid):
            os.kill(pid, signal.SIGKILL)
        server.kill()

    def restart(self, number: int) -> None:
        """Again from the beginning."""
        self.back[number - 1] = self._start_back(number)

    def signal(self, number: int, which: signal.Signals) -> None:
        """To the processes that serve on one machine."""
        for pid in everything(self.back[number - 1].pid)[1:]:
            os.kill(pid, which)


def everything(pid: int) -> list[int]:
    """A process and those below it."""
    found = [pid]
    for one in found:
        with contextlib.suppress(FileNotFoundError):
            found += map(int, Path(f"/proc/{one}/task/{one}/children").read_text().split())
    return found


class Load:
    """Clients that ask one after the other until they are stopped."""

    def __init__(self, front: Milepost, clients: int = 8) -> None:
        self._front = front
        self._stop = threading.Event()
        #: The status, and who has answered.
        self.answers: list[tuple[int, str]] = []
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(clients)]

    def _ask(self) -> None:
        client = self._front.connect()
        while not self._stop.is_set():
            try:
                reply = client.ask("GET", "/who.txt")
                self.answers.append((reply.status, reply.text if reply.status == 200 else ""))
            except CutShort:
                self._front.count()
                self.answers.append((0, ""))
                client.__exit__()
                client = self._front.connect()
        client.__exit__()

    def more(self, count: int = 200) -> Counter[str]:
        """Who gives so many further answers."""
        begin = len(self.answers)
        assert until(lambda: len(self.answers) >= begin + count)
        return Counter(who for _, who in self.answers[begin:])

    @property
    def statuses(self) -> Counter[int]:
        """How often each status came."""
        return Counter(status for status, _ in self.answers)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Machines(BACK + 1) as machines, contextlib.ExitStack() as stack:
        yield Fleet(tmp_path, machines, stack)


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=LONG)])
def test_a_machine_that_is_killed_costs_no_request(fleet: Fleet, times: int) -> None:
    with Load(fleet.front) as load:
        assert set(load.more()) == {"1", "2", "3"}
        for _ in range(times):
            fleet.kill(2)
            load.more()
            fleet.restart(2)
            load.more()
    assert set(load.statuses) == {200}, load.statuses


@pytest.mark.parametrize("times", [1, pytest.param(30, marks=LONG)])
def test_a_machine_that_is_unplugged_costs_its_own_requests_alone(fleet: Fleet, times: int) -> None:
    """Neither side hears of it: its requests end by response_timeout, and connections by connect_timeout."""
    with Load(fleet.front) as load:
        assert set(load.more()) == {"1", "2", "3"}
        for _ in range(times):
            fleet.machines.unplug(2)
            # Each client has met it, or none has to any more.
            assert until(lambda: load.statuses[504] > 0)
            load.more()
            fleet.machines.plug(2)
            load.more()
    assert set(load.statuses) == {200, 504}, load.statuses


@pytest.mark.parametrize("times", [1, pytest.param(30, marks=LONG)])
def test_a_machine_that_is_paused_costs_its_own_requests_alone(fleet: Fleet, times: int) -> None:
    with Load(fleet.front) as load:
        assert set(load.more()) == {"1", "2", "3"}
        for _ in range(times):
            fleet.signal(2, signal.SIGSTOP)
            others = load.more()
            fleet.signal(2, signal.SIGCONT)
            assert {"1", "3"} <= set(others)
            load.more()
    assert set(load.statuses) <= {200, 504}, load.statuses


def test_a_machine_that_is_slow_gets_less(fleet: Fleet) -> None:
    """It stands still for most of the time."""
    over = threading.Event()

    def slow() -> None:
        while not over.is_set():
            fleet.signal(2, signal.SIGSTOP)
            time.sleep(0.09)
            fleet.signal(2, signal.SIGCONT)
            time.sleep(0.01)

    slower = threading.Thread(target=slow, daemon=True)
    with Load(fleet.front) as load:
        load.more()
        slower.start()
        answered = load.more(1000)
        over.set()
        slower.join(DEADLINE_S)
    assert set(load.statuses) == {200}, load.statuses
    # Not less than each of the others: on a busy computer one of those can be slow as well.
    assert answered["2"] < answered.total() / 6, answered


@pytest.mark.parametrize("times", [2, pytest.param(100, marks=LONG)])
def test_a_rolling_reload_of_all_loses_nothing(fleet: Fleet, times: int) -> None:
    with Load(fleet.front) as load:
        load.more()
        for _ in range(times):
            for server in fleet.back:
                before = server.pids()
                server.done("reload")
                assert not before & server.settled(len(before))
                load.more(50)
    assert set(load.statuses) == {200}, load.statuses
