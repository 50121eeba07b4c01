"""What a log is put on: a folder in memory with a size, and the ballast that fills it.

The disk whose writes stall is `slow.fixtures.mounted`. Takes places, gives what is undone with its
block; must not touch anything but what it has mounted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lab import fixtures, process

PIECES = (1 << 20, 4096)


@contextlib.contextmanager
def small_disk(mountpoint: Path, bytes_max: int) -> Iterator[Path]:
    """A tmpfs of that size at `mountpoint`. Raises NotReady where mounting is not allowed."""
    mountpoint.mkdir(exist_ok=True)
    fixtures.mount(b"tmpfs", mountpoint, f"size={bytes_max}")
    try:
        yield mountpoint
    finally:
        fixtures.unmount(mountpoint)


@contextlib.contextmanager
def memory_folder(name: str) -> Iterator[Path]:
    """A folder in memory where there is room, or the real disk would be measured as well."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=f"milepost-bench-{name}-", dir=where) as directory:
        yield Path(directory)


class Ballast:
    """A file that takes all the room there is, and gives it back."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ballast"
        self.is_there = False

    def fill(self) -> None:
        """Until not a page is left. Raises NotReady when the disk does not become full."""
        self.is_there = True
        with self._path.open("wb", buffering=0) as file:
            for piece in PIECES:
                self._write(file.fileno(), bytes(piece))
        if os.statvfs(self._path.parent).f_bavail != 0:
            raise process.NotReady("the disk did not become full")

    def free(self) -> None:
        """Gives all of it back."""
        self._path.unlink()
        self.is_there = False

    @staticmethod
    def _write(fd: int, piece: bytes) -> None:
        while True:
            try:
                if os.write(fd, piece) < len(piece):
                    return
            except OSError as cause:
                if cause.errno != errno.ENOSPC:
                    raise
                return
