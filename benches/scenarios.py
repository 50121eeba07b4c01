"""What is compared with what: the rows of each scenario, in the order of measurement, and the
bars that Milepost is held to. Nothing here measures or prints.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

import generator
import peers
import wrk
from generator import Counted
from peers import Place
from process import Command
from toolbox import Toolbox

# Toolbox, port, path, connections, seconds, core.
By = Callable[[Toolbox, int, str, int, int, int], Counted]

SMALL = "/1k.txt"
LARGE = "/64k.txt"
MILEPOST = "milepost"
# A row of Milepost with its access log on, among others that have none.
LOGGING = "milepost log on"
# Half of the default `connections_max`: beyond it idle connections are closed the sooner, and are not held.
IDLE_CONNECTIONS = 5_000
SLOW_READERS = 500


class Kind(Enum):
    """How a row is measured: under load (and whose side is looked at), or by the memory of silent
    connections."""

    LOAD = "load"
    GENERATOR = "generator"
    IDLE = "idle"


@dataclass(frozen=True)
class Row:
    """One server in one setting. `tool` is what must be there; `slow_readers` are held open
    beside the load, each with a request for LARGE; `by` makes the load."""

    name: str
    tool: str
    start: Callable[[Toolbox, Place], Command]
    connections: int = 64
    slow_readers: int = 0
    by: By = generator.run


class Judged(Enum):
    """By which of the repetitions a row is held to a figure."""

    # Of those that nobody disturbed.
    MEDIAN = "median"
    # Of all: what may not happen may not happen once.
    WORST = "worst"


@dataclass(frozen=True)
class Bar:
    """A figure to reach: `metric` of `row`, over that of `base` when there is one."""

    metric: str
    row: str
    base: str | None
    at_most: float | None = None
    at_least: float | None = None
    judged: Judged = Judged.MEDIAN


@dataclass(frozen=True)
class Scenario:
    """Rows that are measured in turn, again and again, so that a drift hits all of them."""

    name: str
    title: str
    kind: Kind
    rows: tuple[Row, ...]
    bars: tuple[Bar, ...]
    # Pairs of rows whose ratio is shown beside Milepost's own.
    also: tuple[tuple[str, str], ...] = ()


def every(box: Toolbox, reply: bytes) -> list[Scenario]:
    """All scenarios; `reply` is what the floor sends."""
    return [static(reply), static_log(), wsgi(), wsgi_log(), idle(), slow_readers(), generators()]


def static(reply: bytes) -> Scenario:
    """Against nginx by default and as fast as it can be set, and against the floor."""
    rows = (
        Row(MILEPOST, MILEPOST, peers.milepost_static),
        Row(LOGGING, MILEPOST, lambda box, place: peers.milepost_static(box, place, *_log(place))),
        Row("nginx", "nginx", lambda box, place: peers.nginx(box, place, "on")),
        Row("nginx tcp_nopush", "nginx", lambda box, place: peers.nginx(box, place, "on", tcp_nopush="on")),
        Row("nginx sendfile off", "nginx", lambda box, place: peers.nginx(box, place, "off")),
        Row("floor", "floor", lambda box, place: peers.floor(box, place, reply)),
    )
    bars = (
        Bar("cpu_us", MILEPOST, "nginx", at_most=0.65),
        Bar("cpu_us", MILEPOST, "nginx tcp_nopush", at_most=0.65),
        Bar("cpu_us", MILEPOST, "nginx sendfile off", at_most=0.65),
        Bar("cpu_us", MILEPOST, "floor", at_most=1.20),
        # What Milepost does by default against peers that do less.
        Bar("cpu_us", LOGGING, "floor", at_most=1.15),
    )
    # No server can come below the floor: this says how much of a bar is within reach.
    also = (
        *((LOGGING, base) for base in ("nginx", "nginx tcp_nopush", "nginx sendfile off")),
        ("floor", "nginx"),
        ("floor", "nginx sendfile off"),
    )
    return Scenario(
        "static",
        "1 KB file, keep-alive, access log off but for one row, one driver",
        Kind.LOAD,
        rows,
        bars,
        also,
    )


def static_log() -> Scenario:
    """What the phases and the log cost, and nginx's log beside them."""

    def nginx(log: str) -> Callable[[Toolbox, Place], Command]:
        return lambda box, place: peers.nginx(box, place, "on", f"{place.access_log} {log}")

    rows = (
        Row(MILEPOST, MILEPOST, lambda box, place: peers.milepost_static(box, place, *_log(place))),
        Row("milepost log off", MILEPOST, peers.milepost_static),
        Row("nginx", "nginx", nginx("combined")),
        # nginx can batch its lines as well: the fairer peer for a log with a thread of its own.
        Row("nginx log buffered", "nginx", nginx("combined buffer=64k flush=1s")),
    )
    bars = (Bar("rps", MILEPOST, "milepost log off", at_least=0.95),)
    return Scenario("static-log", "1 KB file, keep-alive, access log to a file", Kind.LOAD, rows, bars)


def wsgi() -> Scenario:
    """Against the Python servers, each with one thread that runs the application."""
    rows = (
        Row(MILEPOST, MILEPOST, lambda box, place: peers.milepost_wsgi(box, place, "small", 1)),
        Row(LOGGING, MILEPOST, lambda box, place: peers.milepost_wsgi(box, place, "small", 1, *_log(place))),
        Row("granian", "granian", lambda box, place: peers.granian(box, place, "small", 1)),
        Row("gunicorn gthread", "gunicorn", lambda box, place: peers.gunicorn(box, place, "small", 1)),
        Row("bjoern", "bjoern", peers.bjoern),
    )
    bars = (
        Bar("cpu_us", MILEPOST, "granian", at_most=0.70),
        Bar("cpu_us", MILEPOST, "bjoern", at_most=1.10),
        Bar("cpu_us", LOGGING, "granian", at_most=0.65),
        Bar("cpu_us", LOGGING, "bjoern", at_most=1.05),
        Bar("rps", MILEPOST, "granian", at_least=1.3),
    )
    return Scenario(
        "wsgi",
        "WSGI 1 KB reply, one process, one pool thread, access log off but for one row",
        Kind.LOAD,
        rows,
        bars,
    )


def wsgi_log() -> Scenario:
    """The same with a line in a file for each request."""

    def gunicorn(box: Toolbox, place: Place) -> Command:
        return peers.gunicorn(box, place, "small", 1, "--access-logfile", str(place.access_log))

    rows = (
        Row(MILEPOST, MILEPOST, lambda box, place: peers.milepost_wsgi(box, place, "small", 1, *_log(place))),
        Row("granian", "granian", lambda box, place: peers.granian_logging(box, place, "small", 1)),
        Row("gunicorn gthread", "gunicorn", gunicorn),
    )
    bars = (Bar("rps", MILEPOST, "granian", at_least=3.0),)
    return Scenario("wsgi-log", "WSGI 1 KB reply, access log to a file on all sides", Kind.LOAD, rows, bars)


def idle() -> Scenario:
    """What a silent connection costs."""
    servers = (
        Row(MILEPOST, MILEPOST, peers.milepost_static),
        Row("milepost wsgi", MILEPOST, lambda box, place: peers.milepost_wsgi(box, place, "small", 1)),
        Row("nginx", "nginx", lambda box, place: peers.nginx(box, place, "on")),
        Row("granian", "granian", lambda box, place: peers.granian(box, place, "small", 1)),
    )
    rows = tuple(replace(row, connections=IDLE_CONNECTIONS) for row in servers)
    bars = (Bar("bytes_per_connection", MILEPOST, None, at_most=2048.0),)
    title = f"user-space memory of {IDLE_CONNECTIONS} idle connections after one request each"
    return Scenario("idle", title, Kind.IDLE, rows, bars)


def slow_readers() -> Scenario:
    """Whether clients that do not read can hold up those that do."""
    starts: list[tuple[str, str, Callable[[Toolbox, Place], Command]]] = [
        ("milepost wsgi", MILEPOST, lambda box, place: peers.milepost_wsgi(box, place, "sizes", 4)),
        ("milepost static", MILEPOST, peers.milepost_static),
        ("granian", "granian", lambda box, place: peers.granian(box, place, "sizes", 4)),
        ("gunicorn gthread", "gunicorn", lambda box, place: peers.gunicorn(box, place, "sizes", 4)),
        ("nginx", "nginx", lambda box, place: peers.nginx(box, place, "on")),
    ]
    rows = tuple(
        Row(name + (f" +{count}" if count else ""), tool, start, connections=16, slow_readers=count)
        for name, tool, start in starts
        for count in (0, SLOW_READERS)
    )
    bars = tuple(
        Bar("p99_us", f"{name} +{SLOW_READERS}", name, at_most=1.5)
        for name in ("milepost wsgi", "milepost static")
    )
    title = f"16 healthy clients beside {SLOW_READERS} that ask for 64 KB and never read, 4 pool threads"
    return Scenario("slow-readers", title, Kind.LOAD, rows, bars)


def generators() -> Scenario:
    """What a request costs whoever makes it: `milepost bench` against wrk, before the same nginx."""

    def row(name: str, tool: str, run: Callable[..., Counted], *more: str) -> Row:
        def by(box: Toolbox, port: int, path: str, connections: int, seconds: int, core: int) -> Counted:
            return run(box, port, path, connections, seconds, core, *more)

        return Row(name, tool, lambda box, place: peers.nginx(box, place, "on"), by=by)

    ring = ("--engine", "io_uring")
    short = ("--requests-per-connection", "1", "--close")
    rows = (
        row("wrk, kept", "wrk", wrk.run),
        row("epoll, kept", MILEPOST, generator.run),
        row("io_uring, kept", MILEPOST, generator.run, *ring),
        row("wrk, short", "wrk", wrk.run, "-H", "Connection: close"),
        row("epoll, short, RST", MILEPOST, generator.run, *short, "rst"),
        row("epoll, short, FIN", MILEPOST, generator.run, *short, "fin"),
        row("epoll, short, the server closes", MILEPOST, generator.run, *short, "server"),
        row("io_uring, short, RST", MILEPOST, generator.run, *ring, *short, "rst"),
    )
    bars = tuple(
        Bar("generator_cpu_us", name, base, at_most=most)
        for name, base, most in (
            ("epoll, kept", "wrk, kept", 1.0),
            ("io_uring, kept", "wrk, kept", 0.9),
            ("epoll, short, RST", "wrk, short", 0.72),
            ("epoll, short, FIN", "wrk, short", 0.85),
            ("io_uring, short, RST", "wrk, short", 0.72),
        )
    )
    title = "generators before nginx: processor time of the generator, 1 KB file, 64 connections"
    return Scenario("generators", title, Kind.GENERATOR, rows, bars)


def _log(place: Place) -> tuple[str, str]:
    return "--access-log", str(place.access_log)
