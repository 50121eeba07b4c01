"""How each server is started: one process, one thread of each kind, everything else off.

Every function takes the `Place` that it may write to and gives the `Command`. Settings that
differ from a server's default are there for a reason that stands beside them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lab.process import Command
from lab.toolbox import LAB, NGINX, Toolbox

APPS = LAB / "apps"
# More than any scenario opens, less than the descriptor limit of an ordinary machine.
CONNECTIONS_MAX = 16_384


@dataclass(frozen=True)
class Place:
    """Where one server runs: its port, its directory, and the folder of files to serve."""

    port: int
    directory: Path
    www: Path

    @property
    def output(self) -> Path:
        """What the server prints."""
        return self.directory / "output"

    @property
    def access_log(self) -> Path:
        """Where its access log goes."""
        return self.directory / "access.log"


def milepost_static(box: Toolbox, place: Place, *options: str) -> Command:
    """Files alone, on one driver."""
    return _milepost(box, place, "--static", f"/={place.www}", *options)


def milepost_wsgi(box: Toolbox, place: Place, app: str, threads: int, *options: str) -> Command:
    """`app` of bench_app on one driver and `threads` pool threads."""
    return milepost_app(box, place, f"bench_app:{app}", threads, *options)


def milepost_app(box: Toolbox, place: Place, app: str, threads: int, *options: str) -> Command:
    """An application of apps/, as MODULE:NAME, on one driver and `threads` pool threads."""
    # `1:1` rather than the default range: a pool of a fixed size, as the peers have.
    pool = ["--threads", f"{threads}:{threads}"]
    return _milepost(box, place, app, *pool, *options)


def _milepost(box: Toolbox, place: Place, *options: str) -> Command:
    argv = [str(box.milepost), "serve", *options, "--bind", f"127.0.0.1:{place.port}", "--drivers", "1"]
    return Command(argv, place.output, APPS, {"PYTHONPATH": str(APPS)})


def milepost_asgi(box: Toolbox, place: Place, loop: str, *options: str) -> Command:
    """The application of asgi_app on one driver and one event loop."""
    return _milepost(box, place, "asgi_app:app", "--loop", loop, *options)


def floor(box: Toolbox, place: Place, reply: bytes) -> Command:
    """`reply` as the canned reply."""
    canned = place.directory / "reply"
    canned.write_bytes(reply)
    return Command([str(box.floor), str(place.port), str(canned)], place.output, place.directory)


def nginx(
    box: Toolbox,
    place: Place,
    sendfile: str,
    access_log: str = "off",
    open_file_cache: str = "max=1000 inactive=600s",
    locations: str = "",
    tcp_nopush: str = "off",
    listen: str = "",
) -> Command:
    """One worker; `sendfile` is on or off, the others are as in its manual. Its file cache is on
    by default; `tcp_nopush`, which needs sendfile, puts head and file into one segment; `listen` is
    more of its listen line."""
    config = place.directory / "nginx.conf"
    # The worker must read a private directory of ours when it is started by root.
    user = "user root;" if os.geteuid() == 0 else ""
    temporary = "".join(
        f"    {kind}_temp_path {place.directory}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(f"""{user}
daemon off;
worker_processes 1;
worker_rlimit_nofile {CONNECTIONS_MAX + 64};
pid {place.directory}/pid;
error_log stderr crit;
events {{ worker_connections {CONNECTIONS_MAX}; }}
http {{
{temporary}    types {{ text/plain txt; }}
    access_log {access_log};
    sendfile {sendfile};
    tcp_nopush {tcp_nopush};
    open_file_cache {open_file_cache};
    keepalive_timeout 600s;
    # The default of 1,000 would close and open connections inside the measurement.
    keepalive_requests 1000000000;
    server {{
        listen 127.0.0.1:{place.port} backlog=4096 {listen};
        root {place.www};
        {locations}
    }}
}}
""")
    return Command([NGINX, "-p", str(place.directory), "-c", str(config)], place.output, place.directory)


def granian(box: Toolbox, place: Place, app: str, threads: int, *options: str) -> Command:
    """WSGI on one runtime thread and `threads` blocking threads."""
    argv = [box.command("granian"), "--interface", "wsgi", "--http", "1", "--no-ws", "--workers", "1"]
    argv += ["--blocking-threads", str(threads), "--runtime-threads", "1", "--log-level", "warning"]
    # Its bound on concurrent requests counts idle connections too and follows the backlog.
    argv += ["--backlog", str(CONNECTIONS_MAX), "--backpressure", str(CONNECTIONS_MAX)]
    argv += ["--host", "127.0.0.1", "--port", str(place.port), *options, f"bench_app:{app}"]
    return Command(argv, place.output, APPS, {"PYTHONPATH": str(APPS)})


def granian_asgi(box: Toolbox, place: Place, loop: str, *options: str) -> Command:
    """ASGI on one runtime thread."""
    argv = [box.command("granian"), "--interface", "asgi", "--http", "1", "--workers", "1", "--loop", loop]
    argv += ["--runtime-threads", "1", "--log-level", "warning"]
    argv += ["--backlog", str(CONNECTIONS_MAX), "--backpressure", str(CONNECTIONS_MAX)]
    argv += ["--host", "127.0.0.1", "--port", str(place.port), *options, "asgi_app:app"]
    return Command(argv, place.output, APPS, {"PYTHONPATH": str(APPS)})


def uvicorn(box: Toolbox, place: Place, loop: str) -> Command:
    """With the faster of its parsers, and without its access log, which is on by default."""
    argv = [box.command("uvicorn"), "--http", "httptools", "--loop", loop, "--no-access-log"]
    argv += ["--log-level", "warning", "--host", "127.0.0.1", "--port", str(place.port), "asgi_app:app"]
    return Command(argv, place.output, APPS, {"PYTHONPATH": str(APPS)})


def granian_logging(box: Toolbox, place: Place, app: str, threads: int) -> Command:
    """The same with its access log on."""
    # Its access log goes to stdout, which is a file here; `info` is the level of its lines.
    return granian(box, place, app, threads, "--access-log", "--log-level", "info")


def gunicorn(box: Toolbox, place: Place, app: str, threads: int, *options: str) -> Command:
    """One gthread worker with `threads` threads."""
    argv = [box.command("gunicorn"), "-k", "gthread", "-w", "1", "--threads", str(threads)]
    # The default of 2 s would close connections of the warm-up and of slow readers.
    argv += ["--keep-alive", "75", "--worker-connections", str(CONNECTIONS_MAX), "--no-control-socket"]
    argv += ["--log-level", "warning", "--bind", f"127.0.0.1:{place.port}", *options, f"bench_app:{app}"]
    return Command(argv, place.output, APPS, {"PYTHONPATH": str(APPS)})


def bjoern(box: Toolbox, place: Place) -> Command:
    """One thread that does everything."""
    argv = [box.command("python"), str(APPS / "serve_bjoern.py"), str(place.port)]
    return Command(argv, place.output, APPS)
