"""What is compared with what: the rows of each scenario, in the order of measurement, and the
bars that Milepost is held to. Nothing here measures or prints.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lab import generator, measure, servers, weighttp, wrk
from lab.generator import Counted
from lab.process import Command
from lab.scenario import MILEPOST, Bar, By, Row, Scenario, Start
from lab.servers import Place
from lab.toolbox import Toolbox

NAMES = ("static", "static-log", "wsgi", "wsgi-log", "idle", "slow-readers", "generators")
# A row of Milepost with its access log on, among others that have none.
LOGGING = "milepost log on"
# Half of the default `connections_max`: beyond it idle connections are closed the sooner, and are not held.
IDLE_CONNECTIONS = 5_000
SLOW_READERS = 500


def row_of(
    name: str, tool: str, start: Start, connections: int = 64, slow_readers: int = 0, by: By = generator.run
) -> Row:
    """A row under load, measured again while other programs disturb it."""
    take = measure.undisturbed(measure.load)
    return Row(name, tool, start, connections, slow_readers, by, take=take)


def every(reply: bytes) -> list[Scenario]:
    """All scenarios; `reply` is what the floor sends."""
    return [static(reply), static_log(), wsgi(), wsgi_log(), idle(), slow_readers(), generators()]


def static(reply: bytes) -> Scenario:
    """Against nginx by default and as fast as it can be set, and against the floor."""
    rows = (
        row_of(MILEPOST, MILEPOST, servers.milepost_static),
        row_of(LOGGING, MILEPOST, lambda box, place: servers.milepost_static(box, place, *_log(place))),
        row_of("nginx", "nginx", lambda box, place: servers.nginx(box, place, "on")),
        row_of("nginx tcp_nopush", "nginx", _nopush),
        row_of("nginx sendfile off", "nginx", lambda box, place: servers.nginx(box, place, "off")),
        row_of("floor", "floor", lambda box, place: servers.floor(box, place, reply)),
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
        rows,
        bars,
        also,
    )


def static_log() -> Scenario:
    """What the phases and the log cost, and nginx's log beside them."""

    def nginx(log: str) -> Callable[[Toolbox, Place], Command]:
        return lambda box, place: servers.nginx(box, place, "on", f"{place.access_log} {log}")

    rows = (
        row_of(MILEPOST, MILEPOST, lambda box, place: servers.milepost_static(box, place, *_log(place))),
        row_of("milepost log off", MILEPOST, servers.milepost_static),
        row_of("nginx", "nginx", nginx("combined")),
        # nginx can batch its lines as well: the fairer peer for a log with a thread of its own.
        row_of("nginx log buffered", "nginx", nginx("combined buffer=64k flush=1s")),
    )
    bars = (Bar("rps", MILEPOST, "milepost log off", at_least=0.95),)
    also = ((MILEPOST, "nginx"), (MILEPOST, "nginx log buffered"))
    return Scenario("static-log", "1 KB file, keep-alive, access log to a file", rows, bars, also)


def wsgi() -> Scenario:
    """Against the Python servers, each with one thread that runs the application."""
    rows = (
        row_of(MILEPOST, MILEPOST, lambda box, place: servers.milepost_wsgi(box, place, "small", 1)),
        row_of(LOGGING, MILEPOST, _wsgi_logging),
        row_of("granian", "granian", lambda box, place: servers.granian(box, place, "small", 1)),
        row_of("gunicorn gthread", "gunicorn", lambda box, place: servers.gunicorn(box, place, "small", 1)),
        row_of("bjoern", "bjoern", servers.bjoern),
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
        rows,
        bars,
        ((MILEPOST, "gunicorn gthread"),),
    )


def wsgi_log() -> Scenario:
    """The same with a line in a file for each request."""

    def gunicorn(box: Toolbox, place: Place) -> Command:
        return servers.gunicorn(box, place, "small", 1, "--access-logfile", str(place.access_log))

    rows = (
        row_of(MILEPOST, MILEPOST, _wsgi_logging),
        row_of("granian", "granian", lambda box, place: servers.granian_logging(box, place, "small", 1)),
        row_of("gunicorn gthread", "gunicorn", gunicorn),
    )
    bars = (Bar("rps", MILEPOST, "granian", at_least=3.0),)
    also = ((MILEPOST, "gunicorn gthread"),)
    return Scenario("wsgi-log", "WSGI 1 KB reply, access log to a file on all sides", rows, bars, also)


def idle() -> Scenario:
    """What a silent connection costs."""
    rows = (
        row_of(MILEPOST, MILEPOST, servers.milepost_static),
        row_of("milepost wsgi", MILEPOST, lambda box, place: servers.milepost_wsgi(box, place, "small", 1)),
        row_of("nginx", "nginx", lambda box, place: servers.nginx(box, place, "on")),
        row_of("granian", "granian", lambda box, place: servers.granian(box, place, "small", 1)),
    )
    held = tuple(replace(row, connections=IDLE_CONNECTIONS, take=measure.idle) for row in rows)
    bars = (Bar("bytes_per_connection", MILEPOST, None, at_most=2048.0),)
    title = f"user-space memory of {IDLE_CONNECTIONS} idle connections after one request each"
    return Scenario("idle", title, held, bars)


def slow_readers() -> Scenario:
    """Whether clients that do not read can hold up those that do."""
    starts: list[tuple[str, str, Callable[[Toolbox, Place], Command]]] = [
        ("milepost wsgi", MILEPOST, lambda box, place: servers.milepost_wsgi(box, place, "sizes", 4)),
        ("milepost static", MILEPOST, servers.milepost_static),
        ("granian", "granian", lambda box, place: servers.granian(box, place, "sizes", 4)),
        ("gunicorn gthread", "gunicorn", lambda box, place: servers.gunicorn(box, place, "sizes", 4)),
        ("nginx", "nginx", lambda box, place: servers.nginx(box, place, "on")),
    ]
    rows = tuple(
        row_of(name + (f" +{count}" if count else ""), tool, start, connections=16, slow_readers=count)
        for name, tool, start in starts
        for count in (0, SLOW_READERS)
    )
    bars = tuple(
        Bar("p99_us", f"{name} +{SLOW_READERS}", name, at_most=1.5)
        for name in ("milepost wsgi", "milepost static")
    )
    title = f"16 healthy clients beside {SLOW_READERS} that ask for 64 KB and never read, 4 pool threads"
    also = tuple((row.name, beside.name) for row, beside in zip(rows[1::2], rows[::2]))
    return Scenario("slow-readers", title, rows, bars, also)


def generators() -> Scenario:
    """What a request costs its generator: `milepost bench` beside wrk and weighttp, before the same nginx."""

    def row(name: str, tool: str, run: Callable[..., Counted], *more: str) -> Row:
        def by(box: Toolbox, port: int, path: str, connections: int, seconds: int, core: int) -> Counted:
            return run(box, port, path, connections, seconds, core, *more)

        return row_of(name, tool, lambda box, place: servers.nginx(box, place, "on"), by=by)

    short = ("--requests-per-connection", "1", "--close")
    rows = (
        row("wrk, kept", "wrk", wrk.run),
        row("milepost bench, kept", MILEPOST, generator.run),
        row("weighttp, kept", "weighttp", weighttp.run),
        row("wrk, short", "wrk", wrk.run, "-H", "Connection: close"),
        row("milepost bench, short, RST", MILEPOST, generator.run, *short, "rst"),
        row("milepost bench, short, FIN", MILEPOST, generator.run, *short, "fin"),
        row("milepost bench, short, the server closes", MILEPOST, generator.run, *short, "server"),
    )
    bars = tuple(
        Bar("generator_cpu_us", name, base, at_most=most)
        for name, base, most in (
            ("milepost bench, kept", "wrk, kept", 1.0),
            ("milepost bench, short, RST", "wrk, short", 0.72),
            ("milepost bench, short, FIN", "wrk, short", 0.85),
        )
    )
    title = "generators before nginx: processor time of the generator, 1 KB file, 64 connections"
    return Scenario("generators", title, rows, bars)


def _wsgi_logging(box: Toolbox, place: Place) -> Command:
    return servers.milepost_wsgi(box, place, "small", 1, *_log(place))


def _nopush(box: Toolbox, place: Place) -> Command:
    return servers.nginx(box, place, "on", tcp_nopush="on")


def _log(place: Place) -> tuple[str, str]:
    return "--access-log", str(place.access_log)
