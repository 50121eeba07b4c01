"""One measurement of each kind of row: a fresh server, its company, and named numbers.

Takes a row, gives a Sample. What is late of its own accord (the client of constant rate) makes a
sample lagged, what others compute makes it disturbed; neither counts while others do.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cpu
import crowd
import generator
import measure
import scenarios
from measure import Ground, Running, Sample
from toolbox import Toolbox

from slow import company
from slow.company import Disk, Load

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

Take = Callable[["Row", Toolbox, Ground], Sample]


@dataclass(frozen=True)
class Misfits:
    """How many of which mode of misfit.py, and when they are to be closed if at all."""

    mode: str
    count: int
    deadline_s: int | None = None

    def arguments(self) -> list[str]:
        """As misfit.py takes them."""
        return [str(number) for number in (self.count, self.deadline_s) if number is not None]


@dataclass(frozen=True)
class Row(scenarios.Row):
    """One server in one setting, with or without the misfits beside it.

    `paths` maps a metric's name to the path it is about; `stay_s` is how long misfits are watched.
    """

    take: Take = field(kw_only=True)
    paths: tuple[tuple[str, str], ...] = ()
    disk: Disk | None = None
    misfits: Misfits | None = None
    stay_s: int = PACE_S


def lay_out(ground: Ground, chosen: list[str]) -> None:
    """Writes the files that the chosen scenarios serve."""
    measure.lay_out(ground)
    if "4" in chosen:
        piece = os.urandom(1 << 20)
        with (ground.www / LARGE_PATH[1:]).open("wb") as large:
            for _ in range(LARGE_BYTES // len(piece)):
                large.write(piece)


def sample(row: scenarios.Row, box: Toolbox, ground: Ground) -> Sample:
    """Measures `row`, a second time when the first was disturbed. Raises one of measure.FAULTS."""
    assert isinstance(row, Row), "the scenarios here have such rows only"
    return measure.least_disturbed(lambda: row.take(row, box, ground), ATTEMPTS_MAX, ground.patience_s)


def paced(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """Latencies at a constant rate, beside the misfits of `row` if it has any."""
    with served(row, box, ground) as server, contextlib.ExitStack() as stack:
        stack.enter_context(company.awake(ground))
        paths = [path for _, path in row.paths]
        company.pace(Load(server.place.port, paths, WARM_UP_S), box, ground, nothing)
        memory = Memory(server.pid)
        crowded = None
        if row.misfits:
            mode, arguments = row.misfits.mode, row.misfits.arguments()
            crowded = stack.enter_context(company.misfits(mode, server.place.port, ground, *arguments))
            time.sleep(SETTLE_S)
        unsent = crowd.unsent_bytes(server.place.port)
        helpers = Helpers(server.pid)
        window = cpu.Window(server.pid)
        load = Load(server.place.port, paths, row.stay_s)
        counted = company.pace(load, box, ground, memory.look)
        usage = window.close(helpers.spent_s())
        values = latencies(row, counted) | {"server_cpu": usage.server_s / usage.elapsed_s}
        if crowded and row.misfits:
            values |= of_misfits(row.misfits, company.told(crowded), usage.elapsed_s)
            # Those whose reply the server could not yet hand to the kernel as a whole.
            values["held_back"] = float(sum(held < measure.HANDED_OVER_BYTES for held in unsent))
            values["client_bytes"] = memory.grown_bytes() / row.misfits.count
    lag_us = counted["lag_p99_us"]
    lagged = lag_us > LAG_FREE_US and lag_us > LAG_SHARE_MAX * counted["p99_us"]
    return Sample(values, usage.foreign_share, lagged)


def fetched(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """The server's processor time for one large download, the mean of a few."""
    with served(row, box, ground) as server:
        with company.misfits("fetch", server.place.port, ground, LARGE_PATH) as client:
            client.ask("go", FETCH_TIMEOUT_S)  # the file into memory, the socket to its size
            helpers = Helpers(server.pid)
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
        if row.misfits:
            output = server.place.directory / "clients"
            count = row.misfits.count
            clients = stack.enter_context(
                crowd.held("idle", server.place.port, scenarios.SMALL, count, output, ground.client_core)
            )
        load = (box, server.place.port, scenarios.SMALL, row.connections)
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
            stack.enter_context(company.mounted(row.disk, box, ground, folder))
        server = stack.enter_context(measure.running(row, box, ground))
        yield server


@contextlib.contextmanager
def backing_folder() -> Iterator[Path]:
    """What the slow disk is made of: a small file and many large ones that are all hole, in
    memory where there is room, or the real disk would be measured beside the slow one."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="milepost-bench-slow-", dir=where) as directory:
        folder = Path(directory)
        (folder / scenarios.SMALL[1:]).write_bytes(b"x" * 1024)
        for number in range(COLD_FILES):
            with (folder / f"cold-{number}.bin").open("wb") as cold:
                cold.truncate(COLD_BYTES)
        yield folder


class Helpers:
    """The processor time of everything that was started here but the server and this program."""

    def __init__(self, server_pid: int) -> None:
        self._server_pid = server_pid
        self._before_s = self._now_s()

    def spent_s(self) -> float:
        """Since it was made."""
        return self._now_s() - self._before_s

    def _now_s(self) -> float:
        ours_s = cpu.spent(os.getpid()).total_s - time.process_time()
        return ours_s - cpu.spent(self._server_pid).total_s


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
    values = {key: float(counted[key]) for key in ("failed", "unsent", "lag_p99_us", "worst_at_s")}
    for name, path in row.paths:
        seen = counted["paths"][path]
        values[f"p99_{name}_us"] = seen["p99_us"]
        values[f"p50_{name}_us"] = seen["p50_us"]
        values[f"max_{name}_us"] = seen["max_us"]
    return values


def of_misfits(misfits: Misfits, seen: dict[str, Any], elapsed_s: float) -> dict[str, float]:
    """Their numbers; times from the last progress to the close, by kind."""
    if misfits.deadline_s is None:
        values = {key: float(seen[key]) for key in ("completed", "lost")}
        values["misfit_mb_s"] = seen["bytes"] / 1e6 / elapsed_s
    else:
        values = {key: float(seen[key]) for key in ("open", "outside")}
    for kind, (least, middle, greatest) in seen["held_s"].items():
        values |= {f"{kind}_least_s": least, f"{kind}_middle_s": middle, f"{kind}_greatest_s": greatest}
    for status, count in seen["statuses"].items():
        values[f"ended_{status}"] = float(count)
    return values


def nothing() -> None:
    """Nothing to do meanwhile."""
