"""One measurement: starts a server, loads it, and gives what was seen as named numbers."""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import client_process, cpu, generator, process
from lab.scenario import LARGE, SMALL, Ground, Row, Sample, Take
from lab.servers import Place
from lab.toolbox import Toolbox

# Repetitions of one measurement that others disturbed, before the least disturbed one counts.
ATTEMPTS_MAX = 3
# Slow readers are served, and memory settles, before anything is counted.
SETTLE_S = 1.5
# As on Ethernet: with loopback's 64 KB segments the kernel would buffer megabytes for each
# connection, take the whole reply at once, and no server would ever see a slow reader.
SLOW_SEGMENT_BYTES = 1460
# A whole 64 KB reply in the kernel, less what a client's least window took of it.
HANDED_OVER_BYTES = 60 * 1024
FAULTS = (process.NotReady, client_process.ClientFailed, generator.GeneratorFailed)


def lay_out(ground: Ground) -> None:
    """Writes the files that are served."""
    ground.www.mkdir()
    (ground.www / SMALL[1:]).write_bytes(b"x" * 1024)
    (ground.www / LARGE[1:]).write_bytes(b"x" * 64 * 1024)


def first_reply(row: Row, box: Toolbox, ground: Ground) -> bytes:
    """The raw reply of `row` to the small request. Raises NotReady."""
    with running(row, box, ground) as server:
        return server.reply


def undisturbed(take: Take) -> Take:
    """`take`, repeated while other programs disturb it."""
    return lambda row, box, ground: least_disturbed(
        lambda: take(row, box, ground), ATTEMPTS_MAX, ground.patience_s
    )


def least_disturbed(take: Callable[[], Sample], attempts_max: int, patience_s: float) -> Sample:
    """What `take` gives, tried again while it is disturbed; then the least disturbed of all."""
    best: Sample | None = None
    for _ in range(attempts_max):
        cpu.wait_quiet(patience_s)
        taken = take()
        if best is None or _disturbance(taken) < _disturbance(best):
            best = taken
        if not best.disturbed:
            break
    assert best is not None, "there is at least one attempt"
    return best


@dataclass(frozen=True)
class Running:
    """A server that answers: its process, its place, its first reply."""

    pid: int
    place: Place
    reply: bytes


Held = contextlib.AbstractContextManager[client_process.ClientProcess]
# The rows of a subcommand may have more fields than `Row`.
Hold = Callable[[Any, Running, Ground], Held]


@contextlib.contextmanager
def running(row: Row, box: Toolbox, ground: Ground) -> Iterator[Running]:
    """Starts `row` in a fresh directory and waits until it answers. Raises NotReady."""
    directory = Path(tempfile.mkdtemp(prefix="server-", dir=ground.directory))
    place = Place(process.free_port(), directory, ground.www)
    command = row.start(box, place)
    try:
        with process.started(command, ground.server_core) as child:
            reply = process.wait_ready(child, command, place.port, SMALL, row.tls)
            yield Running(child.pid, place, reply)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def load(row: Row, box: Toolbox, ground: Ground) -> Sample:
    """Warm-up, then one window under load, beside the slow readers of `row` if it has any."""
    with running(row, box, ground) as server, contextlib.ExitStack() as stack:
        readers = stack.enter_context(_slow_readers(row, server, ground)) if row.slow_readers else None
        unsent = client_process.unsent_bytes(server.place.port)
        aim = (box, server.place.port, SMALL, row.connections)
        if ground.warm_up_s:
            row.by(*aim, ground.warm_up_s, ground.client_core)
        window = cpu.Window(server.pid)
        counted = row.by(*aim, ground.seconds, ground.client_core)
        usage = window.close(counted.cpu_s)
        values = values_of(counted, usage) | {"reply_bytes": float(len(server.reply))}
        if readers:
            values["slow_open"] = float(readers.open_count())
            # Those whose reply the server could not yet hand to the kernel as a whole.
            values["slow_held"] = float(sum(held < HANDED_OVER_BYTES for held in unsent))
        return Sample(values, usage.foreign_share)


def hold_idle(row: Row, server: Running, ground: Ground) -> Held:
    """Connections of HTTP/1.1 that have had one reply each."""
    output = server.place.directory / "clients"
    return client_process.held("idle", server.place.port, SMALL, row.connections, output, ground.client_core)


def idle(row: Row, box: Toolbox, ground: Ground, hold: Hold = hold_idle) -> Sample:
    """Memory before, with, and after the connections of `row`. The server is fresh, so that
    nothing freed earlier can serve them: the figure is an upper bound."""
    with running(row, box, ground) as server:
        time.sleep(SETTLE_S)
        before_bytes = cpu.anonymous_bytes(server.pid)
        with hold(row, server, ground) as clients:
            time.sleep(SETTLE_S)
            held_bytes = cpu.anonymous_bytes(server.pid) - before_bytes
            open_count = clients.open_count()
        time.sleep(SETTLE_S)
        kept_bytes = cpu.anonymous_bytes(server.pid) - before_bytes
    values = {
        "bytes_per_connection": held_bytes / open_count if open_count == row.connections else math.nan,
        "open": float(open_count),
        "base_bytes": float(before_bytes),
        "kept_per_connection": kept_bytes / row.connections,
    }
    return Sample(values, 0.0)


@contextlib.contextmanager
def _slow_readers(row: Row, server: Running, ground: Ground) -> Iterator[client_process.ClientProcess]:
    output = server.place.directory / "clients"
    with client_process.held(
        "slow", server.place.port, LARGE, row.slow_readers, output, ground.client_core, SLOW_SEGMENT_BYTES
    ) as readers:
        time.sleep(SETTLE_S)
        yield readers


def _disturbance(taken: Sample) -> tuple[bool, float]:
    return taken.lagged, taken.foreign_share


def values_of(counted: generator.Counted, usage: cpu.Usage) -> dict[str, float]:
    none = counted.responses == 0
    p99_us = counted.p99_us
    # Requests that were not answered in time are in no percentile.
    if counted.timeouts * 99 >= counted.responses:
        p99_us = max(p99_us, generator.REPLY_TIMEOUT_S * 1e6)
    return {
        "responses": float(counted.responses),
        "rps": counted.responses / counted.duration_s,
        "cpu_us": math.nan if none else usage.server_s * 1e6 / counted.responses,
        "user_share": usage.user_share,
        "server_cpu": usage.server_s / usage.elapsed_s,
        "generator_cpu": counted.cpu_s / usage.elapsed_s,
        "sleeps": math.nan if none else usage.sleeps / counted.responses,
        "generator_cpu_us": math.nan if none else counted.cpu_s * 1e6 / counted.responses,
        "p50_us": math.inf if none else counted.p50_us,
        "p99_us": math.inf if none else p99_us,
        "errors": float(counted.faults),
        "timeouts": float(counted.timeouts),
        "resumed_share": counted.resumed_share,
    }
