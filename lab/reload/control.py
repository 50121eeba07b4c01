"""Commands to a running Milepost through its own command line, as an operator gives them.

Every fault is a NotReady: the row is then reported as not run, with the reason.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab import process

# A reload includes the import, and waits for its turn on a loaded machine.
COMMAND_TIMEOUT_S = 60.0
SETTLE_TIMEOUT_S = 40.0
POLL_S = 0.05


class CommandFailed(process.NotReady):
    """A command was refused, or something has not come about in time; the text says which and why."""


class Control:
    """The supervisor that takes commands at `file`."""

    def __init__(self, milepost: Path, file: Path) -> None:
        self._milepost = str(milepost)
        self._file = str(file)

    def do(self, *words: str) -> str:
        """What the command prints. Raises CommandFailed."""
        argv = [self._milepost, *words, "--control", self._file]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as cause:
            raise CommandFailed(
                f"`milepost {words[0]}` took longer than {COMMAND_TIMEOUT_S:.0f} s"
            ) from cause
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()[:300]
            raise CommandFailed(f"`milepost {' '.join(words)}` gave {done.returncode}: {said}")
        return done.stdout

    def status(self) -> dict[str, Any]:
        """The whole status."""
        status: dict[str, Any] = json.loads(self.do("status", "--json"))
        return status

    def processes(self, state: str | None = None) -> list[dict[str, Any]]:
        """Those in that state, or all."""
        found = self.status()["processes"]
        return [one for one in found if state is None or one["state"] == state]

    def drivers(self) -> list[dict[str, Any]]:
        """Those of all processes that serve."""
        return [driver for one in self.processes("ready") for driver in one["drivers"]]

    def settled(self, count: int) -> list[dict[str, Any]]:
        """The processes, once so many are ready and no other is left. Raises CommandFailed."""

        seen = ""

        def there() -> list[dict[str, Any]] | None:
            nonlocal seen
            found = self.processes()
            states = [one["state"] for one in found]
            seen = ", ".join(f"{one['generation']}.{one['slot']} {one['state']}" for one in found)
            return found if states == ["ready"] * count else None

        try:
            found: list[dict[str, Any]] = self.awaited(
                f"{count} processes are ready and no other is left", there
            )
        except CommandFailed as cause:
            raise CommandFailed(f"{cause}; there are {seen or 'none'}") from cause
        return found

    def awaited(self, what: str, look: Callable[[], Any]) -> Any:
        """What `look` gives when that is something. Raises CommandFailed."""
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if found := look():
                return found
            time.sleep(POLL_S)
        raise CommandFailed(f"not within {SETTLE_TIMEOUT_S:.0f} s: {what}")
