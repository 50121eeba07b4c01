"""Upgrades: the program itself is started anew, the sockets and the process id stay, nobody notices."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import milepost
import pytest

from serving import COMMAND, until
from supervising import Supervised, calling, is_running, listening_inodes, write_app

MARK = "import os\nopen({place!r}, 'a').write('%d\\n' % os.getpid())\n"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A copy of the installed package that the test may change, as an installation does."""
    folder = tmp_path / "wheel"
    shutil.copytree(Path(milepost.__file__).parent, folder / "milepost")
    return folder / "milepost"


@pytest.fixture
def server(supervise: Callable[..., Supervised], wheel: Path) -> Iterator[Supervised]:
    """Two processes of the copied package."""
    command = [sys.executable, "-m", "milepost"]
    env = {"PYTHONPATH": str(wheel.parent)}
    yield supervise("--processes", "2", "--drain-timeout", "10s", command=command, env=env)


def install(wheel: Path, more: str) -> None:
    """A new version of the package, which does more when it is started."""
    new = wheel / "__main__.new"
    new.write_text(more + "\n" + (wheel / "__main__.py").read_text())
    new.replace(wheel / "__main__.py")


def marked(place: Path) -> set[int]:
    """Processes that were started with the new version."""
    return set(map(int, place.read_text().split())) if place.exists() else set()


@pytest.mark.parametrize("how", ["command", "signal"])
def test_a_new_wheel_and_new_code_take_over(
    server: Supervised, wheel: Path, tmp_path: Path, how: str
) -> None:
    old = server.settled(2)
    sockets = listening_inodes(server.address[1])
    install(wheel, MARK.format(place=str(tmp_path / "started")))
    write_app(tmp_path, "two")
    if how == "command":
        server.done("upgrade")
    else:
        server.signal(signal.SIGUSR2)
        assert until(lambda: server.answers()[0] == "two")
    assert server.serves_only("two")
    new = server.settled(2)
    assert not old & new
    assert not any(is_running(pid) for pid in old)
    # The supervisor is the same process with another program, and the sockets are the same ones.
    assert server.process.poll() is None
    assert {server.pid} | new <= marked(tmp_path / "started")
    assert listening_inodes(server.address[1]) == sockets
    assert server.status()["pid"] == server.pid


def test_nothing_is_lost_under_load(server: Supervised, wheel: Path, tmp_path: Path) -> None:
    with calling(server) as callers:
        for number in range(3):
            install(wheel, f"# version {number}")
            write_app(tmp_path, f"word{number}")
            server.done("upgrade")
            assert server.words(4) == {f"word{number}"}
    assert callers.lost == []


def test_what_the_old_ones_run_is_answered(server: Supervised, wheel: Path) -> None:
    client, holder, pid = server.held()
    install(wheel, "# another version")
    server.done("upgrade")
    assert pid not in server.who_answer(16)
    os.close(holder)
    assert client.reply().text == f"one {pid}"
    client.sock.close()
    # The new supervisor has taken over its predecessor's children too.
    assert until(lambda: not is_running(pid))


BROKEN = {
    "raises": "raise RuntimeError('a bad wheel')",
    "ends": "import sys; sys.exit('a bad wheel')",
    "dies": "import os; os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_wheel_that_does_not_start_leaves_the_old_alone(server: Supervised, wheel: Path, name: str) -> None:
    old = server.settled(2)
    before = (wheel / "__main__.py").read_text()
    install(wheel, BROKEN[name])
    with calling(server) as callers:
        assert "upgrade" in server.refused("upgrade")
        assert name == "dies" or until(lambda: "a bad wheel" in server.errors)
    assert callers.lost == []
    assert server.settled(2) == old
    assert server.process.poll() is None
    # And once it is mended, it starts.
    (wheel / "__main__.py").write_text(before)
    server.done("upgrade")
    assert not server.settled(2) & old


def test_a_program_that_is_gone_leaves_the_old_alone(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    program = Path(shutil.copy(COMMAND, tmp_path / "milepost"))
    server = supervise(command=[str(program)])
    old = server.settled(1)
    program.unlink()
    assert "upgrade" in server.refused("upgrade")
    assert until(lambda: str(program) in server.errors)
    assert server.settled(1) == old
    assert server.answers()[0] == "one"


def test_an_application_that_does_not_start_leaves_the_old_alone(
    server: Supervised, wheel: Path, tmp_path: Path
) -> None:
    old = server.settled(2)
    install(wheel, "# another version")
    write_app(tmp_path, "two", "raise RuntimeError('no such luck')")
    assert "no such luck" in server.refused("upgrade")
    assert server.settled(2) == old
    assert server.serves_only("one")


def test_counters_and_uptime_outlive_it(server: Supervised, wheel: Path) -> None:
    for _ in range(10):
        server.ask()
    before = server.status()
    server.done("upgrade")
    server.settled(2)
    after = server.status()
    assert after["totals"]["received"] == before["totals"]["received"] == 10
    assert after["started_unix_s"] == before["started_unix_s"]
    assert after["uptime_s"] >= before["uptime_s"]


def test_a_reload_after_it_and_a_stop_work_as_before(server: Supervised, tmp_path: Path) -> None:
    server.done("upgrade")
    write_app(tmp_path, "two")
    server.done("reload")
    assert server.serves_only("two")
    server.done("stop")
    assert server.wait() == 0


def test_a_pid_file_stays_what_it_was_until_the_next_start(
    supervise: Callable[..., Supervised], wheel: Path, tmp_path: Path
) -> None:
    def config(name: str) -> str:
        (tmp_path / "milepost.toml").write_text(f'app = "app:app"\npid_file = "{tmp_path / name}"\n')
        return "--config=milepost.toml"

    command = [sys.executable, "-m", "milepost"]
    server = supervise(config("old.pid"), app=None, command=command, env={"PYTHONPATH": str(wheel.parent)})
    config("new.pid")
    server.done("reload")
    assert "`pid_file` and `control` change with the next start" in server.errors
    server.done("upgrade")
    assert int((tmp_path / "old.pid").read_text()) == server.pid
    assert not (tmp_path / "new.pid").exists()
    server.done("stop")
    assert server.wait() == 0
    assert not (tmp_path / "old.pid").exists()
