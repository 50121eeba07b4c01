"""The callers beside a server (lab/programs/callers), and their results.

`milepost bench` does not replace them: it does not say which request was lost when, on which connection, and
which process had answered there.

Takes where and how many; gives counts. Lost requests come with the time at which they began and
ended on this machine's monotonic clock, the one of `time.monotonic`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lab import client_process, process, scenario
from lab.scenario import Ground
from lab.toolbox import Toolbox

# Beyond its own time, for what is under way: as long as a caller waits for a reply.
PATIENCE_S = 15
END_GRACE_S = PATIENCE_S + 10.0
ANSWER_TIMEOUT_S = 20.0
KINDS = ("short", "keep")


@dataclass(frozen=True)
class Load:
    """So many clients of each kind at once; `rest_ms` and `requests` are about kept connections."""

    port: int
    seconds: int
    short: int = 0
    keep: int = 0
    rest_ms: int = 0
    requests: int = 0
    short_rate: int = 0
    keep_rate: int = 0

    def words(self) -> list[str]:
        """As the program takes them."""
        options = {"short": self.short, "keep": self.keep, "rest": self.rest_ms, "requests": self.requests}
        options |= {"short-rate": self.short_rate, "keep-rate": self.keep_rate, "patience": PATIENCE_S}
        return [
            *map(str, (self.port, scenario.SMALL, self.seconds)),
            *(f"{key}={value}" for key, value in options.items()),
        ]


@dataclass
class Calling:
    """Callers under way; `counted` is there when they have ended."""

    clients: client_process.ClientProcess
    counted: dict[str, Any] = field(default_factory=dict)

    def so_far(self) -> dict[str, Any]:
        """The counts until now, without single faults. Raises ClientFailed."""
        counts: dict[str, Any] = json.loads(self.clients.ask("?", ANSWER_TIMEOUT_S))
        return counts

    def stop(self) -> dict[str, Any]:
        """Has them end with what is under way. Raises ClientFailed."""
        child = self.clients.child
        assert child.stdin is not None, "started with a pipe"
        child.stdin.close()
        return self.wait(END_GRACE_S)

    def wait(self, timeout_s: float) -> dict[str, Any]:
        """All that they tell, once they have ended. Raises ClientFailed."""
        try:
            self.clients.child.wait(timeout_s)
            self.counted = json.loads(self.clients.output.read_text().strip().split("\n")[-1])
        except (subprocess.TimeoutExpired, json.JSONDecodeError) as cause:
            words = self.clients.output.read_text().strip()[-200:]
            raise client_process.ClientFailed(f"callers: {words or 'did not end'}") from cause
        return self.counted


@contextlib.contextmanager
def calling(load: Load, box: Toolbox, ground: Ground) -> Iterator[Calling]:
    """The callers, until the block ends."""
    argv = [box.programs["callers"], *load.words()]
    command = process.Command(argv, ground.directory / "callers.out", ground.directory)
    with client_process.gathered(command, ground.client_core) as clients:
        yield Calling(clients)


def run(load: Load, box: Toolbox, ground: Ground) -> dict[str, Any]:
    """The whole load. Raises ClientFailed."""
    with calling(load, box, ground) as running:
        return running.wait(load.seconds + END_GRACE_S)


def lost(counted: dict[str, Any]) -> dict[str, float]:
    """Lost requests by class, of both kinds."""
    found: dict[str, float] = {}
    for kind in KINDS:
        for name, count in counted[kind]["classes"].items():
            found[name] = found.get(name, 0.0) + count
    return found


def values(counted: dict[str, Any]) -> dict[str, float]:
    """What is shown of every load: totals, and the latencies of each kind that there was."""
    summed = {
        key: float(sum(counted[kind][key] for kind in KINDS))
        for key in ("answered", "lost", "connections", "ended_badly", "unsent")
    }
    for kind in KINDS:
        if counted[kind]["answered"]:
            summed |= {
                f"{kind}_{name}": float(counted[kind][name]) for name in ("p50_us", "p99_us", "max_us")
            }
    return summed | {f"lost_{name}": count for name, count in lost(counted).items()}
