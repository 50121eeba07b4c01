"""`milepost top` on a terminal: what it shows of a server, and what it leaves of the terminal at its end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest

from raw import CutShort, request
from serving import COMMAND, DEADLINE_S, Milepost, environment, free_port, run, until
from supervising import UNTIL_GO, Supervised, write_app


class Top:
    """`milepost top` on a terminal of its own, and what stands on it."""

    def __init__(self, folder: Path, *arguments: str, rows: int = 24, columns: int = 80, **env: str) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.raw = b""
        self.terminal, theirs = pty.openpty()
        self.before = termios.tcgetattr(theirs)
        self.resize(rows, columns)
        # Keeps the terminal open, so that its state can be read after the end.
        self.theirs = theirs
        self.process = subprocess.Popen(
            [str(COMMAND), "top", *arguments],
            cwd=folder,
            env=environment(TERM="xterm-256color", **env),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        self._stream = pyte.ByteStream(self.screen)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._ended.is_set():
            readable, _, _ = select.select([self.terminal], [], [], 0.1)
            if readable:
                data = os.read(self.terminal, 65_536)
                with self._lock:
                    self.raw += data
                    self._stream.feed(data)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def press(self, keys: str) -> None:
        os.write(self.terminal, keys.encode())

    @property
    def text(self) -> str:
        with self._lock:
            return "\n".join(line.rstrip() for line in self.screen.display)

    def shows(self, pattern: str) -> bool:
        return until(lambda: re.search(pattern, self.text, re.MULTILINE))

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)

    def is_restored(self) -> bool:
        """Whether the terminal is as it was before: its modes, its first screen and its cursor."""
        return until(
            lambda: (
                termios.tcgetattr(self.theirs) == self.before
                and self.raw.rfind(b"\x1b[?1049l") > self.raw.rfind(b"\x1b[?1049h")
                and self.raw.rfind(b"\x1b[?25h") > self.raw.rfind(b"\x1b[?25l")
            )
        )

    def hang_up(self) -> None:
        """Closes the terminal, as the end of a connection does."""
        if not self._ended.is_set():
            self._ended.set()
            self._reader.join()
            os.close(self.terminal)
            os.close(self.theirs)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()


@contextlib.contextmanager
def top(server: Supervised, **options: object) -> Iterator[Top]:
    shown = Top(server.folder, "--control", str(server.control), **options)  # type: ignore[arg-type]
    try:
        yield shown
    finally:
        shown.close()


@contextlib.contextmanager
def requests(server: Milepost, path: str) -> Iterator[None]:
    """Sends requests, one after the other, until the end."""
    enough = threading.Event()

    def send() -> None:
        while not enough.is_set():
            # A reload closes connections between two requests.
            with contextlib.suppress(CutShort), server.connect() as client:
                while not enough.is_set():
                    client.ask("GET", path)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Supervised]:
    write_app(tmp_path)
    with Supervised(tmp_path, "app:app", "--threads", "2:2", log=None) as server:
        yield server


def test_shows_rates_routes_and_pools(server: Supervised) -> None:
    with top(server) as shown, requests(server, "/shop/1"):
        assert shown.shows(r"^ +[1-9][0-9,.]* requests/s +[▁▂▃▄▅▆▇█]+$"), shown.text
        assert shown.shows(r"^app +[1-9]"), shown.text
        assert shown.shows(r"^default +2 +"), shown.text
        shown.press("\t\t\t\t")
        assert shown.shows(rf"^1\.0 +ready +{server.serving_pid} "), shown.text
        shown.press("?")
        assert shown.shows("any key goes back"), shown.text
        shown.press(" ")
        shown.press("p")
        assert shown.shows("^PAUSED"), shown.text
        shown.press("q")
        assert shown.wait() == 0
        assert shown.is_restored(), shown.raw[-200:]


def test_shows_running_requests_and_the_stack_of_the_chosen_one(server: Supervised) -> None:
    with top(server) as shown, server.connect() as client:
        client.send(request("GET", UNTIL_GO))
        shown.press("\t")
        path = re.escape(UNTIL_GO.partition("?")[0])
        assert shown.shows(rf"^GET {path} +[0-9].* default +{server.serving_pid}\.[12]$"), shown.text
        shown.press("\r")
        assert shown.shows(r"^Stack \(most recent call last\):"), shown.text
        assert shown.shows(rf"^GET {path} \[id [0-9a-f]+\]: runs for [0-9.]+ s"), shown.text
        assert shown.shows("in app$"), shown.text
        with server.go():
            assert client.reply().status == 200
        # The stack stays what it was until it is asked for again.
        shown.press("r")
        assert shown.shows("^stack: no running request has the id"), shown.text
        shown.press("\x1b")
        assert shown.shows(r"routes, last minute +\[running\]"), shown.text
        assert shown.shows("^nothing yet$"), shown.text
        shown.press("q")
        assert shown.wait() == 0


def test_shows_upstreams_logs_the_host_and_waits_of_pools(tmp_path: Path) -> None:
    """One server of the group is not there."""
    write_app(tmp_path)
    host, nobody = "127.0.0.1", free_port()
    site = tmp_path / "site"
    site.mkdir()
    (site / "file").write_text("text")
    with Milepost(tmp_path, "--static", f"/to={site}", log=None) as behind:
        there = behind.address[1]
        servers = f"http://{host}:{there},http://{host}:{nobody}"
        words = ("app:app", "--threads", "1:1", "--queue-target", "7ms", "--proxy", f"/to={servers}")
        with Supervised(tmp_path, *words) as server, top(server) as shown, requests(server, "/to/file"):
            assert shown.shows(r"^host  pressure cpu \d+ %|^host  steal \d+ %"), shown.text
            assert shown.shows(r"drops [0-9.]+/s$"), shown.text
            shown.press("\t" * 5)
            assert shown.shows(
                rf"^proxy-to {host}:{there} +\d+ +[1-9]\d* +[1-9][\d,.]* +[\d.]+ .?s +0 +0$"
            ), shown.text
            assert shown.shows(rf"^proxy-to {host}:{nobody} +0 +\d+ +0 +– +[\d.]+ +[01]$"), shown.text
            shown.press("\t")
            assert shown.shows(r"^access log +[1-9][\d,.]* +[\d.]+ K?B +0 +0 +[\d.]+ % +[\d.]+ .?s +–$"), (
                shown.text
            )
            assert shown.shows(r"^spool folder +0 B +0 tasks +– +0 +0 % +0 s +[\d.]+ [MGT]B$"), shown.text
            with contextlib.ExitStack() as clients:
                waiting = [clients.enter_context(server.connect()) for _ in range(2)]
                for client in waiting:
                    client.send(request("GET", UNTIL_GO))
                assert shown.shows(r"^default +1 +1 +1 +[\d.]+ m?s +7 ms "), shown.text
                with server.go():
                    assert [client.reply().status for client in waiting] == [200, 200]


def test_goes_on_through_a_reload(server: Supervised) -> None:
    with top(server) as shown, requests(server, "/shop/1"):
        assert shown.shows("generation 1$"), shown.text
        server.done("reload")
        assert shown.shows("generation 2$"), shown.text
        assert shown.shows(r"^app +[1-9]"), shown.text
        assert "anew" not in shown.text


def test_says_on_a_small_terminal_that_it_is_too_small(server: Supervised) -> None:
    with top(server) as shown:
        assert shown.shows("routes"), shown.text
        shown.resize(10, 20)
        assert shown.shows("terminal too small"), shown.text
        shown.resize(24, 80)
        assert shown.shows("routes, last minute"), shown.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_restores_the_terminal_when_a_signal_ends_it(server: Supervised, number: signal.Signals) -> None:
    with top(server) as shown:
        assert shown.shows("routes"), shown.text
        assert termios.tcgetattr(shown.theirs) != shown.before
        shown.process.send_signal(number)
        assert shown.wait() == 128 + number
        assert shown.is_restored(), shown.raw[-200:]


def test_ends_with_its_terminal(server: Supervised) -> None:
    with top(server) as shown:
        assert shown.shows("routes"), shown.text
        shown.hang_up()
        # No signal: that goes to programs whose session has this terminal.
        assert shown.wait() == 2


def test_waits_for_a_server_that_is_gone_and_shows_the_next_one(tmp_path: Path) -> None:
    write_app(tmp_path)
    with Supervised(tmp_path, "app:app", log=None) as server, top(server) as shown:
        assert shown.shows("routes"), shown.text
        server.stop()
        assert shown.shows("no server; waiting for it"), shown.text
        with Supervised(tmp_path, "app:app", log=None) as other:
            assert shown.shows(rf"process {other.pid}\b"), shown.text
            assert shown.shows("started anew"), shown.text


def test_says_that_a_stopped_server_does_not_answer(server: Supervised) -> None:
    with top(server) as shown:
        assert shown.shows("routes"), shown.text
        os.kill(server.pid, signal.SIGSTOP)
        try:
            assert shown.shows("does not answer; waiting for it"), shown.text
            shown.press("?")
            assert shown.shows("any key goes back"), shown.text
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert until(lambda: "does not answer" not in shown.text), shown.text


def test_uses_no_colour_where_none_is_wanted(server: Supervised) -> None:
    coloured = re.compile(rb"\x1b\[([0-9;]*;)?(3[1-7]|38;5;[0-9]+)[;m]")
    for env, expect in [({}, True), ({"NO_COLOR": "1"}, False)]:
        with top(server, **env) as shown:
            assert shown.shows("routes, last minute"), shown.text
            assert bool(coloured.search(shown.raw)) is expect, shown.raw


def test_wants_a_terminal_and_a_server(tmp_path: Path) -> None:
    refused = run(tmp_path, "top", "--control", "nowhere")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "standard output is no terminal\nhint: `milepost status --json`" in refused.stderr
    shown = Top(tmp_path, "--control", "nowhere")
    try:
        assert shown.shows("control socket `nowhere`: it is not there"), shown.text
        assert shown.wait() == 1
        assert b"\x1b[?1049h" not in shown.raw
        assert termios.tcgetattr(shown.theirs) == shown.before
    finally:
        shown.close()
