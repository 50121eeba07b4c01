"""The four scenarios: which servers are measured, and the figures to reach. Nothing here measures."""

from __future__ import annotations

import functools
import subprocess

from lab import process
from lab.process import Command
from lab.reload import crash, lifecycle, servers, spread
from lab.scenario import MILEPOST, Ground, Row, Sample, Scenario, Start, worst
from lab.servers import Place
from lab.toolbox import Toolbox

NAMES = ("operations", "reloads", "spread", "crash")
PEERS = ("nginx", "gunicorn")

WORKERS = 4
THREADS = 2
DRIVERS = 8
IMPORT_S = 0.5
RESTART_S_MAX = 0.3


def every() -> list[Scenario]:
    """All of them, in the order of NAMES."""
    return [operations(), reloads(), spreads(), crashes()]


def sample(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """Measures `row`. Raises one of measure.FAULTS."""
    try:
        return row.take(row, box, ground)
    except (OSError, KeyError, subprocess.SubprocessError) as cause:
        # A server that does not answer, or whose status lacks something: the others are still measured.
        raise process.NotReady(f"{type(cause).__name__}: {cause}") from cause


def operations(reloads: int = lifecycle.RELOADS, others: int = lifecycle.SCALES) -> Scenario:
    """Everything that is done to one server; what is lost is lost by one of them. Twice: with room for
    everybody, and with so little that the queues of the kernel are full. There idle connections are ended
    early by the server's own rule, so that a loss need not be the operation's."""

    def row(name: str, *room: str) -> Row:
        def start(box: Toolbox, place: Place) -> Command:
            return servers.milepost_app(box, place, *_shape(WORKERS, 2, THREADS), *room)

        take = functools.partial(lifecycle.lived, reloads=reloads, others=others)
        return Row(name, MILEPOST, start, take=take)

    roomy = row("room for all")
    full = row("full queues", "--connections-max", str(lifecycle.CONNECTIONS_MAX))
    done = {"reloads": reloads, "scales": others, "kills": others, "upgrades": 1}
    none = ("by_reload", "by_scale", "by_upgrade", "by_quiet", "by_beyond_kill", "unchanged")
    bars = (
        *(worst(name, each, at_least=count) for each in (roomy, full) for name, count in done.items()),
        *(worst(name, each, at_most=0) for each in (roomy, full) for name in none),
        # The queues were really full.
        worst("waiting_most", full, at_least=100),
    )
    title = f"{reloads} reloads, {others} other numbers of processes, {others} kills, an upgrade"
    return Scenario("operations", title, (roomy, full), bars)


def reloads() -> Scenario:
    """The same reloads of everybody: an application by gunicorn, a file by nginx."""

    def app(box: Toolbox, place: Place) -> Command:
        return servers.milepost_app(box, place, *_shape(WORKERS, 1, THREADS))

    def files(box: Toolbox, place: Place) -> Command:
        return servers.milepost_files(box, place, *_shape(WORKERS, 1))

    def row(name: str, tool: str, start: Start, reload: lifecycle.Reload) -> Row:
        return Row(name, tool, start, take=functools.partial(_reloaded, reload))

    rows = (
        row("milepost, application", MILEPOST, app, lifecycle.by_control),
        row("gunicorn HUP, application", "gunicorn", _gunicorn(WORKERS, THREADS), lifecycle.by_hup),
        row("milepost, file", MILEPOST, files, lifecycle.by_control),
        row("nginx -s reload, file", "nginx", _nginx(""), lifecycle.by_nginx),
        row("nginx -s reload, reuseport, file", "nginx", _nginx("reuseport"), lifecycle.by_nginx),
    )
    bars = tuple(worst("lost", each, at_most=0) for each in rows if each.tool == MILEPOST)
    title = f"{lifecycle.PEER_RELOADS} reloads under short-lived and kept connections"
    return Scenario("reloads", title, rows, bars)


def spreads() -> Scenario:
    """Connections of drivers, as the server counts them."""

    def files(*shape: str) -> Start:
        return lambda box, place: servers.milepost_files(box, place, *shape)

    one = Row(f"{DRIVERS} drivers, short-lived", MILEPOST, files(*_shape(1, DRIVERS)), take=spread.short)
    many = Row("4 processes of 2 drivers", MILEPOST, files(*_shape(4, DRIVERS // 4)), take=spread.short)
    long = Row(
        f"{spread.LONG} long-lived, {spread.LONG_DRIVERS} drivers",
        MILEPOST,
        files(*_shape(1, spread.LONG_DRIVERS)),
        take=spread.long,
    )
    bars = (
        *(worst("most_share", row, at_most=1.1) for row in (one, many)),
        *(worst("least_share", row, at_least=0.9) for row in (one, many)),
        worst("worst_off", long, at_most=0),
    )
    return Scenario("spread", "spread of connections over drivers", (one, many, long), bars)


def crashes() -> Scenario:
    """One process: no other serves meanwhile. With gunicorn beside it, which has no figure to reach."""

    def start(import_s: float) -> Start:
        shape = _shape(1, 1, THREADS)
        return lambda box, place: servers.milepost_app(box, place, *shape, import_s=import_s)

    def row(name: str, tool: str, start: Start) -> Row:
        return Row(name, tool, start, take=crash.restarted)

    rows = (
        row("milepost", MILEPOST, start(0.0)),
        row(f"milepost, import of {IMPORT_S:g} s", MILEPOST, start(IMPORT_S)),
        row("gunicorn", "gunicorn", _gunicorn(1, THREADS)),
    )
    ours = [each for each in rows if each.tool == MILEPOST]
    bars = (
        *(worst("restart_s", each, at_most=RESTART_S_MAX) for each in ours),
        *(worst("refused", each, at_most=0) for each in ours),
    )
    return Scenario("crash", "kill -9 of the only process", rows, bars)


def _shape(processes: int, drivers: int, threads: int = 0) -> tuple[str, ...]:
    """A fixed pool, as the peers have."""
    pool = ("--threads", f"{threads}:{threads}") if threads else ()
    return ("--processes", str(processes), "--drivers", str(drivers), *pool)


def _gunicorn(workers: int, threads: int) -> Start:
    return lambda box, place: servers.gunicorn(box, place, workers, threads)


def _nginx(listen: str) -> Start:
    return lambda box, place: servers.nginx(box, place, WORKERS, listen)


def _reloaded(reload: lifecycle.Reload, row: Row, box: Toolbox, ground: Ground) -> Sample:
    return lifecycle.reloaded(row, reload, box, ground)
