"""The four scenarios: which logs are measured, and the figures to reach. Nothing here measures."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import replace

from lab import fixtures, servers
from lab.log import checker, measure, rotation
from lab.log.measure import Rate, Row
from lab.process import Command
from lab.scenario import MILEPOST, Bar, Scenario, Start, worst
from lab.servers import Place
from lab.toolbox import Toolbox

NAMES = ("cost", "stall", "rotation", "signals")
# Full within a fraction of a stall.
SMALL_BUFFER = "1M"
ROTATE_SIZE = "1M"
# The age at which lines are written, and a tenth for the writer's turn.
OLDEST_LOST_S_MAX = 1.1
# So few that age alone has them written.
FEW = 500
# Whose lines may be missing.
LOSING = tuple(kind for kind in checker.KINDS if kind != "lost")


def every() -> list[Scenario]:
    """All of them, in the order of NAMES."""
    return [on_and_off(), stalling_disk(), rotations(), signals()]


def known(box: Toolbox) -> str:
    """What the command can: its verbs, and the flags of `serve`."""
    helps = ([str(box.milepost), "--help"], [str(box.milepost), "serve", "--help"])
    done = [subprocess.run(argv, capture_output=True, text=True, check=False) for argv in helps]
    return "".join(one.stdout for one in done)


def on_and_off() -> Scenario:
    """The cost of a line, for a server that does little else."""

    def logging(box: Toolbox, place: Place) -> Command:
        return servers.milepost_static(box, place, "--access-log", str(place.access_log))

    on = Row("log on", MILEPOST, logging, take=measure.loaded)
    off = Row("log off", MILEPOST, servers.milepost_static, take=measure.loaded)
    bars = (
        Bar("rps", on.name, off.name, at_least=0.96),
        Bar("cpu_us", on.name, off.name, at_most=1.04),
    )
    return Scenario("cost", "access log to a file, 1 KB file, keep-alive", (on, off), bars)


def stalling_disk() -> Scenario:
    """The same disk healthy, and stalled; with `drop` its buffer is small, so that lines are dropped."""
    rate = Rate()

    def row(name: str, stall_s: int, *options: str) -> Row:
        flags = tuple(option for option in options if option.startswith("--"))
        start = _on_the_disk(*options)
        return Row(name, MILEPOST, start, take=measure.stalled, needs=flags, rate=rate, stall_s=stall_s)

    healthy = row("healthy", 0)
    wait = row("stalled, wait", measure.STALL_S, "--log-overflow", "wait")
    small = ("--log-overflow", "drop", "--log-buffer", SMALL_BUFFER)
    drop = replace(row("stalled, drop", measure.STALL_S, *small), reported=LOSING)
    bars = (
        Bar("p99_us", wait.name, healthy.name, at_most=1.2),
        Bar("p99_us", drop.name, healthy.name, at_most=1.2),
        worst("lost_lines", wait, at_most=0),
        worst("unaccounted", drop, at_most=0),
        worst("dropped", drop, at_least=1),
        *(worst("wrong", each, at_most=0) for each in (healthy, wait, drop)),
    )
    title = f"log on storage whose writes stall for {measure.STALL_S} s, half application, half file"
    return Scenario("stall", title, (healthy, wait, drop), bars)


def rotations() -> Scenario:
    """Half of them by renaming and SIGUSR1, half by the server itself. One pool thread: a second one
    would wait for the interpreter, and under libfaketime such a wait is a busy one."""
    options = ("--log-overflow", "wait", "--log-rotate-size", ROTATE_SIZE, "--log-rotate-every", "1d")
    form = ("--access-log-format", "json")
    needs = options[::2]
    row = Row(
        "rotated", MILEPOST, _on_the_disk(*options, *form, threads=1), take=measure.rotated, needs=needs
    )
    bars = (
        worst("rotations", row, at_least=measure.ROTATIONS),
        worst("own", row, at_least=10),
        worst("fillings", row, at_least=3),
        worst("days", row, at_least=2),
        worst("lost_lines", row, at_most=0),
        worst("wrong", row, at_most=0),
    )
    title = f"{measure.ROTATIONS} rotations under full load, disk filled and freed, past a month's end"
    return Scenario("rotation", title, (row,), bars)


def signals() -> Scenario:
    """What a server leaves behind."""

    def start(box: Toolbox, place: Place) -> Command:
        return _app_and_files(box, place, "--access-log", str(place.access_log))

    term = Row("SIGTERM", MILEPOST, start, take=measure.stopped, number=signal.SIGTERM)
    kill = Row("SIGKILL", MILEPOST, start, take=measure.stopped, number=signal.SIGKILL, reported=LOSING)
    few = replace(kill, name=f"SIGKILL at {FEW}/s", requests_s=FEW)
    bars = (
        worst("lost_lines", term, at_most=0),
        worst("wrong", term, at_most=0),
        *(worst("oldest_lost_s", each, at_most=OLDEST_LOST_S_MAX) for each in (kill, few)),
        *(worst("wrong", each, at_most=0) for each in (kill, few)),
    )
    return Scenario("signals", "a signal under full load", (term, kill, few), bars)


def _on_the_disk(*options: str, threads: int = 2) -> Start:
    def start(box: Toolbox, place: Place) -> Command:
        log = place.www.parent / fixtures.MOUNTPOINT / rotation.LOG
        return _app_and_files(box, place, "--access-log", str(log), *options, threads=threads)

    return start


def _app_and_files(box: Toolbox, place: Place, *options: str, threads: int = 2) -> Command:
    """The application, and the same bytes as a file: lines come from pool threads and a driver."""
    return servers.milepost_wsgi(box, place, "small", threads, "--static", f"/files={place.www}", *options)
