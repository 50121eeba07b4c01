"""What is compared with what. Every server has one process and the same event loop; nothing here prints."""

from __future__ import annotations

import re
import statistics
import subprocess

from lab import cpu, fixtures, generator, measure, servers
from lab.asgi import broadcast
from lab.generator import Counted
from lab.scenario import MILEPOST, Bar, By, Ground, Row, Sample, Scenario, Start, Take
from lab.servers import Place
from lab.toolbox import Toolbox

NAMES = ("small", "small-asyncio", "echo", "log", "messages", "broadcast", "hop")
PEERS = ("granian", "uvicorn", "pingpong")
ECHO_BYTES = 10 * 1024
MESSAGE_BYTES = 64
# Requests of a server that has nothing else to do, and the pause between two of them.
HOPS = 1000
PAUSE_US = 5000


def every() -> list[Scenario]:
    """All scenarios."""
    return [
        _beside("small", "1 KB reply on uvloop, 64 kept connections", generator.run, 0.8, 0.5),
        _beside("small-asyncio", "the same on asyncio's own loop", generator.run, 0.8, 0.5, "asyncio"),
        _beside("echo", "streamed echo of 10 KB on uvloop, 64 kept connections", _echo, 0.6),
        _logged(),
        _beside("messages", "WebSocket echo of 64 B on uvloop, 64 connections", _messages, 0.8, 0.5),
        _beside(
            "broadcast", "WebSocket: messages of 64 B to 32 connections, on uvloop", _broadcast, 0.8, 0.5
        ),
        _hop(),
    ]


def _beside(
    name: str, title: str, by: By, granian: float, uvicorn: float | None = None, loop: str = "uvloop"
) -> Scenario:
    """Beside both peers, with the greatest ratio of processor time to each."""
    rows = (
        _row(MILEPOST, MILEPOST, lambda box, place: servers.milepost_asgi(box, place, loop), by),
        _row("granian", "granian", lambda box, place: servers.granian_asgi(box, place, loop), by),
        _row("uvicorn", "uvicorn", lambda box, place: servers.uvicorn(box, place, loop), by),
    )
    bars = [Bar("cpu_us", MILEPOST, "granian", at_most=granian)]
    if uvicorn is not None:
        bars.append(Bar("cpu_us", MILEPOST, "uvicorn", at_most=uvicorn))
    return Scenario(name, title, rows, tuple(bars), () if uvicorn else ((MILEPOST, "uvicorn"),))


def _logged() -> Scenario:
    """With the access logs on: ours goes to a file, granian's to its output, which is one here."""

    def milepost(box: Toolbox, place: Place) -> servers.Command:
        return servers.milepost_asgi(box, place, "uvloop", "--access-log", str(place.access_log))

    def granian(box: Toolbox, place: Place) -> servers.Command:
        return servers.granian_asgi(box, place, "uvloop", "--access-log", "--log-level", "info")

    rows = (
        _row(MILEPOST, MILEPOST, milepost, generator.run),
        _row("granian", "granian", granian, generator.run),
    )
    bars = (Bar("cpu_us", MILEPOST, "granian", at_most=0.35),)
    return Scenario("log", "1 KB reply on uvloop with an access log on both sides", rows, bars)


def _hop() -> Scenario:
    """How long a complete request waits for the first step of its task, where nothing else runs."""

    def milepost(loop: str) -> Start:
        return lambda box, place: servers.milepost_asgi(
            box, place, loop, "--access-log", str(place.access_log)
        )

    def pingpong(row: Row, box: Toolbox, ground: Ground) -> Sample:
        return _printed([box.programs["pingpong"]], ground)

    def awake(take: Take) -> Take:
        """With processors that do not sleep meanwhile: how long they need to wake is the host's."""

        def taken(row: Row, box: Toolbox, ground: Ground) -> Sample:
            with fixtures.awake(ground):
                return take(row, box, ground)

        return taken

    def bare(loop: str, what: str) -> Take:
        program = str(servers.APPS / "loop_hop.py")
        return lambda row, box, ground: _printed([box.command("python"), program, loop, what], ground)

    loops = ("asyncio", "uvloop")
    names = {loop: f"{MILEPOST} {loop}" for loop in loops}
    rows = (
        *(Row(name, MILEPOST, milepost(loop), take=awake(_queue)) for loop, name in names.items()),
        Row("pingpong", "pingpong", milepost("asyncio"), take=awake(pingpong)),
        # What the loops of Python take for the same without a server: no server can take less for a task.
        *(
            Row(f"bare {what} {loop}", "pingpong", milepost(loop), take=awake(bare(loop, what)))
            for what in ("callback", "task")
            for loop in loops
        ),
    )
    bars = tuple(Bar("queue_p50_us", name, "pingpong", at_most=2.0) for name in names.values())
    title = "idle: request complete to first step, beside a round trip of two threads over eventfds"
    return Scenario("hop", title, rows, bars)


def _printed(command: list[str], ground: Ground) -> Sample:
    """Of a program that prints the median of so many hops in nanoseconds."""
    pinned = ["taskset", "--cpu-list", str(ground.server_core), *command, str(HOPS), str(PAUSE_US)]
    done = subprocess.run(pinned, capture_output=True, text=True, check=True)
    return Sample({"queue_p50_us": int(done.stdout) / 1e3}, 0.0)


def _queue(row: Row, box: Toolbox, ground: Ground) -> Sample:
    rate = 1_000_000 // PAUSE_US
    with measure.running(row, box, ground) as server:
        # The generator, and what keeps the processors awake.
        helpers = cpu.Helpers(server.pid)
        window = cpu.Window(server.pid)
        seconds = max(1, HOPS // rate)
        more = ("--rate", str(rate))
        generator.run(box, server.place.port, "/", 4, seconds, ground.client_core, *more)
        usage = window.close(helpers.spent_s())
        lines = server.place.access_log.read_text()
    queued = [float(found) * 1e6 for found in re.findall(r" queue=([0-9.]+)", lines)]
    return Sample({"queue_p50_us": statistics.median(queued)}, usage.foreign_share)


def _row(name: str, tool: str, start: Start, by: By) -> Row:
    return Row(name, tool, start, by=by, take=measure.undisturbed(measure.load))


def _echo(box: Toolbox, port: int, path: str, connections: int, seconds: int, core: int) -> Counted:
    more = ("--body-size", str(ECHO_BYTES))
    return generator.run(box, port, path, connections, seconds, core, *more)


def _messages(box: Toolbox, port: int, path: str, connections: int, seconds: int, core: int) -> Counted:
    more = ("--websocket", "--body-size", str(MESSAGE_BYTES))
    return generator.run(box, port, path, connections, seconds, core, *more)


def _broadcast(_box: Toolbox, port: int, _path: str, _connections: int, seconds: int, _core: int) -> Counted:
    return broadcast.run(port, seconds)
