"""Reloads: the new is checked and started beside the old, takes over, and nobody notices."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path

import pytest

from raw import request
from serving import DEADLINE_S, free_port, run, until
from supervising import Supervised, calling, freeze, is_running, listening_inodes, write_app


def configured(folder: Path, text: str = "") -> str:
    """A configuration file with the application, the drain timeout and more."""
    (folder / "milepost.toml").write_text('app = "app:app"\ndrain_timeout = "10s"\n' + text)
    return "--config=milepost.toml"


def bound(folder: Path, *places: str) -> str:
    """Lines that name the addresses, and the control socket: flags would win over them."""
    names = ", ".join(f'"{place}"' for place in places)
    return f'bind = [{names}]\ncontrol = "{folder}/control"\n'


@pytest.fixture
def from_file(supervise: Callable[..., Supervised], tmp_path: Path) -> Callable[..., Supervised]:
    """Starts a server whose application is named by its file."""

    def start(text: str = "", *arguments: str, **options: object) -> Supervised:
        return supervise(configured(tmp_path, text), *arguments, app=None, **options)

    return start


def test_a_reload_that_was_asked_for_during_the_start_follows_it(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    """Although nothing else happens then: one driver, no heartbeats, and nobody who asks for the status."""
    write_app(tmp_path, before="import time\nwhile os.path.exists('hold'):\n    time.sleep(0.01)")
    hold = tmp_path / "hold"
    hold.touch()

    def status() -> subprocess.CompletedProcess[str]:
        return run(tmp_path, "status", "--json", "--control", str(tmp_path / "control"))

    def ask() -> None:
        assert until(lambda: status().returncode == 0)
        os.kill(json.loads(status().stdout)["pid"], signal.SIGHUP)
        # Signals are looked at before commands.
        status()
        hold.unlink()

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        server = supervise("--processes", "1", "--drivers", "1", "--heartbeat-timeout", "off")
        asked.result()
    assert until(lambda: "generation 2 serves" in server.errors), server.errors


@pytest.mark.parametrize("how", ["command", "signal"])
def test_new_code_and_new_settings_take_over(
    from_file: Callable[..., Supervised], tmp_path: Path, how: str
) -> None:
    server = from_file('server_header = "before"\nprocesses = 2\n')
    old = server.settled(2)
    assert server.ask().header("server") == "before"
    write_app(tmp_path, "two")
    configured(tmp_path, 'server_header = "after"\nprocesses = 3\n')
    if how == "command":
        server.done("reload")
    else:
        server.signal(signal.SIGHUP)
        assert until(lambda: server.answers()[0] == "two")
    assert server.serves_only("two")
    assert server.ask().header("server") == "after"
    assert not old & server.settled(3)
    assert not any(is_running(pid) for pid in old)


def test_the_command_ends_when_the_new_serves(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    server = supervise("--processes", "2")
    generation = max(one["generation"] for one in server.processes())
    for number in range(5):
        write_app(tmp_path, f"word{number}")
        server.done("reload")
        assert server.words(8) == {f"word{number}"}
    assert {one["generation"] for one in server.processes()} == {generation + 5}


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "unix"])
def test_the_command_ends_when_the_old_accepts_no_more(
    supervise: Callable[..., Supervised], tmp_path: Path, bind: str
) -> None:
    """Whoever connects after it is answered by new code, however late the old process looks at its orders."""
    server = supervise("--drivers", "2", bind=bind.replace("unix", f"unix:{tmp_path}/s"))
    (old,) = server.settled(1)
    write_app(tmp_path, "two")
    with ThreadPoolExecutor() as executor:
        freeze(old)
        reload = executor.submit(server.done, "reload")
        assert until(lambda: server.pids() - {old})
        with pytest.raises(FutureTimeout):
            reload.result(timeout=0.5)
        os.kill(old, signal.SIGCONT)
        assert "serves with 1 process" in reload.result()
    assert server.words() == {"two"}


def test_a_process_that_does_not_move_holds_no_reload(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    server = supervise()
    (old,) = server.settled(1)
    write_app(tmp_path, "two")
    freeze(old)
    told = server.done("reload")
    os.kill(old, signal.SIGCONT)
    assert re.search(rf"serves with 1 process .*may still accept: process .*{old}", told), told


def test_nothing_is_lost_under_load(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    server = supervise("--processes", "2", "--drivers", "2")
    with calling(server) as callers:
        for number in range(5):
            write_app(tmp_path, f"word{number}")
            server.done("reload")
    assert callers.lost == []
    assert callers.answered > 100
    assert len(callers.pids) >= 6


def test_waiting_connections_outlive_the_processes_that_they_waited_for(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    """More than the server takes in: the rest is in the kernel's queues, before and after."""
    # Those who are in wait for a thread as long as the reload takes, which is no overload.
    patience = ("--queue-target", "10s", "--queue-timeout", "5m", "--overload-timeout", "5m")
    server = supervise("--connections-max", "4", "--threads", "1:1", *patience)
    client, holder, _ = server.held()
    waiting = [server.connect() for _ in range(100)]
    for one in waiting:
        one.send(request("GET", "/", "Connection: close"))
    write_app(tmp_path, "two")
    server.done("reload")
    os.close(holder)
    assert client.reply().status == 200
    for one in waiting:
        with one:
            assert one.reply().status == 200


def test_what_runs_is_answered_by_the_old(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    server = supervise()
    client, holder, pid = server.held()
    write_app(tmp_path, "two")
    server.done("reload")
    assert server.serves_only("two")
    assert [one["pid"] for one in server.processes("draining")] == [pid]
    os.close(holder)
    reply = client.reply()
    assert (reply.text, reply.closes) == (f"one {pid}", True)
    assert until(lambda: not is_running(pid))


def test_an_idle_connection_is_told_with_its_next_reply(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    """Closing it at once could cross a request that is under way."""
    server = supervise()
    with server.connect() as client:
        pid = client.ask("GET", "/").text.split()[1]
        write_app(tmp_path, "two")
        server.done("reload")
        assert server.serves_only("two")
        reply = client.ask("GET", "/")
        assert (reply.text, reply.closes) == (f"one {pid}", True)
        assert client.is_closed()
    assert until(lambda: not is_running(int(pid)))


def test_an_idle_connection_that_asks_no_more_ends_with_the_drain_timeout(
    supervise: Callable[..., Supervised],
) -> None:
    server = supervise("--drain-timeout", "500ms")
    with server.connect() as client:
        pid = int(client.ask("GET", "/").text.split()[1])
        server.done("reload")
        assert client.is_closed()
    assert until(lambda: not is_running(pid))
    assert server.settled(1)


def test_a_request_that_never_ends_is_cut_at_the_drain_timeout(
    supervise: Callable[..., Supervised],
) -> None:
    server = supervise("--drain-timeout", "500ms", log=None)
    client, holder, pid = server.held()
    server.done("reload")
    assert client.sock.recv(1) == b""
    assert until(lambda: not is_running(pid))
    os.close(holder)
    assert server.settled(1) != {pid}


def test_an_old_process_that_ignores_everything_is_killed(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    server = supervise("--drain-timeout", "500ms", "--heartbeat-timeout", "off")
    (stuck,) = server.settled(1)
    freeze(stuck)
    write_app(tmp_path, "two")
    server.done("reload")
    assert server.serves_only("two")
    assert until(lambda: not is_running(stuck))
    assert f"{stuck}" in server.errors


BROKEN = {
    "syntax error": ("def broken(:", "SyntaxError"),
    "raises": ("raise RuntimeError('no such luck')", "RuntimeError: no such luck"),
    "missing module": ("import no_such_module", "no_such_module"),
    "exits": ("import sys; sys.exit(3)", "SystemExit"),
    "dies": ("import signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    "no application": ("", "app"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_code_that_cannot_be_imported_leaves_the_old_alone(
    supervise: Callable[..., Supervised], tmp_path: Path, name: str
) -> None:
    before, said = BROKEN[name]
    server = supervise("--processes", "2")
    old = server.settled(2)
    write_app(tmp_path, "two", before)
    if name == "no application":
        (tmp_path / "app.py").write_text("")
    with calling(server) as callers:
        assert said in server.refused("reload")
        server.signal(signal.SIGHUP)
        assert until(lambda: server.errors.count(said) >= 2), server.errors
        assert said in str(server.status()["last_fault"])
    assert callers.lost == []
    assert server.settled(2) == old
    assert server.serves_only("one")
    # It can be mended.
    write_app(tmp_path, "three")
    server.done("reload")
    assert server.serves_only("three")


INVALID = {
    "no TOML": "app = ",
    "unknown key": 'no_such_key = "x"\n',
    "wrong value": 'threads = "many"\n',
    "missing folder": '[static]\n"/static" = "no-such-folder"\n',
}


@pytest.mark.parametrize("name", INVALID)
def test_a_configuration_that_became_invalid_leaves_the_old_alone(
    from_file: Callable[..., Supervised], tmp_path: Path, name: str
) -> None:
    server = from_file()
    old = server.settled(1)
    configured(tmp_path, INVALID[name])
    said = server.refused("reload")
    assert "milepost.toml" in said or "no-such-folder" in said
    if name != "missing folder":
        assert re.search(r"milepost\.toml:\d+", said), said
    assert server.settled(1) == old
    assert server.answers()[0] == "one"
    configured(tmp_path)
    server.done("reload")


def test_a_configuration_that_is_gone_leaves_the_old_alone(
    from_file: Callable[..., Supervised], tmp_path: Path
) -> None:
    server = from_file()
    old = server.settled(1)
    (tmp_path / "milepost.toml").unlink()
    assert "milepost.toml" in server.refused("reload")
    assert server.settled(1) == old
    assert server.answers()[0] == "one"


def test_a_port_taken_by_another_leaves_the_old_alone(
    from_file: Callable[..., Supervised], tmp_path: Path
) -> None:
    place = bound(tmp_path, f"unix:{tmp_path}/s")
    server = from_file(place, bind=None, log=None)
    old = server.settled(1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        configured(tmp_path, bound(tmp_path, f"unix:{tmp_path}/s", taken))
        assert taken in server.refused("reload")
    assert server.settled(1) == old
    assert server.answers()[0] == "one"
    assert len(server.status()["addresses"]) == 1


def test_code_that_never_comes_to_its_end_fails_at_the_start_timeout(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    server = supervise("--start-timeout", "10s")
    old = server.settled(1)
    write_app(tmp_path, "two", "import threading; threading.Event().wait()")
    assert "start_timeout" in server.refused("reload")
    assert server.settled(1) == old
    assert server.serves_only("one")


def test_the_old_serves_for_as_long_as_the_new_is_not_ready(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    gate = tmp_path / "import"
    os.mkfifo(gate)
    server = supervise()
    old = server.settled(1)
    write_app(tmp_path, "two", f"open({str(gate)!r}).read()")
    server.signal(signal.SIGHUP)
    holder = os.open(gate, os.O_WRONLY)
    assert set(server.who_answer()) == old
    assert [one["state"] for one in server.processes(None)].count("starting") == 1
    os.close(holder)
    assert until(lambda: server.answers()[0] == "two")
    assert server.serves_only("two")


def test_signals_that_come_together_end_in_the_last_code(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    server = supervise()
    for number in range(5):
        write_app(tmp_path, f"word{number}")
        server.signal(signal.SIGHUP)
    assert until(lambda: server.words(4) == {"word4"})
    assert server.settled(1)


def test_a_stop_in_the_middle_of_a_reload_ends_both(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    server = supervise()
    old = server.settled(1)
    gate = tmp_path / "import"
    os.mkfifo(gate)
    write_app(tmp_path, "two", f"open({str(gate)!r}).read()")
    server.signal(signal.SIGHUP)
    holder = os.open(gate, os.O_WRONLY)
    pids = {one["pid"] for one in server.processes(None)}
    assert len(pids) == 2 and old < pids
    assert server.stop() == 0
    os.close(holder)
    assert not any(is_running(pid) for pid in pids)


def test_addresses_come_and_go(from_file: Callable[..., Supervised], tmp_path: Path) -> None:
    """The one that stays keeps its socket: who waits in it does not notice."""
    gone, new = free_port(10_000, 20_000), free_port(20_000, 30_000)
    unix = tmp_path / "s"
    server = from_file(bound(tmp_path, f"unix:{unix}", f"127.0.0.1:{gone}"), bind=None, log=None)
    inode = unix.stat().st_ino
    assert listening_inodes(gone)
    configured(tmp_path, bound(tmp_path, f"unix:{unix}", f"127.0.0.1:{new}"))
    server.done("reload")
    assert server.answers()[0] == "one"
    assert unix.stat().st_ino == inode
    with socket.create_connection(("127.0.0.1", new), DEADLINE_S) as client:
        client.sendall(request("GET", "/", "Connection: close"))
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    assert until(lambda: listening_inodes(gone) == set())


def test_a_stop_ends_an_old_process_that_waits_for_its_idle_connections(
    supervise: Callable[..., Supervised],
) -> None:
    server = supervise("--drain-timeout", "1h")
    with server.connect() as client:
        pid = int(client.ask("GET", "/").text.split()[1])
        server.done("reload")
        assert [one["pid"] for one in server.processes("draining")] == [pid]
        assert server.stop() == 0
        assert client.is_closed()
