"""A running `milepost serve`, as a user would start it: the installed command in a fresh folder.

Takes arguments of the command line; gives the address that the start-up block names, the lines of
both logs, and connections that count what they exchange, so that at the end the access log can be
compared with it. Speaks to the server through sockets and signals only.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from raw import Client

APPS = Path(__file__).resolve().parent / "apps"
COMMAND = Path(sys.executable).parent / "milepost"
# Generous: it only bounds how long a broken server can hold up the tests. What takes a second on a machine
# of its own may take ten on one that is shared.
DEADLINE_S = 60


#: Event loops; uvloop is skipped, visibly, where it cannot be installed.
LOOPS = [
    "asyncio",
    pytest.param("uvloop", marks=pytest.mark.skipif(find_spec("uvloop") is None, reason="needs uvloop")),
]


@functools.cache
def runtime_folder() -> str:
    """Where servers of this run put their control sockets: nobody else's commands are to find them."""
    folder = tempfile.mkdtemp(prefix="milepost-run-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def environment(**more: str) -> dict[str, str]:
    """The environment for the command: ours without settings of Milepost and without the checkout."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MILEPOST_", "PYTHON"))}
    return kept | {"PYTHONDONTWRITEBYTECODE": "1", "XDG_RUNTIME_DIR": runtime_folder()} | more


def tables(name: str, *entries: dict[str, object]) -> str:
    """A setting of several parts, as TOML has it: one table for each entry."""
    lines = []
    for entry in entries:
        lines.append(f"[[{name}]]")
        # What JSON writes for texts, numbers and lists of them is TOML as well.
        lines += [f"{key} = {json.dumps(value)}" for key, value in entry.items()]
    return "\n".join([*lines, ""])


class Milepost:
    """One server process. Use it as a context manager; leaving it stops and checks the server."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        bind: str | None = "127.0.0.1:0",
        log: str | None = "access.log",
        toml: str = "",
        env: dict[str, str] | None = None,
        command: Sequence[str] = (str(COMMAND),),
        pass_fds: Sequence[int] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.folder = folder
        #: With what our clients speak TLS, where the server does.
        self.tls = tls
        self.log = folder / log if log else None
        #: Replies received by our clients, which is how many access lines there must be at the end.
        self.exchanges = 0
        self.stderr: list[str] = []
        self.url = ""
        self._listening = threading.Event()
        self._counting = threading.Lock()
        argv = [*command, "serve", *arguments]
        if bind:
            argv += ["--bind", bind]
        if self.log:
            argv += ["--access-log", str(self.log)]
        if toml:
            config = folder / "milepost.toml"
            config.write_text(toml)
            argv += ["--config", str(config)]
        self.process = subprocess.Popen(
            argv,
            cwd=folder,
            env=environment(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            pass_fds=pass_fds,
        )
        self._reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._reader.start()
        if not self._listening.wait(DEADLINE_S) or not self.url:
            self.kill()
            raise AssertionError("the server did not start:\n" + "".join(self.stderr))

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr.append(line)
            found = re.search(r"listening on (\S+)", line)
            if found and not self.url:
                self.url = found[1]
                self._listening.set()
        # The end of the stream also ends the waiting for a server that could not start.
        self._listening.set()

    @property
    def address(self) -> tuple[str, int] | str:
        """Where it listens: host and port, or the path of a unix socket."""
        if self.url.startswith("unix:"):
            return self.url.removeprefix("unix:")
        address = self.url.removeprefix("http://").removeprefix("https://")
        host, _, port = address.rstrip("/").rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def pid(self) -> int:
        """Its first process: the supervisor."""
        return self.process.pid

    @property
    def serving_pid(self) -> int:
        """The only one of its processes that serves."""
        (pid,) = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(pid)

    def connect(self, receive_buffer_bytes: int | None = None) -> Client:
        """A new connection whose replies are counted."""
        address = self.address
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        if not isinstance(address, str) and ":" in address[0]:
            family = socket.AF_INET6
        sock = socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer_bytes:
            # Before the connect, or the window has been announced already.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.settimeout(DEADLINE_S)
        sock.connect(address)
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls:
            sock = self.tls.wrap_socket(sock, server_hostname="localhost")
        return Client(sock, self.count)

    def count(self, exchanges: int = 1) -> None:
        """Exchanges have ended; from any thread. Replies that are read are counted by themselves."""
        with self._counting:
            self.exchanges += exchanges

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended by itself."""
        # stdout is read to its end as well, or a server that writes much there could never end.
        assert self.process.stdout is not None
        self.stdout = self.process.stdout.read()
        code = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def stop(self) -> int:
        """SIGTERM, and its exit code."""
        if self.process.poll() is None:
            self.signal()
        return self.wait()

    def kill(self) -> None:
        """End it at once, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()

    @property
    def lines(self) -> list[str]:
        """Lines of the access log; complete only after the server has stopped."""
        assert self.log is not None
        return self.log.read_text("latin-1").splitlines() if self.log.exists() else []

    @property
    def errors(self) -> str:
        """What it wrote to stderr so far."""
        return "".join(self.stderr)

    def __enter__(self) -> Milepost:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.kill()
            sys.stderr.write(self.errors)
            return
        if self.process.returncode is None:
            assert self.stop() == 0, self.errors
        if self.log:
            lines = self.lines
            assert len(lines) == self.exchanges, (self.exchanges, lines[-20:])


def until(condition: Callable[[], object], within_s: float = DEADLINE_S) -> bool:
    """Whether `condition` comes true in time: for what nobody tells us about, such as counters."""
    end = time.monotonic() + within_s
    while True:
        began = time.monotonic()
        if condition():
            return True
        now = time.monotonic()
        if now > end:
            return False
        # A look may be a command, which takes time of the processor from what is waited for.
        time.sleep(min(max(0.02, 2 * (now - began)), 1.0))


def free_port(lowest: int = 10_000, above: int = 30_000) -> int:
    """A port of 127.0.0.1 that a server may bind a little later.

    It is below those that the kernel gives to whoever does not ask for one (32768 and up): a client of
    another test could get such a port before the server has it.
    """
    for port in random.sample(range(lowest, above), 200):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("all ports are taken")


def run(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; for everything that is not serving."""
    return subprocess.run(
        [str(COMMAND), *arguments],
        cwd=folder,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


@contextlib.contextmanager
def in_foreground(*argv: str, port: int, folder: Path, **env: str) -> Iterator[None]:
    """A server of others in the foreground, from its first accepted connection to the end of the block."""
    output = folder / f"{port}.out"
    with output.open("wb") as log:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | env, cwd=folder
        )

    def accepts() -> bool:
        assert process.poll() is None, output.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        assert until(accepts), output.read_text()
        yield
    finally:
        process.terminate()
        process.wait(DEADLINE_S)
