"""As the first process of a container: everybody's orphans are reaped, and signals work."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving import COMMAND, Milepost, until
from supervising import is_running, status_field, write_app

UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]

# A grandchild whose parent ends at once: it becomes a child of process 1, and ends a little later.
ORPHAN = """
def leave_an_orphan():
    import subprocess
    subprocess.run(["sh", "-c", "sh -c 'read line; exit 3' <gate &"], check=True)
    return "left"
"""


class Contained(Milepost):
    """A server that is process 1 of its namespace; `first` is its id outside."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        super().__init__(folder, *arguments, command=[*UNSHARE, str(COMMAND)], log=None)
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        (self.first,) = map(int, children)

    def everybody(self) -> list[int]:
        """All processes of its namespace, seen from outside."""
        space = os.readlink(f"/proc/{self.first}/ns/pid")
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "ns" / "pid") == space:
                    found.append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return found

    def zombies(self) -> list[int]:
        """Those that have ended and that nobody has waited for."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and status_field(int(entry.name), "State")[0] == "Z":
                    if len(status_field(int(entry.name), "NSpid")) > 1:
                        found.append(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found

    def stop_first(self, number: signal.Signals = signal.SIGTERM) -> int:
        """The signal to process 1, as a container's runtime sends it; unshare ends with its code."""
        os.kill(self.first, number)
        return self.wait()


@pytest.fixture
def contain(tmp_path: Path) -> Iterator[Callable[..., Contained]]:
    """Starts servers in namespaces of their own, where that is allowed."""
    if subprocess.run([*UNSHARE, "true"], capture_output=True).returncode != 0:
        pytest.skip("no process namespaces for this user here")
    started: list[Contained] = []

    def start(*arguments: str, before: str = "") -> Contained:
        write_app(tmp_path, before=before)
        started.append(Contained(tmp_path, "app:app", *arguments))
        return started[-1]

    yield start
    for server in started:
        if server.process.returncode is None:
            server.stop_first()


def text(server: Milepost, target: str = "/") -> str:
    """The reply's body."""
    with server.connect() as client:
        return client.ask("GET", target, "Connection: close").text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_1_stops_at_a_signal(contain: Callable[..., Contained], number: signal.Signals) -> None:
    """The kernel gives process 1 no default action: without a handler it would live on."""
    server = contain("--processes", "2")
    assert status_field(server.first, "NSpid")[-1] == "1"
    everybody = server.everybody()
    assert len(everybody) == 3
    assert server.stop_first(number) == 0
    assert not any(is_running(pid) for pid in everybody)


def test_process_1_reloads_at_a_signal(contain: Callable[..., Contained], tmp_path: Path) -> None:
    server = contain()
    write_app(tmp_path, "two")
    os.kill(server.first, signal.SIGHUP)
    assert until(lambda: text(server).startswith("two "))


def test_orphans_are_reaped(contain: Callable[..., Contained], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    server = contain("--processes", "2", before=ORPHAN)
    family = set(server.everybody())
    for _ in range(5):
        assert text(server, "/eval?leave_an_orphan()") == "left"
    # They read from the gate, which ends for all of them together.
    assert until(lambda: len(set(server.everybody()) - family) >= 5)
    orphans = set(server.everybody()) - family
    os.close(os.open(tmp_path / "gate", os.O_WRONLY))
    assert until(lambda: not any(is_running(pid) for pid in orphans))
    assert until(lambda: server.zombies() == [])
    assert set(server.everybody()) == family


def test_an_orphans_end_is_no_crash_of_ours(contain: Callable[..., Contained], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    server = contain(before=ORPHAN)
    pid = text(server).split()[1]
    assert text(server, "/eval?leave_an_orphan()") == "left"
    os.close(os.open(tmp_path / "gate", os.O_WRONLY))
    assert until(lambda: server.zombies() == [])
    assert text(server).split()[1] == pid


def test_a_killed_process_leaves_no_zombie(contain: Callable[..., Contained]) -> None:
    server = contain("--processes", "2")
    victim = max(server.everybody())
    os.kill(victim, signal.SIGKILL)
    assert until(lambda: not Path(f"/proc/{victim}").exists())
    assert until(lambda: len(server.everybody()) == 3)
    assert server.zombies() == []


def test_with_preload_the_templates_children_are_reaped_too(contain: Callable[..., Contained]) -> None:
    server = contain("--preload", "--processes", "2")
    assert until(lambda: len(server.everybody()) == 4)
    victim = max(server.everybody())
    os.kill(victim, signal.SIGKILL)
    assert until(lambda: not Path(f"/proc/{victim}").exists())
    assert until(lambda: len(server.everybody()) == 4)
    assert server.zombies() == []
    assert server.stop_first() == 0
