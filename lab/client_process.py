"""A process of clients beside the measured server, which answers lines on its standard input."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab import process, toolbox

READY_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 10.0
TCP_ESTABLISHED = "01"


class ClientFailed(Exception):
    """The connections could not be made; the text is the client's last line."""


@dataclass
class ClientProcess:
    """A running client process; `child.pid` is its id."""

    child: subprocess.Popen[bytes]
    output: Path
    lines_read: int = 0

    def open_count(self) -> int:
        """How many connections the server has not closed."""
        return int(self.ask("?", ANSWER_TIMEOUT_S).split()[1])

    def ask(self, question: str, timeout_s: float) -> str:
        """The line that answers `question`. Raises ClientFailed."""
        assert self.child.stdin is not None, "started with a pipe"
        self.child.stdin.write(question.encode() + b"\n")
        self.child.stdin.flush()
        return self.next_line(timeout_s)

    def next_line(self, timeout_s: float) -> str:
        """The next whole line that the client printed. Raises ClientFailed."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            lines = self.output.read_text().split("\n")
            if len(lines) > self.lines_read + 1:
                self.lines_read += 1
                return lines[self.lines_read - 1]
            if self.child.poll() is not None:
                break
            time.sleep(0.02)
        raise ClientFailed(self.output.read_text().strip().split("\n")[-1] or "no answer in time")


@contextlib.contextmanager
def held(
    mode: str, port: int, path: str, count: int, output: Path, core: int, segment_bytes: int = 0
) -> Iterator[ClientProcess]:
    """`count` connections of the given mode (see held_clients.py), closed when the block ends."""
    argv = [sys.executable, "-m", "lab.held_clients", mode, str(port), path, str(count), str(segment_bytes)]
    environ = {"PYTHONPATH": str(toolbox.CHECKOUT)}
    with gathered(process.Command(argv, output, output.parent, environ), core) as clients:
        yield clients


@contextlib.contextmanager
def gathered(command: process.Command, core: int) -> Iterator[ClientProcess]:
    """Any program that prints a line beginning with `ready` when it is there and then answers
    lines; its output file is emptied first, and it is ended with the block."""
    command.output.write_bytes(b"")
    with process.started(command, core) as child:
        clients = ClientProcess(child, command.output)
        line = clients.next_line(READY_TIMEOUT_S)
        if not line.startswith("ready"):
            raise ClientFailed(command.output.read_text().strip().split("\n")[-1])
        yield clients


def unsent_bytes(port: int) -> list[int]:
    """What the kernel holds for each connection of the server at `port`: accepted from the
    server, not yet acknowledged by the client. A slow reader with less than its whole reply
    here still occupies the server itself."""
    held_bytes = []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, queues = line.split()[:5]
        if state == TCP_ESTABLISHED and int(local.split(":")[1], 16) == port:
            held_bytes.append(int(queues.split(":")[0], 16))
    return held_bytes
