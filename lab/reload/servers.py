"""How each server is started here: several processes, and everything that is not measured off.

Every function takes the `Place` that it may write to and gives the `Command`. All run the same
application, `pid_app`, or serve the same file.
"""

from __future__ import annotations

import os
from pathlib import Path

from lab import servers
from lab.process import Command
from lab.servers import APPS, Place
from lab.toolbox import NGINX, Toolbox

APP = "pid_app:app"
# As long as an ordinary deployment waits for what is under way; nothing here takes a second.
DRAIN_TIMEOUT = "15s"
# The kernel's bound is somaxconn.
BACKLOG = 4096
NGINX_FOLDERS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


def control_file(place: Place) -> Path:
    """Where a Milepost that was started here takes commands."""
    return place.directory / "control"


def milepost_app(box: Toolbox, place: Place, *options: str, import_s: float = 0.0) -> Command:
    """The application."""
    return _milepost(box, place, APP, *options, import_s=import_s)


def milepost_files(box: Toolbox, place: Place, *options: str) -> Command:
    """The file."""
    return _milepost(box, place, "--static", f"/={place.www}", *options)


def _milepost(box: Toolbox, place: Place, *options: str, import_s: float = 0.0) -> Command:
    argv = [str(box.milepost), "serve", *options, "--bind", f"127.0.0.1:{place.port}"]
    argv += ["--backlog", str(BACKLOG), "--control", str(control_file(place))]
    argv += ["--drain-timeout", DRAIN_TIMEOUT]
    return Command(argv, place.output, APPS, _environ(import_s))


def gunicorn(
    box: Toolbox, place: Place, workers: int, threads: int, *options: str, import_s: float = 0.0
) -> Command:
    """gthread workers; its patience with what is under way is that of the others."""
    argv = [box.command("gunicorn"), "-k", "gthread", "-w", str(workers), "--threads", str(threads)]
    argv += ["--graceful-timeout", DRAIN_TIMEOUT.rstrip("s"), "--keep-alive", "75", "--no-control-socket"]
    argv += ["--worker-connections", str(servers.CONNECTIONS_MAX), "--backlog", str(BACKLOG)]
    argv += ["--log-level", "warning", "--bind", f"127.0.0.1:{place.port}", *options, APP]
    return Command(argv, place.output, APPS, _environ(import_s))


def nginx(box: Toolbox, place: Place, workers: int, listen: str = "") -> Command:
    """The file. `listen` is more of its listen line: `reuseport`, or nothing, its default."""
    config = place.directory / "nginx.conf"
    # The worker must read a private directory of ours when it is started by root.
    user = "user root;" if os.geteuid() == 0 else ""
    folders = " ".join(f"{kind}_temp_path {place.directory}/{kind};" for kind in NGINX_FOLDERS)
    config.write_text(f"""{user}
daemon off;
worker_processes {workers};
worker_rlimit_nofile {servers.CONNECTIONS_MAX + 64};
worker_shutdown_timeout {DRAIN_TIMEOUT};
pid {place.directory}/pid;
error_log stderr crit;
events {{ worker_connections {servers.CONNECTIONS_MAX}; }}
http {{
    {folders}
    types {{ text/plain txt; }}
    access_log off;
    open_file_cache max=1000 inactive=600s;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    server {{
        listen 127.0.0.1:{place.port} backlog={BACKLOG} {listen};
        root {place.www};
    }}
}}
""")
    return Command([*nginx_words(place)], place.output, place.directory)


def nginx_words(place: Place) -> list[str]:
    """The command that starts it and, with `-s reload`, has it reload."""
    return [NGINX, "-p", str(place.directory), "-c", str(place.directory / "nginx.conf")]


def _environ(import_s: float) -> dict[str, str]:
    pause = {"BENCH_IMPORT_S": str(import_s)} if import_s else {}
    return {"PYTHONPATH": str(APPS)} | pause
