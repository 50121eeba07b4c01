"""What was done to a server and when, and which lost requests go to whose account. Pure.

Times are seconds of the monotonic clock, for operations and losses alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

QUIET = "quiet"
KILL = "kill"
# A request that was sent so soon after a kill may have crossed the end of its connection.
KILL_REACH_S = 0.05


@dataclass(frozen=True)
class Operation:
    """Something that was done: which, when it was begun, and for a kill, to which process."""

    name: str
    began_s: float
    pid: int = 0


@dataclass
class OperationHistory:
    """Deeds, in order."""

    operations: list[Operation] = field(default_factory=list)

    def charge(self, faults: list[Mapping[str, Any]]) -> Counter[str]:
        """How many losses each kind of operation has to answer for; `beyond_kill` are those that came
        after a kill and were no requests of the killed process."""
        return Counter(self._account(fault) for fault in faults)

    def _account(self, fault: Mapping[str, Any]) -> str:
        if any(operation.name == KILL and _within(fault, operation) for operation in self.operations):
            return KILL
        # What waited in vain was lost when it began to wait.
        lost_s = fault["began_s"] if fault["class"].endswith("timeout") else fault["ended_s"]
        before = [operation for operation in self.operations if operation.began_s <= lost_s]
        if not before:
            return QUIET
        return "beyond_kill" if before[-1].name == KILL else before[-1].name


def _within(fault: Mapping[str, Any], kill: Operation) -> bool:
    """Whether it can have been a request of the process that was killed: connections of others, and
    those that no process had accepted yet, have nothing to do with it."""
    if fault["class"] == "stale":
        return bool(fault["pid"] == kill.pid and kill.began_s <= fault["began_s"])
    is_connected = not fault["class"].startswith("connect") and fault["class"] not in ("timeout", "wrong")
    under_way = fault["began_s"] - KILL_REACH_S <= kill.began_s <= fault["ended_s"]
    return bool(under_way and is_connected and fault["pid"] in (0, kill.pid))
