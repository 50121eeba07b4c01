"""One measurement of each kind of row: a fresh server, the bad clients beside it, and named numbers.

Takes a row, gives a Sample. A late generator makes a sample lagged, the computing of other programs makes it
disturbed; neither counts while other samples do.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import client_process, cpu, fixtures, generator, measure, scenario
from lab.fixtures import Disk, Load
from lab.measure import Running
from lab.scenario import Ground, Sample
from lab.toolbox import Toolbox

# A second try of a disturbed measurement, and no third: the whole run is to be short.
ATTEMPTS_MAX = 2
PACE_S = 6
WARM_UP_S = 1
# A latency that is at least a third the generator's own lateness says nothing of the server,
# unless that lateness is too small to matter.
LAG_SHARE_MAX = 1 / 3
LAG_FREE_US = 100.0
FETCHES = 3
FETCH_TIMEOUT_S = 60.0
COLD_FILES = 512
COLD_BYTES = 64 << 20
LARGE_PATH = "/large.bin"
LARGE_BYTES = 1 << 30
SETTLE_S = 0.5


@dataclass(frozen=True)
class BadClients:
    """How many of which mode of `bad_clients`, and when they are to be closed if at all."""

    mode: str
    count: int
    deadline_s: int | None = None

    def arguments(self) -> list[str]:
        """As `bad_clients` takes them."""
        return [str(number) for number in (self.count, self.deadline_s) if number is not None]


@dataclass(frozen=True)
class Row(scenario.Row):
    """One server in one setting, with or without bad clients beside it.

    `paths` maps a metric's name to the path it is about; `stay_s` is how long bad clients are watched.
    """

    paths: tuple[tuple[str, str], ...] = ()
    disk: Disk | None = None
    bad_clients: BadClients | None = None
    stay_s: int = PACE_S


def lay_out(ground: Ground, chosen: list[str]) -> None:
    """Writes the files that the chosen scenarios serve."""
    measure.lay_out(ground)
    if "download" in chosen:
        piece = os.urandom(1 << 20)
        with (ground.www / LARGE_PATH[1:]).open("wb") as large:
            for _ in range(LARGE_BYTES // len(piece)):
                large.write(piece)


def sample(row: scenario.Row, box: Toolbox, ground: Ground) -> Sample:
    """Measures `row`, a second time when the first was disturbed. Raises one of measure.FAULTS."""
    assert isinstance(row, Row), "the scenarios here have such rows only"
    return measure.least_disturbed(lambda: row.take(row, box, ground), ATTEMPTS_MAX, ground.patience_s)


def paced(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """Latencies at a constant rate, beside the bad clients of `row` if it has any."""
    with served(row, box, ground) as server, contextlib.ExitStack() as stack:
        stack.enter_context(fixtures.awake(ground))
        paths = [path for _, path in row.paths]
        fixtures.paced(Load(server.place.port, paths, WARM_UP_S), box, ground, nothing)
        memory = Memory(server.pid)
        clients = None
        if row.bad_clients:
            mode, arguments = row.bad_clients.mode, row.bad_clients.arguments()
            clients = stack.enter_context(fixtures.bad_clients(mode, server.place.port, ground, *arguments))
            time.sleep(SETTLE_S)
        unsent = client_process.unsent_bytes(server.place.port)
        helpers = cpu.Helpers(server.pid)
        window = cpu.Window(server.pid)
        load = Load(server.place.port, paths, row.stay_s)
        counted = fixtures.paced(load, box, ground, memory.look)
        usage = window.close(helpers.spent_s())
        values = latencies(row, counted) | {"server_cpu": usage.server_s / usage.elapsed_s}
        if clients and row.bad_clients:
            values |= of_bad_clients(row.bad_clients, fixtures.answer(clients), usage.elapsed_s)
            # Those whose reply the server could not yet hand to the kernel as a whole.
            values["held_back"] = float(sum(held < measure.HANDED_OVER_BYTES for held in unsent))
            values["client_bytes"] = memory.grown_bytes() / row.bad_clients.count
    return Sample(values, usage.foreign_share, is_lagged(counted))


def is_lagged(counted: dict[str, Any]) -> bool:
    """Whether the generator of a constant rate was too late itself."""
    lag_us: float = counted["lag_p99_us"]
    return lag_us > LAG_FREE_US and lag_us > LAG_SHARE_MAX * counted["p99_us"]


def fetched(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """The server's processor time for one large download, the mean of a few."""
    with served(row, box, ground) as server:
        with fixtures.bad_clients("fetch", server.place.port, ground, LARGE_PATH) as client:
            client.ask("go", FETCH_TIMEOUT_S)  # the file into memory, the socket to its size
            helpers = cpu.Helpers(server.pid)
            window = cpu.Window(server.pid)
            for _ in range(FETCHES):
                client.ask("go", FETCH_TIMEOUT_S)
            usage = window.close(helpers.spent_s())
    values = {
        "cpu_ms": usage.server_s * 1e3 / FETCHES,
        "mb_s": FETCHES * LARGE_BYTES / 1e6 / usage.elapsed_s,
        "user_share": usage.user_share,
        "sleeps": usage.sleeps / FETCHES,
    }
    return Sample(values, usage.foreign_share)


def beside_idle(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """Throughput of active connections, beside idle ones if `row` has any."""
    with served(row, box, ground) as server, contextlib.ExitStack() as stack:
        clients = None
        if row.bad_clients:
            output = server.place.directory / "clients"
            count = row.bad_clients.count
            clients = stack.enter_context(
                client_process.held(
                    "idle", server.place.port, scenario.SMALL, count, output, ground.client_core
                )
            )
        load = (box, server.place.port, scenario.SMALL, row.connections)
        if ground.warm_up_s:
            generator.run(*load, ground.warm_up_s, ground.client_core)
        window = cpu.Window(server.pid)
        counted = generator.run(*load, ground.seconds, ground.client_core)
        usage = window.close(counted.cpu_s)
        values = measure.values_of(counted, usage)
        if clients:
            values["lost"] = float(count - clients.open_count())
    return Sample(values, usage.foreign_share)


@contextlib.contextmanager
def served(row: Row, box: Toolbox, ground: Ground) -> Iterator[Running]:
    """A running server, over a freshly mounted slow disk if `row` has one, with the paths of
    `row` in its cache."""
    with contextlib.ExitStack() as stack:
        if row.disk:
            folder = stack.enter_context(backing_folder())
            stack.enter_context(fixtures.mounted(row.disk, box, ground, folder))
        server = stack.enter_context(measure.running(row, box, ground))
        yield server


@contextlib.contextmanager
def backing_folder() -> Iterator[Path]:
    """What the slow disk is made of: a small file and many large ones that are all hole, in
    memory where there is room, or the real disk would be measured beside the slow one."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="milepost-bench-slow-", dir=where) as directory:
        folder = Path(directory)
        (folder / scenario.SMALL[1:]).write_bytes(b"x" * 1024)
        for number in range(COLD_FILES):
            with (folder / f"cold-{number}.bin").open("wb") as cold:
                cold.truncate(COLD_BYTES)
        yield folder


class Memory:
    """The greatest memory seen, over that at the beginning."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before_bytes = self._most_bytes = cpu.anonymous_bytes(pid)

    def look(self) -> None:
        """Notes what there is now."""
        self._most_bytes = max(self._most_bytes, cpu.anonymous_bytes(self._pid))

    def grown_bytes(self) -> int:
        """At most this much more than at the beginning."""
        return self._most_bytes - self._before_bytes


def latencies(row: Row, counted: dict[str, Any]) -> dict[str, float]:
    """The percentiles of each path under its metric's name, and the generator's own lag."""
    values = {key: float(counted[key]) for key in ("failed", "unsent", "lag_p99_us")}
    for name, path in row.paths:
        seen = counted["paths"][path]
        values[f"p99_{name}_us"] = seen["p99_us"]
        values[f"p50_{name}_us"] = seen["p50_us"]
        values[f"max_{name}_us"] = seen["max_us"]
    return values


def of_bad_clients(bad_clients: BadClients, seen: dict[str, Any], elapsed_s: float) -> dict[str, float]:
    """Their numbers; times from the last progress to the close, by kind."""
    if bad_clients.deadline_s is None:
        values = {key: float(seen[key]) for key in ("completed", "lost")}
        values["bad_client_mb_s"] = seen["bytes"] / 1e6 / elapsed_s
    else:
        values = {key: float(seen[key]) for key in ("open", "outside")}
    for kind, (least, middle, greatest) in seen["held_s"].items():
        values |= {f"{kind}_least_s": least, f"{kind}_middle_s": middle, f"{kind}_greatest_s": greatest}
    for status, count in seen["statuses"].items():
        values[f"ended_{status}"] = float(count)
    return values


def nothing() -> None:
    """Nothing to do meanwhile."""
