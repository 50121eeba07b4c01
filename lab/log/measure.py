"""One measurement of each kind of row: a fresh server with a log, its clients, and named numbers.

Takes a row, gives a Sample; what is wrong with the log goes to stderr with its first words too.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import cpu, fixtures, measure, process, scenario
from lab.fixtures import Disk
from lab.log import checker, clients, rotation, storage
from lab.log.checker import Findings, LogFile, Tail
from lab.log.clients import Load
from lab.measure import Running
from lab.scenario import Ground, Sample
from lab.servers import Place
from lab.slow import measure as slow_measure
from lab.toolbox import Toolbox

ATTEMPTS_MAX = 2
PATHS = ("/1k.txt", "/files/1k.txt")
# Open loop: enough connections that a late reply does not make many others late.
PACED_CONNECTIONS = 32
PACED_S = 6
STALL_S = 5
STALL_AFTER_S = 0.5
WARM_UP_S = 1
WARM_UP_FIRST = 100_001
RATES = (20_000, 16_000, 12_000, 9_000, 6_000, 4_000, 2_000)
RATE_PROBE_S = 2
# At a rate that one core gives, the client is in time and no request waits for long.
RATE_LAG_US_MAX = 1_000.0
RATE_P99_US_MAX = 5_000.0
# After a stall all that waits is written at once.
DRAIN_TIMEOUT_S = 30.0
ROTATIONS = 100
ROTATE_S_MAX = 45.0
SMALL_DISK_BYTES = 96 << 20
# The server's clock reaches the first of a month so long after its start; then it goes on for a while.
BEFORE_MIDNIGHT_S = 6
ROTATE_S_MIN = 14.0
LOAD_S_MAX = 90
STOPPED_S = 4
STOP_AFTER_S = 2.25
# What the server says of lines that it has not written, on its error log.
DROPPED = re.compile(
    rb"access log[^\n]*?(\d+) (?:lines?|requests?) "
    rb"(?:(?:was|were) (?:dropped|not logged)|could not be written)"
)
FAKETIME = "*/faketime/libfaketimeMT.so.1"


class CannotMeasure(process.NotReady):
    """Something that a row needs is not here; the text says what."""


class Rate:
    """Requests a second that this machine gives, found once."""

    def __init__(self) -> None:
        self._found: int | None = None

    def of(self, row: Row, box: Toolbox, ground: Ground) -> int:
        """The greatest of RATES at which the client is in time and all are answered."""
        if self._found is None:
            self._found = next((rate for rate in RATES if _holds(rate, row, box, ground)), RATES[-1])
            print(f"lab log: {self._found} requests a second", file=sys.stderr)
        return self._found


@dataclass(frozen=True)
class Row(scenario.Row):
    """One server with one log. `needs` are the flags, or verbs, that it has to have."""

    needs: tuple[str, ...] = ()
    rate: Rate = field(default_factory=Rate)
    # How the run goes on, where there are several ways.
    stall_s: int = 0
    number: signal.Signals = signal.SIGTERM
    requests_s: int | str = clients.MAX
    # Kinds of faults that are reported: some rows may lose lines.
    reported: tuple[str, ...] = checker.KINDS


def sample(row: scenario.Row, known: str, box: Toolbox, ground: Ground) -> Sample:
    """Measures `row`; `known` is the help of the command. Raises one of measure.FAULTS."""
    assert isinstance(row, Row), "the scenarios here have such rows only"
    for need in row.needs:
        if not re.search(rf"^ *{re.escape(need)}\b", known, re.MULTILINE):
            what = "flag" if need.startswith("-") else "verb"
            raise CannotMeasure(f"not measured: {what} `{need}` is missing")
    return row.take(row, box, ground)


def loaded(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """Under load, again while others disturb it."""
    return measure.least_disturbed(lambda: measure.load(row, box, ground), ATTEMPTS_MAX, ground.patience_s)


def stalled(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """At a constant rate, while the disk of the log takes nothing for a while if `row` says so."""
    rate = row.rate.of(row, box, ground)
    cpu.wait_quiet(ground.patience_s)
    with _on_fuse(row, box, ground) as (server, disk, behind), fixtures.awake(ground):
        numbers = server.place.directory / "numbers"
        warm = Load(server.place.port, WARM_UP_S, numbers, PATHS, rate, PACED_CONNECTIONS, WARM_UP_FIRST)
        clients.run(warm, box, ground)
        helpers = cpu.Helpers(server.pid)
        window = cpu.Window(server.pid)
        load = Load(server.place.port, PACED_S, numbers, PATHS, rate, PACED_CONNECTIONS)
        with clients.loading(load, box, ground) as running:
            time.sleep(STALL_AFTER_S)
            if row.stall_s:
                disk.ask(f"stall {row.stall_s}", RATE_PROBE_S)
            running.wait(PACED_S + clients.END_GRACE_S)
        usage = window.close(helpers.spent_s())
        clients.end_server(server.pid, signal.SIGTERM, DRAIN_TIMEOUT_S)
        findings = checker.check(
            checker.read_asked(numbers), [LogFile(behind / rotation.LOG)], others=[server.place.output]
        )
        values = _of_findings(findings, row) | _of_clients(running.counted) | {"rate": float(rate)}
        values |= _of_dropped(findings, server.place.output)
    return Sample(values, usage.foreign_share, _is_lagged(running.counted))


def rotated(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """A hundred files under full load, on a disk that is full by turns, past the end of a month."""
    with contextlib.ExitStack() as stack:
        disk = fixtures.mountpoint_of(ground)
        stack.enter_context(storage.small_disk(disk, SMALL_DISK_BYTES))
        archive = stack.enter_context(storage.memory_folder("log"))
        row, offset_us = _at_the_end_of_a_month(row)
        server = stack.enter_context(_served(row, box, ground))
        stack.callback(_forget_clock, server.pid)
        numbers = server.place.directory / "numbers"
        load = Load(server.place.port, LOAD_S_MAX, numbers, PATHS)
        turner = rotation.Turner(server.pid, disk, archive, offset_us)
        began_s = time.monotonic()
        with clients.loading(load, box, ground) as running:
            turner.turn(ROTATIONS, ROTATE_S_MIN, ROTATE_S_MAX)
            running.stop()
            running.wait(clients.END_GRACE_S)
        took_s = time.monotonic() - began_s
        turner.wait_closed()
        clients.end_server(server.pid, signal.SIGTERM, DRAIN_TIMEOUT_S)
        files = turner.finish()
        findings = checker.check(
            checker.read_asked(numbers), files, checker.DAY_US, others=[server.place.output]
        )
        values = _of_findings(findings, row) | {"rps": findings.served / took_s}
        values |= {"rotations": float(len(files) - 1)}
        values |= {"by_signal": float(turner.renamed), "own": float(turner.rotated)}
        values |= {"fillings": float(turner.fillings), "days": float(len(findings.days))}
        return Sample(values, 0.0)


def stopped(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """A server that gets a signal under load."""
    with _served(row, box, ground) as server:
        numbers = server.place.directory / "numbers"
        load = Load(server.place.port, STOPPED_S, numbers, PATHS, row.requests_s)
        with clients.loading(load, box, ground) as running:
            time.sleep(STOP_AFTER_S)
            killed_us = time.time_ns() // 1000
            took_s = clients.end_server(server.pid, row.number, DRAIN_TIMEOUT_S)
            running.wait(clients.END_GRACE_S)
        tail = Tail.MAY_BE_CUT if row.number is signal.SIGKILL else Tail.WHOLE
        log = LogFile(server.place.access_log)
        asked = checker.read_asked(numbers)
        findings = checker.check(asked, [log], tail=tail, others=[server.place.output])
    oldest_us = min((asked[stream][number].at_us for stream, number in findings.lost), default=killed_us)
    # A reply may come from the kernel after its server has been killed.
    oldest_s = max(0, killed_us - oldest_us) / 1e6
    values = _of_findings(findings, row) | {"oldest_lost_s": oldest_s}
    return Sample(values | {"end_s": took_s}, 0.0)


def faketime() -> Path | None:
    """The library that gives a program another clock, if it is installed."""
    return next(iter(sorted(Path("/usr/lib").glob(FAKETIME))), None)


def _holds(rate: int, row: Row, box: Toolbox, ground: Ground) -> bool:
    with _on_fuse(row, box, ground) as (server, _, _), fixtures.awake(ground):
        numbers = server.place.directory / "numbers"
        load = Load(server.place.port, RATE_PROBE_S, numbers, PATHS, rate, PACED_CONNECTIONS)
        counted = clients.run(load, box, ground)
    in_time: bool = counted["lag_p99_us"] <= RATE_LAG_US_MAX and counted["p99_us"] <= RATE_P99_US_MAX
    return in_time and not counted["failed"] + counted["unsent"]


@contextlib.contextmanager
def _served(row: Row, box: Toolbox, ground: Ground) -> Iterator[Running]:
    """The server of `row`, whose last words are reported when a step fails."""
    with measure.running(row, box, ground) as server:
        try:
            yield server
        except process.NotReady as cause:
            words = " | ".join(server.place.output.read_text(errors="replace").splitlines()[-3:])
            raise process.NotReady(f"{cause}; the server said: {words[-600:]}") from cause


@contextlib.contextmanager
def _on_fuse(row: Row, box: Toolbox, ground: Ground) -> Iterator[tuple[Running, Any, Path]]:
    """The server of `row`, the program of its log's disk, and the folder behind that."""
    with storage.memory_folder("log") as behind:
        disk = Disk(read_ms=0, write_ms=0, options=("opens",))
        with fixtures.mounted(disk, box, ground, behind) as program:
            with _served(row, box, ground) as server:
                yield server, program, behind


def _at_the_end_of_a_month(row: Row) -> tuple[Row, int]:
    """The same server, whose clock is about to reach the first of a month, and by how many
    microseconds it is ahead of ours. Raises CannotMeasure without libfaketime."""
    library = faketime()
    if library is None:
        raise CannotMeasure("not measured: libfaketime is missing\nhint: apt-get install faketime")
    now = datetime.datetime.now(datetime.timezone.utc)
    month = (now.replace(day=1) + datetime.timedelta(days=32)).replace(day=1, hour=0, minute=0, second=0)
    ahead_s = int((month - now).total_seconds()) - BEFORE_MIDNIGHT_S
    environ = {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"+{ahead_s}",
        # Only the wall clock: times between two moments stay what they are.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }

    def start(box: Toolbox, place: Place) -> process.Command:
        command = row.start(box, place)
        return process.Command(command.argv, command.output, command.cwd, {**command.environ, **environ})

    changed = Row(row.name, row.tool, start, take=row.take, needs=row.needs)
    return changed, ahead_s * 1_000_000


def _forget_clock(pid: int) -> None:
    """What libfaketime leaves behind of a process."""
    for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
        Path("/dev/shm", name).unlink(missing_ok=True)


def _of_findings(findings: Findings, row: Row) -> dict[str, float]:
    for words in findings.words:
        if words.split(":")[0] not in row.reported:
            continue
        print(f"lab log: {row.name}: {words}", file=sys.stderr)
    return {
        "served": float(findings.served),
        "logged": float(findings.lines),
        "cut": float(findings.cut),
        "lost_lines": float(findings.faults["lost"]),
        "wrong": float(findings.wrong),
        "files": float(findings.files),
    }


def _of_clients(counted: dict[str, Any]) -> dict[str, float]:
    keys = ("p50_us", "p99_us", "max_us", "lag_p99_us", "failed", "unsent")
    return {key: float(counted[key]) for key in keys}


def _of_dropped(findings: Findings, output: Path) -> dict[str, float]:
    """What the server says that it has dropped, and how far all counts are from each other: requests
    that got no whole reply may have been served or not."""
    dropped = sum(int(count) for count in DROPPED.findall(output.read_bytes()))
    accounted = findings.lines + dropped
    most = findings.served + findings.cut
    unaccounted = max(findings.served - accounted, accounted - most, 0)
    return {"dropped": float(dropped), "unaccounted": float(unaccounted)}


def _is_lagged(counted: dict[str, Any]) -> bool:
    lag_us = counted["lag_p99_us"]
    return bool(lag_us > slow_measure.LAG_FREE_US and lag_us > slow_measure.LAG_SHARE_MAX * counted["p99_us"])
