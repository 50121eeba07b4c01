"""`lab scrape MILEPOST`: processor time that one scrape of /metrics takes in the supervisor.

Starts a server with many routes and processes, gives each route of each process some requests, and asks for
the metrics again and again, with pauses: the admin process keeps an answer for a quarter of a second. Gives
the processor time of the supervisor and of the admin process for each scrape, and the size of the answer.

Then requests that are due at fixed times, on one connection, are answered with and without scrapes beside
them, by turns. Gives the times of those that are due within some milliseconds of a scrape, or of where there
would have been one, from when they are due: among all requests, the pauses of a shared machine are more than
the few that a scrape can meet.

Exit status 1: a scrape took the supervisor more than --at-most, or p99 of these requests was longer by
--delay-at-most beside a scrape.
"""

from __future__ import annotations

import argparse
import math
import socket
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

from lab import cpu
from lab.process import Command, end, free_port, started, wait_ready

#: Longer than the admin process keeps an answer.
PAUSE_S = 0.3
#: A request that is due so long after a scrape is asked for may meet it.
NEAR_S = 0.008
ACCEPT = "application/openmetrics-text;version=1.0.0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("milepost", type=Path, help="the command to be measured (venv/bin/milepost)")
    parser.add_argument("--routes", type=int, default=200, help="folders that are served (200)")
    parser.add_argument("--processes", type=int, default=8, help="serving processes (8)")
    parser.add_argument("--requests", type=int, default=4, help="requests of a route on a connection (4)")
    parser.add_argument("--connections", type=int, default=64, help="connections, spread over processes (64)")
    parser.add_argument("--scrapes", type=int, default=100, help="how often the metrics are read (100)")
    parser.add_argument("--at-most", type=float, default=5.0, help="milliseconds of the supervisor (5)")
    parser.add_argument("--pairs", type=int, default=8, help="times with and without scrapes (8)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each of these times (3)")
    parser.add_argument("--rate", type=int, default=1000, help="requests a second beside scrapes (1000)")
    parser.add_argument("--delay-at-most", type=float, default=0.2, help="milliseconds at p99 (0.2)")


def run(options: argparse.Namespace) -> int:
    """The exit status."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        port, admin = free_port(), free_port()
        command = _command(options, place, port, admin)
        with started(command, core=0) as child:
            wait_ready(child, command, port, "/r0/a.txt")
            _load(options, port)
            supervisor_ms, helper_ms, size = _scrape(options, child.pid, admin)
            delays = _delays(options, port, admin)
            end(child)
    print(f"{options.routes} routes, {options.processes} processes, {options.scrapes} scrapes")
    print(f"supervisor {supervisor_ms:.2f} ms, admin process {helper_ms:.2f} ms, answer {size} bytes")
    for scraping, times in delays.items():
        times.sort()
        shown = ", ".join(f"{_quantile(times, share):.3f}" for share in (0.5, 0.9, 0.95, 0.99))
        beside = "beside scrapes" if scraping else "without scrapes"
        print(f"{len(times)} requests {beside}: p50, p90, p95 and p99: {shown} ms")
    longer_ms = _quantile(delays[True], 0.99) - _quantile(delays[False], 0.99)
    return int(supervisor_ms > options.at_most or longer_ms > options.delay_at_most)


def _command(options: argparse.Namespace, place: Path, port: int, admin: int) -> Command:
    files = place / "files"
    files.mkdir()
    (files / "a.txt").write_text("a" * 100)
    mounts = "\n".join(f'"/r{number}" = "{files}"' for number in range(options.routes))
    config = place / "milepost.toml"
    config.write_text(
        f'bind = "127.0.0.1:{port}"\nadmin_bind = "127.0.0.1:{admin}"\nprocesses = {options.processes}\n'
        f'drivers = 1\naccess_log = "off"\n[static]\n{mounts}\n'
    )
    argv = [str(options.milepost.resolve()), "serve", "--config", str(config)]
    return Command(argv=argv, output=place / "output", cwd=place)


def _load(options: argparse.Namespace, port: int) -> None:
    """Some requests to each route on each of many connections, which the kernel gives to all processes."""
    for _ in range(options.connections):
        with socket.create_connection(("127.0.0.1", port), 20) as client:
            for number in range(options.routes):
                asked = f"GET /r{number}/a.txt HTTP/1.1\r\nHost: a\r\n\r\n".encode()
                client.sendall(asked * options.requests)
                _read(client, options.requests)


def _read(client: socket.socket, count: int) -> None:
    seen, text = 0, b""
    while seen < count:
        received = client.recv(1 << 16)
        if not received:
            raise OSError("the server has closed a connection")
        text += received
        seen = text.count(b"a" * 100)


def _scrape(options: argparse.Namespace, pid: int, admin: int) -> tuple[float, float, int]:
    """Milliseconds of the supervisor and of all other processes for each scrape, and the answer's bytes."""
    size = 0
    before: Counter[bool] = Counter()
    after: Counter[bool] = Counter()
    idle: Counter[bool] = Counter()
    _get(admin)
    # What they take without scrapes, in the same time.
    began = _taken(pid)
    time.sleep(PAUSE_S * options.scrapes / 4)
    ended = _taken(pid)
    for key in (True, False):
        idle[key] = int((ended[key] - began[key]) * 4)
    before = _taken(pid)
    for _ in range(options.scrapes):
        time.sleep(PAUSE_S)
        size = _get(admin)
    after = _taken(pid)
    of = {key: (after[key] - before[key] - idle[key]) / 1e6 / options.scrapes for key in (True, False)}
    return of[True], of[False], size


def _quantile(times: list[float], share: float) -> float:
    """What this share of them does not exceed; they are sorted."""
    return times[max(0, math.ceil(len(times) * share) - 1)]


def _delays(options: argparse.Namespace, port: int, admin: int) -> dict[bool, list[float]]:
    """Milliseconds of requests near scrapes, and at the same places without scrapes."""
    delays: dict[bool, list[float]] = {False: [], True: []}
    asked = f"GET /r{options.routes // 2}/a.txt HTTP/1.1\r\nHost: a\r\n\r\n".encode()
    # The answer is the same, and is not sent: to read it would delay the requests.
    head = f"HEAD /metrics HTTP/1.1\r\nHost: a\r\nAccept: {ACCEPT}\r\n\r\n".encode()
    with (
        socket.create_connection(("127.0.0.1", port), 20) as client,
        socket.create_connection(("127.0.0.1", admin), 20) as scraper,
    ):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(2 * options.pairs):
            # The order of each pair is that of the one before, turned round.
            scraping = number % 4 in (1, 2)
            due = time.monotonic()
            last, scraped = due + options.seconds, -1.0
            while due < last:
                time.sleep(max(0.0, due - time.monotonic()))
                if due >= scraped + PAUSE_S:
                    scraped = due
                    if scraping:
                        scraper.sendall(head)
                client.sendall(asked)
                _read(client, 1)
                if due < scraped + NEAR_S:
                    delays[scraping].append((time.monotonic() - due) * 1e3)
                due += 1 / options.rate
            if scraping:
                time.sleep(PAUSE_S)
                scraper.recv(1 << 16)
    return delays


def _taken(pid: int) -> Counter[bool]:
    """Nanoseconds of processor time: of the supervisor, and of the others."""
    taken: Counter[bool] = Counter()
    for one in cpu.tree(pid):
        try:
            taken[one == pid] += time.clock_gettime_ns(cpu.clock_of(one))
        except OSError as fault:
            print(f"lab: scrape: process {one} has ended: {fault}", file=sys.stderr)
    return taken


def _get(admin: int) -> int:
    asked = urllib.request.Request(f"http://127.0.0.1:{admin}/metrics", headers={"Accept": ACCEPT})
    with urllib.request.urlopen(asked, timeout=20) as reply:
        return len(reply.read())
