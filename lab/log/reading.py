"""`lab reading`: how fast `milepost report` reads, beside goaccess on the same requests.

Writes two logs of the same requests, one with phases and one combined, and reads each as often as
asked, taking turns: the first reader of one round is the last of the next. Prints a Markdown table
of medians with their range. Wants nothing but Python; goaccess is left out where it is missing. It
answers other questions (visitors, browsers), which is where much of its time goes, and knows no phases.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

# Lines made anew before they repeat, with later times.
BLOCK_LEN = 100_000
REQUESTS_A_SECOND = 3_000
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36",
    "curl/7.88.1",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) AppleWebKit/605.1.15",
)
ROUTES = (("/api", "/api/books/{}?page=2"), ("/static", "/static/app.{}.js"), ("app", "/shop/{}"))


@dataclass
class Row:
    """One reader and what it cost, run by run."""

    name: str
    command: list[str]
    log: Path
    wall_s: list[float] = field(default_factory=list)
    user_s: list[float] = field(default_factory=list)
    system_s: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)


def requests(seed: int) -> list[tuple[str, str, str]]:
    """The parts of lines: before the date, behind it, and the phases."""
    dice = random.Random(seed)
    made = []
    for _ in range(BLOCK_LEN):
        route, path = dice.choices(ROUTES, (4, 5, 3))[0]
        is_pooled = route != "/static"
        receive, send = int(dice.lognormvariate(4.2, 0.6)), int(dice.lognormvariate(3, 1))
        queue = int(dice.lognormvariate(3.2, 1.3)) if is_pooled else 0
        run = int(dice.lognormvariate(8.5 if is_pooled else 3.5, 0.8))
        spans = (receive, queue, run, send, receive + queue + run + send)
        named = zip(("receive", "queue", "run", "send", "total"), spans, strict=True)
        phases = " ".join(f"{name}={us // 1_000_000}.{us % 1_000_000:06}" for name, us in named)
        status = dice.choices((200, 304, 404, 500), (90, 5, 3, 1))[0]
        behind = (
            f'"GET {path.format(dice.randrange(2000))} HTTP/1.1" {status} {dice.randrange(200, 20_000)} '
            f'"https://shop.example/" "{dice.choice(AGENTS)}"'
        )
        tail = f" {phases} id={dice.getrandbits(64):016x} route={route}" + " pool=default" * is_pooled
        tail += f" worker={'4711.' + str(dice.randrange(1, 9)) if is_pooled else '-'}"
        made.append((f"192.0.2.{dice.randrange(256)} - - [", f"] {behind}", tail))
    return made


def write_logs(folder: Path, lines_len: int) -> tuple[Path, Path]:
    """The same requests with phases and without."""
    phases, combined = folder / "phases.log", folder / "combined.log"
    made = requests(seed=7)
    begin = datetime(2026, 11, 21, 8, tzinfo=timezone.utc)
    begin_s = int(begin.timestamp())
    with phases.open("w") as with_phases, combined.open("w") as without:
        for first in range(0, lines_len, BLOCK_LEN):
            long, short = [], []
            date, shown = "", -1
            for index in range(min(BLOCK_LEN, lines_len - first)):
                second = (first + index) // REQUESTS_A_SECOND
                if second != shown:
                    at, shown = begin + timedelta(seconds=second), second
                    date = f"{at:%d}/{MONTHS[at.month - 1]}/{at:%Y:%H:%M:%S +0000}"
                head, behind, tail = made[index]
                line = head + date + behind
                short.append(line)
                us = (first + index) % REQUESTS_A_SECOND * 1_000_000 // REQUESTS_A_SECOND
                long.append(f"{line}{tail} at={begin_s + second}.{us:06}")
            with_phases.write("\n".join(long) + "\n")
            without.write("\n".join(short) + "\n")
    return phases, combined


def run_once(row: Row) -> None:
    """Runs the reader, and takes its times from what the kernel counted for this child."""
    begun = time.monotonic()
    quiet = subprocess.DEVNULL
    child = subprocess.Popen(row.command, stdin=quiet, stdout=quiet, stderr=quiet)
    peak_mb = watch_memory(child.pid)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{row.name}: exit code {child.returncode}")
    row.wall_s.append(time.monotonic() - begun)
    row.user_s.append(usage.ru_utime)
    row.system_s.append(usage.ru_stime)
    row.peak_mb.append(peak_mb)


def watch_memory(pid: int) -> float:
    """The highest mark of the child's own memory. `ru_maxrss` would begin with this process's."""
    peak_mb = 0.0
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        try:
            facts = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            break
        for line in facts.splitlines():
            if line.startswith("VmHWM:"):
                peak_mb = int(line.split()[1]) / 1024
        time.sleep(0.05)
    return peak_mb


def shown(values: list[float], places: int) -> str:
    """A median with its range."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{places}f} ({low:,.{places}f}–{high:,.{places}f})"


def print_table(rows: list[Row], lines_len: int) -> None:
    """Markdown."""
    print("| reader | wall s | user s | system s | lines a second of user time | peak MB | log MB |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        rates = [lines_len / max(user, 1e-3) for user in row.user_s]
        size = row.log.stat().st_size / 1e6
        cells = (
            row.name,
            shown(row.wall_s, 2),
            shown(row.user_s, 2),
            shown(row.system_s, 2),
            shown(rates, 0),
            shown(row.peak_mb, 1),
            f"{size:,.0f}",
        )
        print("| " + " | ".join(cells) + " |")


def print_ratio(one: Row, other: Row) -> None:
    """Taken within each round: a machine that slows down slows both."""
    for what, ours, theirs in (
        ("wall", one.wall_s, other.wall_s),
        ("processor", cpu(one), cpu(other)),
    ):
        ratios = [their / our for our, their in zip(ours, theirs, strict=True)]
        print(f"\n{what} time, {other.name} / {one.name}: {shown(ratios, 1)}")


def cpu(row: Row) -> list[float]:
    return [user + system for user, system in zip(row.user_s, row.system_s, strict=True)]


def readers(milepost: Path, folder: Path, phases: Path, combined: Path) -> list[Row]:
    """Ours on both logs, with all that it can do, and goaccess on the one that it knows."""
    binary = str(milepost.resolve())
    page = ["--html", str(folder / "page.html")]
    read_phases, read_combined = [binary, "report", str(phases)], [binary, "report", str(combined)]
    rows = [
        Row("milepost, phases", read_phases, phases),
        Row("milepost, phases, by route, page", [*read_phases, "--by", "route", *page], phases),
        Row("milepost, combined", read_combined, combined),
        Row("milepost, combined, page", [*read_combined, *page], combined),
    ]
    goaccess = shutil.which("goaccess")
    if goaccess:
        flags = ["--no-global-config", "--no-progress", "--log-format=COMBINED"]
        flags += ["-o", str(folder / "goaccess.html")]
        rows.append(Row("goaccess, combined", [goaccess, str(combined), *flags], combined))
    else:
        print("goaccess is not there: left out\n", file=sys.stderr)
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.add_argument("--milepost", type=Path, default=Path("target/release/milepost"))
    parser.add_argument("--lines", type=int, default=10_000_000, help="of each log (10,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved repetitions (3)")
    parser.add_argument("--folder", type=Path, help="where 5 GB have room, better memory than disk")


def run(options: argparse.Namespace) -> int:
    """The exit status."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        phases, combined = write_logs(folder, options.lines)
        rows = readers(options.milepost, folder, phases, combined)
        for number in range(options.rounds):
            for row in rows if number % 2 == 0 else reversed(rows):
                run_once(row)
        load = os.getloadavg()[0]
        where = f"{os.cpu_count()} processors, load {load:.1f}"
        print(f"{options.lines:,} lines, {options.rounds} rounds in turns, {where}\n")
        print_table(rows, options.lines)
        if rows[-1].name.startswith("goaccess"):
            print_ratio(rows[3], rows[-1])
    return 0
