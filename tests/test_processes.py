"""Processes: who binds, who serves, who is started how, and what happens when one ends or hangs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import milepost
import pytest

from certificates import Authority, meet
from raw import CutShort
from serving import DEADLINE_S, environment, free_port, run, until
from supervising import (
    Supervised,
    calling,
    freeze,
    held_inodes,
    is_running,
    listening_inodes,
    parent,
    status_field,
    write_app,
)


@pytest.mark.parametrize("count", [1, 3])
def test_as_many_serve_as_were_asked_for(supervise: Callable[..., Supervised], count: int) -> None:
    server = supervise("--processes", str(count))
    pids = server.settled(count)
    assert set(server.who_answer(100 * count)) == pids
    assert {parent(pid) for pid in pids} == {server.pid}


def test_workers_are_processes(supervise: Callable[..., Supervised]) -> None:
    assert len(supervise("-w", "2").settled(2)) == 2


def test_the_supervisor_has_one_thread_and_answers_nobody(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "2")
    assert server.pid not in server.who_answer()
    assert [task.name for task in Path(f"/proc/{server.pid}/task").iterdir()] == [str(server.pid)]


def test_processes_are_started_by_exec(supervise: Callable[..., Supervised]) -> None:
    """A fork of the supervisor would share its memory: an exec'ed process has another layout."""
    server = supervise("--processes", "2")
    stacks = set()
    for pid in (server.pid, *server.settled(2)):
        maps = Path(f"/proc/{pid}/maps").read_text()
        stacks.add(re.search(r"^(\S+) .*\[stack\]$", maps, re.MULTILINE)[1])  # type: ignore[index]
    assert len(stacks) == 3


def test_the_supervisor_owns_a_socket_for_each_driver_of_each_process(
    supervise: Callable[..., Supervised],
) -> None:
    server = supervise("--processes", "2", "--drivers", "3", "--bind", "[::1]:0", log=None)
    server.settled(2)
    urls = [address["url"] for address in server.status()["addresses"]]
    assert len(urls) == 2
    for url in urls:
        sockets = listening_inodes(int(url.rstrip("/").rsplit(":", 1)[1]))
        assert len(sockets) == 6, url
        assert sockets <= held_inodes(server.pid), url
    assert [address["sockets"] for address in server.status()["addresses"]] == [6, 6]


def test_nobody_is_accepted_before_the_application_is_imported(tmp_path: Path) -> None:
    """The sockets are there, so that nobody is refused; who comes early waits for the import."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    write_app(tmp_path, before=f"open({str(gate)!r}).read()")
    port = free_port()
    command = [sys.executable, "-m", "milepost", "serve", "app:app", "--bind", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL)
    try:
        # Opening waits for the import to have come this far.
        holder = os.open(gate, os.O_WRONLY)
        with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as early:
            early.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            early.setblocking(False)
            with pytest.raises(BlockingIOError):
                early.recv(1)
            early.settimeout(DEADLINE_S)
            os.close(holder)
            assert early.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    finally:
        process.terminate()
        assert process.wait(DEADLINE_S) == 0


# As `nobody`, with no group of root's.
NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}


def everybodys(folder: Path) -> tuple[list[str], dict[str, str]]:
    """The command as a user without rights may run it, and its environment."""
    version = "import sys; sys.exit(sys.version_info[:2] != (%d, %d))" % sys.version_info[:2]
    shutil.copytree(Path(milepost.__file__).parent, folder / "milepost")
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-c", version], cwd="/", **NOBODY).returncode == 0:
                return [python, "-m", "milepost"], {"PYTHONPATH": str(folder)}
    pytest.skip("no interpreter of this version that other users may run")


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder into which everybody may look, on the way there as well."""
    folder = Path("/tmp") / f"milepost-test-{os.getpid()}-{os.urandom(4).hex()}"
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_it_binds_a_privileged_port_and_then_drops_its_rights(public: Path) -> None:
    write_app(public)
    command, env = everybodys(public)
    free = free_port(700, 1000)
    options = {"bind": f"127.0.0.1:{free}", "log": None, "command": command, "env": env}
    with Supervised(public, "app:app", "--user", "nobody", "--processes", "2", **options) as server:
        assert server.answers()[0] == "one"
        for pid in (server.pid, *server.settled(2)):
            # Real, effective, saved and of the file system: none of them leads back.
            assert set(status_field(pid, "Uid")) == {"65534"}
            assert "0" not in status_field(pid, "Groups")
            # The supervisor alone may still bind ports below 1024, for a reload that adds one.
            kept = 1 << 10 if pid == server.pid else 0
            assert int(status_field(pid, "CapPrm")[0], 16) == kept
        # New sockets of a port that it could not bind any more: it has them already.
        server.done("reload")
        assert server.answers()[0] == "one"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_key_that_only_root_may_read_serves_another_user(public: Path) -> None:
    write_app(public)
    authority = Authority(public)
    command, env = everybodys(public)
    flags = ("app:app", *authority.flags("shop", "shop.example"), "--user", "nobody")
    with Supervised(public, *flags, log=None, command=command, env=env) as server:
        assert meet(server, authority.context()).reply.status == 200
        # The key cannot be read again: new processes get what the first ones have.
        assert "serves with" in server.done("reload")
        assert "the certificates stay as they were" in server.errors
        assert meet(server, authority.context()).reply.status == 200


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("is_upgraded", [False, True])
def test_a_pid_file_that_the_user_cannot_remove_is_emptied(public: Path, is_upgraded: bool) -> None:
    write_app(public)
    command, env = everybodys(public)
    pid_file = public / "milepost.pid"
    flags = ("app:app", "--user", "nobody", "--pid-file", str(pid_file))
    with Supervised(public, *flags, log=None, command=command, env=env) as server:
        if is_upgraded:
            server.done("upgrade")
        assert int(pid_file.read_text()) == server.pid
        assert server.stop() == 0
    assert pid_file.read_text() == ""
    assert f"the pid file `{pid_file}` is empty from now on, and cannot be removed" in server.errors


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its group")
def test_the_group_alone_may_be_dropped(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--group", "1")
    for pid in (server.pid, *server.settled(1)):
        assert set(status_field(pid, "Gid")) == {"1"}


@pytest.mark.parametrize(("flag", "what"), [("--user", "user"), ("--group", "group")])
def test_a_missing_user_or_group_is_named(tmp_path: Path, flag: str, what: str) -> None:
    write_app(tmp_path)
    done = run(tmp_path, "serve", "app:app", "--bind", "127.0.0.1:0", flag, "no-such-name")
    assert (done.returncode, done.stdout) == (2, "")
    assert what in done.stderr and "no-such-name" in done.stderr and "hint:" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="root itself may")
def test_dropping_rights_needs_them(public: Path) -> None:
    write_app(public)
    command, env = everybodys(public)
    words = [*command, "serve", "app:app", "--user", "daemon", "--bind", "127.0.0.1:0"]
    done = subprocess.run(words, cwd=public, env=environment(**env), capture_output=True, text=True, **NOBODY)
    assert done.returncode == 2
    assert "cannot become user" in done.stderr and "hint:" in done.stderr


def test_a_taken_port_is_named_and_nothing_is_started(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        write_app(tmp_path, before="open('imported', 'w')")
        binds = ("--bind", f"unix:{tmp_path}/s", "--bind", f"127.0.0.1:{port}")
        done = run(tmp_path, "serve", "app:app", "--processes", "2", *binds)
    assert done.returncode == 2
    assert not (tmp_path / "s").exists()
    assert str(port) in done.stderr
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGABRT], ids=["killed", "failed-invariant"])
def test_a_process_that_dies_is_replaced_and_only_its_requests_fail(
    supervise: Callable[..., Supervised], end: signal.Signals
) -> None:
    """A failed invariant ends its process by SIGABRT (crates/server/tests/faults/invariant.rs)."""
    server = supervise("--processes", "3", "--threads", "2:2", log=None)
    before = server.settled(3)
    client, holder, victim = server.held()
    with calling(server) as callers:
        os.kill(victim, end)
        with pytest.raises(CutShort):
            client.reply()
        assert until(lambda: victim not in server.pids() and len(server.pids()) == 3)
    os.close(holder)
    assert server.pids() & before == before - {victim}
    # Each of the eight callers can have had one request in that process, and none more.
    assert len(callers.lost) <= 8, callers.lost
    assert not [fault for fault in callers.lost if "Refused" in fault], callers.lost
    assert server.status()["totals"]["crashes"] == 1
    assert f"(pid {victim}) was killed by {end.name}" in server.errors


def test_no_connection_waits_for_a_dead_process(supervise: Callable[..., Supervised]) -> None:
    """Those in its queues are accepted by others: each socket has a live acceptor at any time."""
    server = supervise("--processes", "2", "--drivers", "2", "--accept-stall-timeout", "1h", log=None)
    victim = min(server.settled(2))
    freeze(victim)
    # What it accepts before it stops is its own.
    tasks = list(Path(f"/proc/{victim}/task").iterdir())
    assert until(lambda: all("\nState:\tT" in (task / "status").read_text() for task in tasks))
    waiting = [server.connect() for _ in range(64)]
    for client in waiting:
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    os.kill(victim, signal.SIGKILL)
    for client in waiting:
        with client:
            assert client.reply().status == 200


def test_connections_do_not_wait_for_a_stuck_process_either(supervise: Callable[..., Supervised]) -> None:
    """Later than `accept_stall_timeout`, another one accepts from its sockets as well."""
    server = supervise("--processes", "2", "--accept-stall-timeout", "100ms", "--heartbeat-timeout", "off")
    stuck = min(server.settled(2))
    freeze(stuck)
    try:
        assert stuck not in server.who_answer(64)
        assert server.status()["totals"]["stall_takeovers"] > 0
        assert is_running(stuck)
    finally:
        os.kill(stuck, signal.SIGCONT)
    assert until(lambda: stuck in server.who_answer(16)), "it has its sockets again"


def test_one_that_is_stuck_as_well_is_no_help(supervise: Callable[..., Supervised]) -> None:
    """Those that are stuck have the fewest connections, and would be asked first."""
    server = supervise("--processes", "4", "--accept-stall-timeout", "100ms", "--heartbeat-timeout", "off")
    stuck = sorted(server.settled(4))[:2]
    for pid in stuck:
        freeze(pid)
    try:
        assert not set(stuck) & set(server.who_answer(64))
    finally:
        for pid in stuck:
            os.kill(pid, signal.SIGCONT)
    assert until(lambda: set(stuck) <= set(server.who_answer(64))), "they have their sockets again"


def test_a_process_that_misses_heartbeats_is_replaced(supervise: Callable[..., Supervised]) -> None:
    # Long enough for the other one, which a busy machine may hold up.
    server = supervise("--processes", "2", "--heartbeat-timeout", "4s", log=None)
    before = server.settled(2)
    stuck = min(before)
    # It ignores SIGTERM as well, as anything stopped does.
    freeze(stuck)
    assert until(lambda: stuck not in server.pids() and len(server.pids()) == 2)
    assert until(lambda: not is_running(stuck))
    assert server.pids() & before == before - {stuck}
    assert f"{stuck}" in server.errors


def test_a_slow_request_misses_no_heartbeat(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--heartbeat-timeout", "3s", "--threads", "1:1")
    client, holder, pid = server.held()
    age_s = server.processes()[0]["age_s"]
    assert until(lambda: server.processes()[0]["age_s"] >= age_s + 7)
    os.close(holder)
    assert client.reply().text.endswith(f" {pid}")
    assert server.pids() == {pid}


def test_restarts_are_counted(supervise: Callable[..., Supervised]) -> None:
    server = supervise(log=None)
    for count in (1, 2, 3):
        (victim,) = server.settled(1)
        os.kill(victim, signal.SIGKILL)
        assert until(lambda victim=victim: server.pids() and victim not in server.pids())
        assert server.processes()[0]["restarts"] == count


NO_LUCK = "open('tries', 'a').write('x')\nraise RuntimeError('no such luck')"


def test_dying_at_import_five_times_ends_a_server_that_has_nothing_else(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    """Once it could be imported. Whoever looks after the supervisor is to see it."""
    server = supervise(log=None)
    (pid,) = server.settled(1)
    write_app(tmp_path, before=NO_LUCK)
    os.kill(pid, signal.SIGKILL)
    assert server.wait() not in (0, None)
    assert (tmp_path / "tries").read_text() == "xxxxx"
    assert "RuntimeError: no such luck" in "".join(server.stderr[-4:])
    assert "Traceback" in server.errors


def test_dying_at_import_five_times_stops_the_restarts_and_the_others_serve_on(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    server = supervise("--processes", "2", log=None)
    victim, other = sorted(server.settled(2))
    write_app(tmp_path, "two", NO_LUCK)
    os.kill(victim, signal.SIGKILL)
    tries = tmp_path / "tries"
    assert until(lambda: tries.exists() and tries.read_text() == "xxxxx")
    assert until(lambda: "no such luck" in str(server.status()["last_fault"]))
    assert set(server.who_answer()) == {other} == server.pids()
    # With code that works there are two again.
    write_app(tmp_path, "three")
    server.done("reload")
    server.settled(2)
    assert server.serves_only("three")
    assert tries.read_text() == "xxxxx"


def test_processes_end_with_their_supervisor(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "2", log=None)
    pids = server.settled(2)
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    assert until(lambda: not any(is_running(pid) for pid in pids))


def test_a_stop_ends_everybody_and_leaves_nothing(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    server = supervise("--processes", "3", "--drivers", "1", "--bind", f"unix:{tmp_path}/s")
    pids = server.settled(3)
    (port,) = {int(found) for found in re.findall(r"http://127.0.0.1:(\d+)", server.errors)}
    assert len(listening_inodes(port)) == 3
    assert server.stop() == 0
    assert not any(is_running(pid) for pid in pids)
    assert not (tmp_path / "s").exists()
    assert not server.control.exists()
    assert listening_inodes(port) == set()


def test_a_process_that_is_told_to_end_is_replaced_first(supervise: Callable[..., Supervised]) -> None:
    """By hand, or by the application itself; it has a long request, and the only socket."""
    server = supervise("--processes", "1", "--drivers", "1", "--drain-timeout", "60s")
    client, holder, pid = server.held()
    with calling(server, each=1) as callers:
        os.kill(pid, signal.SIGTERM)
        assert until(lambda: pid not in server.pids() and len(server.pids()) == 1)
        assert server.answers()[1] != pid
        os.close(holder)
        assert client.reply().status == 200
        assert until(lambda: not is_running(pid))
    assert callers.lost == []
    totals = server.status()["totals"]
    assert (totals["crashes"], totals["recycled"]) == (0, 1)
    client.sock.close()


def test_a_signal_to_all_processes_is_not_a_second_one(supervise: Callable[..., Supervised]) -> None:
    """The supervisor may have told them to end before it reaches them: what runs is answered."""
    server = supervise("--processes", "1", "--drain-timeout", "60s")
    client, holder, pid = server.held()
    listening = listening_inodes(server.address[1])
    assert held_inodes(pid) & listening
    os.kill(server.pid, signal.SIGTERM)
    assert until(lambda: not held_inodes(pid) & listening), "it has been told"
    os.kill(pid, signal.SIGTERM)
    os.close(holder)
    assert client.reply().status == 200
    client.sock.close()
    assert server.wait() == 0


FORKS = """
def child():
    pid = os.fork()
    if pid == 0:
        import signal
        for fd in map(int, os.listdir("/proc/self/fd")):
            try:
                # Whoever reads it would wait for this child.
                if os.readlink("/proc/self/fd/%d" % fd).startswith("pipe:"):
                    os.close(fd)
            except OSError:
                pass
        signal.pause()
        os._exit(0)
    return pid
"""


def test_a_child_of_the_application_does_not_keep_the_address(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    """`multiprocessing` forks: the child has all that the process has, and may outlive the server."""
    write_app(tmp_path, before=FORKS)
    server = supervise("--processes", "2", "--drivers", "1", log=None)
    server.settled(2)
    port = server.address[1]
    child = int(server.eval("child()"))
    try:
        assert server.stop() == 0
        assert is_running(child)
        assert listening_inodes(port) == set()
        again = supervise("--processes", "2", bind=f"127.0.0.1:{port}", log=None)
        assert again.ask().status == 200
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_stop_waits_for_no_process_that_ignores_it(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "2", "--drain-timeout", "300ms", log=None)
    stuck = min(server.settled(2))
    freeze(stuck)
    assert server.stop() in (0, 1)
    assert not is_running(stuck)
    assert f"{stuck}" in server.errors


@pytest.mark.parametrize(("count", "multiprocess"), [("1", "False"), ("2", "True")])
def test_the_application_knows_of_its_siblings(
    supervise: Callable[..., Supervised], count: str, multiprocess: str
) -> None:
    assert supervise("--processes", count).eval("environ['wsgi.multiprocess']") == multiprocess


def test_every_process_writes_into_the_same_logs(supervise: Callable[..., Supervised]) -> None:
    """Each exchange has one line, whole; the fixture counts them."""
    server = supervise("--processes", "3")
    assert len(server.who_answer(200)) == 3
    assert server.stop() == 0
    assert all(" 200 " in line and line.count("GET") == 1 for line in server.lines)


def test_the_supervisors_own_variables_reach_no_application(supervise: Callable[..., Supervised]) -> None:
    assert supervise().eval("[name for name in os.environ if 'HANDOVER' in name]") == "[]"
