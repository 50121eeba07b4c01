"""One measurement of each kind of row: a fresh server, clients of clients.py beside it, and named numbers.

Takes a row, gives a Sample.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import client_process, cpu, fixtures, generator, measure, process, scenario
from lab.client_process import ClientFailed, ClientProcess
from lab.measure import Running
from lab.scenario import SMALL, Ground, Sample
from lab.slow.measure import Memory, is_lagged
from lab.tls import servers
from lab.toolbox import CHECKOUT, Toolbox

ANSWER_TIMEOUT_S = 30.0
POLL_S = 0.05
# As long as the server's deadlines take to end a connection that sends nothing more.
FLOOD_S = 6
# Of the clients whose latencies are looked at while others misbehave.
PROBE = f"{SMALL}?probe"
PROBE_CONNECTIONS = 4
LOG_TIMEOUT_S = 5.0
PROBE_LINE = re.compile(r'"GET /1k\.txt\?probe .* total=(\d+\.\d+)')
# The storm: as much as leaves the generator's core a rest, so that it and not the server is in time.
SERVER_SHARE = 0.4
OVERLOAD = 2
STORM_CONNECTIONS = 512
CAPACITY_CONNECTIONS = 32
CAPACITY_S = 2
STORM_LEAD_S = 1
STORM_OPTIONS = ("--insecure", "--no-resumption", "--requests-per-connection", "1", "--close", "rst")
# The shortest quota of the kernel is a millisecond: a server that has used it rests for 1.5 ms.
QUOTA_US, PERIOD_US = 1000, 2500
CGROUPS = Path("/sys/fs/cgroup")
GROUP = f"milepost-lab-{os.getpid()}"


@dataclass(frozen=True)
class Row(scenario.Row):
    """One server in one setting, beside it clients in a mode of clients.py.

    `rate` are the requests a second of the clients whose latencies are measured.
    """

    words: tuple[str, ...] = ()
    rate: int = 0


@contextlib.contextmanager
def clients(mode: str, port: int, ground: Ground, *words: object) -> Iterator[ClientProcess]:
    """Clients of that mode that are there."""
    argv = [sys.executable, "-m", "lab.tls.clients", mode, str(port), *map(str, words)]
    environ = {"PYTHONPATH": str(CHECKOUT)}
    command = process.Command([*fixtures.POLITE, *argv], ground.directory / f"{mode}.out", CHECKOUT, environ)
    with client_process.gathered(command, ground.client_core) as running:
        yield running


def counted(running: ClientProcess) -> dict[str, Any]:
    """What the clients have seen. Raises ClientFailed."""
    answer: dict[str, Any] = json.loads(running.ask("?", ANSWER_TIMEOUT_S))
    if fault := answer.get("fault"):
        raise ClientFailed(str(fault))
    return answer


def hold_idle(row: Row, server: Running, ground: Ground) -> measure.Held:
    """Connections of the protocol and the security that the row names."""
    return clients("idle", server.place.port, ground, SMALL, row.connections, *row.words)


def hold_stalled(row: Row, server: Running, ground: Ground) -> measure.Held:
    """Connections whose streams have all stalled."""
    return clients("stalled", server.place.port, ground, servers.LARGE, row.connections, *row.words)


def stalled(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """Memory of connections, each with as many stalled streams as the row's word says."""
    with measure.running(row, box, ground) as server:
        # The file is looked up and its descriptor open before anything is counted.
        process.fetch(server.place.port, servers.LARGE)
        before_bytes = cpu.anonymous_bytes(server.pid)
        with hold_stalled(row, server, ground) as held:
            time.sleep(measure.SETTLE_S)
            grown_bytes = cpu.anonymous_bytes(server.pid) - before_bytes
            still = float(held.open_count())
    values = {"bytes_per_connection": grown_bytes / row.connections, "grown_bytes": float(grown_bytes)}
    return Sample(values | {"stalled": still}, 0.0)


def siblings(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """Latencies of the streams of one connection, of which some have stalled."""
    with (
        measure.running(row, box, ground) as server,
        fixtures.awake(ground),
        clients("siblings", server.place.port, ground, SMALL, *row.words) as running,
    ):
        time.sleep(ground.warm_up_s)
        # What was counted until now is forgotten.
        counted(running)
        helpers = cpu.Helpers(server.pid)
        window = cpu.Window(server.pid)
        time.sleep(ground.seconds)
        values = {name: float(number) for name, number in counted(running).items()}
        usage = window.close(helpers.spent_s())
    values["cpu_us"] = usage.server_s * 1e6 / values["responses"]
    return Sample(values, usage.foreign_share)


def flooded(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """Latencies of ordinary clients and memory, beside the flood that the row names, or beside none."""
    seconds = max(FLOOD_S, ground.seconds)
    with measure.running(row, box, ground) as server, fixtures.awake(ground), contextlib.ExitStack() as stack:
        fixtures.paced(_probe(row, server, ground.warm_up_s or 1), box, ground, lambda: None)
        memory = Memory(server.pid)
        flood = (
            stack.enter_context(clients("flood", server.place.port, ground, *row.words))
            if row.words
            else None
        )
        helpers = cpu.Helpers(server.pid)
        window = cpu.Window(server.pid)
        paced = fixtures.paced(_probe(row, server, seconds), box, ground, memory.look)
        usage = window.close(helpers.spent_s())
        values = {name: float(paced[name]) for name in ("p99_us", "failed", "unsent", "lag_p99_us")}
        values |= {"p50_us": paced["paths"][PROBE]["p50_us"], "grown_bytes": float(memory.grown_bytes())}
        values["server_cpu"] = usage.server_s / usage.elapsed_s
        if flood:
            seen = counted(flood)
            values |= {"closed": float(seen["closed"]), "close_s": seen["longest_s"]}
            values["flood_mb_s"] = seen["sent_bytes"] / 1e6 / seconds
    return Sample(values, usage.foreign_share, is_lagged(paced))


def stormed(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """Latencies of plain requests, by their client and by the server's log, perhaps beside more handshakes
    than the server can do in its share of a processor."""
    with (
        measure.running(row, box, ground) as server,
        limited(server.pid) as is_limited,
        fixtures.awake(ground),
        contextlib.ExitStack() as stack,
    ):
        values = {"server_limit": SERVER_SHARE if is_limited else 1.0}
        able = _handshakes(server, box, ground) if row.words else 0.0
        storm = stack.enter_context(Storm(OVERLOAD * able, server, box, ground)) if able else None
        time.sleep(STORM_LEAD_S)
        helpers = cpu.Helpers(server.pid)
        window = cpu.Window(server.pid)
        paced = fixtures.paced(_probe(row, server, ground.seconds), box, ground, lambda: None)
        usage = window.close(helpers.spent_s())
        values |= {name: float(paced[name]) for name in ("p99_us", "failed", "unsent", "lag_p99_us")}
        values["server_cpu"] = usage.server_s / usage.elapsed_s
        if storm:
            made = storm.wait()
            values |= {"handshakes": made, "overload": storm.rate / able}
        totals_s = _totals_s(server, round(row.rate * ground.seconds - values["failed"] - values["unsent"]))
    values["phase_p99_us"] = statistics.quantiles(totals_s, n=100)[98] * 1e6
    return Sample(values, usage.foreign_share, is_lagged(paced))


class Storm:
    """New connections at a constant rate, each with a full handshake and one request."""

    def __init__(self, rate: float, server: Running, box: Toolbox, ground: Ground) -> None:
        self.rate = round(rate)
        seconds = ground.seconds + 2 * STORM_LEAD_S
        self._outcome = ground.directory / "storm.json"
        argv = [str(box.milepost), "bench", "--quiet", "--json", str(self._outcome), "--threads", "1"]
        argv += ["--rate", str(self.rate), "--duration", f"{seconds}s", *STORM_OPTIONS]
        argv += [
            "--connections",
            str(STORM_CONNECTIONS),
            f"https://127.0.0.1:{servers.tls_port(server.place)}{SMALL}",
        ]
        self._command = process.Command(argv, ground.directory / "storm.out", ground.directory)
        self._core = ground.client_core
        self._stack = contextlib.ExitStack()
        self._timeout_s = seconds + generator.EXIT_GRACE_S

    def __enter__(self) -> Storm:
        self._child = self._stack.enter_context(process.started(self._command, self._core))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wait(self) -> float:
        """Handshakes a second that were made. Raises OSError or ValueError."""
        self._child.wait(self._timeout_s)
        run = json.loads(self._outcome.read_text())["runs"][0]
        return float(run["counts"]["answered"] / run["seconds"])


@contextlib.contextmanager
def limited(root_pid: int) -> Iterator[bool]:
    """Gives the tree a share of a processor, where that is allowed; whether it is."""
    group = next(filter(_make_group, (CGROUPS / "cpu" / GROUP, CGROUPS / GROUP)), None)
    if group is None:
        yield False
        return
    try:
        _move(root_pid, group)
        yield True
    finally:
        _move(root_pid, group.parent)
        with contextlib.suppress(OSError):
            group.rmdir()


def _make_group(group: Path) -> bool:
    """A control group of version 2, or of version 1; False where there are none or they are not ours."""
    versions = (
        {"cpu.max": f"{QUOTA_US} {PERIOD_US}"},
        {"cpu.cfs_period_us": str(PERIOD_US), "cpu.cfs_quota_us": str(QUOTA_US)},
    )
    with contextlib.suppress(OSError):
        group.mkdir()
    for limits in versions:
        with contextlib.suppress(OSError):
            for name, value in limits.items():
                # Never made: in an ordinary folder such a file would limit nothing.
                with (group / name).open("r+") as limit:
                    limit.write(value)
            return True
    with contextlib.suppress(OSError):
        group.rmdir()
    return False


def _move(root_pid: int, group: Path) -> None:
    for pid in cpu.tree(root_pid):
        with contextlib.suppress(OSError):
            (group / "cgroup.procs").write_text(str(pid))


def _handshakes(server: Running, box: Toolbox, ground: Ground) -> float:
    """How many a second the server can do."""
    aim = (servers.tls_port(server.place), SMALL, CAPACITY_CONNECTIONS, CAPACITY_S, ground.client_core)
    made = generator.run(box, *aim, *STORM_OPTIONS, scheme="https")
    return made.responses / made.duration_s


def _probe(row: Row, server: Running, seconds: int) -> fixtures.Load:
    return fixtures.Load(server.place.port, (PROBE,), seconds, row.rate, PROBE_CONNECTIONS)


def _totals_s(server: Running, count: int) -> list[float]:
    """From arrival to the last byte, of all probes, as the server logged them. Raises NotReady."""
    deadline_s = time.monotonic() + LOG_TIMEOUT_S
    while True:
        text = server.place.access_log.read_text()
        totals_s = [float(found[1]) for found in PROBE_LINE.finditer(text)]
        if len(totals_s) >= count > 1:
            return totals_s
        if time.monotonic() > deadline_s:
            raise process.NotReady(f"the log has {len(totals_s)} of {count} probes")
        time.sleep(POLL_S)
