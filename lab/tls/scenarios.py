"""What is compared with what: the rows of each scenario, in the order of measurement, and the bars that
Milepost is held to. Nothing here measures or prints.
"""

from __future__ import annotations

import functools
import subprocess
from dataclasses import replace

from lab import generator, process
from lab import measure as lab_measure
from lab.process import Command
from lab.reload.lifecycle import PROCESSES
from lab.scenario import MILEPOST, Bar, By, Compared, Ground, Sample, Scenario, Start, Take, worst
from lab.servers import Place
from lab.tls import floods, frames, h2load, lifecycle, measure, servers
from lab.tls.measure import Row
from lab.toolbox import Toolbox

NAMES = (
    *("handshakes", "https", "tls-tax", "http2", "http2-wsgi", "storm", "siblings", "stalled", "idle"),
    *("reloads", "floods"),
)
PEERS = ("nginx", "granian")
# One connection measures a server that falls asleep after each request; many measure one that does not.
MANY = 16
# The generator keeps eight tickets, each for one connection: more at once would make full handshakes.
HANDSHAKE_CONNECTIONS = 8
IDLE_CONNECTIONS = 2_000
STALLED_CONNECTIONS = 1_000
STREAMS = 100
# By the formula of ARCHITECTURE.md ("Memory of a connection"), for streams of a file that have sent nothing:
# input, HPACK and output of the connection, and the head of each stream, which holds no piece.
STALLED_BYTES_MAX = (128 << 10) + STREAMS * (8 << 10)
PROBES_A_SECOND = 100
FLOOD_PROBES_A_SECOND = 500
FLOOD_CONNECTIONS = 4
FLOOD_BYTES_MAX = 30 << 20
ALONE = "alone"


def every(reloads: int = lifecycle.RELOADS, scales: int = lifecycle.SCALES) -> list[Scenario]:
    """All of them, in the order of NAMES."""
    scenarios = [handshakes(), https(), tls_tax(), http2(), http2_wsgi(), storm(), siblings(), stalled()]
    return [*scenarios, idle(), lived(reloads, scales), flooded()]


def sample(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """Measures `row`. Raises one of measure.FAULTS."""
    try:
        return row.take(row, box, ground)
    except (OSError, KeyError, ValueError, subprocess.SubprocessError) as cause:
        # A server that does not answer as it should: the others are still measured.
        raise process.NotReady(f"{type(cause).__name__}: {cause}") from cause


def handshakes() -> Scenario:
    """New connections with one request each, whose sessions are new or resumed."""

    def by(*options: str) -> By:
        words = ("--insecure", "--requests-per-connection", "1", *options)
        return lambda *aim: generator.run(*aim, *words, scheme="https")

    def row(name: str, tool: str, start: Start, *options: str) -> Row:
        return _loaded(name, tool, start, HANDSHAKE_CONNECTIONS, by(*options))

    rows = (
        row("full", MILEPOST, servers.milepost_static, "--no-resumption"),
        row("nginx full", "nginx", servers.nginx, "--no-resumption"),
        row("resumed", MILEPOST, servers.milepost_static),
        row("nginx resumed", "nginx", servers.nginx),
    )
    bars = (
        Bar("cpu_us", "full", "nginx full", at_most=0.7),
        Bar("cpu_us", "resumed", "nginx resumed", at_most=0.7),
        # What is compared is what it is called.
        *(Bar("resumed_share", name, None, at_most=0.0) for name in ("full", "nginx full")),
        *(Bar("resumed_share", name, None, at_least=0.98) for name in ("resumed", "nginx resumed")),
    )
    return Scenario("handshakes", "new connection and one request for 1 KB, TLS 1.3", rows, bars)


def https() -> Scenario:
    """Kept connections of HTTP/1.1 over TLS."""

    def rows(name: str, connections: int, by: By) -> tuple[Row, Row]:
        return (
            _loaded(name, MILEPOST, servers.milepost_static, connections, by),
            _loaded(f"nginx {name}", "nginx", servers.nginx, connections, by),
        )

    small, large = h2load.by(1, "--h1"), h2load.by(1, "--h1", path=servers.LARGE)
    kinds = (("1 KB", MANY, small), ("1 KB, 1 connection", 1, small), ("1 MB", MANY, large))
    bars = tuple(
        Bar("cpu_us", name, f"nginx {name}", at_most=limit)
        for (name, _, _), limit in zip(kinds, (0.8, 0.8, 1.1))
    )
    every_row = tuple(row for kind in kinds for row in rows(*kind))
    return Scenario("https", f"HTTPS/1.1, {MANY} kept connections, a file", every_row, bars)


def tls_tax() -> Scenario:
    """What TLS adds to a request of the application."""

    def rows(name: str, connections: int) -> tuple[Row, Row]:
        secure = _loaded(name, MILEPOST, servers.milepost_wsgi, connections, h2load.by(1, "--h1"))
        return secure, _plain(f"plain {name}", connections)

    names = {f"{MANY} connections": MANY, "1 connection": 1}
    bars = tuple(
        Bar("cpu_us", name, f"plain {name}", at_most=4.0, compared=Compared.DIFFERENCE) for name in names
    )
    every_row = tuple(row for pair in names.items() for row in rows(*pair))
    return Scenario(
        "tls-tax", "WSGI, 1 KB, kept connections of HTTP/1.1, with TLS and without", every_row, bars
    )


def http2() -> Scenario:
    """A file over HTTP/2 and TLS: many streams beside nginx, single ones beside our own HTTP/1.1."""
    many, one, old = h2load.by(STREAMS), h2load.by(1), h2load.by(1, "--h1")
    ours, theirs = (MILEPOST, servers.milepost_static), ("nginx", servers.nginx)
    rows = (
        _loaded("100 streams", *ours, 1, many),
        _loaded("nginx 100 streams", *theirs, 1, many),
        _loaded("1 stream", *ours, 1, one),
        _loaded("HTTP/1.1", *ours, 1, old),
        _loaded("nginx 1 stream", *theirs, 1, one),
        _loaded(f"{MANY} × 1 stream", *ours, MANY, one),
        _loaded(f"{MANY} × HTTP/1.1", *ours, MANY, old),
        _loaded(f"nginx {MANY} × 1 stream", *theirs, MANY, one),
    )
    bars = (
        Bar("cpu_us", "100 streams", "nginx 100 streams", at_most=0.45),
        Bar("cpu_us", "1 stream", "HTTP/1.1", at_most=1.4),
        Bar("cpu_us", f"{MANY} × 1 stream", f"{MANY} × HTTP/1.1", at_most=1.4),
    )
    also = (("1 stream", "nginx 1 stream"), (f"{MANY} × 1 stream", f"nginx {MANY} × 1 stream"))
    return Scenario("http2", "HTTP/2 over TLS, 1 KB file", rows, bars, also)


def http2_wsgi() -> Scenario:
    """The application over HTTP/2 and TLS, with 32 requests at once."""
    at_once = 32
    streams = h2load.by(at_once)
    rows = (
        _loaded("32 streams", MILEPOST, servers.milepost_wsgi, 1, streams),
        _loaded("granian 32 streams", "granian", servers.granian, 1, streams),
        _plain("plain HTTP/1.1, 32 connections", at_once),
    )
    bars = (
        Bar("cpu_us", "32 streams", "granian 32 streams", at_most=0.65),
        Bar("cpu_us", "32 streams", "plain HTTP/1.1, 32 connections", at_most=1.0),
    )
    return Scenario("http2-wsgi", "WSGI over HTTP/2 and TLS, 1 KB, one worker", rows, bars)


def storm() -> Scenario:
    """Plain requests at a constant rate, beside more full handshakes than the server can do."""

    def row(name: str, *words: str) -> Row:
        start, take = servers.milepost_both, lab_measure.undisturbed(measure.stormed)
        return Row(name, MILEPOST, start, take=take, words=words, rate=PROBES_A_SECOND)

    bars = tuple(
        Bar(metric, "storm", ALONE, at_most=2000.0, compared=Compared.DIFFERENCE)
        for metric in ("phase_p99_us", "p99_us")
    )
    title = (
        f"{PROBES_A_SECOND} plain requests a second beside {measure.OVERLOAD} × the handshakes of a driver"
    )
    return Scenario("storm", title, (row(ALONE), row("storm", "storm")), bars)


def siblings() -> Scenario:
    """Streams of one connection, all in motion, or one of them stalled."""

    def row(name: str, start: Start, path: str, stalled: int) -> Row:
        words = (str(STREAMS), path, str(stalled))
        take = lab_measure.undisturbed(measure.siblings)
        return Row(name, MILEPOST, start, take=take, words=words)

    def app(box: Toolbox, place: Place) -> Command:
        return servers.milepost_plain(box, place, *servers.PATIENCE)

    def files(box: Toolbox, place: Place) -> Command:
        return servers.milepost_files(box, place, *servers.PATIENCE)

    rows = (
        row("files", files, servers.LARGE, 0),
        row("files, 1 stalled", files, servers.LARGE, 1),
        row("application", app, f"/files{servers.LARGE}", 0),
        row("application, 1 stalled", app, f"/files{servers.LARGE}", 1),
    )
    moving = ("files", "application")
    bars = (
        *(Bar("p99_us", f"{name}, 1 stalled", name, at_most=1.2) for name in moving),
        *(Bar("stalled", f"{name}, 1 stalled", None, at_least=1) for name in moving),
    )
    return Scenario("siblings", f"{STREAMS} streams of one connection, HTTP/2 without TLS", rows, bars)


def stalled() -> Scenario:
    """Memory of streams whose clients open no window."""

    def start(box: Toolbox, place: Place) -> Command:
        return servers.milepost_files(box, place, *servers.PATIENCE)

    name = f"{STALLED_CONNECTIONS} × {STREAMS} streams"
    row = Row(name, MILEPOST, start, STALLED_CONNECTIONS, take=measure.stalled, words=(str(STREAMS),))
    bars = (
        Bar("bytes_per_connection", name, None, at_most=STALLED_BYTES_MAX),
        worst("stalled", row, at_least=STALLED_CONNECTIONS * STREAMS),
    )
    return Scenario("stalled", "memory of stalled responses of a file of 1 MB", (row,), bars)


def idle() -> Scenario:
    """Memory of connections that had one reply."""

    def row(name: str, tool: str, start: Start, *words: str) -> Row:
        take: Take = functools.partial(lab_measure.idle, hold=measure.hold_idle)
        tls = None if "plain" in words else frames.context()
        return Row(name, tool, start, IDLE_CONNECTIONS, tls=tls, take=take, words=words)

    rows = (
        row("TLS", MILEPOST, servers.milepost_static, "h1", "tls"),
        row("nginx TLS", "nginx", servers.nginx, "h1", "tls"),
        row("HTTP/2", MILEPOST, servers.milepost_files, "h2", "plain"),
        row("HTTP/2 over TLS", MILEPOST, servers.milepost_static, "h2", "tls"),
        row("nginx HTTP/2 over TLS", "nginx", servers.nginx, "h2", "tls"),
    )
    bars = (
        Bar("bytes_per_connection", "TLS", None, at_most=16 << 10),
        Bar("bytes_per_connection", "HTTP/2", None, at_most=24 << 10),
        Bar("bytes_per_connection", "HTTP/2 over TLS", None, at_most=24 << 10),
    )
    also = (("TLS", "nginx TLS"), ("HTTP/2 over TLS", "nginx HTTP/2 over TLS"))
    return Scenario("idle", f"{IDLE_CONNECTIONS} idle connections that had one reply each", rows, bars, also)


def lived(reloads: int, scales: int) -> Scenario:
    """Everything that is done to one server under HTTP/2 with sessions that are resumed."""

    def start(box: Toolbox, place: Place) -> Command:
        return servers.milepost_processes(box, place, PROCESSES)

    take = functools.partial(lifecycle.lived, reloads=reloads, scales=scales)
    row = Row("milepost", MILEPOST, start, tls=frames.context(), take=take)
    bars = (
        *(worst(name, row, at_most=0) for name in ("lost", "not_resumed", "unchanged")),
        worst("reloads", row, at_least=reloads),
        worst("scales", row, at_least=scales),
        worst("upgrades", row, at_least=1),
    )
    title = f"{reloads} reloads, {scales} other numbers of processes, an upgrade, under HTTP/2 and TLS"
    return Scenario("reloads", title, (row,), bars)


def flooded() -> Scenario:
    """Ordinary clients beside floods."""

    def start(box: Toolbox, place: Place) -> Command:
        return servers.milepost_plain(box, place, *servers.IMPATIENCE)

    def row(name: str, *words: str) -> Row:
        take = lab_measure.undisturbed(measure.flooded)
        return Row(name, MILEPOST, start, take=take, words=words, rate=FLOOD_PROBES_A_SECOND)

    names = tuple(floods.FLOODS)
    rows = (row(ALONE), *(row(name, name.replace(" ", "_"), str(FLOOD_CONNECTIONS)) for name in names))
    bars = tuple(
        bar
        for name in names
        for bar in (
            Bar("p99_us", name, ALONE, at_most=1.5),
            Bar("grown_bytes", name, None, at_most=FLOOD_BYTES_MAX),
            Bar("closed", name, None, at_least=1),
        )
    )
    title = f"{FLOOD_PROBES_A_SECOND} requests a second beside {FLOOD_CONNECTIONS} connections that flood"
    return Scenario("floods", title, rows, bars)


def _loaded(name: str, tool: str, start: Start, connections: int, by: By) -> Row:
    """A server with TLS under load, measured again while other programs disturb it."""
    take = lab_measure.undisturbed(lab_measure.load)
    return Row(name, tool, start, connections, by=by, tls=frames.context(), take=take)


def _plain(name: str, connections: int) -> Row:
    """The application without TLS under load, one request at once on each connection."""
    load = h2load.by(1, "--h1", scheme="http")
    return replace(_loaded(name, MILEPOST, servers.milepost_plain, connections, load), tls=None)
