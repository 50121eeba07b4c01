"""`milepost bench` as a user runs it, and small servers that say what reached them.

Takes arguments of the command line; gives the run from its JSON, and what it printed. The servers are
plain sockets with a thread for each connection: they share no code with the command, count what comes,
and answer, or fail to, as a test says.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from serving import COMMAND, DEADLINE_S, environment, run

# For runs that are repeated until the host did not stand still in one: a busy one does every other moment.
PATIENCE_S = 3 * DEADLINE_S
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Benched(NamedTuple):
    """A finished `milepost bench`."""

    code: int
    out: str
    err: str
    runs: list[dict[str, Any]]

    @property
    def run(self) -> dict[str, Any]:
        """The only run."""
        (only,) = self.runs
        return only

    @property
    def counts(self) -> dict[str, Any]:
        """What the only run counted."""
        return self.run["counts"]

    @property
    def failures(self) -> dict[str, int]:
        """Its failures, by why, without zeros."""
        return {why: count for why, count in self.counts["failures"].items() if count}

    @property
    def remarks(self) -> dict[str, str]:
        """Weights of its remarks by their words."""
        return {remark["word"]: remark["weight"] for remark in self.run["remarks"]}

    @property
    def stood_still(self) -> bool:
        """Whether a run is invalid because the machine gave its processors to others."""
        remarks = [remark for run in self.runs for remark in run["remarks"]]
        words = {one["word"] for one in remarks if one["weight"] == "invalid"}
        return bool(words & {"stalled", "generator-limited"})


def bench(folder: Path, *arguments: str, code: int | None = 0) -> Benched:
    """Run it to its end, which has to be `code`; `None`: whatever."""
    stored = folder / "bench.json"
    stored.unlink(missing_ok=True)
    done = run(folder, "bench", *arguments, "--json", str(stored))
    assert code in (None, done.returncode), done
    return Benched(done.returncode, done.stdout, done.stderr, stored_runs(stored))


def undisturbed(asking: Callable[[], Benched], code: int = 0) -> Benched:
    """The first `bench` whose host did not stand still, with that code: of any other it says itself, rightly,
    that no assertion can be decided."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        done = asking()
        if not done.stood_still:
            assert done.code == code, done
            return done
    raise AssertionError("this host stands still all the time")


def stored_runs(stored: Path) -> list[dict[str, Any]]:
    """The runs of a file; none if there is no file."""
    return json.loads(stored.read_text())["runs"] if stored.exists() else []


class Going:
    """A `milepost bench` that goes on beside the test."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._stored = folder / "going.json"
        self.process = subprocess.Popen(
            [str(COMMAND), "bench", *arguments, "--json", str(self._stored)],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> Benched:
        """Waits for its end."""
        try:
            out, err = self.process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return Benched(self.process.returncode, out, err, stored_runs(self._stored))


class Caller:
    """One accepted connection, as the server sees it."""

    def __init__(self, sock: socket.socket, peer: Peer, address: Any) -> None:
        self.sock = sock
        self.address = address
        self.requests = 0
        #: How many requests had arrived whenever the server looked: more than one were pipelined.
        self.most_waiting = 0
        #: `fin`, `rst`, or what the server did itself.
        self.ended = "open"
        self._peer = peer
        self._buffer = b""

    def request(self) -> tuple[str, bytes] | None:
        """The next request, head and body; `None` when the connection has ended."""
        while b"\r\n\r\n" not in self._buffer:
            if not self._more():
                return None
        head, _, _ = self._buffer.partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        end = len(head) + 4 + length
        while len(self._buffer) < end:
            if not self._more():
                return None
        body = self._buffer[len(head) + 4 : end]
        self.most_waiting = max(self.most_waiting, self._buffer.count(b"HTTP/1.1\r\n"))
        self._buffer = self._buffer[end:]
        self.requests += 1
        text = head.decode("latin-1")
        with self._peer.lock:
            self._peer.seen.append((text, body))
        return text, body

    def reset(self) -> None:
        """End it by a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.ended = "reset here"

    def _more(self) -> bool:
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            self.ended = "rst"
            return False
        except OSError:
            return False
        if not data:
            self.ended = "fin"
        self._buffer += data
        return bool(data)


Talk = Callable[[Caller], None]


def answering(reply: bytes = OK) -> Talk:
    """Answers every request alike, until the client ends the connection."""

    def talk(caller: Caller) -> None:
        while caller.request():
            caller.sock.sendall(reply)

    return talk


class Peer:
    """A server on a free port of 127.0.0.1. Use it as a context manager."""

    def __init__(self, talk: Talk, context: ssl.SSLContext | None = None) -> None:
        self.lock = threading.Lock()
        self.callers: list[Caller] = []
        #: Heads and bodies, in the order in which they came.
        self.seen: list[tuple[str, bytes]] = []
        self._talk = talk
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._threads: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        scheme = "https" if self._context else "http"
        return f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}/"

    @property
    def requests(self) -> int:
        """Complete requests that have come."""
        return len(self.seen)

    def endings(self) -> list[str]:
        """How each connection has ended, once all have."""
        for thread in self._threads:
            thread.join(DEADLINE_S)
        return [caller.ended for caller in self.callers]

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(sock, address), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, address: Any) -> None:
        sock.settimeout(DEADLINE_S)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context:
                sock = self._context.wrap_socket(sock, server_side=True)
            caller = Caller(sock, self, address)
            with self.lock:
                self.callers.append(caller)
            self._talk(caller)
        except OSError:
            # A client that has gone is what many tests are about.
            pass
        finally:
            sock.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        # Unlike close alone this wakes the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join(DEADLINE_S)
        self.endings()
