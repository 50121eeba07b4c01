"""One measurement: upstreams on the load's processor, a proxy before them on its own, a load through it.

Upstreams of lab/programs count what they get, and are asked for it directly.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from lab import client_process, cpu, fixtures, generator, measure, process
from lab.client_process import ClientProcess
from lab.measure import Running
from lab.process import Command
from lab.proxy import mix
from lab.scenario import SMALL, Ground, Row, Sample
from lab.servers import Place
from lab.toolbox import CHECKOUT, Toolbox

# More than the buffers of the kernel take on their way through a proxy that does not read.
HELD_PATH = "/0/8000000"
# All misbehaving clients have what a proxy stores for them.
HELD_SETTLE_S = 10
HELD_RATE = 10
# Toolbox, place of the proxy, ports of its upstreams.
Behind = Callable[[Toolbox, Place, Sequence[int]], Command]
UpstreamStart = Callable[[Toolbox, Place], Command]


@dataclass(frozen=True)
class ProxyRow(Row):
    """One proxy before some upstreams that `upstreams` start; `rate` is that of a mix, a second."""

    behind: Behind = field(kw_only=True)
    upstreams: Sequence[UpstreamStart] = field(kw_only=True)
    rate: float = 0.0


class Counts(NamedTuple):
    """What an upstream has had: requests, connections that had one, and requests that it has now."""

    requests: int
    connections: int
    inside: int


@dataclass(frozen=True)
class Standing:
    """A proxy that answers, and the upstreams behind it."""

    proxy: Running
    upstreams: Sequence[Running]

    def counts(self) -> list[Counts]:
        """What each upstream has counted so far."""
        return [counts(upstream.place.port) for upstream in self.upstreams]

    def upstreams_s(self) -> float:
        """The processor time of the upstreams so far."""
        return sum(cpu.spent(upstream.pid).total_s for upstream in self.upstreams)


@contextlib.contextmanager
def standing(row: ProxyRow, box: Toolbox, ground: Ground) -> Iterator[Standing]:
    """Starts the upstreams of `row`, then its proxy. Raises NotReady."""
    with contextlib.ExitStack() as stack:
        upstreams = [stack.enter_context(_upstream(start, box, ground)) for start in row.upstreams]
        ports = [upstream.place.port for upstream in upstreams]
        before = replace(row, start=lambda box, place: row.behind(box, place, ports))
        yield Standing(stack.enter_context(measure.running(before, box, ground)), upstreams)


@contextlib.contextmanager
def _upstream(start: UpstreamStart, box: Toolbox, ground: Ground) -> Iterator[Running]:
    directory = Path(tempfile.mkdtemp(prefix="upstream-", dir=ground.directory))
    place = Place(process.free_port(), directory, ground.www)
    command = start(box, place)
    try:
        with process.started(command, ground.client_core) as child:
            reply = process.wait_ready(child, command, place.port, SMALL)
            yield Running(child.pid, place, reply)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def load(row: ProxyRow, box: Toolbox, ground: Ground) -> Sample:
    """Warm-up, then one window under load: the processor time of the proxy alone."""
    with standing(row, box, ground) as all_of_it:
        aim = (box, all_of_it.proxy.place.port, SMALL, row.connections)
        if ground.warm_up_s:
            row.by(*aim, ground.warm_up_s, ground.client_core)
        before_s = all_of_it.upstreams_s()
        window = cpu.Window(all_of_it.proxy.pid)
        counted = row.by(*aim, ground.seconds, ground.client_core)
        usage = window.close(counted.cpu_s + all_of_it.upstreams_s() - before_s)
        return Sample(measure.values_of(counted, usage), usage.foreign_share)


def mixed(row: ProxyRow, box: Toolbox, ground: Ground) -> Sample:
    """Requests of the mix at random times; the last upstream is the slow one where there is one."""
    with standing(row, box, ground) as all_of_it:
        aim = (box, all_of_it.proxy.place.port, row.connections, ground.directory, ground.client_core)
        mix.replay(mix.sequence(mix.mixed, row.rate, max(1, ground.warm_up_s), mix.SEED + 1), *aim)
        before, before_s = all_of_it.counts(), all_of_it.upstreams_s()
        window = cpu.Window(all_of_it.proxy.pid)
        counted = mix.replay(_requests(row, ground), *aim)
        usage = window.close(counted.cpu_s + all_of_it.upstreams_s() - before_s)
        values = measure.values_of(counted, usage) | _shares(before, all_of_it.counts())
        return Sample(values, usage.foreign_share)


def reuse(row: ProxyRow, box: Toolbox, ground: Ground) -> Sample:
    """A closed load without work; connections that are new beside those that were used again."""
    with standing(row, box, ground) as all_of_it:
        aim = (box, all_of_it.proxy.place.port, "/0", row.connections)
        generator.run(*aim, max(1, ground.warm_up_s), ground.client_core)
        before, before_s = all_of_it.counts(), all_of_it.upstreams_s()
        window = cpu.Window(all_of_it.proxy.pid)
        counted = generator.run(*aim, ground.seconds, ground.client_core)
        usage = window.close(counted.cpu_s + all_of_it.upstreams_s() - before_s)
        values = measure.values_of(counted, usage) | _shares(before, all_of_it.counts())
        return Sample(values, usage.foreign_share)


def _requests(row: ProxyRow, ground: Ground) -> list[mix.Asked]:
    """Those of `mixed`, the same for all rows and repetitions: what differs is the proxy."""
    return mix.sequence(mix.mixed, row.rate, ground.seconds)


def central(row: ProxyRow, box: Toolbox, ground: Ground) -> Sample:
    """No proxy: what one queue for all threads of these upstreams would make of the requests of `mixed`."""
    latencies = mix.central_queue(_requests(row, ground), mix.THREADS * len(row.upstreams))
    return Sample({"p50_us": mix.quantile(latencies, 0.5), "p99_us": mix.quantile(latencies, 0.99)}, 0.0)


def held(row: ProxyRow, box: Toolbox, ground: Ground) -> Sample:
    """Requests that the upstream has on average, beside the misbehaving clients of `row` if it has any."""
    with standing(row, box, ground) as all_of_it, contextlib.ExitStack() as stack:
        port = all_of_it.proxy.place.port
        clients = (
            stack.enter_context(_misbehaving(ground, port, row.slow_readers)) if row.slow_readers else None
        )
        load = fixtures.Load(port, [HELD_PATH], ground.seconds, HELD_RATE, row.connections)
        inside: list[int] = []
        before_s = all_of_it.upstreams_s()
        window = cpu.Window(all_of_it.proxy.pid)
        paced = fixtures.paced(load, box, ground, lambda: inside.append(all_of_it.counts()[0].inside))
        usage = window.close(all_of_it.upstreams_s() - before_s)
        values = {key: paced[key] for key in ("failed", "unsent", "p99_us", "lag_p99_us")}
        # The load's own processor time is not known apart, so that nothing is said of other programs.
        values |= {"slots_held": statistics.mean(inside), "server_cpu": usage.server_s / usage.elapsed_s}
        if clients:
            values["misbehaving"] = float(clients.open_count())
        return Sample(values, 0.0)


@contextlib.contextmanager
def _misbehaving(ground: Ground, port: int, clients: int) -> Iterator[ClientProcess]:
    """Clients of all kinds of clients.py, for the whole measurement."""
    argv = [sys.executable, "-m", "lab.proxy.clients", str(port), HELD_PATH, str(clients)]
    environ = {"PYTHONPATH": str(CHECKOUT)}
    command = Command(argv, ground.directory / "misbehaving.out", ground.directory, environ)
    with client_process.gathered(command, ground.client_core) as all_of_them:
        time.sleep(HELD_SETTLE_S)
        yield all_of_them


def counts(port: int) -> Counts:
    """What an upstream of lab/programs has counted."""
    body = process.fetch(port, "/counts").split(b"\r\n\r\n", 1)[1]
    return Counts(*map(int, body.split()))


def _shares(before: Sequence[Counts], after: Sequence[Counts]) -> dict[str, float]:
    requests = [late.requests - early.requests for early, late in zip(before, after)]
    connections = sum(late.connections - early.connections for early, late in zip(before, after))
    total = max(1, sum(requests))
    return {"reused_share": 1 - connections / total, "last_share": requests[-1] / total}
