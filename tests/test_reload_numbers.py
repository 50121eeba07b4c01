"""The attribution of `lab reload`: each lost request belongs to the operation that lost it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))

from lab.reload.operations import KILL, Operation, OperationHistory  # noqa: E402

VICTIM, OTHER = 71, 72
HISTORY = OperationHistory(
    [
        Operation("reload", 10.0),
        Operation(KILL, 20.0, VICTIM),
        Operation("scale", 30.0),
        Operation(KILL, 40.0, OTHER),
    ]
)


@pytest.mark.parametrize(
    ("began_s", "ended_s", "kind", "pid", "account"),
    [
        # Of what was done last before it.
        (9.0, 9.5, "reset", 0, "quiet"),
        (9.0, 10.5, "reset", 0, "reload"),
        (15.0, 15.1, "connect_refused", 0, "reload"),
        (30.1, 30.2, "short", OTHER, "scale"),
        # What waited in vain is lost when it began to wait.
        (11.0, 26.0, "timeout", 0, "reload"),
        (9.0, 24.0, "connect_timeout", 0, "quiet"),
        # A request that the killed process can have had.
        (19.9, 20.0, "closed", VICTIM, KILL),
        (19.9, 20.1, "reset", 0, KILL),
        (20.01, 20.02, "reset", VICTIM, KILL),
        (20.9, 20.9, "stale", VICTIM, KILL),
        (39.0, 40.01, "short", OTHER, KILL),
        # One that it cannot have had.
        (19.9, 20.1, "reset", OTHER, "beyond_kill"),
        (20.2, 20.3, "reset", 0, "beyond_kill"),
        (19.9, 20.1, "connect_reset", 0, "beyond_kill"),
        (20.01, 20.02, "connect_refused", 0, "beyond_kill"),
        (20.9, 20.9, "stale", OTHER, "beyond_kill"),
        (20.0, 35.0, "timeout", VICTIM, "beyond_kill"),
        (19.9, 20.1, "wrong", VICTIM, "beyond_kill"),
        # An ended connection of a process that was killed later.
        (19.0, 19.0, "stale", VICTIM, "reload"),
    ],
)
def test_a_loss_is_charged_to_its_operation(
    began_s: float, ended_s: float, kind: str, pid: int, account: str
) -> None:
    fault = {"class": kind, "began_s": began_s, "ended_s": ended_s, "pid": pid}
    assert HISTORY.charge([fault]) == {account: 1}
