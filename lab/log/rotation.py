"""A log that is renamed under its server again and again, on a small disk that is filled and freed.

Takes the server's process and the folder of its log; gives the files that the log had, in order,
each with the time at which it was over. What the server has closed is moved away, or the small disk
would not be for long. Must not read a line.
"""

from __future__ import annotations

import calendar
import contextlib
import os
import re
import shutil
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from lab import process
from lab.log import checker
from lab.log.checker import LogFile
from lab.log.storage import Ballast

LOG = "access.log"
# As the server names what it has rotated: the time of it, in UTC.
OWN_NAME = re.compile(re.escape(LOG) + r"\.(\d{8}T\d{6})Z(\.\d+)?")
RENAME_EVERY_S = 0.2
# How many renamings may be ahead of the server's own: each of them puts off the next of those.
LEAD_MAX = 10
# A full disk, and the time in between.
FULL_S = 0.6
FREE_S = 1.4
TURN_S = 0.01
REOPEN_TIMEOUT_S = 8.0
CLOSE_TIMEOUT_S = 8.0
# What a last page may still have had room for.
PAGE_BYTES = 4096


@dataclass
class Turner:
    """The log's folder, and what becomes of its files. `offset_us` is what the server's clock is
    ahead of ours."""

    pid: int
    folder: Path
    archive: Path
    offset_us: int
    renamed: int = 0
    rotated: int = 0
    fillings: int = 0
    ends_us: dict[str, int] = field(default_factory=dict)

    @property
    def rotations(self) -> int:
        """How often a file was followed by another one."""
        return self.renamed + self.rotated

    def turn(self, rotations: int, least_s: float, most_s: float) -> None:
        """Renames, fills and frees by turns: until there were so many rotations, at least and at most
        for so long.

        Raises NotReady when the server does not reopen its log or does not close an old one.
        """
        now_s = began_s = time.monotonic()
        rename_s, fill_s = now_s, now_s + FREE_S
        full_s, stood = 0.0, 0
        ballast = Ballast(self.folder)
        try:
            while now_s < began_s + most_s and (now_s < began_s + least_s or self.rotations < rotations):
                now_s = time.monotonic()
                if now_s >= rename_s and self.renamed < self.rotated + LEAD_MAX:
                    self.rename()
                    rename_s = time.monotonic() + RENAME_EVERY_S
                if not ballast.is_there:
                    self.sweep()
                    if now_s >= fill_s:
                        full_s, stood = self.fill(ballast)
                elif now_s >= full_s + FULL_S:
                    self.fillings += self.log_bytes() - stood <= PAGE_BYTES
                    ballast.free()
                    fill_s = now_s + FREE_S
                time.sleep(TURN_S)
        finally:
            if ballast.is_there:
                ballast.free()

    def fill(self, ballast: Ballast) -> tuple[float, int]:
        """From now on the disk is full: when that was, and what the log had then."""
        ballast.fill()
        return time.monotonic(), self.log_bytes()

    def rename(self) -> None:
        """As logrotate does it with `create`: rename, tell the server, wait for the new file."""
        log = self.folder / LOG
        old = self.folder / f"{LOG}.renamed.{self.renamed:04}"
        try:
            log.rename(old)
        except FileNotFoundError:
            return  # the server is just renaming it by itself
        self.renamed += 1
        os.kill(self.pid, signal.SIGUSR1)
        deadline_s = time.monotonic() + REOPEN_TIMEOUT_S
        while not log.exists():
            if time.monotonic() > deadline_s:
                raise process.NotReady(f"no new `{LOG}` {REOPEN_TIMEOUT_S:.0f} s after SIGUSR1")
            time.sleep(TURN_S / 4)

    def log_bytes(self) -> int:
        """Of all its files that are still here."""
        total = 0
        for path in self.folder.glob(f"{LOG}*"):
            with contextlib.suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def sweep(self) -> None:
        """Moves away what the server has closed, and notes when that was seen. What it compresses or
        writes beside the log is not expected here."""
        held = self._held()
        for path in self.folder.glob(f"{LOG}.*"):
            if _identity(path) in held:
                continue
            self._archive(path, time.time_ns() // 1000 + self.offset_us)

    def finish(self) -> list[LogFile]:
        """The server has ended: all files in order, the last one included. Raises NotReady when an
        old one could not be moved away before, since the server held it to its end."""
        self.sweep()
        log = self.folder / LOG
        if log.exists():
            self._archive(log, time.time_ns() // 1000 + self.offset_us)
        return [LogFile(path, self.ends_us[path.name]) for path in checker.in_order(self.archive.iterdir())]

    def wait_closed(self) -> None:
        """Until the server holds no file but the log. Raises NotReady."""
        deadline_s = time.monotonic() + CLOSE_TIMEOUT_S
        while any(self.folder.glob(f"{LOG}.*")):
            self.sweep()
            if time.monotonic() > deadline_s:
                left = ", ".join(sorted(path.name for path in self.folder.glob(f"{LOG}.*")))
                raise process.NotReady(f"the server holds old files of its log: {left[:200]}")
            time.sleep(TURN_S)

    def _archive(self, path: Path, now_us: int) -> None:
        own = OWN_NAME.fullmatch(path.name)
        if own:
            self.rotated += 1
            # The second in which it was renamed has an end.
            now_us = min(now_us, (_utc_s(own[1]) + 1) * 1_000_000)
        elif path.name != LOG and ".renamed." not in path.name:
            raise process.NotReady(f"an unexpected file: `{path.name}`")
        # A name that is free again may be given again.
        kept = self.archive / f"{len(self.ends_us):04}.{path.name}"
        self.ends_us[kept.name] = now_us
        shutil.copy2(path, kept)
        path.unlink()

    def _held(self) -> set[tuple[int, int]]:
        """The files that the server has open."""
        found = set()
        for entry in Path(f"/proc/{self.pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                found.add(_identity(entry))
        return found


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _utc_s(text: str) -> int:
    """Of `20261121T120739`."""
    return calendar.timegm(time.strptime(text, "%Y%m%dT%H%M%S"))
