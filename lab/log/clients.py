"""The numbered clients beside a server, and the end of a server that they load.

Takes where and how much; gives what the clients counted, and a folder that `checker` reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import cpu, fixtures, process
from lab.scenario import Ground
from lab.toolbox import Toolbox

MAX = "max"
END_GRACE_S = 25.0
POLL_S = 0.005


@dataclass(frozen=True)
class Load:
    """`rate` requests a second, or MAX: as many as are answered. Streams count from `first`."""

    port: int
    seconds: int
    folder: Path
    paths: Sequence[str]
    rate: int | str = MAX
    connections: int = 8
    first: int = 1


@dataclass
class Running:
    """Clients under way; `counted` is there when they have ended."""

    child: subprocess.Popen[bytes]
    output: Path
    counted: dict[str, Any] = field(default_factory=dict)

    def stop(self) -> None:
        """Has a closed loop end with the requests that are under way."""
        assert self.child.stdin is not None, "started with a pipe"
        self.child.stdin.close()

    def wait(self, timeout_s: float) -> None:
        """Until they have ended by themselves. Raises PaceFailed."""
        try:
            self.child.wait(timeout_s)
            self.counted = json.loads(self.output.read_text())
        except (subprocess.TimeoutExpired, json.JSONDecodeError) as cause:
            words = self.output.read_text().strip()[:200]
            raise fixtures.PaceFailed(f"numbered: {words or 'did not end'}") from cause


@contextlib.contextmanager
def loading(load: Load, box: Toolbox, ground: Ground) -> Iterator[Running]:
    """The clients, for as long as they last or the block does; an open loop goes before all others
    on its core, as in `lab slow`, a closed one behind."""
    load.folder.mkdir(exist_ok=True)
    output = ground.directory / f"numbered-{load.first}.out"
    output.write_bytes(b"")
    numbers = (load.port, load.connections, load.seconds, load.rate, load.folder, load.first)
    argv = [box.programs["numbered"], *map(str, numbers), *load.paths]
    realtime = load.rate != MAX and fixtures.may_be_realtime()
    before = fixtures.REALTIME if realtime else fixtures.POLITE
    command = process.Command([*before, *argv], output, ground.directory)
    with process.started(command, ground.client_core) as child:
        yield Running(child, output)


def run(load: Load, box: Toolbox, ground: Ground) -> dict[str, Any]:
    """The whole load; what its clients counted. Raises PaceFailed."""
    with loading(load, box, ground) as running:
        running.wait(load.seconds + END_GRACE_S)
        return running.counted


def end_server(pid: int, number: signal.Signals, timeout_s: float) -> float:
    """Sends the signal and waits until that server has ended, the time that it took.

    Raises NotReady when it has not ended by then.
    """
    began_s = time.monotonic()
    os.kill(pid, number)
    while is_running(pid):
        if time.monotonic() > began_s + timeout_s:
            raise process.NotReady(f"the server has not ended {timeout_s:.0f} s after {number.name}")
        time.sleep(POLL_S)
    return time.monotonic() - began_s


def is_running(pid: int) -> bool:
    """Whether the process has not ended; a zombie has ended."""
    fields = cpu.stat(pid)
    return fields is not None and fields[0] not in "ZX"
