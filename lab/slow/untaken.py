"""How one sample is taken beside clients that take nothing of large replies, while the disk for what waits
is slow: how long small requests waited for a worker, by the server's own log, how much memory there was at
most, and whether workers were held by that disk.

Reads the server from outside, by /proc: which call a thread is in is a fact, whatever the server reports.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from lab import client_process, cpu, fixtures, measure
from lab.fixtures import Load
from lab.scenario import Ground, Sample
from lab.slow import measure as slow_measure
from lab.toolbox import Toolbox

SAMPLE_S = 0.02
# The threads that run the application; the numbers at their end differ.
WORKER = re.compile(r"mp-(default|worker|pool)\b")
QUEUE = re.compile(r'"GET /1k\.txt HTTP/1\.1" 200 .* queue=([0-9.]+)')
LOG_WAIT_S = 5.0
COMING_TIMEOUT_S = 30.0
# Later they would be seen for too short a time.
COMING_S_MAX = 3.0


def sample(row: slow_measure.Row, box: Toolbox, ground: Ground) -> Sample:
    """The small requests of a constant rate; the bad clients of `row` come when these are under way."""
    with slow_measure.served(row, box, ground) as server, contextlib.ExitStack() as stack:
        stack.enter_context(fixtures.awake(ground))
        paths = [path for _, path in row.paths]
        fixtures.paced(
            Load(server.place.port, paths, slow_measure.WARM_UP_S), box, ground, slow_measure.nothing
        )
        log = Log(server.place.access_log)
        peak = Peak(server.pid)
        late = (
            LateClients(stack.enter_context(bad_clients_of(row.bad_clients, server, ground)))
            if row.bad_clients
            else None
        )
        helpers = cpu.Helpers(server.pid)
        window = cpu.Window(server.pid)
        load = Load(server.place.port, paths, row.stay_s)
        with watched(server.pid, fixtures.mountpoint_of(ground)) as seen:
            counted = fixtures.paced(load, box, ground, late.come if late else slow_measure.nothing)
        usage = window.close(helpers.spent_s())
        values = (
            slow_measure.latencies(row, counted) | seen.values() | {"peak_bytes": float(peak.grown_bytes())}
        )
        values |= log.queued(load, counted["failed"] + counted["unsent"])
        if late and row.bad_clients:
            values |= slow_measure.of_bad_clients(
                row.bad_clients, fixtures.answer(late.clients), usage.elapsed_s
            )
            unsent = client_process.unsent_bytes(server.place.port)
            values["held_back"] = float(sum(held < measure.HANDED_OVER_BYTES for held in unsent))
            values["came_s"] = late.took_s
    return Sample(values, usage.foreign_share, late is not None and late.took_s > COMING_S_MAX)


def bad_clients_of(
    bad_clients: slow_measure.BadClients, server: measure.Running, ground: Ground
) -> contextlib.AbstractContextManager[client_process.ClientProcess]:
    """The clients that take nothing, who wait for an order."""
    return fixtures.bad_clients(bad_clients.mode, server.place.port, ground, *bad_clients.arguments())


class LateClients:
    """Clients that come once, when a load is under way."""

    def __init__(self, clients: client_process.ClientProcess) -> None:
        self.clients = clients
        # How long it took until all of them had asked.
        self.took_s = math.inf

    def come(self) -> None:
        """Has them come, the first time."""
        if self.took_s == math.inf:
            began_s = time.monotonic()
            self.clients.ask("come", COMING_TIMEOUT_S)
            self.took_s = time.monotonic() - began_s


class Log:
    """What the access log gains from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began_bytes = path.stat().st_size if path.exists() else 0

    def queued(self, load: Load, unanswered: float) -> dict[str, float]:
        """Percentiles of the queue phase of all requests of `load`; its lines come a moment after the
        replies. A request that was not answered has waited for as long as the load took."""
        requests = load.rate * load.seconds
        deadline_s = time.monotonic() + LOG_WAIT_S
        while len(waits := self._waits_us()) < requests - unanswered and time.monotonic() < deadline_s:
            time.sleep(0.1)
        waits += [load.seconds * 1e6] * (requests - len(waits))
        return {
            "queue_p50_us": waits[len(waits) // 2],
            "queue_p99_us": waits[min(len(waits) - 1, math.ceil(len(waits) * 0.99) - 1)],
            "queue_max_us": waits[-1],
        }

    def _waits_us(self) -> list[float]:
        with self._path.open("rb") as log:
            log.seek(self._began_bytes)
            text = log.read().decode("latin-1")
        return sorted(float(queue) * 1e6 for queue in QUEUE.findall(text))


class Peak:
    """The most memory that was there at once, files that are mapped included: the kernel notes it."""

    def __init__(self, root_pid: int) -> None:
        self._pids = cpu.tree(root_pid)
        for pid in self._pids:
            # Forgets the greatest so far.
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._before_bytes = self._sum_bytes("VmRSS")

    def grown_bytes(self) -> int:
        """At most so much more than at the beginning."""
        return self._sum_bytes("VmHWM") - self._before_bytes

    def _sum_bytes(self, field: str) -> int:
        return sum(cpu.status_field(cpu.PROC / str(pid), field) * 1024 for pid in self._pids)


class Seen:
    """What threads were in a call about a file of a folder, at so many moments."""

    def __init__(self, root_pid: int, folder: Path) -> None:
        self._tasks = [
            task for pid in cpu.tree(root_pid) for task in (cpu.PROC / str(pid) / "task").iterdir()
        ]
        self._folder = f"{folder}/"
        self._moments = self._held_moments = 0
        self._most_workers = self._most_others = 0

    def look(self) -> None:
        """One moment."""
        held = [name for task in self._tasks if (name := self._held_name(task))]
        workers = sum(WORKER.match(name) is not None for name in held)
        self._moments += 1
        self._held_moments += workers > 0
        self._most_workers = max(self._most_workers, workers)
        self._most_others = max(self._most_others, len(held) - workers)

    def values(self) -> dict[str, float]:
        """Workers and others that were in such calls at once, at most; the share of moments with a worker."""
        return {
            "held_most": float(self._most_workers),
            "held_share": self._held_moments / max(1, self._moments),
            "writers_most": float(self._most_others),
        }

    def _held_name(self, task: Path) -> str:
        """The name of the thread when it is in a call whose first argument is such a file."""
        try:
            fields = (task / "syscall").read_text().split()
            if len(fields) < 2 or fields[0] == "-1":
                return ""
            file = os.readlink(task / "fd" / str(int(fields[1], 16)))
            return (task / "comm").read_text().strip() if file.startswith(self._folder) else ""
        except OSError:
            # No file, or no thread any more.
            return ""


@contextlib.contextmanager
def watched(root_pid: int, folder: Path) -> Iterator[Seen]:
    """Looks at the threads again and again until the block ends."""
    seen = Seen(root_pid, folder)
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(SAMPLE_S):
            seen.look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        is_over.set()
        watcher.join()
