"""The six scenarios: which servers are measured, and the figures to reach. Nothing here measures."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

import process
import report
from measure import Ground, Sample
from peers import Place
from process import Command
from report import Results, Verdict
from scenarios import MILEPOST, Bar, Judged, Kind, Row, Scenario
from toolbox import Toolbox

from reload import beside, crash, httpd, life, servers, spread

NUMBERS = ("1", "2", "3", "4", "5", "6")
PEERS = ("nginx", "gunicorn", httpd.NAME)
Start = Callable[[Toolbox, Place], Command]
Take = Callable[[Row, Toolbox, Ground], Sample]

WORKERS = 4
THREADS = 2
DRIVERS = 8
SWEEP_DRIVERS = (1, 2, 10)
SWEEP_CLIENTS = (10, 20, 50, 100, 130, 170, 200, 250)
# A driver more may cost this much at the fewest clients, and the most clients may lose this much.
KEEPS = 0.97
IMPORT_S = 0.5
RESTART_S_MAX = 0.3
PREFORK_THREADS = 4


@dataclass(frozen=True)
class Measured(Row):
    """A row that says how it is measured."""

    take: Take = field(kw_only=True)


def every() -> list[Scenario]:
    """All of them, by their numbers."""
    return [lives(), reloads(), spreads(), sweep(), crashes(), prefork()]


def sample(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """Measures `row`. Raises one of measure.FAULTS."""
    assert isinstance(row, Measured), "the scenarios here have such rows only"
    try:
        return row.take(row, box, ground)
    except (OSError, KeyError, subprocess.SubprocessError) as cause:
        # A server that does not answer, or whose status lacks something: the others are still measured.
        raise process.NotReady(f"{type(cause).__name__}: {cause}") from cause


def lives(reloads: int = life.RELOADS, others: int = life.SCALES) -> Scenario:
    """Everything that is done to one server; what is lost is lost by one of them. Twice: with room for
    everybody, and with so little that the queues of the kernel are full. There idle connections are ended
    early by the server's own rule, so that a loss need not be the deed's."""

    def row(name: str, *room: str) -> Measured:
        def start(box: Toolbox, place: Place) -> Command:
            return servers.milepost_app(box, place, *_shape(WORKERS, 2, THREADS), *room)

        take = functools.partial(life.lived, reloads=reloads, others=others)
        return Measured(name, MILEPOST, start, take=take)

    roomy = row("room for all")
    full = row("full queues", "--connections-max", str(life.CONNECTIONS_MAX))
    done = {"reloads": reloads, "scales": others, "kills": others, "upgrades": 1}
    none = ("by_reload", "by_scale", "by_upgrade", "by_quiet", "by_beyond_kill", "unchanged")
    bars = (
        *(_worst(name, each, at_least=count) for each in (roomy, full) for name, count in done.items()),
        *(_worst(name, each, at_most=0) for each in (roomy, full) for name in none),
        # The queues were really full.
        _worst("waiting_most", full, at_least=100),
    )
    title = f"{reloads} reloads, {others} other numbers of processes, {others} kills, an upgrade"
    return Scenario("1", title, Kind.LOAD, (roomy, full), bars)


def reloads() -> Scenario:
    """The same reloads of everybody: an application by gunicorn, a file by nginx."""

    def app(box: Toolbox, place: Place) -> Command:
        return servers.milepost_app(box, place, *_shape(WORKERS, 1, THREADS))

    def files(box: Toolbox, place: Place) -> Command:
        return servers.milepost_files(box, place, *_shape(WORKERS, 1))

    def row(name: str, tool: str, start: Start, reload: life.Reload) -> Measured:
        return Measured(name, tool, start, take=functools.partial(_reloaded, reload))

    rows = (
        row("milepost, application", MILEPOST, app, life.by_control),
        row("gunicorn HUP, application", "gunicorn", _gunicorn(WORKERS, THREADS), life.by_hup),
        row("milepost, file", MILEPOST, files, life.by_control),
        row("nginx -s reload, file", "nginx", _nginx(""), life.by_nginx),
        row("nginx -s reload, reuseport, file", "nginx", _nginx("reuseport"), life.by_nginx),
    )
    bars = tuple(_worst("lost", each, at_most=0) for each in rows if each.tool == MILEPOST)
    title = f"{life.PEER_RELOADS} reloads under short-lived and kept connections"
    return Scenario("2", title, Kind.LOAD, rows, bars)


def spreads() -> Scenario:
    """Connections of drivers, as the server counts them."""

    def files(*shape: str) -> Start:
        return lambda box, place: servers.milepost_files(box, place, *shape)

    one = Measured(f"{DRIVERS} drivers, short-lived", MILEPOST, files(*_shape(1, DRIVERS)), take=spread.short)
    many = Measured("4 processes of 2 drivers", MILEPOST, files(*_shape(4, DRIVERS // 4)), take=spread.short)
    long = Measured(
        f"{spread.LONG} long-lived, {spread.LONG_DRIVERS} drivers",
        MILEPOST,
        files(*_shape(1, spread.LONG_DRIVERS)),
        take=spread.long,
    )
    bars = (
        *(_worst("most_share", row, at_most=1.1) for row in (one, many)),
        *(_worst("least_share", row, at_least=0.9) for row in (one, many)),
        _worst("worst_off", long, at_most=0),
    )
    return Scenario("3", "spread of connections over drivers", Kind.LOAD, (one, many, long), bars)


def sweep() -> Scenario:
    """Drivers by turns at each number of clients, so that a drift of the machine hits all of them."""

    def row(drivers: int, clients: int) -> Measured:
        def start(box: Toolbox, place: Place) -> Command:
            return servers.milepost_files(box, place, *_shape(1, drivers))

        return Measured(sweep_name(drivers, clients), MILEPOST, start, clients, take=beside.kept)

    rows = tuple(row(drivers, clients) for clients in SWEEP_CLIENTS for drivers in SWEEP_DRIVERS)
    fewest = SWEEP_CLIENTS[0]
    base = sweep_name(SWEEP_DRIVERS[0], fewest)
    bars = tuple(
        Bar("rps", sweep_name(drivers, fewest), base, at_least=KEEPS) for drivers in SWEEP_DRIVERS[1:]
    )
    return Scenario("4", "drivers and clients, file of 1 KB, keep-alive", Kind.LOAD, rows, bars)


def sweep_name(drivers: int, clients: int) -> str:
    """The row's."""
    return f"{drivers} driver{'s' if drivers > 1 else ''}, {clients} clients"


def peaks(results: Results) -> list[Verdict]:
    """The most clients, of the peak of the same drivers; of the medians, or the peak would be one of
    the noise."""
    found = []
    for drivers in SWEEP_DRIVERS:
        curve = {
            clients: report.middle(values)
            for clients in SWEEP_CLIENTS
            if (values := results.values(sweep_name(drivers, clients), "rps"))
        }
        last = SWEEP_CLIENTS[-1]
        text = f"req/s of {sweep_name(drivers, last)} / its peak: at least {KEEPS:g}"
        measured = curve[last] / max(curve.values()) if len(curve) == len(SWEEP_CLIENTS) else None
        passed = None if measured is None else measured >= KEEPS
        found.append(Verdict(results.scenario.name, text, measured, passed, measured, measured))
    return found


def crashes() -> Scenario:
    """One process: nobody else serves meanwhile. With gunicorn beside it, which has no figure to reach."""

    def start(import_s: float) -> Start:
        shape = _shape(1, 1, THREADS)
        return lambda box, place: servers.milepost_app(box, place, *shape, import_s=import_s)

    def row(name: str, tool: str, start: Start) -> Measured:
        return Measured(name, tool, start, take=crash.restarted)

    rows = (
        row("milepost", MILEPOST, start(0.0)),
        row(f"milepost, import of {IMPORT_S:g} s", MILEPOST, start(IMPORT_S)),
        row("gunicorn", "gunicorn", _gunicorn(1, THREADS)),
    )
    ours = [each for each in rows if each.tool == MILEPOST]
    bars = (
        *(_worst("restart_s", each, at_most=RESTART_S_MAX) for each in ours),
        *(_worst("refused", each, at_most=0) for each in ours),
    )
    return Scenario("5", "kill -9 of the only process", Kind.LOAD, rows, bars)


def prefork() -> Scenario:
    """As many requests at once for everybody: four processes of four threads, or sixteen children."""
    children = WORKERS * PREFORK_THREADS

    def milepost(box: Toolbox, place: Place) -> Command:
        return servers.milepost_app(box, place, *_shape(WORKERS, 1, PREFORK_THREADS))

    def apache(*lines: str) -> Start:
        return lambda box, place: servers.apache(box, place, children, *lines)

    starts = (
        (MILEPOST, MILEPOST, milepost),
        ("httpd prefork", httpd.NAME, apache()),
        ("httpd prefork, ListenCoresBucketsRatio 1", httpd.NAME, apache("ListenCoresBucketsRatio 1")),
    )
    # More kept connections than children would wait for a child each: that is another comparison.
    kept = [
        Measured(f"{name}, {children} kept", tool, start, children, take=beside.kept)
        for name, tool, start in starts
    ]
    short = [
        Measured(f"{name}, {beside.SHORT} short-lived", tool, start, take=beside.short)
        for name, tool, start in starts
    ]
    also = tuple((rows[0].name, row.name) for rows in (kept, short) for row in rows[1:])
    title = f"{WORKERS} processes of {PREFORK_THREADS} threads, and httpd prefork with mod_wsgi"
    return Scenario("6", title, Kind.LOAD, (*kept, *short), (), also)


def _shape(processes: int, drivers: int, threads: int = 0) -> tuple[str, ...]:
    """A fixed pool, as the peers have."""
    pool = ("--threads", f"{threads}:{threads}") if threads else ()
    return ("--processes", str(processes), "--drivers", str(drivers), *pool)


def _gunicorn(workers: int, threads: int) -> Start:
    return lambda box, place: servers.gunicorn(box, place, workers, threads)


def _nginx(listen: str) -> Start:
    return lambda box, place: servers.nginx(box, place, WORKERS, listen)


def _reloaded(reload: life.Reload, row: Row, box: Toolbox, ground: Ground) -> Sample:
    return life.reloaded(row, reload, box, ground)


def _worst(metric: str, row: Row, at_most: float | None = None, at_least: float | None = None) -> Bar:
    return Bar(metric, row.name, None, at_most, at_least, Judged.WORST)
