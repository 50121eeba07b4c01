"""A server that is commanded: processes, generations, and the application that says who has answered.

Takes arguments of the command line; gives the control socket's answers as the command prints them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from raw import Client, CutShort, Reply, request
from serving import DEADLINE_S, Milepost, run, until

APP = """
import os
import urllib.parse
{before}
WORD = {word!r}


def app(environ, start_response):
    if environ["PATH_INFO"] == "/gate":
        with open(environ["QUERY_STRING"]) as gate:
            gate.read()
    if environ["PATH_INFO"] == "/eval":
        body = str(eval(urllib.parse.unquote(environ["QUERY_STRING"]))).encode()
    else:
        body = ("%s %d" % (WORD, os.getpid())).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]
"""

# A target of that application whose reply comes when `Supervised.go` lets it: opening a pipe waits for the
# other side.
UNTIL_GO = "/eval?" + urllib.parse.quote("open('go').close()", safe="")


def write_app(folder: Path, word: str = "one", before: str = "") -> None:
    """`app:app`, which answers with its word and its process; `before` runs at its import."""
    new = folder / "app.new"
    new.write_text(APP.format(word=word, before=before))
    # In one step: whoever imports it meanwhile gets the one or the other.
    new.replace(folder / "app.py")


class Supervised(Milepost):
    """A supervisor and its processes; `pid` is the supervisor's."""

    def __init__(self, folder: Path, *arguments: str, **options: Any) -> None:
        self.control = folder / "control"
        if "bind" not in options or options["bind"]:
            arguments = (*arguments, "--control", str(self.control))
        with contextlib.suppress(FileExistsError):
            os.mkfifo(folder / "go")
        super().__init__(folder, *arguments, **options)

    def do(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command, to its end."""
        return run(self.folder, *words, "--control", str(self.control))

    def done(self, *words: str) -> str:
        """What the command says, which must succeed."""
        done = self.do(*words)
        assert done.returncode == 0, (done, self.errors)
        return done.stdout + done.stderr

    def refused(self, *words: str) -> str:
        """What the command says, to which the answer must be no."""
        done = self.do(*words)
        assert (done.returncode, done.stdout) == (1, ""), (done, self.errors)
        assert "panicked" not in done.stderr + self.errors
        return done.stderr

    def status(self) -> dict[str, Any]:
        """All that `milepost status --json` tells."""
        done = self.do("status", "--json")
        assert done.returncode == 0, (done, self.errors)
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def processes(self, state: str | None = "ready") -> list[dict[str, Any]]:
        """Those in that state, or all of them."""
        return [one for one in self.status()["processes"] if state in (None, one["state"])]

    def drivers(self) -> list[dict[str, Any]]:
        """Those of all processes that serve."""
        return [driver for one in self.processes() for driver in one["drivers"]]

    def pids(self) -> set[int]:
        """The processes that serve."""
        return {one["pid"] for one in self.processes()}

    def settled(self, count: int) -> set[int]:
        """The same, once they are so many and no other process is left."""
        pids: set[int] = set()

        def are_there() -> bool:
            nonlocal pids
            found = self.processes(None)
            pids = {one["pid"] for one in found}
            return len(found) == count and all(one["state"] == "ready" for one in found)

        assert until(are_there), (self.status(), self.errors)
        return pids

    def ask(self, target: str = "/") -> Reply:
        """The reply over a connection of its own."""
        with self.connect() as client:
            return client.ask("GET", target, "Connection: close")

    def eval(self, expression: str) -> str:
        """What the application makes of it."""
        reply = self.ask("/eval?" + urllib.parse.quote(expression, safe=""))
        assert reply.status == 200, reply
        return reply.text

    def answers(self) -> tuple[str, int]:
        """The application's word, and the process that has answered."""
        word, pid = self.ask().text.split()
        return word, int(pid)

    def who_answer(self, times: int = 64) -> Counter[int]:
        """How often each process has answered, of so many connections."""
        return Counter(self.answers()[1] for _ in range(times))

    def words(self, times: int = 16) -> set[str]:
        """Every word that was answered, of so many connections."""
        return {self.answers()[0] for _ in range(times)}

    def serves_only(self, word: str) -> bool:
        """Soon every connection is answered with it: the old generation is told to stop accepting at the
        moment at which the new one has taken over, and may have been about to."""
        return until(lambda: self.words() == {word})

    def held(self, name: str = "gate") -> tuple[Client, int, int]:
        """A request that runs now, the descriptor that holds it, and the process that has it."""
        gate = self.folder / name
        os.mkfifo(gate)
        client = self.connect()
        pid = int(client.ask("GET", "/").text.split()[1])
        client.send(request("GET", f"/gate?{gate}"))
        # Opening waits for the application to have opened the other side.
        return client, os.open(gate, os.O_WRONLY), pid

    @contextlib.contextmanager
    def go(self) -> Iterator[None]:
        """Requests for `UNTIL_GO` end: those that wait, and those that begin within the block."""
        # For both directions, because opening for one would wait for a request.
        gate = os.open(self.folder / "go", os.O_RDWR)
        try:
            yield
        finally:
            os.close(gate)


class Callers:
    """Threads that ask without a pause; what was lost is kept with its reason."""

    def __init__(self, server: Supervised) -> None:
        self.answered = 0
        self.pids: set[str] = set()
        self.lost: list[str] = []
        self._server = server
        self._noting = threading.Lock()
        self._over = threading.Event()

    def _short(self) -> None:
        """A connection for each request."""
        while not self._over.is_set():
            self._asking(self._server.connect, "Connection: close")

    def _kept(self) -> None:
        """One connection until the server says that it ends."""
        client: Client | None = None
        while not self._over.is_set():
            kept = client
            client = self._asking(lambda kept=kept: kept or self._server.connect())
        if client:
            client.sock.close()

    def _asking(self, connection: Callable[[], Client], *headers: str) -> Client | None:
        client: Client | None = None
        try:
            client = connection()
            reply = client.ask("GET", "/", *headers)
            assert reply.status == 200, reply
        except (OSError, CutShort, AssertionError) as fault:
            with self._noting:
                self.lost.append(repr(fault))
            if client:
                client.sock.close()
            return None
        with self._noting:
            self.answered += 1
            self.pids.add(reply.text.split()[1])
        if reply.closes:
            client.sock.close()
            return None
        return client

    @contextlib.contextmanager
    def running(self, each: int) -> Iterator[Callers]:
        """So many of each kind, until the block ends."""
        threads = [threading.Thread(target=ask) for ask in (self._short, self._kept) for _ in range(each)]
        for thread in threads:
            thread.start()
        try:
            assert until(lambda: self.answered > 20 or self.lost)
            yield self
        finally:
            self._over.set()
            for thread in threads:
                thread.join(DEADLINE_S)


def calling(server: Supervised, each: int = 4) -> contextlib.AbstractContextManager[Callers]:
    """Short-lived and kept connections, so many of each, beside the block."""
    return Callers(server).running(each)


def status_field(pid: int, name: str) -> list[str]:
    """The words of a line of /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return line.split()[1:]
    raise KeyError(name)


def parent(pid: int) -> int:
    """Of a process."""
    return int(status_field(pid, "PPid")[0])


def is_running(pid: int) -> bool:
    """Whether it has not ended; a zombie has."""
    try:
        return status_field(pid, "State")[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def listening_inodes(port: int) -> set[str]:
    """Sockets that listen on the port, v4 and v6."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                found.add(fields[9])
    return found


def held_inodes(pid: int) -> set[str]:
    """Sockets that a process has."""
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(fd)
            if target.startswith("socket:["):
                found.add(target[len("socket:[") : -1])
    return found


def freeze(pid: int) -> None:
    """Stops a process, and comes back when none of its threads runs any more."""
    os.kill(pid, signal.SIGSTOP)

    def is_frozen() -> bool:
        threads = Path(f"/proc/{pid}/task").iterdir()
        return all((thread / "stat").read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)

    assert until(is_frozen), "it still runs"
