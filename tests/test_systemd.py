"""systemd's own words: sockets that it has opened, the state that it is told, and the watchdog."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving import COMMAND, DEADLINE_S, environment, until
from supervising import Supervised, held_inodes, is_running, write_app

# Gives its descriptors to the program as systemd does: from 3 on, with the process's own id.
ACTIVATE = """
import fcntl, os, sys
fds, names, pid, *argv = sys.argv[1:]
moved = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 100) for fd in fds.split(",")]
for place, fd in enumerate(moved):
    os.dup2(fd, 3 + place)
    os.close(fd)
os.environ["LISTEN_FDS"] = str(len(moved))
os.environ["LISTEN_PID"] = pid or str(os.getpid())
if names:
    os.environ["LISTEN_FDNAMES"] = names
os.execv(argv[0], argv)
"""


class Manager:
    """The end of the notification socket that systemd has; collects what it is told."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.told: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(place.replace("@", "\0", 1))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._socket.recv(1 << 16):
                lines = dict(line.split("=", 1) for line in data.decode().splitlines())
                self.told.append(lines | {"at": str(time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)})

    def of(self, key: str) -> list[str]:
        """Every value of a variable, in order."""
        return [lines[key] for lines in self.told if key in lines]

    def close(self) -> None:
        """Nobody listens any more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join(DEADLINE_S)
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    """systemd, with a socket of either kind."""
    place = str(tmp_path / "notify") if request.param == "path" else f"@milepost-test-{os.getpid()}"
    found = Manager(place)
    yield found
    found.close()


@pytest.fixture
def listening() -> Iterator[list[socket.socket]]:
    """Two sockets as a .socket unit opens them."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        yield [one, two]


def activated(sockets: list[socket.socket], names: str = "", pid: str = "") -> list[str]:
    """The command that gives them on; its caller passes their descriptors."""
    fds = ",".join(str(sock.fileno()) for sock in sockets)
    return [sys.executable, "-c", ACTIVATE, fds, names, pid, str(COMMAND)]


@pytest.fixture
def activate(tmp_path: Path, supervise: Callable[..., Supervised]) -> Callable[..., Supervised]:
    """Starts a server with sockets that it inherits."""

    def start(
        sockets: list[socket.socket], *arguments: str, names: str = "", env: dict[str, str] | None = None
    ) -> Supervised:
        control = ("--control", str(tmp_path / "control"))
        given = {"command": activated(sockets, names), "pass_fds": [sock.fileno() for sock in sockets]}
        return supervise(*arguments, *control, bind=None, log=None, env=env, **given)

    return start


def refused(
    folder: Path, sockets: list[socket.socket], *arguments: str, names: str = "", pid: str = ""
) -> str:
    """What it says when it does not start with them."""
    write_app(folder)
    done = subprocess.run(
        [*activated(sockets, names, pid), "serve", "app:app", *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        pass_fds=[sock.fileno() for sock in sockets],
    )
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.startswith("milepost: ") and "panicked" not in done.stderr
    return done.stderr


def fetch(sock: socket.socket) -> bytes:
    """A reply from what listens on this socket."""
    with socket.create_connection(sock.getsockname(), DEADLINE_S) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


def test_it_says_when_it_is_ready_and_when_it_stops(
    supervise: Callable[..., Supervised], manager: Manager
) -> None:
    server = supervise(env={"NOTIFY_SOCKET": manager.place})
    assert until(lambda: manager.of("READY") == ["1"])
    # It has asked for the time that a start may take.
    assert int(manager.of("EXTEND_TIMEOUT_USEC")[0]) > 0
    assert server.answers()[0] == "one"
    assert until(lambda: manager.of("STATUS"))
    assert manager.of("STOPPING") == []
    assert server.stop() == 0
    assert until(lambda: manager.of("STOPPING") == ["1"])


def test_it_is_not_ready_before_the_application_is(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    write_app(tmp_path, before=f"open({str(gate)!r}).read()")
    process = subprocess.Popen(
        [str(COMMAND), "serve", "app:app", "--bind", "127.0.0.1:0"],
        cwd=tmp_path,
        env=environment(NOTIFY_SOCKET=manager.place),
        stderr=subprocess.DEVNULL,
    )
    try:
        holder = os.open(gate, os.O_WRONLY)
        assert manager.of("READY") == []
        os.close(holder)
        assert until(lambda: manager.of("READY") == ["1"])
    finally:
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
        manager.close()


def test_a_reload_is_told_with_its_time(
    supervise: Callable[..., Supervised], manager: Manager, tmp_path: Path
) -> None:
    """As `Type=notify-reload` has it: RELOADING=1 with the monotonic time, then READY=1 again."""
    server = supervise(env={"NOTIFY_SOCKET": manager.place})
    assert until(lambda: manager.of("READY") == ["1"])
    began_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    write_app(tmp_path, "two")
    server.signal(signal.SIGHUP)
    assert until(lambda: manager.of("READY") == ["1", "1"])
    (reloading,) = [lines for lines in manager.told if lines.get("RELOADING") == "1"]
    assert began_us <= int(reloading["MONOTONIC_USEC"]) <= int(reloading["at"])
    assert server.serves_only("two")


def test_a_reload_that_failed_ends_as_well(
    supervise: Callable[..., Supervised], manager: Manager, tmp_path: Path
) -> None:
    """Or systemd would wait for READY=1 and then kill what serves."""
    server = supervise(env={"NOTIFY_SOCKET": manager.place})
    assert until(lambda: manager.of("READY") == ["1"])
    write_app(tmp_path, "two", "raise RuntimeError('no such luck')")
    server.signal(signal.SIGHUP)
    assert until(lambda: manager.of("READY") == ["1", "1"])
    assert server.answers()[0] == "one"


def test_the_watchdog_is_fed_in_time(supervise: Callable[..., Supervised], manager: Manager) -> None:
    supervise(env={"NOTIFY_SOCKET": manager.place, "WATCHDOG_USEC": "400000"})
    assert until(lambda: len(manager.of("WATCHDOG")) >= 5)
    at = [int(lines["at"]) for lines in manager.told if "WATCHDOG" in lines]
    # Twice as often as it must be, as systemd recommends; a loaded machine may be late.
    assert sorted(later - sooner for sooner, later in zip(at, at[1:]))[len(at) // 2] <= 400_000


def test_the_watchdog_of_another_process_is_not_ours(
    supervise: Callable[..., Supervised], manager: Manager
) -> None:
    env = {"NOTIFY_SOCKET": manager.place, "WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"}
    server = supervise(env=env)
    assert until(lambda: manager.of("READY") == ["1"])
    assert server.stop() == 0
    assert manager.of("WATCHDOG") == []


def test_no_application_sees_what_systemd_said(
    activate: Callable[..., Supervised], listening: list[socket.socket]
) -> None:
    # A manager that is gone, and whose words come to nothing, stops nobody.
    said = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "100000"}
    server = activate(listening, "--bind", "systemd", env=said)
    names = "('NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID', 'LISTEN_FDS', 'LISTEN_PID', 'LISTEN_FDNAMES')"
    assert server.eval(f"[name for name in {names} if name in os.environ]") == "[]"


def test_all_inherited_sockets_are_served(
    activate: Callable[..., Supervised], listening: list[socket.socket]
) -> None:
    server = activate(listening, "--bind", "systemd", "--processes", "2")
    server.settled(2)
    for sock in listening:
        for _ in range(16):
            assert fetch(sock).startswith(b"HTTP/1.1 200 ")
        assert str(os.fstat(sock.fileno()).st_ino) in held_inodes(server.pid)


def test_sockets_are_chosen_by_name(
    activate: Callable[..., Supervised], listening: list[socket.socket]
) -> None:
    server = activate(listening, "--bind", "systemd:shop", names="admin:shop")
    (address,) = server.status()["addresses"]
    assert str(listening[1].getsockname()[1]) in address["url"]
    assert fetch(listening[1]).startswith(b"HTTP/1.1 200 ")


def test_a_unix_socket_is_inherited_and_not_deleted(
    activate: Callable[..., Supervised], tmp_path: Path
) -> None:
    place = tmp_path / "shop.sock"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(place))
        sock.listen(16)
        server = activate([sock], "--bind", "systemd")
        with server.connect() as client:
            assert client.ask("GET", "/").status == 200
        assert server.stop() == 0
        assert place.exists()


def test_inherited_sockets_outlive_reloads_and_upgrades(
    activate: Callable[..., Supervised], listening: list[socket.socket], tmp_path: Path
) -> None:
    server = activate(listening, "--bind", "systemd")
    for verb, word in (("reload", "two"), ("upgrade", "three")):
        write_app(tmp_path, word)
        server.done(verb)
        for sock in listening:
            assert word.encode() in fetch(sock)


def test_inherited_sockets_outlive_a_supervisor_that_was_killed(
    activate: Callable[..., Supervised], listening: list[socket.socket], tmp_path: Path
) -> None:
    """Its processes end by themselves, and leave the sockets as they were: the next server has them too."""
    first = activate(listening, "--bind", "systemd")
    (pid,) = first.settled(1)
    first.kill()
    assert until(lambda: not is_running(pid))
    write_app(tmp_path, "two")
    activate(listening, "--bind", "systemd")
    for sock in listening:
        assert b"two" in fetch(sock)


def test_connections_wait_in_them_while_nobody_serves(
    activate: Callable[..., Supervised], listening: list[socket.socket]
) -> None:
    """Those that came before the server, and those that come after its end."""
    early = socket.create_connection(listening[0].getsockname(), DEADLINE_S)
    early.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    server = activate(listening, "--bind", "systemd")
    with early:
        assert early.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    assert server.stop() == 0
    with socket.create_connection(listening[0].getsockname(), DEADLINE_S) as late:
        late.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")


def test_a_missing_name_is_refused(tmp_path: Path, listening: list[socket.socket]) -> None:
    said = refused(tmp_path, listening, "--bind", "systemd:shop", names="admin:front")
    assert "systemd:shop" in said and "hint:" in said


def test_sockets_for_another_process_are_none_of_ours(tmp_path: Path, listening: list[socket.socket]) -> None:
    assert "systemd" in refused(tmp_path, listening, "--bind", "systemd", pid="1")


def test_without_sockets_it_says_what_is_missing(tmp_path: Path) -> None:
    write_app(tmp_path)
    done = subprocess.run(
        [str(COMMAND), "serve", "app:app", "--bind", "systemd"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 2
    assert "systemd" in done.stderr and "hint:" in done.stderr


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("datagram", "it is no stream socket"),
        ("not listening", "it does not listen"),
        ("connected", "it does not listen"),
    ],
)
def test_what_cannot_be_accepted_from_is_refused(tmp_path: Path, kind: str, cause: str) -> None:
    with contextlib.ExitStack() as stack:
        if kind == "datagram":
            sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            sock.bind(("127.0.0.1", 0))
        elif kind == "not listening":
            sock = stack.enter_context(socket.socket())
            sock.bind(("127.0.0.1", 0))
        else:
            sock, other = socket.socketpair()
            stack.enter_context(sock)
            stack.enter_context(other)
        said = refused(tmp_path, [sock], "--bind", "systemd")
        assert "service manager" in said and cause in said and "hint:" in said
