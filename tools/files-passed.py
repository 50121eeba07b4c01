"""How many files a request passes: those below crates/ that contain a function which runs because of it.

    files-passed.py MILEPOST [--functions] [--json FILE]

Takes the command `milepost` of a virtual environment whose wheel was built without optimisation, so that no
function is inlined away. Gives, on stdout, for a cached file and for a WSGI GET without a body (a body of
one part, a kept connection, the access log on): the files in the order in which the request first meets
them, their number, that of their functions, and how often the next function that is met is in another file.

Every function whose first line is in a file below crates/ gets a breakpoint, by ptrace, which its first call
takes away. This is done for several requests: what ran in four of five counts, whatever its thread (driver or
worker). Functions that also run by the clock (deadlines, logs) are traced once more without the others, since
a request that is traced by a few breakpoints only is too short for them. Functions that a derive has made are
left out: there is nothing of them to read. For Linux on x86-64.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

REPEATS = 25
# On a busy machine a thread may come too late for its repetition, or a deadline early.
COMMON_SHARE = 0.8
# Long enough for what runs every second.
IDLE_S = 1.5
WARM_UP = 30
START_S = 30.0
# Behind the reply: the log record of a request, and the way of its connection back to the driver.
# It has ended when no thread calls anything new for so long: short, or all repetitions would meet what is due
# four times a second.
SETTLE_S = 0.02
POLL_S = 0.0005
PATHS = {"cached file": "/static/small.txt", "WSGI GET": "/app"}
APP = """
BODY = b"x" * 1024

def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "1024")])
    return [BODY]
"""
SYMBOL = re.compile(r"([0-9a-f]+) [tT] (.+)")
INT3 = 0xCC
PTRACE_CONT, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 7, 17, 0x4206, 0x4207
PTRACE_PEEKUSER, PTRACE_POKEUSER = 3, 6
WALL = 0x40000000
# Of the program counter in the kernel's `struct user`.
RIP_OFFSET = 16 * 8
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.argtypes = [ctypes.c_long] * 4
_LIBC.ptrace.restype = ctypes.c_long


class Unusable(Exception):
    """Nothing can be traced; the text says why."""


@dataclass(frozen=True)
class Function:
    """A function of ours, and where it begins."""

    name: str
    file: str


@dataclass(frozen=True)
class Step:
    """The first call of a function, and the thread that made it."""

    thread: str
    address: int


def main() -> int:
    """0 traced, 2 could not."""
    parser = argparse.ArgumentParser(prog="files-passed", description=__doc__.split("\n")[0])
    parser.add_argument(
        "milepost", type=Path, help="the command, of an environment with an unoptimised wheel"
    )
    parser.add_argument("--functions", action="store_true", help="also list the functions of each file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there too")
    options = parser.parse_args()
    try:
        found = trace_all(options.milepost.absolute())
    except (Unusable, OSError, subprocess.SubprocessError) as fault:
        print(f"files-passed: {fault}", file=sys.stderr)
        return 2
    for title, walk in found.items():
        print(walk.text(title, options.functions))
    if options.json:
        options.json.write_text(json.dumps({title: walk.plain() for title, walk in found.items()}, indent=1))
    return 0


@dataclass(frozen=True)
class Walk:
    """The functions that a request calls, in the order of their first calls."""

    steps: list[Step]
    functions: dict[int, Function]

    def files(self) -> dict[str, list[str]]:
        """Each file with its functions, in the order in which they are met."""
        files: dict[str, dict[str, None]] = {}
        for step in self.steps:
            function = self.functions[step.address]
            files.setdefault(function.file, {})[function.name] = None
        return {file: list(names) for file, names in files.items()}

    def changes(self) -> int:
        """How often a thread meets a function in another file than the one before."""
        last: dict[str, str] = {}
        changes = 0
        for step in self.steps:
            file = self.functions[step.address].file
            changes += last.get(step.thread, file) != file
            last[step.thread] = file
        return changes

    def plain(self) -> dict[str, object]:
        """As values for JSON."""
        counts = {"files": len(self.files()), "functions": len(self.steps), "changes": self.changes()}
        threads = sorted({step.thread for step in self.steps})
        return {"counts": counts, "threads": threads, "files": self.files()}

    def text(self, title: str, with_functions: bool) -> str:
        """For people."""
        files = self.files()
        threads = ", ".join(sorted({step.thread for step in self.steps}))
        lines = [
            f"{title}: {len(files)} files, {len(self.steps)} functions, {self.changes()} changes of file "
            f"between them; threads: {threads}"
        ]
        for number, (file, names) in enumerate(files.items(), 1):
            lines.append(f"{number:4} {file}")
            lines += [f"         {name}" for name in names if with_functions]
        return "\n".join(lines) + "\n"


def trace_all(milepost: Path) -> dict[str, Walk]:
    """The walk of each kind of request. Raises Unusable."""
    library = library_of(milepost)
    functions = functions_of(library)
    with tempfile.TemporaryDirectory(prefix="milepost-files-passed-") as folder:
        with serving(milepost, Path(folder)) as (port, pid):
            return {
                title: Walk(walk(port, path, pid, library, set(functions)), functions)
                for title, path in PATHS.items()
            }


def library_of(milepost: Path) -> Path:
    """The extension module that the command loads."""
    find = "import milepost._milepost as m; print(m.__file__)"
    python = [str(milepost.parent / "python"), "-c", find]
    done = subprocess.run(python, capture_output=True, text=True, check=True, cwd="/")
    return Path(done.stdout.strip()).resolve()


def functions_of(library: Path) -> dict[int, Function]:
    """Every function below crates/, by the address of its first instruction. Raises Unusable."""
    named: dict[int, str] = {}
    listed = subprocess.run(["nm", "-C", str(library)], capture_output=True, text=True, check=True)
    for address, name in SYMBOL.findall(listed.stdout):
        named.setdefault(int(address, 16), name)
    asked = "\n".join(f"{address:#x}" for address in named)
    told = subprocess.run(
        ["addr2line", "-e", str(library)], input=asked, capture_output=True, text=True, check=True
    )
    functions = {}
    for (address, name), place in zip(named.items(), told.stdout.splitlines()):
        _, below, file = place.rpartition("/crates/")
        # The standard library has a folder of that name as well.
        if below and not place.startswith("/rustc/") and not is_derived(place):
            functions[address] = Function(re.sub(r"::h[0-9a-f]{16}$", "", name), file.rpartition(":")[0])
    if not functions:
        raise Unusable(f"`{library}` has no lines of crates/: was it built without debug information?")
    return functions


def is_derived(place: str) -> bool:
    """Whether there is a derive at `FILE:LINE`, where a function begins."""
    file, _, line = place.partition(" ")[0].rpartition(":")
    lines = lines_of(file)
    return line.isdigit() and int(line) <= len(lines) and lines[int(line) - 1].startswith("#[derive(")


@functools.cache
def lines_of(file: str) -> list[str]:
    """The lines of a source without indentation. Raises Unusable."""
    try:
        return [line.strip() for line in Path(file).read_text().splitlines()]
    except OSError as fault:
        raise Unusable(f"the wheel's sources are not here: {fault}") from fault


@contextlib.contextmanager
def serving(milepost: Path, folder: Path) -> Iterator[tuple[int, int]]:
    """A server with one worker; gives its port, and the id of the process that serves."""
    (folder / "hot_app.py").write_text(APP)
    (folder / "files").mkdir()
    (folder / "files/small.txt").write_bytes(b"x" * 1024)
    argv = [str(milepost), "serve", "hot_app:app", "--static", "/static=files", "--threads", "1:1"]
    argv += ["--bind", "127.0.0.1:0", "--access-log", str(folder / "access.log")]
    output = folder / "output"
    environ = {key: value for key, value in os.environ.items() if not key.startswith("MILEPOST_")}
    with output.open("wb") as out:
        server = subprocess.Popen(
            argv, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        end_s = time.monotonic() + START_S
        while not (found := re.search(r"listening on http://127\.0\.0\.1:(\d+)", output.read_text())):
            if server.poll() is not None or time.monotonic() > end_s:
                raise Unusable("the server did not start:\n" + output.read_text())
            time.sleep(0.05)
        (pid,) = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        yield int(found[1]), int(pid)
    finally:
        server.terminate()
        server.wait(START_S)


def walk(port: int, path: str, pid: int, library: Path, addresses: set[int]) -> list[Step]:
    """The first calls of the functions that most requests call, in the order of one that calls them all."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        for _ in range(WARM_UP):
            ask(client, path)
        with Tracer(pid, library, addresses) as tracer:
            by_clock = common_to([tracer.steps_of(lambda: time.sleep(IDLE_S)) for _ in range(REPEATS // 5)])
            traces = [tracer.steps_of(lambda: ask(client, path)) for _ in range(REPEATS)]
            doubtful = common_to(traces) & by_clock
            tracer.addresses = doubtful
            again = [tracer.steps_of(lambda: ask(client, path)) for _ in range(REPEATS)]
    common = common_to(traces) - doubtful | common_to(again)
    if not common:
        raise Unusable("no call was seen")
    walks = [[step for step in steps if step.address in common] for steps in traces]
    return max(walks, key=len)


def common_to(traces: list[list[Step]]) -> set[int]:
    """The functions that most of the traces have."""
    counted = Counter(step.address for steps in traces for step in steps)
    return {address for address, count in counted.items() if count >= COMMON_SHARE * len(traces)}


class Tracer:
    """Breakpoints in a running process, each of which the first call that meets it takes away.

    A breakpoint is taken away by one byte while others may run into it: a thread that has is put back by
    that byte too, and meets the instruction itself then. So no thread is ever moved by single steps.
    """

    def __init__(self, pid: int, library: Path, addresses: set[int]) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        self._base = base_of(pid, library)
        self._memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)
        self._first = min(addresses)
        self._code = self._read(self._first, max(addresses) + 1 - self._first)
        # Where breakpoints are set.
        self.addresses = addresses
        self._names: dict[int, str] = {}

    def __enter__(self) -> Tracer:
        for task in self._tasks.iterdir():
            ptrace(PTRACE_SEIZE, int(task.name))
            self._names[int(task.name)] = (task / "comm").read_text().strip()
        return self

    def __exit__(self, *_: object) -> None:
        # A thread can only be let go while it stands.
        for task in self._names:
            ptrace(PTRACE_INTERRUPT, task)
            os.waitpid(task, WALL)
            ptrace(PTRACE_DETACH, task)
        os.close(self._memory)

    def steps_of(self, action: Callable[[], None]) -> list[Step]:
        """The first call of each function while `action` runs, and for a while behind it."""
        client = threading.Thread(target=action)
        steps: list[Step] = []
        armed = bytearray(self._code)
        for address in self.addresses:
            armed[address - self._first] = INT3
        self._write(self._first, bytes(armed))
        client.start()
        quiet_since_s = time.monotonic()
        while client.is_alive() or time.monotonic() < quiet_since_s + SETTLE_S:
            while step := self._next_stop():
                steps += [step] if step.address >= 0 else []
                quiet_since_s = time.monotonic()
            time.sleep(POLL_S)
        self._write(self._first, self._code)
        while self._next_stop():
            pass
        return steps

    def _next_stop(self) -> Step | None:
        """The thread that stands at a breakpoint, which runs again now; address -1 for what else stops."""
        task, status = os.waitpid(-1, WALL | os.WNOHANG)
        if task == 0:
            return None
        stopped_by = os.WSTOPSIG(status) if os.WIFSTOPPED(status) else 0
        if stopped_by == 0:
            raise Unusable(f"a thread of the server has ended: {self._names.get(task, task)}")
        if stopped_by != signal.SIGTRAP or status >> 16:
            ptrace(PTRACE_CONT, task, 0, stopped_by if stopped_by != signal.SIGTRAP else 0)
            return Step(self._names[task], -1)
        stands_at = ptrace(PTRACE_PEEKUSER, task, RIP_OFFSET) - 1
        address = stands_at - self._base
        if address not in self.addresses:
            raise Unusable(f"a thread stands at {stands_at:#x}, where no breakpoint was")
        at = address - self._first
        # Another thread may have been here first: then it is not the first call.
        is_first = self._read(address, 1)[0] == INT3 and self._code[at] != INT3
        self._write(address, self._code[at : at + 1])
        ptrace(PTRACE_POKEUSER, task, RIP_OFFSET, stands_at)
        ptrace(PTRACE_CONT, task)
        return Step(self._names[task], address if is_first else -1)

    def _read(self, address: int, length: int) -> bytes:
        return os.pread(self._memory, length, self._base + address)

    def _write(self, address: int, data: bytes) -> None:
        written = 0
        while written < len(data):
            written += os.pwrite(self._memory, data[written:], self._base + address + written)


def ptrace(request: int, task: int, address: int = 0, data: int = 0) -> int:
    """The system call. Raises Unusable when it fails."""
    word = ctypes.c_long()
    if request == PTRACE_PEEKUSER:
        # The C library's wrapper returns the word, so that a word of -1 is no failure.
        ctypes.set_errno(0)
        word.value = _LIBC.ptrace(request, task, address, 0)
        failed = word.value == -1 and ctypes.get_errno() != 0
    else:
        failed = _LIBC.ptrace(request, task, address, data) == -1
    if failed:
        raise Unusable(f"ptrace is not possible: {os.strerror(ctypes.get_errno())}")
    return word.value


def base_of(pid: int, library: Path) -> int:
    """Where the process has mapped the beginning of the library. Raises Unusable."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if fields[5:] == [str(library)] and int(fields[2], 16) == 0:
            return int(fields[0].partition("-")[0], 16)
    raise Unusable(f"the server has not loaded `{library}`")


def ask(client: socket.socket, path: str) -> None:
    """One request and its reply of 1 KB."""
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    reply = b""
    while (end := reply.find(b"\r\n\r\n")) < 0 or len(reply) < end + 4 + 1024:
        data = client.recv(65536)
        if not data:
            raise Unusable("the server has closed the connection")
        reply += data
    if not reply.startswith(b"HTTP/1.1 200 "):
        raise Unusable(reply.decode("latin-1").splitlines()[0])


if __name__ == "__main__":
    sys.exit(main())
