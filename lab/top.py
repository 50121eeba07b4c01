"""`lab top`: what `milepost top` takes while it watches a server under full load.

Starts a server (an application on some threads, folders as routes), loads it with `milepost bench` all the
time, and runs `milepost top` on a terminal of its own for --seconds. Gives its processor time as a part of a
processor, the memory at several times and how it grew, and the processor time of the supervisor with and
without it.
The terminal is read all the time, as a real one is.

Exit status 1: `top` took more than --at-most, its memory grew by more than --growth-at-most from the first
quarter of the time to the last, it wrote nothing in the last seconds, or the server received no request.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass, field
from pathlib import Path

from lab import cpu, toolbox
from lab.process import Command, end, free_port, started, wait_ready

ROWS, COLUMNS = 24, 80
#: Before `top` comes: pools and caches have their size by then.
WARM_UP_S = 3.0
#: A screen that shows something new each second has done so in this time before the end.
LATE_S = 3.0
#: How often the memory is looked at.
SAMPLES = 40
APP = """
def app(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "4")])
    return [b"done"]
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--milepost", type=Path, help="the command to be measured (the one on the PATH)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long it watches (60)")
    parser.add_argument("--routes", type=int, default=20, help="folders that are served beside it (20)")
    parser.add_argument("--connections", type=int, default=16, help="connections of the load (16)")
    parser.add_argument("--at-most", type=float, default=1.0, help="percent of a processor (1)")
    parser.add_argument("--growth-at-most", type=int, default=1024, help="KB of memory (1024)")


@dataclass
class Watched:
    """What was seen of `top`."""

    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    supervisor_s: float = 0.0
    #: Seconds since its start, and KB of memory.
    memory: list[tuple[float, int]] = field(default_factory=list)
    written: int = 0
    #: Bytes that it wrote in the last seconds.
    late: int = 0
    #: Requests that the server received meanwhile.
    received: int = 0

    def percent(self) -> float:
        """Of one processor."""
        return 100 * self.cpu_s / self.elapsed_s

    def growth(self) -> int:
        """KB, from the most of the first quarter to the most of the last."""
        quarter = max(1, len(self.memory) // 4)
        first, last = self.memory[:quarter], self.memory[-quarter:]
        return max(size for _, size in last) - max(size for _, size in first)


def run(options: argparse.Namespace) -> int:
    """The exit status."""
    found = options.milepost or shutil.which("milepost")
    if found is None:
        raise toolbox.Unusable("there is no `milepost` on the PATH; --milepost FILE names one")
    milepost = str(Path(found).resolve())
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        port = free_port()
        with started(_server(options, milepost, place, port), core=0) as server:
            wait_ready(server, _server(options, milepost, place, port), port, "/")
            load = _load(options, milepost, place, port)
            try:
                time.sleep(WARM_UP_S)
                before_s = _cpu_s(server.pid)
                time.sleep(WARM_UP_S)
                alone = (_cpu_s(server.pid) - before_s) / WARM_UP_S
                received = _received(milepost, place)
                watched = _watch(milepost, place, server.pid, options.seconds)
                watched.received = _received(milepost, place) - received
            finally:
                load.terminate()
                load.wait()
            end(server)
    _show(options, watched, alone)
    stood_still = watched.late == 0 or watched.received == 0
    is_good = watched.percent() <= options.at_most and watched.growth() <= options.growth_at_most
    return int(not is_good or stood_still)


def _server(options: argparse.Namespace, milepost: str, place: Path, port: int) -> Command:
    files = place / "files"
    files.mkdir(exist_ok=True)
    (files / "a.txt").write_text("a" * 100)
    (place / "app.py").write_text(APP)
    mounts = "\n".join(f'"/r{number}" = "{files}"' for number in range(options.routes))
    config = place / "milepost.toml"
    config.write_text(
        f'app = "app:app"\nbind = "127.0.0.1:{port}"\ncontrol = "{place}/control"\nprocesses = 1\n'
        # An hour of it would be tens of gigabytes.
        f'access_log = "{place}/access.log"\nlog_rotate_size = "64M"\nlog_keep = 2\n[static]\n{mounts}\n'
    )
    return Command(argv=[milepost, "serve", "--config", str(config)], output=place / "output", cwd=place)


def _received(milepost: str, place: Path) -> int:
    """Requests that the server has received so far."""
    words = [milepost, "status", "--json", "--control", str(place / "control")]
    answer = subprocess.run(words, capture_output=True, check=True, timeout=30)
    return int(json.loads(answer.stdout)["totals"]["received"])


def _load(options: argparse.Namespace, milepost: str, place: Path, port: int) -> subprocess.Popen[bytes]:
    """As many requests as the server answers, for longer than anybody looks."""
    seconds = round(options.seconds + 4 * WARM_UP_S)
    words = ["bench", "--connections", str(options.connections), "--duration", f"{seconds}s"]
    urls = [f"http://127.0.0.1:{port}/"]
    with (place / "load").open("wb") as output:
        return subprocess.Popen(
            ["taskset", "-c", "1", milepost, *words, *urls],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=place,
        )


def _watch(milepost: str, place: Path, supervisor: int, seconds: float) -> Watched:
    terminal, theirs = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    program = subprocess.Popen(
        ["taskset", "-c", "1", milepost, "top", "--control", str(place / "control")],
        cwd=place,
        env={**os.environ, "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    watched = Watched()
    began = time.monotonic()
    supervisor_s = _cpu_s(supervisor)
    try:
        while (passed := time.monotonic() - began) < seconds and program.poll() is None:
            readable, _, _ = select.select([terminal], [], [], min(0.2, seconds - passed))
            if readable:
                written = len(os.read(terminal, 1 << 16))
                watched.written += written
                watched.late += written if passed > seconds - LATE_S else 0
            if passed >= (len(watched.memory) + 1) * seconds / SAMPLES:
                resident = cpu.status_field(Path(f"/proc/{program.pid}"), "VmRSS")
                watched.memory.append((passed, resident))
        watched.elapsed_s = time.monotonic() - began
        watched.cpu_s = _cpu_s(program.pid)
        watched.supervisor_s = _cpu_s(supervisor) - supervisor_s
    finally:
        program.kill()
        program.wait()
        os.close(terminal)
        os.close(theirs)
    return watched


def _cpu_s(pid: int) -> float:
    """Processor time of one process."""
    return time.clock_gettime(cpu.clock_of(pid))


def _show(options: argparse.Namespace, watched: Watched, alone: float) -> None:
    beside = watched.supervisor_s / watched.elapsed_s
    load = f"{watched.received / watched.elapsed_s:.0f} requests/s over {options.connections} connections"
    print(f"{watched.elapsed_s:.0f} s, {options.routes} routes, {load}")
    rate = watched.written / watched.elapsed_s
    print(f"top: {watched.percent():.2f} % of a processor, {rate:.0f} B/s written to the terminal")
    print(f"supervisor: {100 * alone:.2f} % without it, {100 * beside:.2f} % with it")
    shown = ", ".join(f"{at:.0f} s {size} KB" for at, size in watched.memory[:: max(1, SAMPLES // 8)])
    print(f"memory: {shown}; grown by {watched.growth()} KB")
    if watched.received == 0:
        print("the server received no request", file=sys.stderr)
    if watched.late == 0:
        print("the screen stood still at the end", file=sys.stderr)
