"""The log stage: stalled and full disks, reopening, rotation, several logs, the error log.

What a client got a reply for is in the log or is counted as dropped; every request has a number, so
that each line can be found again.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from raw import Client, request
from serving import DEADLINE_S, Milepost, run, tables, until

PIPE_BYTES = 65_536


def numbers(text: str) -> list[int]:
    """The numbers of the requests in lines of a log."""
    return [int(n) for n in re.findall(r"[?&]n=(\d+)", text)]


def ask_numbered(client: Client, count: int, start: int = 0) -> None:
    """Requests in portions, each with its number."""
    for first in range(start, start + count, 50):
        some = range(first, min(first + 50, start + count))
        client.send(b"".join(request("GET", f"/hello?n={n}") for n in some))
        for _ in some:
            assert client.reply().status == 200


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB, where we may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or not mount or subprocess.run(command, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def status(client: Client) -> dict[str, object]:
    """The server's counters."""
    found: dict[str, object] = json.loads(client.ask("GET", "/-/status").body)
    return found


def test_a_stalled_disk_holds_nobody_up_and_what_it_costs_is_counted(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    # A pipe that nobody reads stalls a write as a dead disk does.
    pipe = tmp_path / "stalled"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    options = ("--access-log", str(pipe), "--log-buffer", "64K", "--log-flush", "10ms")
    server = serve("zoo:app", *options, "--status-path", "/-/status", log=None)
    count = 4_000
    with server.connect() as client:
        began = time.monotonic()
        ask_numbered(client, count)
        assert time.monotonic() - began < DEADLINE_S
        dropped = status(client)["log"]["dropped"]  # type: ignore[index]
    assert 0 < dropped < count
    os.set_blocking(reader, True)
    taken: list[bytes] = []
    thread = threading.Thread(target=lambda: taken.extend(iter(lambda: os.read(reader, PIPE_BYTES), b"")))
    thread.start()
    assert until(lambda: "lines were dropped" in server.errors)
    assert server.stop() == 0
    thread.join(DEADLINE_S)
    os.close(reader)
    kept = numbers(b"".join(taken).decode())
    assert kept == sorted(set(kept)), "once each, in order"
    told = sum(int(n) for n in re.findall(r"(\d+) lines were dropped", server.errors))
    # The last request was for the counters.
    assert len(kept) + told in (count, count + 1)


ASGI = """
async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})
"""


@pytest.mark.parametrize("app", ["zoo:app", "hello:app"])
def test_who_must_lose_nothing_waits(serve: Callable[..., Milepost], tmp_path: Path, app: str) -> None:
    (tmp_path / "hello.py").write_text(ASGI)
    pipe = tmp_path / "stalled"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    options = ("--log-buffer", "64K", "--log-flush", "10ms", "--log-overflow", "wait")
    server = serve(app, "--access-log", str(pipe), *options, log=None)
    count = 4_000
    with server.connect() as client:
        sender = threading.Thread(target=lambda: ask_numbered(client, count))
        sender.start()
        sender.join(2)
        assert sender.is_alive(), "it waits for the disk"
        os.set_blocking(reader, True)
        taken: list[bytes] = []
        thread = threading.Thread(target=lambda: taken.extend(iter(lambda: os.read(reader, PIPE_BYTES), b"")))
        thread.start()
        sender.join(DEADLINE_S)
        assert not sender.is_alive()
    assert server.stop() == 0
    thread.join(DEADLINE_S)
    os.close(reader)
    assert numbers(b"".join(taken).decode()) == list(range(count))


@pytest.mark.parametrize("app", ["zoo:app", "hello:app"])
def test_a_second_signal_ends_the_wait_for_a_log_that_is_stuck(
    serve: Callable[..., Milepost], tmp_path: Path, app: str
) -> None:
    (tmp_path / "hello.py").write_text(ASGI)
    pipe = tmp_path / "stalled"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    server = serve(app, "--access-log", str(pipe), "--log-overflow", "wait", log=None)
    with server.connect() as client:
        # More than a pipe has room for.
        for _ in range(20):
            assert client.ask("GET", f"/hello?{'x' * 4_000}").status == 200

    def is_over() -> bool:
        server.signal()
        return server.process.poll() is not None

    assert until(is_over, DEADLINE_S / 3)
    server.wait()
    os.close(reader)


@pytest.mark.parametrize("overflow", ["drop", "wait"])
def test_what_a_stuck_log_loses_at_the_end_is_said(
    serve: Callable[..., Milepost], tmp_path: Path, overflow: str
) -> None:
    pipe = tmp_path / "stalled"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    options = ("--log-overflow", overflow, "--drain-timeout", "1s", "--processes", "1")
    server = serve("zoo:app", "--access-log", str(pipe), *options, log=None)
    count = 20
    with server.connect() as client:
        # More than a pipe has room for.
        for _ in range(count):
            assert client.ask("GET", f"/hello?{'x' * 4_000}").status == 200
    assert server.stop() == 0
    kept = os.read(reader, 2 * PIPE_BYTES).count(b"\n")
    os.close(reader)
    assert "SIGKILL" not in server.errors
    lost = re.findall(r"(\d+) lines could not be written|dropped (\d+) more records", server.errors)
    assert kept + sum(int(number) for pair in lost for number in pair if number) == count, server.errors


TICKER = """
import threading, time

def tick():
    with open("ticks", "ab", buffering=0) as out:
        while True:
            out.write(b".")
            time.sleep(0.01)

threading.Thread(target=tick, daemon=True).start()

def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""


def test_who_waits_for_the_log_leaves_the_interpreter_to_others(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    (tmp_path / "ticker.py").write_text(TICKER)
    pipe, ticks = tmp_path / "stalled", tmp_path / "ticks"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    options = ("--log-buffer", "64K", "--log-flush", "10ms", "--log-overflow", "wait", "--threads", "2:2")
    server = serve("ticker:app", "--access-log", str(pipe), *options, log=None)
    with server.connect() as client:
        sender = threading.Thread(target=lambda: ask_numbered(client, 4_000))
        sender.start()
        sender.join(2)
        assert sender.is_alive(), "it waits for the disk"
        before = ticks.stat().st_size
        assert until(lambda: ticks.stat().st_size > before + 20)
        os.set_blocking(reader, True)
        drain = threading.Thread(target=lambda: list(iter(lambda: os.read(reader, PIPE_BYTES), b"")))
        drain.start()
        sender.join(DEADLINE_S)
    assert server.stop() == 0
    drain.join(DEADLINE_S)
    os.close(reader)


def test_a_full_disk_is_tried_again_until_it_is_not(serve: Callable[..., Milepost], small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    log = small_disk / "access.log"
    server = serve("zoo:app", "--access-log", str(log), "--log-flush", "10ms", log=None)
    with server.connect() as client:
        ask_numbered(client, 100)
        assert until(lambda: len(numbers(log.read_text())) == 100)
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        # Room for a part of a line.
        os.truncate(ballast, ballast.stat().st_size - 4096)
        ask_numbered(client, 1_000, start=100)
        assert until(lambda: "tried again" in server.errors)
        ballast.unlink()
        assert until(lambda: "are written" in server.errors)
        ask_numbered(client, 100, start=1_100)
    assert server.stop() == 0
    assert numbers(log.read_text()) == list(range(1_200))
    assert server.errors.count("tried again") == 1, "told once"


def test_a_torn_line_is_not_continued_in_another_file(
    serve: Callable[..., Milepost], small_disk: Path, tmp_path: Path
) -> None:
    ballast, log = small_disk / "ballast", small_disk / "access.log"
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "access.log"
    link.symlink_to(log)
    server = serve("zoo:app", "--access-log", str(link), "--log-flush", "10ms", log=None)
    with server.connect() as client:
        ask_numbered(client, 10)
        assert until(lambda: len(numbers(log.read_text())) == 10)
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        ask_numbered(client, 200, start=10)
        assert until(lambda: "tried again" in server.errors)
        # The disk stays full; the log moves.
        link.unlink()
        moved = tmp_path / "elsewhere" / "access.log"
        link.symlink_to(moved)
        server.signal(signal.SIGUSR1)
        assert until(lambda: "are written" in server.errors)
    assert server.stop() == 0
    assert log.read_text().endswith("\n") and moved.read_text().endswith("\n")
    assert numbers(log.read_text()) + numbers(moved.read_text()) == list(range(210))


def test_every_line_is_in_one_file_through_fifty_reopenings(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    server = serve("zoo:app", "--log-flush", "1ms", "--drivers", "2")
    log, clients, count = tmp_path / "access.log", 4, 3_000

    def load(first: int) -> None:
        with server.connect() as client:
            ask_numbered(client, count, start=first)

    threads = [threading.Thread(target=load, args=(c * count,)) for c in range(clients)]
    for thread in threads:
        thread.start()
    for turn in range(50):
        log.rename(tmp_path / f"old.{turn:03}")
        server.signal(signal.SIGUSR1)
        assert until(log.exists)
    for thread in threads:
        thread.join(DEADLINE_S)
    assert server.stop() == 0
    files = [*sorted(tmp_path.glob("old.*")), log]
    found = [n for file in files for n in numbers(file.read_text())]
    assert all(not file.read_text() or file.read_text().endswith("\n") for file in files)
    assert sorted(found) == list(range(clients * count))
    for c in range(clients):
        of_one = [n for n in found if n // count == c]
        assert of_one == sorted(of_one)
    # The fixture counts lines in the file that is left.
    log.write_text("".join(file.read_text() for file in files))


def test_a_file_that_was_copied_and_truncated_goes_on_at_its_beginning(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    server = serve("zoo:app", "--log-flush", "1ms")
    log = tmp_path / "access.log"
    with server.connect() as client:
        ask_numbered(client, 100)
        assert until(lambda: len(numbers(log.read_text())) == 100)
        first = log.read_text()
        os.truncate(log, 0)
        ask_numbered(client, 100, start=100)
    assert server.stop() == 0
    assert b"\0" not in log.read_bytes()
    assert numbers(first + log.read_text()) == list(range(200))
    log.write_text(first + log.read_text())


def test_it_rotates_by_size_compresses_and_keeps_what_it_is_told(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    strangers = ["access.log.1", "access.log.20261121T120739", "access.log.20261121T120739Z.bak"]
    for name in strangers:
        (tmp_path / name).write_text("not ours\n")
    options = ("--log-rotate-size", "64K", "--log-keep", "3", "--log-compress", "gzip")
    server = serve("zoo:app", *options, "--log-flush", "1ms")
    with server.connect() as client:
        for start in range(0, 6_000, 500):
            ask_numbered(client, 500, start=start)
    name = re.compile(r"access\.log\.(\d{8}T\d{6}Z)(?:\.(\d+))?(\.gz)?")

    def old_files() -> list[tuple[str, int, Path]]:
        found = ((name.fullmatch(file.name), file) for file in tmp_path.iterdir())
        return sorted((m[1], int(m[2] or 0), file) for m, file in found if m)

    assert until(lambda: [file.suffix for *_, file in old_files()] == [".gz"] * 3)
    assert server.stop() == 0
    assert all((tmp_path / stranger).read_text() == "not ours\n" for stranger in strangers)
    kept = ""
    for *_, file in old_files():
        data = file.read_bytes()
        kept += (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
    kept += (tmp_path / "access.log").read_text()
    found = numbers(kept)
    assert found == list(range(6_000 - len(found), 6_000)), "the last ones, without a gap"
    server.log = None


def test_several_logs_each_have_what_passes_their_filter(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "f").write_text("x")
    logs = tables(
        "access_log",
        {"to": "access.log"},
        {"to": "errors.log", "status": ["4xx", "500-599"], "format": "common"},
        {"to": "files.log", "route": "/static"},
        {"to": "slow.json", "slower": "2s", "format": "json"},
        {"to": "own.log", "format": '{status} {method} "{target}" {id}'},
    )
    server = serve("zoo:app", "--static", "/static=www", log=None, toml=logs)
    server.log = tmp_path / "access.log"
    with server.connect() as client:
        client.ask("GET", "/hello")
        client.ask("GET", "/static/f")
        client.ask("GET", "/static/none")
        client.ask("GET", "/nowhere")
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        client.send(request("GET", f"/gate?name={gate}"))
        with open(gate, "wb"):
            # Longer than the filter says; the others take a thousandth of it.
            time.sleep(2.1)
        assert client.reply().status == 200
    assert server.stop() == 0

    def lines(name: str) -> list[str]:
        return (tmp_path / name).read_text().splitlines()

    assert len(server.lines) == 5
    assert [re.search(r'" (\d+)', line)[1] for line in lines("errors.log")] == ["404", "404"]
    assert [re.search(r'"GET (\S+)', line)[1] for line in lines("files.log")] == ["/static/f", "/static/none"]
    assert [json.loads(line)["target"] for line in lines("slow.json")] == [f"/gate?name={gate}"]
    assert re.fullmatch(r'200 GET "/hello" [0-9a-f]{16}', lines("own.log")[0])


def test_addresses_and_queries_can_be_left_out(serve: Callable[..., Milepost]) -> None:
    server = serve("zoo:app", "--log-mask-v4", "8", "--log-query=false")
    with server.connect() as client:
        client.ask("GET", "/hello?secret=1", "Referer: http://r/x?secret=2")
    assert server.stop() == 0
    (line,) = server.lines
    assert line.startswith("127.0.0.0 - - [")
    assert '"GET /hello HTTP/1.1" 200 5 "http://r/x"' in line


def test_error_logs_have_their_levels_and_are_opened_anew(
    serve: Callable[..., Milepost], tmp_path: Path
) -> None:
    logs = tables("error_log", {"to": "stderr"}, {"to": "errors.log", "level": "error"})
    server = serve("zoo:app", toml=logs)
    log = tmp_path / "errors.log"
    with server.connect() as client:
        assert client.ask("GET", "/raises").status == 500
        assert until(lambda: "Traceback" in log.read_text())
        log.rename(tmp_path / "old.log")
        server.signal(signal.SIGUSR1)
        assert until(log.exists)
        assert client.ask("GET", "/raises").status == 500
        assert until(lambda: "Traceback" in log.read_text())
    assert server.stop() == 0
    assert server.errors.count("Traceback") == 2


def test_floods_of_errors_are_counted(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    server = serve("zoo:app", "--error-log", "errors.log")
    for _ in range(200):
        with server.connect() as client:
            client.ask("GET", "/raises")
    assert server.stop() == 0
    text = (tmp_path / "errors.log").read_text()
    written = len(re.findall(r"^\S+ error: (?!\d+ more in)", text, re.MULTILINE))
    counted = [int(n) for n in re.findall(r"(\d+) more in \d+ s: ", text)]
    assert written < 200
    assert written + sum(counted) == 200


def test_reopen_finds_the_server_by_its_pid_file(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    server = serve("zoo:app", "--pid-file", "milepost.pid")
    log = tmp_path / "access.log"
    with server.connect() as client:
        client.ask("GET", "/hello?n=1")
        assert until(lambda: numbers(log.read_text()) == [1])
        log.rename(tmp_path / "old.log")
        done = run(tmp_path, "reopen", "--pid-file", "milepost.pid")
        assert done.returncode == 0, done.stderr
        assert until(log.exists)
        client.ask("GET", "/hello?n=2")
    assert server.stop() == 0
    assert numbers(log.read_text()) == [2]
    assert not (tmp_path / "milepost.pid").exists()
    assert run(tmp_path, "reopen", "--pid-file", "milepost.pid").returncode != 0
    server.exchanges -= 1


def is_open(server: Milepost, path: Path) -> bool:
    """Whether a process of the server has a descriptor of the file."""
    for pid in (server.pid, server.serving_pid):
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(fd) == str(path):
                    return True
    return False


def test_logrotate_creates_and_copies(serve: Callable[..., Milepost], tmp_path: Path) -> None:
    logrotate = shutil.which("logrotate")
    if not logrotate:
        pytest.skip("logrotate is not installed")
    server = serve("zoo:app", "--pid-file", str(tmp_path / "pid"), "--log-flush", "1ms")
    log, found = tmp_path / "access.log", []
    log.chmod(0o644)
    for turn, manner in enumerate(["create 0644", "copytruncate"] * 3):
        with server.connect() as client:
            ask_numbered(client, 200, start=turn * 200)
        last = turn * 200 + 199
        assert until(lambda last=last: last in numbers(log.read_text()))
        config = tmp_path / "rotate.conf"
        config.write_text(
            f"su root root\n{log} {{\n rotate 20\n {manner}\n postrotate\n"
            f"  kill -USR1 $(cat {tmp_path}/pid)\n endscript\n}}\n"
        )
        config.chmod(0o644)
        command = [logrotate, "-f", "-s", str(tmp_path / "state"), str(config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        # The new file is there before the server hears of it: until then it goes on in the old one.
        old = tmp_path / "access.log.1"
        assert until(lambda old=old: not is_open(server, old))
        found += numbers(old.read_text())
    assert server.stop() == 0
    assert found + numbers(log.read_text()) == list(range(1_200))
    server.log = None
