"""The control socket: who may command, how a server is found, what is said, and what nobody should send."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serving import COMMAND, DEADLINE_S, Milepost, environment, run, until
from supervising import Supervised, is_running, write_app


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """A runtime folder of the test's own."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def start(tmp_path: Path, runtime: Path) -> Iterator[Callable[..., Milepost]]:
    """Starts servers that choose the place of their control socket by themselves."""
    write_app(tmp_path)
    with contextlib.ExitStack() as stack:

        def begin(*arguments: str) -> Milepost:
            env = {"XDG_RUNTIME_DIR": str(runtime)}
            return stack.enter_context(Milepost(tmp_path, *arguments, env=env, log=None))

        yield begin


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command that says which server it means."""
    assert {"--config", "--control", "--pid", "--pid-file"} & set(words), "it could reach any server"
    return run(folder, *words, XDG_RUNTIME_DIR=str(folder / "run"))


# Hides the places where servers of others are found: a command without a name must not reach them. The
# second one may be gone in the moment in which it is to be hidden, as another test removes it.
HIDE = (
    "mount -t tmpfs none /run && place=/tmp/milepost-$(id -u) && "
    '{ test ! -e $place || mount -t tmpfs none $place || test ! -e $place; } && exec "$@"'
)
ALONE = ["unshare", "--mount", "sh", "-c", HIDE, "sh"]


def alone(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command that names no server, where only those of the test can be found."""
    if subprocess.run([*ALONE, "true"], capture_output=True).returncode != 0:
        pytest.skip("mounting is not allowed here")
    return subprocess.run(
        [*ALONE, str(COMMAND), *words],
        cwd=folder,
        env=environment(XDG_RUNTIME_DIR=str(folder / "run")),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def config(folder: Path, name: str = "shop.toml") -> str:
    """A configuration file."""
    (folder / name).write_text('app = "app:app"\n')
    return name


def talk(server: Supervised, *pieces: bytes) -> list[dict[str, object]]:
    """Bytes to the control socket, and the lines that it answers until it closes."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(DEADLINE_S)
        sock.connect(str(server.control))
        for piece in pieces:
            sock.sendall(piece)
        return lines(sock)


def lines(sock: socket.socket) -> list[dict[str, object]]:
    """What is answered until the other side closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(1 << 16):
            received += data
    return [json.loads(line) for line in received.splitlines()]


def test_a_server_is_found_by_its_configuration(
    start: Callable[..., Milepost], tmp_path: Path, runtime: Path
) -> None:
    server = start("--config", config(tmp_path))
    (place,) = (runtime / "milepost").glob("*.sock")
    assert re.fullmatch(r"shop-[0-9a-f]{8}\.sock", place.name)
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    # By whatever path leads there.
    for name in ("shop.toml", str(tmp_path / "shop.toml"), "./run/../shop.toml"):
        done = command(tmp_path, "status", "--json", "--config", name)
        assert json.loads(done.stdout)["pid"] == server.pid, done
    assert command(tmp_path, "stop", "--config", "shop.toml").returncode == 0
    assert server.wait() == 0
    assert not list((runtime / "milepost").glob("*.sock"))


def test_the_only_server_is_found_without_a_word(start: Callable[..., Milepost], tmp_path: Path) -> None:
    server = start("app:app")
    assert json.loads(alone(tmp_path, "status", "--json").stdout)["pid"] == server.pid
    stop = alone(tmp_path, "stop")
    assert stop.returncode == 0
    # It might be the server of somebody else.
    assert f"stop: process {server.pid}  " in stop.stderr and "(app:app " in stop.stderr
    assert server.wait() == 0


def test_of_several_servers_one_must_be_named(start: Callable[..., Milepost], tmp_path: Path) -> None:
    servers = [start("--config", config(tmp_path, name)) for name in ("one.toml", "two.toml")]
    done = alone(tmp_path, "stop")
    assert (done.returncode, done.stdout) == (2, "")
    for server, name in zip(servers, ("one.toml", "two.toml")):
        assert str(server.pid) in done.stderr and name in done.stderr
        assert json.loads(command(tmp_path, "status", "--json", "--pid", str(server.pid)).stdout)["pid"] == (
            server.pid
        )


@pytest.mark.parametrize("verb", ["stop", "reload", "reopen", "upgrade", "status", "scale --processes 2"])
def test_no_server_is_said_plainly(tmp_path: Path, runtime: Path, verb: str) -> None:
    named = [["--config", config(tmp_path)], ["--control", str(tmp_path / "control")]]
    dones = [command(tmp_path, *verb.split(), *words) for words in named]
    for done in (alone(tmp_path, *verb.split()), *dones):
        assert (done.returncode, done.stdout) == (1, ""), done
        assert done.stderr.startswith("milepost: ")


def test_a_server_is_found_by_its_pid_file(start: Callable[..., Milepost], tmp_path: Path) -> None:
    server = start("app:app", "--pid-file", "pid")
    done = command(tmp_path, "status", "--json", "--pid-file", "pid")
    assert json.loads(done.stdout)["pid"] == server.pid == int((tmp_path / "pid").read_text())


def test_status_tells_everything_as_json(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "2", "--drivers", "2", "--threads", "3:3")
    server.settled(2)
    for _ in range(20):
        server.ask()
    with server.connect() as client:
        assert client.ask("GET", "/").status == 200
        told = server.status()
    assert (told["pid"], len(told["generations"]), told["last_fault"]) == (server.pid, 1, None)
    assert told["version"] in run(server.folder, "--version").stdout
    assert told["control"] == str(server.control)
    assert len(told["processes"]) == 2
    for one in told["processes"]:
        assert one["state"] == "ready" and one["generation"] == told["generations"][0]["generation"]
        assert one["resident_bytes"] >= one["proportional_bytes"] > 1 << 20
        assert one["pools"][0]["threads"] == 3 and one["pools"][0]["waiting"] == 0
        assert [driver["driver"] for driver in one["drivers"]] == [0, 1]
        for driver in one["drivers"]:
            assert driver["accept_queue"] == 0 and driver["accept_queue_max"] > 0
    drivers = [driver for one in told["processes"] for driver in one["drivers"]]
    assert sum(driver["accepted"] for driver in drivers) == 21 == told["totals"]["accepted"]
    assert sum(driver["received"] for driver in drivers) == 21 == told["totals"]["received"]
    assert sum(driver["open"] for driver in drivers) == 1
    assert sum(one["requests"] for one in told["processes"]) == 21
    assert [address["url"] for address in told["addresses"]] == [server.url]


def test_the_accept_queue_is_what_waits_in_the_kernel(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--drivers", "1", "--connections-max", "1", log=None)
    # An idle connection would make room for those that wait.
    held, gate, _ = server.held()
    waiting = [server.connect() for _ in range(7)]
    assert until(lambda: server.drivers()[0]["accept_queue"] == 7)
    assert server.status()["addresses"][0]["accept_queue"] == 7
    os.close(gate)
    for client in (held, *waiting):
        client.sock.close()


def test_status_is_a_table_of_at_most_80_columns(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "2", "--drivers", "2")
    pids = server.settled(2)
    done = server.do("status")
    assert (done.returncode, done.stderr) == (0, "")
    for pid in (server.pid, *pids):
        assert re.search(rf"\b{pid}\b", done.stdout), done.stdout
    for word in ("generation", "driver", "accepted", "pool", server.url):
        assert word in done.stdout.lower(), done.stdout
    # A path is not cut.
    lines = [line for line in done.stdout.splitlines() if str(server.control) not in line]
    assert max(map(len, lines)) <= 80, done.stdout
    assert "\x1b" not in done.stdout


def test_stop_ends_the_server(supervise: Callable[..., Supervised]) -> None:
    server = supervise("--processes", "2")
    pids = server.settled(2)
    server.done("stop")
    assert server.wait() == 0
    assert not any(is_running(pid) for pid in pids)


def test_reopen_opens_the_logs_anew(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    """For all processes: none writes into the old file afterwards, and no line is lost."""
    server = supervise("--processes", "2")
    assert len(server.who_answer(40)) == 2
    old = tmp_path / "old.log"
    server.log.rename(old)
    server.done("reopen")
    assert until(server.log.exists)
    before = old.read_text()
    assert len(server.who_answer(40)) == 2
    assert server.stop() == 0
    assert old.read_text() == before
    # What was not written yet when the file was renamed is in the new one.
    assert len(before.splitlines()) + len(server.lines) == 80
    server.exchanges = len(server.lines)


def test_a_refused_reload_says_why_in_the_answer(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    server = supervise()
    write_app(tmp_path, "two", "raise RuntimeError('no such luck')")
    *_, last = talk(server, b'{"verb":"reload"}\n')
    assert last["done"] is False
    assert "Traceback" in str(last["detail"]) and "no such luck" in str(last["detail"])


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"reload\n",
        b"[]\n",
        b"{}\n",
        b'{"verb":7}\n',
        b'{"verb":"fly"}\n',
        b'{"verb":"scale"}\n',
        b'{"verb":"scale","processes":0}\n',
        b'{"verb":"scale","processes":-1}\n',
        b'{"verb":"scale","processes":1e9}\n',
        b'{"verb":"scale","processes":"two"}\n',
        b'{"verb":"\xff"}\n',
        b"\0\n",
        b'{"verb":"status"' + b" " * 5000 + b"}\n",
        b"[" * 4000 + b"\n",
    ],
)
def test_what_nobody_should_say_is_answered_by_a_refusal(
    supervise: Callable[..., Supervised], line: bytes
) -> None:
    server = supervise()
    pids = server.settled(1)
    (said,) = talk(server, line)
    assert said["done"] is False and said["message"]
    assert server.settled(1) == pids


def test_a_slow_request_is_read_and_one_that_never_ends_is_given_up(
    supervise: Callable[..., Supervised],
) -> None:
    server = supervise()
    (said,) = talk(server, b'{"verb":', b'"status"', b"}\n")
    assert said["done"] is True
    # Without a line's end it is no request, however long one waits.
    (said,) = talk(server, b'{"verb":"status"}')
    assert said["done"] is False
    assert server.answers()[0] == "one"


def test_a_client_that_is_gone_stops_nothing(supervise: Callable[..., Supervised], tmp_path: Path) -> None:
    server = supervise()
    write_app(tmp_path, "two")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(server.control))
        sock.sendall(b'{"verb":"reload"}\n')
    assert until(lambda: server.answers()[0] == "two")
    assert server.settled(1)


def test_many_clients_hold_nobody_up(supervise: Callable[..., Supervised]) -> None:
    """Of so many that say nothing some are turned away; commands and requests go on."""
    server = supervise()
    silent = []
    for _ in range(40):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(DEADLINE_S)
        sock.connect(str(server.control))
        silent.append(sock)
    assert server.answers()[0] == "one"
    for sock in silent:
        sock.close()
    assert until(lambda: server.do("status").returncode == 0)


def test_a_second_command_waits_or_is_refused_while_one_is_under_way(
    supervise: Callable[..., Supervised], tmp_path: Path
) -> None:
    gate = tmp_path / "import"
    os.mkfifo(gate)
    server = supervise("--processes", "1")
    write_app(tmp_path, "two", f"open({str(gate)!r}).read()")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(DEADLINE_S)
        sock.connect(str(server.control))
        sock.sendall(b'{"verb":"reload"}\n')
        holder = os.open(gate, os.O_WRONLY)
        # Status is always answered.
        assert server.status()["doing"] == "reloading"
        os.close(holder)
        assert lines(sock)[-1]["done"] is True
    assert server.serves_only("two")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_other_users_may_not_command(tmp_path: Path) -> None:
    """Not even where the folder lets them reach the socket."""
    write_app(tmp_path)
    place = Path("/tmp") / f"milepost-test-{os.getpid()}"
    place.mkdir(mode=0o755)
    # It need not say anything: who it is decides.
    ask = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
        "print(s.makefile().read())"
    )
    try:
        control = place / "control"
        with Milepost(tmp_path, "app:app", "--control", str(control), log=None) as server:
            os.chmod(control, 0o777)
            words = ["/usr/bin/python3", "-c", ask, str(control)]
            nobody = {"user": 65534, "group": 65534, "extra_groups": []}
            done = subprocess.run(words, cwd="/", capture_output=True, text=True, **nobody)  # type: ignore[call-overload]
            assert done.returncode == 0, done
            said = json.loads(done.stdout)
            assert said["done"] is False and "65534" in said["message"], done
            assert server.process.poll() is None
    finally:
        shutil.rmtree(place)


def test_a_stale_control_socket_is_taken_over(supervise: Callable[..., Supervised]) -> None:
    first = supervise(log=None)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert first.control.exists()
    second = supervise()
    assert second.status()["pid"] == second.pid
    assert second.stop() == 0
    assert not second.control.exists()


def test_a_second_supervisor_of_one_configuration_is_refused(
    start: Callable[..., Milepost], tmp_path: Path
) -> None:
    server = start("--config", config(tmp_path))
    done = command(tmp_path, "serve", "--config", "shop.toml", "--bind", "127.0.0.1:0")
    assert (done.returncode, done.stdout) == (2, "")
    assert str(server.pid) in done.stderr and "hint:" in done.stderr
    # The first one is untouched.
    told = command(tmp_path, "status", "--json", "--config", "shop.toml")
    assert json.loads(told.stdout)["pid"] == server.pid
    with server.connect() as client:
        assert client.ask("GET", "/").status == 200


def test_a_second_supervisor_at_one_control_socket_is_refused(supervise: Callable[..., Supervised]) -> None:
    server = supervise()
    more = ["serve", "app:app", "--bind", "127.0.0.1:0", "--control", str(server.control)]
    done = run(server.folder, *more)
    assert done.returncode == 2
    assert str(server.pid) in done.stderr
    assert server.status()["pid"] == server.pid


def test_a_file_in_the_place_of_the_socket_is_not_deleted(tmp_path: Path) -> None:
    write_app(tmp_path)
    (tmp_path / "control").write_text("mine")
    done = run(tmp_path, "serve", "app:app", "--bind", "127.0.0.1:0", "--control", "control")
    assert done.returncode == 2 and "control" in done.stderr
    assert (tmp_path / "control").read_text() == "mine"


def test_without_a_place_for_the_socket_it_serves_all_the_same(tmp_path: Path) -> None:
    """As in a container whose root is read-only: a warning, and signals still reach it."""
    write_app(tmp_path)
    (tmp_path / "file").write_text("no folder")
    last = Path(f"/tmp/milepost-{os.getuid()}")
    made = not last.exists()
    last.mkdir(exist_ok=True)
    read_only = f'mount -t tmpfs -o ro none /run && mount -t tmpfs -o ro none {last} && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", read_only, "sh"]
    try:
        if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
            pytest.skip("mounting is not allowed here")
        env = {"XDG_RUNTIME_DIR": str(tmp_path / "file")}
        with Milepost(tmp_path, "app:app", env=env, command=[*words, str(COMMAND)], log=None) as server:
            assert "no control socket" in server.errors
            with server.connect() as client:
                assert client.ask("GET", "/", "Connection: close").text.startswith("one ")
            write_app(tmp_path, "two")
            server.signal(signal.SIGHUP)

            def is_new() -> bool:
                with server.connect() as client:
                    return client.ask("GET", "/", "Connection: close").text.startswith("two ")

            assert until(is_new)
    finally:
        if made:
            last.rmdir()


def test_control_off_means_none(start: Callable[..., Milepost], tmp_path: Path, runtime: Path) -> None:
    start("app:app", "--control", "off")
    assert not list(runtime.rglob("*.sock"))
    assert alone(tmp_path, "status").returncode == 1


@pytest.mark.parametrize(
    ("path", "cause", "hint"),
    [
        ("x" * 200, "x` has ", "the kernel takes at most 107 bytes of path"),
        ("none/c.sock", "no such file or directory", "relative paths start at"),
    ],
)
def test_a_path_that_cannot_be_is_refused_with_its_reason(
    tmp_path: Path, path: str, cause: str, hint: str
) -> None:
    write_app(tmp_path)
    done = run(tmp_path, "serve", "app:app", "--bind", "127.0.0.1:0", "--control", path)
    assert done.returncode == 2
    assert cause in done.stderr and f"hint: {hint}" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_know_the_verbs(tmp_path: Path, shell: str) -> None:
    said = run(tmp_path, "completions", shell).stdout
    for verb in ("stop", "reload", "reopen", "upgrade", "scale", "status"):
        assert verb in said, verb


def test_the_module_talks_as_well(supervise: Callable[..., Supervised]) -> None:
    server = supervise()
    argv = [sys.executable, "-m", "milepost", "status", "--json", "--control", str(server.control)]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["pid"] == server.pid
