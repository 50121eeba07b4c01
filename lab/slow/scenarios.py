"""The scenarios: which rows are compared, and the figures to reach. Nothing here measures."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from lab import servers
from lab.fixtures import Disk
from lab.process import Command
from lab.scenario import MILEPOST, Bar, Scenario, Start, worst
from lab.servers import Place
from lab.slow import measure, untaken
from lab.slow.measure import BadClients, Row
from lab.toolbox import Toolbox

NAMES = (
    "never-read",
    "trickle",
    "cold-files",
    "download",
    "uploads",
    "idle",
    "untaken-shared",
    "untaken-own",
)
STALLED = 2_000
TRICKLING = 1_000
DOWNLOADS = 32
UPLOADS = 32
IDLE = 10_000
ACTIVE = 200
UNTAKEN = 80
UNTAKEN_WORKERS = 5
# The bound of what waits in memory, and a reply that each worker may have beyond it.
UNTAKEN_BYTES_MAX = (256 << 20) + UNTAKEN_WORKERS * (8 << 20)
# The first second has them come; the others show whether anything is left of it.
UNTAKEN_STAY_S = 12
# Short, so that the run is; and a while longer, to see all of them closed.
DEADLINE_S = 8
STAY_BEYOND_S = 3
# A reply that waits for its client, and what an idle connection may take.
STALLED_BYTES_MAX = 64 * 1024 + 2048
APP_AND_FILE = (("app", "/1k.txt"), ("file", "/files/1k.txt"))
FILE_AND_KEPT = (("file", "/1k.txt"), ("kept", "/slow/1k.txt"))


def every(box: Toolbox) -> list[Scenario]:
    """All of them, in the order of NAMES."""
    flags = known_flags(box)
    return [
        stalled(flags),
        trickle(flags),
        cold_files(),
        large_download(),
        uploads(),
        idle(),
        *untaken_replies(),
    ]


def known_flags(box: Toolbox) -> str:
    """The help of `serve`: older versions do not have all deadlines."""
    done = subprocess.run([str(box.milepost), "serve", "--help"], capture_output=True, text=True, check=False)
    return done.stdout


def stalled(flags: str) -> Scenario:
    """Half of them ask the application, half a file; so do those who are measured. nginx beside it
    shows what of it is the kernel's, which probes every one of them again and again."""

    def start(box: Toolbox, place: Place) -> Command:
        deadline = ("--send-timeout", f"{DEADLINE_S}s", *_rate(flags, "--send-rate-min"))
        return _app_and_files(box, place, *deadline)

    rows = _quiet_and("stalled", STALLED, start, deadline_s=DEADLINE_S)
    bars = (
        *_p99_bars(rows, 1.3),
        Bar("outside", rows[1].name, None, at_most=0),
        Bar("client_bytes", rows[1].name, None, at_most=STALLED_BYTES_MAX),
    )
    title = f"{STALLED} clients that ask for 64 KB and never read, 4 pool threads"
    beside = tuple(
        replace(row, name=f"nginx, {row.name}", tool="nginx", start=_patient_nginx) for row in rows
    )
    also = ((beside[1].name, beside[0].name), (rows[1].name, beside[1].name))
    return Scenario("never-read", title, (*rows, *beside), bars, also=also)


def trickle(flags: str) -> Scenario:
    """Half of them in heads, half in bodies."""

    def start(box: Toolbox, place: Place) -> Command:
        deadline = f"{DEADLINE_S}s"
        options = ("--head-timeout", deadline, "--body-timeout", deadline)
        return _app_and_files(box, place, *options, *_rate(flags, "--body-rate-min"))

    rows = _quiet_and("trickle", TRICKLING, start, deadline_s=DEADLINE_S)
    bars = (*_p99_bars(rows, 1.3), Bar("outside", rows[1].name, None, at_most=0))
    title = f"{TRICKLING} clients that send one byte every 5 s, half in heads, half in bodies"
    return Scenario("trickle", title, rows, bars)


def cold_files() -> Scenario:
    """nginx beside it: one worker, sendfile on, everything else as it comes."""

    def milepost(box: Toolbox, place: Place) -> Command:
        return servers.milepost_static(box, place, "--static", f"/slow={_slow(place)}")

    def nginx(box: Toolbox, place: Place) -> Command:
        location = f"location /slow/ {{ root {_slow(place).parent}; }}"
        return servers.nginx(box, place, "on", open_file_cache="off", locations=location)

    rows = tuple(
        Row(
            name + (f" + {DOWNLOADS} downloads" if count else ""),
            name,
            start,
            take=measure.paced,
            paths=FILE_AND_KEPT,
            disk=Disk(read_ms=50, write_ms=0),
            bad_clients=BadClients("download", count) if count else None,
        )
        for name, start in ((MILEPOST, milepost), ("nginx", nginx))
        for count in (0, DOWNLOADS)
    )
    bars = _p99_bars((rows[0], rows[1]), 1.5)
    title = f"storage with 50 ms a read under {DOWNLOADS} downloads of cold files"
    return Scenario("cold-files", title, rows, bars, also=((rows[3].name, rows[2].name),))


def large_download() -> Scenario:
    """The same client for both, which throws the bytes away inside the kernel."""
    rows = (
        Row(MILEPOST, MILEPOST, servers.milepost_static, take=measure.fetched),
        Row("nginx", "nginx", lambda box, place: servers.nginx(box, place, "on"), take=measure.fetched),
    )
    # The goal is 0.8, or to be within 5 %.
    bars = (Bar("cpu_ms", MILEPOST, "nginx", at_most=1.05),)
    return Scenario("download", "one download of 1 GB by sendfile", rows, bars)


def uploads() -> Scenario:
    """They are not waited for: at this disk's speed they would take an hour."""

    def start(box: Toolbox, place: Place) -> Command:
        return _app_and_files(box, place, "--spool-dir", str(_slow(place)))

    rows = _quiet_and("upload", UPLOADS, start, Disk(read_ms=0, write_ms=20))
    # A client that waits for our disk is not a slow client.
    bars = (*_p99_bars(rows, 1.5), Bar("lost", rows[1].name, None, at_most=0))
    title = f"{UPLOADS} uploads of 100 MB to storage with 20 ms a write"
    return Scenario("uploads", title, rows, bars)


def idle() -> Scenario:
    """An application, since with files the generator would be at its limit before the server."""

    def start(box: Toolbox, place: Place) -> Command:
        limits = ("--connections-max", str(servers.CONNECTIONS_MAX), "--idle-timeout", "600s")
        return servers.milepost_wsgi(box, place, "small", 1, *limits)

    alone = Row(f"{ACTIVE} active", MILEPOST, start, ACTIVE, take=measure.beside_idle)
    beside = Row(
        f"{ACTIVE} active + {IDLE} idle",
        MILEPOST,
        start,
        ACTIVE,
        take=measure.beside_idle,
        bad_clients=BadClients("idle", IDLE),
    )
    bars = (
        Bar("rps", beside.name, alone.name, at_least=0.97),
        Bar("lost", beside.name, None, at_most=0),
    )
    title = f"{IDLE} idle connections beside {ACTIVE} active ones"
    return Scenario("idle", title, (alone, beside), bars)


def untaken_replies() -> list[Scenario]:
    """The application has handed over its whole reply: only the client may wait from then on."""

    def start(box: Toolbox, place: Place) -> Command:
        options = ("--spool-dir", str(_slow(place)), "--access-log", str(place.access_log))
        return servers.milepost_app(box, place, "untaken_app:app", UNTAKEN_WORKERS, *options)

    def scenario(name: str, mode: str, whose: str) -> Scenario:
        quiet = Row(
            "quiet",
            MILEPOST,
            start,
            take=untaken.sample,
            paths=(("app", "/1k.txt"),),
            disk=Disk(read_ms=0, write_ms=400),
            stay_s=UNTAKEN_STAY_S,
        )
        beside = replace(quiet, name=f"{UNTAKEN} untaken", bad_clients=BadClients(mode, UNTAKEN))
        bars = (
            Bar("queue_p99_us", beside.name, quiet.name, at_most=1.5),
            worst("failed", beside, at_most=0),
            worst("held_most", beside, at_most=0),
            worst("peak_bytes", beside, at_most=UNTAKEN_BYTES_MAX),
        )
        title = (
            f"{UNTAKEN} clients that take nothing of 8 MB ({whose}), {UNTAKEN_WORKERS} workers, "
            "storage with 400 ms a write"
        )
        return Scenario(name, title, (quiet, beside), bars)

    return [
        scenario("untaken-shared", "shared", "one object"),
        scenario("untaken-own", "own", "an object each"),
    ]


def _quiet_and(
    mode: str, count: int, start: Start, disk: Disk | None = None, deadline_s: int | None = None
) -> tuple[Row, Row]:
    """The same server without and with `count` bad_clients, which are watched beyond their deadline."""
    quiet = Row("quiet", MILEPOST, start, take=measure.paced, paths=APP_AND_FILE, disk=disk)
    name, bad_clients = f"{count} {mode}", BadClients(mode, count, deadline_s)
    if deadline_s is None:
        return quiet, replace(quiet, name=name, bad_clients=bad_clients)
    return quiet, replace(quiet, name=name, bad_clients=bad_clients, stay_s=deadline_s + STAY_BEYOND_S)


def _p99_bars(rows: tuple[Row, Row], at_most: float) -> tuple[Bar, ...]:
    quiet, beside = rows
    return tuple(Bar(f"p99_{name}_us", beside.name, quiet.name, at_most=at_most) for name, _ in quiet.paths)


def _app_and_files(box: Toolbox, place: Place, *options: str) -> Command:
    """The application and a folder of files, for more clients than the default lets in."""
    files = ("--static", f"/files={place.www}")
    room = ("--connections-max", str(servers.CONNECTIONS_MAX))
    return servers.milepost_wsgi(box, place, "sizes", 4, *files, *room, *options)


def _patient_nginx(box: Toolbox, place: Place) -> Command:
    """The same files at the same paths, and the same patience."""
    files = f"location /files/ {{ alias {place.www}/; }}"
    patience = f"send_timeout {DEADLINE_S}s; reset_timedout_connection on;"
    return servers.nginx(box, place, "on", locations=f"{files} {patience}")


def _slow(place: Place) -> Path:
    return place.www.parent / "slow"


def _rate(flags: str, flag: str) -> tuple[str, ...]:
    """Bytes a second that a client has to keep, where that can be said."""
    return (flag, "256") if flag in flags else ()
