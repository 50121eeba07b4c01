"""A server under load to which things are done: reloads, other numbers of processes, kills, an upgrade.

Takes a row, gives a Sample with what was lost by whose doing.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lab import cpu, measure, process, scenario
from lab.measure import Running
from lab.reload import load, servers
from lab.reload.control import CommandFailed, Control
from lab.reload.load import Load
from lab.reload.operations import KILL, Operation, OperationHistory
from lab.scenario import Ground, Sample
from lab.toolbox import Toolbox

RELOADS = 100
SCALES = 20
KILLS = 20
PROCESSES = 4
# More than all processes together have connections for: what is beyond waits in the kernel's queues.
SHORT = 400
KEPT = 100
CONNECTIONS_MAX = 64
# Kept connections give way to those that wait after so many requests.
REQUESTS = 20
REST_MS = 20
LOAD_S_MAX = 1800
WARM_UP_S = 2.0
PAUSE_S = 0.2
PEER_RELOADS = 20
# From one reload's begin to the next, for every server the same; longer where one takes longer.
RELOAD_EVERY_S = 2.0
NEW_TIMEOUT_S = 30.0
POLL_S = 0.02
# Order and victims are the same in every run.
SEED = 5

Reload = Callable[[Running, Toolbox], None]


def lived(
    row: scenario.Row, box: Toolbox, ground: Ground, reloads: int = RELOADS, others: int = SCALES
) -> Sample:
    """All that is done to a Milepost in its life; `others` are the kills and the scales, each."""
    with measure.running(row, box, ground) as server:
        control = Control(box.milepost, servers.control_file(server.place))
        control.settled(PROCESSES)
        with _loaded(server, box, ground) as calling:
            operator = Operator(control, server.place.port)
            for number, name in enumerate(_order(reloads, others)):
                print(f"lab reload: {number + 1}. {name}", file=sys.stderr)
                operator.do(name)
                time.sleep(PAUSE_S)
            counted = calling.stop()
        control.settled(operator.processes)
        drivers = control.status()["counters"]["drivers"]
        evicted = float(sum(driver["timeouts"]["evicted_idle"] for driver in drivers))
    return Sample(operator.values(counted) | load.values(counted) | {"evicted_idle": evicted}, 0.0)


class Operator:
    """Does things to one server, one after the other, and notes them."""

    def __init__(self, control: Control, port: int) -> None:
        self.processes = PROCESSES
        self._control = control
        self._port = port
        self._history = OperationHistory()
        self._took_s: dict[str, list[float]] = {}
        self._waiting_most = 0
        self._unchanged = 0
        self._dice = random.Random(SEED)

    def do(self, name: str) -> None:
        """One thing, and until it is done. Raises CommandFailed."""
        before = self._control.settled(self.processes)
        self._waiting_most = max(self._waiting_most, waiting(self._port))
        operation = Operation(name, time.monotonic(), self._dice.choice(before)["pid"] if name == KILL else 0)
        self._history.operations.append(operation)
        if name == KILL:
            os.kill(operation.pid, signal.SIGKILL)
        elif name == "scale":
            steps = [count for count in range(1, PROCESSES + 1) if count != self.processes]
            self.processes = self._dice.choice(steps)
            self._control.do("scale", "--processes", str(self.processes))
        else:
            self._control.do(name)
            # What was scaled is forgotten, or not: the newest generation says how many it is to have.
            self.processes = self._control.status()["generations"][-1]["processes"]
        after = self._settled(operation)
        self._took_s.setdefault(name, []).append(time.monotonic() - operation.began_s)
        # A reload that replaces no process loses nothing.
        stayed = {one["pid"] for one in before} & {one["pid"] for one in after}
        self._unchanged += name in ("reload", "upgrade") and bool(stayed)

    def values(self, counted: dict[str, object]) -> dict[str, float]:
        """How often what was done, how long it took, and what it cost."""
        faults = counted["faults"]
        assert isinstance(faults, list), "the callers tell a list"
        charged = self._history.charge(faults)
        values = {f"{name}s": float(len(took)) for name, took in self._took_s.items()}
        values |= {f"{name}_s": statistics.median(took) for name, took in self._took_s.items()}
        accounts = (*self._took_s, "beyond_kill", "quiet")
        values |= {f"by_{name}": float(charged[name]) for name in accounts}
        values |= {"waiting_most": float(self._waiting_most), "unchanged": float(self._unchanged)}
        return values

    def _settled(self, operation: Operation) -> list[dict[str, object]]:
        """The processes, once those that there should be serve and the killed one is no longer named."""

        def there() -> list[dict[str, object]] | None:
            found = self._control.settled(self.processes)
            return None if operation.pid in [one["pid"] for one in found] else found

        found: list[dict[str, object]] = self._control.awaited("the killed process is replaced", there)
        return found


def reloaded(row: scenario.Row, reload: Reload, box: Toolbox, ground: Ground) -> Sample:
    """Any server, reloaded again and again in the way that its manual names."""
    took_s, waiting_most = [], 0
    with measure.running(row, box, ground) as server, _loaded(server, box, ground) as calling:
        for _ in range(PEER_RELOADS):
            began_s = time.monotonic()
            waiting_most = max(waiting_most, waiting(server.place.port))
            reload(server, box)
            took_s.append(time.monotonic() - began_s)
            time.sleep(max(PAUSE_S, began_s + RELOAD_EVERY_S - time.monotonic()))
        counted = calling.stop()
    done = {"reloads": float(PEER_RELOADS), "reload_s": statistics.median(took_s)}
    return Sample(load.values(counted) | done | {"waiting_most": float(waiting_most)}, 0.0)


def by_control(server: Running, box: Toolbox) -> None:
    """`milepost reload`, and until all are new."""
    control = Control(box.milepost, servers.control_file(server.place))
    before = {one["pid"] for one in control.processes()}
    control.do("reload")

    def replaced() -> bool:
        now = {one["pid"] for one in control.processes()}
        return len(now) >= len(before) and not now & before

    control.awaited("all processes are new", replaced)


def by_nginx(server: Running, box: Toolbox) -> None:
    """`nginx -s reload`, and until there are as many new workers."""
    with new_children(server.pid):
        subprocess.run([*servers.nginx_words(server.place), "-s", "reload"], check=True, capture_output=True)


def by_hup(server: Running, box: Toolbox) -> None:
    """SIGHUP to the master, and until there are as many new workers."""
    with new_children(server.pid):
        os.kill(server.pid, signal.SIGHUP)


@contextlib.contextmanager
def new_children(master: int) -> Iterator[None]:
    """Waits, after the block, until the master has as many children that it did not have before,
    and none of those before. Raises CommandFailed."""
    before = children(master)
    yield
    deadline_s = time.monotonic() + NEW_TIMEOUT_S
    while (now := children(master)) & before or len(now) < len(before):
        if time.monotonic() > deadline_s:
            raise CommandFailed(f"{len(now & before)} old workers after {NEW_TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)


def children(master: int) -> set[int]:
    """Living children of a process."""
    found = {pid: cpu.stat(pid) for pid in cpu.tree(master) if pid != master}
    return {pid for pid, fields in found.items() if fields and int(fields[1]) == master and fields[0] != "Z"}


def waiting(port: int) -> int:
    """Connections that wait in the kernel's queues of all sockets that listen on the port."""
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, state, queues = line.split()[:5]
        if state == "0A" and int(local.split(":")[1], 16) == port:
            found += int(queues.split(":")[1], 16)
    return found


@contextlib.contextmanager
def _loaded(server: Running, box: Toolbox, ground: Ground) -> Iterator[load.Calling]:
    """Every client asks as fast as it is answered, but for the rests of the kept connections."""
    plan = Load(server.place.port, LOAD_S_MAX, SHORT, KEPT, REST_MS, REQUESTS)
    with load.calling(plan, box, ground) as calling:
        time.sleep(WARM_UP_S)
        warm = calling.so_far()
        if not all(warm[kind]["answered"] for kind in load.KINDS):
            raise process.NotReady(f"callers got no replies: {warm}")
        yield calling


def _order(reloads: int, others: int) -> list[str]:
    """Everything in a random order that is the same in every run, the upgrade in the middle."""
    names = ["reload"] * reloads + ["scale"] * others + [KILL] * others
    random.Random(SEED).shuffle(names)
    return [*names[: len(names) // 2], "upgrade", *names[len(names) // 2 :]]
